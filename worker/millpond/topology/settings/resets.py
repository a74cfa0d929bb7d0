"""Where a source starts to read an input without a committed offset (KIP-1106)."""

from __future__ import annotations

import re
from datetime import timedelta

from millpond.checks import kind_of
from millpond.durations import Duration
from millpond.errors import TopologyError

__all__ = ("age_of", "check_reset", "parse_reset")

_RESETS = ("earliest", "latest", "none")
_BY_DURATION = "by_duration:"
_ISO = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


def check_reset(what: str, reset: object) -> None:
    """Check that `reset=` is `earliest`, `latest`, `none`, a duration or None.

    Raises:
        TopologyError: the value is another one, or a negative duration.
    """
    if isinstance(reset, timedelta):
        if reset < timedelta(0):
            raise TopologyError(
                f"{what} has reset={reset}, which is negative; give the age of the first record to read."
            )
    elif reset is not None and reset not in _RESETS:
        shown = repr(reset) if isinstance(reset, str) else kind_of(reset)
        raise TopologyError(f"{what} has reset={shown}; use one of {', '.join(_RESETS)}, or a timedelta.")


def parse_reset(given: object) -> str:
    """Return a setting such as `earliest`, `none` or `by_duration:PT1H`, in the spelling that `age_of` understands.

    Raises:
        ValueError: the setting is another one.
    """
    text = str(given).strip()
    if text.lower() in _RESETS:
        return text.lower()
    if text.lower().startswith(_BY_DURATION):
        return _BY_DURATION + str(Duration.of(_duration(text[len(_BY_DURATION) :].strip())))
    raise ValueError(f"expected {', '.join(_RESETS)}, or by_duration: with a duration, such as by_duration:PT24H")


def age_of(reset: str | timedelta) -> timedelta | None:
    """Return how far back from now on a reset policy begins; None for a policy without a duration."""
    if isinstance(reset, timedelta):
        return reset
    return Duration.parse(reset[len(_BY_DURATION) :]) if reset.startswith(_BY_DURATION) else None


def _duration(text: str) -> timedelta:
    """Return a duration in ISO 8601, as Kafka writes it, or with a unit, as millpond does."""
    found = _ISO.fullmatch(text)
    if found is None or text.upper() in {"P", "PT"} or text.upper().endswith("T"):
        return Duration.parse(text)
    try:
        return timedelta(**{unit: float(number) for unit, number in found.groupdict().items() if number is not None})
    except OverflowError:
        raise ValueError(f"'{text}' is too long; a duration has at most 999999999 days") from None
