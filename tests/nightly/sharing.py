"""How the parts of a night share its time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.nightly.parts import Part

__all__ = ("left_out", "shares")

_ONCE = 0.6
"""The share of the time that parts which run once may take."""


def left_out(parts: Sequence[Part], seconds: float | None, jobs: int) -> dict[str, float]:
    """Return the parts that run once and do not fit, with the length of a night in seconds in which they would.

    Args:
        parts: all parts.
        seconds: the length of the night; None without a limit.
        jobs: how many parts run at the same time.
    """
    if seconds is None:
        return {}
    taken, out = 0.0, {}
    for part in parts:
        needed = max((taken + part.takes_s) / _ONCE / jobs, part.takes_s)
        if part.takes_s and needed > seconds:
            out[part.name] = needed
        else:
            taken += part.takes_s
    return out


def shares(parts: Sequence[Part], seconds: float | None, jobs: int) -> dict[str, float | None]:
    """Return the seconds of each part that runs; None without a limit of time."""
    chosen = [part for part in parts if part.name not in left_out(parts, seconds, jobs)]
    if seconds is None:
        return {part.name: None for part in chosen}
    rest = jobs * seconds - sum(part.takes_s for part in chosen)
    weights = sum(part.weight for part in chosen if not part.takes_s)
    return {part.name: part.takes_s or rest * part.weight / weights for part in chosen}
