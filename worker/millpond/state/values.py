"""What a timestamped store gives and takes."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from millpond.errors import SerializationError

__all__ = ("ValueAndTimestamp", "no_key", "taken")

V = TypeVar("V")


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the timestamp of the record that made it, in epoch milliseconds."""

    value: V
    timestamp: int


def no_key(store: str, method: str) -> SerializationError:
    """The error of a store that is asked for, or given, the key None."""
    return SerializationError(f"store '{store}': {method}() was called with the key None, and a store has no such key.")


def taken(store: str, given: Any) -> tuple[Any, int]:
    """What a timestamped store keeps of a ValueAndTimestamp.

    Raises:
        SerializationError: it is a value without a timestamp.
    """
    try:
        return given.value, given.timestamp
    except AttributeError:
        raise SerializationError(
            f"store '{store}' keeps a timestamp with each value, and was given a value of type {type(given).__name__} alone: put "
            "mp.ValueAndTimestamp(value, timestamp), or build the store with timestamped=False."
        ) from None
