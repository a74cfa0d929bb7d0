"""Durations as manifests write them: a whole number and a unit."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Self

__all__ = ("Duration",)

_WRITTEN = re.compile(r"(\d+)(ms|s|m|h)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}


class Duration(timedelta):
    """A `timedelta` that can be read from, and written as, text such as ``100ms``, ``10s``, ``5m`` or ``1h``."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From text; the same form that the CRDs' rules allow.

        Raises:
            ValueError: it is none.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise ValueError(f"'{text}' is no duration: write a number with a unit, such as 100ms, 10s, 5m or 1h")
        try:
            return cls.of(int(found[1]) * _UNITS[found[2]])
        except OverflowError:
            raise ValueError(f"'{text}' is longer than any duration can be") from None

    @classmethod
    def of(cls, duration: timedelta) -> Self:
        """From any other."""
        return cls(days=duration.days, seconds=duration.seconds, microseconds=duration.microseconds)

    def __str__(self) -> str:
        for unit in ("h", "m", "s"):
            if self and not self % _UNITS[unit]:
                return f"{self // _UNITS[unit]}{unit}"
        return f"{self // _UNITS['ms']}ms"
