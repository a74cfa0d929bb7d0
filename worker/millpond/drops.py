"""The reasons for which an operator drops a record: the label `reason` of a metric, and the words of a log line."""

from __future__ import annotations

from enum import StrEnum

__all__ = ("Drop", "is_dropped", "null_part")


class Drop(StrEnum):
    """A reason for which a record is dropped. The value is the label `reason` of `millpond_task_dropped_records`."""

    LATE = "late"
    """Its window, or session, had closed."""
    LATE_FOR_JOIN = "late_for_join"
    """It was processed, but results of a join of two streams may be missing: it came after windows and grace."""
    NULL_KEY = "null_key"
    """It has no key, and the operator needs one."""
    NULL_VALUE = "null_value"
    """It has no value, and the operator needs one."""
    NO_LOOKUP_KEY = "no_lookup_key"
    """The user's function returned no key to look up in the other table."""
    EXPIRED = "expired"
    """It is older than the history that a versioned store keeps."""
    OUTDATED = "outdated"
    """A newer record of its key made it useless; nothing is lost."""
    INVALID_TIMESTAMP = "invalid_timestamp"
    """Its timestamp is negative."""
    FAILED = "failed"
    """An exception handler answered that it is dropped."""


_NOT_LOST = frozenset({Drop.LATE_FOR_JOIN, Drop.OUTDATED})


def is_dropped(reason: str) -> bool:
    """Return whether results lack the records that are counted for a reason: what people are shown as dropped.

    Others were processed, with a part missing, or nothing is lost without them.
    """
    return reason not in _NOT_LOST


def null_part(key: object) -> Drop:
    """Return the reason of a record that lacks its key or its value."""
    return Drop.NULL_KEY if key is None else Drop.NULL_VALUE
