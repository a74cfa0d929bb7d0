"""What a StreamApp tells of itself, moment by moment, beside what is so: who tells lies, and who changes his mind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ("Moment", "flaps", "is_ready", "lies")

LIE_S = 5.0
"""What is wrong for longer is a lie."""
FLAP_S = 3.0
"""What goes and comes back sooner has flapped, unless it was so."""
_TOLD = ("Ready", "Progressing", "Degraded", "StandbysCaughtUp", "Suspended", "Stalled", "phase")


@dataclass(frozen=True)
class Moment:
    """What was told, and what was so."""

    at: float
    told: Mapping[str, str]
    """Status of each condition by type, and the phase under `phase`."""
    workers: int
    """That are ready and run, as nodes and Kafka know."""
    wanted: int
    tasks: int
    """That somebody processes."""
    copies: int
    """Tasks of which a living worker keeps a copy beside the one that runs it; -1 where nobody can know."""
    total: int
    steady: bool
    """Whether all that was asked for is there: pods of the wanted image, and no others."""

    @property
    def complete(self) -> bool:
        """Whether everything runs."""
        return self.workers == self.wanted and self.tasks == self.total and self.steady

    def words(self) -> str:
        told = " ".join(f"{key}={value}" for key, value in self.told.items())
        return f"{self.at:9.2f} {told} | {self.workers}/{self.wanted} workers {self.tasks}/{self.total} tasks {self.copies} copies"


def lies(moments: Sequence[Moment]) -> list[str]:
    """Return what was told for longer than it may be while something else was so."""
    found: list[str] = []
    for what, lie in _LIES.items():
        since: float | None = None
        for moment in moments:
            if not lie(moment):
                since = None
                continue
            since = moment.at if since is None else since
            if moment.at - since > LIE_S:
                found.append(f"{what} since {since:.2f}: {moment.words()}")
                break
    return found


def flaps(moments: Sequence[Moment]) -> list[str]:
    """Return what went and came back within a moment although nothing happened that it tells of."""
    return [each for key in _TOLD for each in _flaps_of(key, moments)]


def _flaps_of(key: str, moments: Sequence[Moment]) -> list[str]:
    runs: list[tuple[str, float, Moment]] = []
    for moment in moments:
        value = moment.told.get(key, "")
        if not runs or runs[-1][0] != value:
            runs.append((value, moment.at, moment))
    return [
        f"{key} was '{value}' for {after[1] - at:.1f} s between two '{before[0]}': {moment.words()}"
        for before, (value, at, moment), after in zip(runs, runs[1:], runs[2:], strict=False)
        if before[0] == after[0] and after[1] - at < FLAP_S and not _was_so(key, value, at, after[1], moments)
    ]


def _was_so(key: str, value: str, since: float, until: float, moments: Sequence[Moment]) -> bool:
    """Whether what was told for a moment was so around it."""
    truth = _TRUTH.get((key, value))
    return truth is not None and any(truth(each) for each in moments if since - LIE_S <= each.at <= until)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the API server shows a pod as ready, and not on its way out."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions: list[dict[str, Any]] = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


_LIES: Mapping[str, Callable[[Moment], bool]] = {
    "Ready is True": lambda now: now.told.get("Ready") == "True" and not now.complete,
    "Ready is False": lambda now: now.told.get("Ready") == "False" and now.complete and now.wanted > 0,
    "Progressing is False": lambda now: (
        now.told.get("Progressing") == "False" and "Stalled" not in now.told and not now.complete and now.wanted > 0
    ),
    "Progressing is True": lambda now: now.told.get("Progressing") == "True" and now.complete,
    "Degraded is True": lambda now: now.told.get("Degraded") == "True" and now.complete,
    "StandbysCaughtUp is True": lambda now: (
        now.told.get("StandbysCaughtUp") == "True" and now.wanted > 1 and 0 <= now.copies < now.total
    ),
    "StandbysCaughtUp is False": lambda now: (
        now.told.get("StandbysCaughtUp") == "False" and now.complete and now.wanted > 1 and now.copies == now.total
    ),
    "Suspended is True": lambda now: now.told.get("Suspended") == "True" and (now.workers > 0 or now.wanted > 0),
    "Suspended is False": lambda now: (
        now.told.get("Suspended") == "False" and now.wanted == 0 and now.workers == 0 and now.steady
    ),
    "the phase is Running": lambda now: now.told.get("phase") == "Running" and now.wanted == 0,
    "the phase is Scaling": lambda now: now.told.get("phase") == "Scaling" and now.complete,
}
_TRUTH: Mapping[tuple[str, str], Callable[[Moment], bool]] = {
    ("Ready", "False"): lambda now: not now.complete,
    ("Ready", "True"): lambda now: now.complete,
    ("Progressing", "True"): lambda now: not now.complete,
    ("Progressing", "False"): lambda now: now.complete,
    ("StandbysCaughtUp", "False"): lambda now: now.copies < now.total,
    ("StandbysCaughtUp", "True"): lambda now: now.copies in {now.total, -1},
    ("Degraded", "True"): lambda now: not now.complete,
    ("Degraded", "False"): lambda now: now.complete,
    ("Stalled", "True"): lambda now: not now.steady,
    ("Suspended", "True"): lambda now: now.wanted == 0,
    ("Suspended", "False"): lambda now: now.wanted > 0,
    ("phase", "Running"): lambda now: now.complete,
    ("phase", "RollingOut"): lambda now: not now.steady,
    ("phase", "RollingBack"): lambda now: not now.steady,
    ("phase", "Scaling"): lambda now: not now.complete,
    ("phase", "Suspending"): lambda now: now.wanted == 0,
    ("phase", "Suspended"): lambda now: now.wanted == 0,
}
