"""Durations: `timedelta` in Python, and text such as ``100ms``, ``5s``, ``2m`` or ``1h`` in files and manifests."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Self

__all__ = ("Duration", "DurationTooLong", "milliseconds", "seem_seconds")

_MILLISECOND = timedelta(milliseconds=1)
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)", re.IGNORECASE)
_UNITS = {
    "ms": _MILLISECOND,
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


class DurationTooLong(ValueError):
    """A duration is longer than a `timedelta` can be."""


class Duration(timedelta):
    """A `timedelta` that can be parsed from text, and whose text is of the same form."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the duration of a text such as ``100ms``, ``1.5m`` or ``1d``.

        Raises:
            ValueError: the text is not a duration, or not a whole number of milliseconds.
            DurationTooLong: the duration is longer than a `timedelta` can be.
        """
        found = _WRITTEN.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"'{text}' is not a duration; write a number with a unit, such as 100ms, 10s, 5m or 1h")
        try:
            duration = float(found[1]) * _UNITS[found[2].lower()]
        except OverflowError:
            raise DurationTooLong(f"'{text}' is longer than any duration can be; write a shorter one") from None
        milliseconds(duration)
        return cls.of(duration)

    @classmethod
    def of(cls, duration: timedelta) -> Self:
        """Return a Duration that is equal to a `timedelta`."""
        return cls(days=duration.days, seconds=duration.seconds, microseconds=duration.microseconds)

    def __str__(self) -> str:
        for unit in ("h", "m", "s"):
            if self and not self % _UNITS[unit]:
                return f"{self // _UNITS[unit]}{unit}"
        return f"{self // _MILLISECOND}ms"


def milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds, the unit of Kafka's timestamps.

    Raises:
        ValueError: the duration is not a whole number of milliseconds.
    """
    whole, rest = divmod(duration, _MILLISECOND)
    if rest:
        raise ValueError(f"{duration} is not a whole number of milliseconds; round it")
    return whole


def seem_seconds(timestamp_ms: int) -> bool:
    """Return whether a timestamp in epoch ms was written in seconds by mistake: a day of early 1970, or one of 2001 to
    2286 in seconds.
    """
    return 1_000_000_000 <= timestamp_ms <= 9_999_999_999
