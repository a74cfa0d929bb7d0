"""Moments: epoch milliseconds, the unit of Kafka's timestamps, from and to `datetime` and text.

All conversions are exact. `datetime.timestamp()` and `datetime.fromtimestamp()` count in floats, which lose a
millisecond of some moments.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ("EPOCH", "epoch_ms", "iso", "moment", "parse_epoch_ms")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_FIRST_MS = (_EARLIEST - EPOCH) // _MILLISECOND
_LAST_MS = (_LATEST - EPOCH) // _MILLISECOND
#: The calendar repeats itself after 400 years.
_CYCLE_YEARS = 400
_CYCLE_MS = 146_097 * 86_400_000


def epoch_ms(when: datetime) -> int:
    """Return a moment in whole epoch milliseconds, of those at or before it; without a time zone it is in UTC."""
    return ((when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - EPOCH) // _MILLISECOND


def parse_epoch_ms(text: str) -> int:
    """Return an ISO 8601 time or date in epoch milliseconds; without a time zone it is in UTC.

    Raises:
        ValueError: the text is no time.
    """
    return epoch_ms(datetime.fromisoformat(text))


def moment(ms: int) -> datetime:
    """Return a time in epoch milliseconds, in UTC; the first or last that a `datetime` has for one beyond its years."""
    if _FIRST_MS <= ms <= _LAST_MS:
        return EPOCH + ms * _MILLISECOND
    return _EARLIEST if ms < 0 else _LATEST


def iso(ms: int, timespec: str = "milliseconds", sep: str = "T") -> str:
    """Return a time in epoch milliseconds as ISO 8601 text in UTC, with a signed year beyond the years 1 to 9999.

    Args:
        ms: epoch milliseconds.
        timespec: see `datetime.isoformat`.
        sep: see `datetime.isoformat`.
    """
    if _FIRST_MS <= ms <= _LAST_MS:
        return moment(ms).isoformat(sep, timespec).replace("+00:00", "Z")
    cycles, rest = divmod(ms, _CYCLE_MS)
    found = moment(rest)
    text = found.isoformat(sep, timespec).replace("+00:00", "Z")
    year = found.year + cycles * _CYCLE_YEARS
    shown = f"+{year}" if year > _LATEST.year else f"{year:04d}" if year >= 0 else f"{year:05d}"
    return shown + text[4:]
