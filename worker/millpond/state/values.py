"""The values of timestamped stores."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

from millpond.errors import SerializationError

__all__ = ("ValueAndTimestamp", "no_key", "unpacked")

V = TypeVar("V")


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the timestamp of the record that made it, in epoch milliseconds."""

    value: V
    timestamp: int


def no_key(store: str, method: str) -> SerializationError:
    """Return the error for a store method that was called with the key None."""
    return SerializationError(f"store '{store}': {method}() was called with the key None, and a store has no such key.")


def unpacked(store: str, given: Any) -> tuple[Any, int]:
    """Return the value and the timestamp of a `ValueAndTimestamp` that is put into a timestamped store.

    Raises:
        SerializationError: a value without a timestamp is put.
    """
    try:
        return given.value, given.timestamp
    except AttributeError:
        raise SerializationError(
            f"store '{store}' keeps a timestamp with each value, and was given a value of type {type(given).__name__} "
            "alone: put mp.ValueAndTimestamp(value, timestamp), or build the store with timestamped=False."
        ) from None
