"""Durations: `timedelta` in the public API, whole milliseconds inside."""

from __future__ import annotations

from datetime import timedelta

from millpond import durations
from millpond.errors import TopologyError

__all__ = ("milliseconds",)


def milliseconds(duration: timedelta, what: str) -> int:
    """Return a duration in whole milliseconds.

    Args:
        duration: at least zero.
        what: the argument's name, for messages.

    Raises:
        TopologyError: the duration is not a timedelta, is negative, or is not a whole number of milliseconds.
    """
    if not isinstance(duration, timedelta):
        raise TopologyError(
            f"{what}={duration!r} is not a duration; use a datetime.timedelta, such as timedelta(hours=1)."
        )
    if duration < timedelta(0):
        raise TopologyError(f"{what}={duration} is negative; durations start at timedelta(0).")
    try:
        return durations.milliseconds(duration)
    except ValueError:
        raise TopologyError(
            f"{what}={duration} is not a whole number of milliseconds, the unit of Kafka's timestamps; round it."
        ) from None
