"""What a timestamped store gives and takes."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

__all__ = ("ValueAndTimestamp",)

V = TypeVar("V")


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the timestamp of the record that made it, in epoch milliseconds."""

    value: V
    timestamp: int
