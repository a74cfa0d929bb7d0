"""Timestamped stores with the methods of plain ones: values without timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

from millpond.serdes import Windowed
from millpond.state import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    WindowStore,
)

__all__ = ("KeyValueStoreFacade", "WindowStoreFacade", "kind_of_store")

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

_NO_TIMESTAMP = -1
"""The timestamp that Kafka Streams' facades put with a value."""


_KINDS: dict[type[Any], tuple[str, str]] = {
    TimestampedKeyValueStore: ("a timestamped key-value store", "get_key_value_store"),
    KeyValueStore: ("a key-value store without timestamps", "get_key_value_store"),
    VersionedKeyValueStore: ("a versioned store", "get_versioned_key_value_store"),
    SessionStore: ("a session store", "get_session_store"),
    TimestampedWindowStore: ("a timestamped window store", "get_window_store"),
    WindowStore: ("a window store without timestamps", "get_window_store"),
}


def kind_of_store(store: object) -> tuple[str, str]:
    """Return the kind of a store, with its article, and the method of TopologyTestDriver that returns it."""
    found = (named for kind, named in _KINDS.items() if isinstance(store, kind))
    return next(found, (f"a {type(store).__name__}", "get_state_store"))


def _value(held: ValueAndTimestamp[V] | None) -> V | None:
    return None if held is None else held.value


def _values(rows: Iterator[tuple[P, ValueAndTimestamp[V]]]) -> Iterator[tuple[P, V]]:
    return ((place, held.value) for place, held in rows)


def _timeless(value: V | None) -> ValueAndTimestamp[V] | None:
    return None if value is None else ValueAndTimestamp(value, _NO_TIMESTAMP)


class KeyValueStoreFacade(Generic[K, V]):
    """A timestamped key-value store with the methods of `KeyValueStore`. Values that are put have timestamp -1."""

    def __init__(self, inner: TimestampedKeyValueStore[K, V]) -> None:
        self._inner = inner
        self.name: str = inner.name

    def get(self, key: K) -> V | None:
        """Return the value of a key; None for a missing key."""
        return _value(self._inner.get(key))

    def put(self, key: K, value: V | None) -> None:
        """Set the value; None deletes it."""
        self._inner.put(key, _timeless(value))

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Set the value of a missing key. Return the earlier value, or None."""
        return _value(self._inner.put_if_absent(key, ValueAndTimestamp(value, _NO_TIMESTAMP)))

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Set or delete many values, in their order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> V | None:
        """Delete the key. Return the earlier value, or None."""
        return _value(self._inner.delete(key))

    def range(self, low: K | None, high: K | None) -> Iterator[tuple[K, V]]:
        """Return entries with low <= key <= high, ascending; None is no bound."""
        return _values(self._inner.range(low, high))

    def reverse_range(self, low: K | None, high: K | None) -> Iterator[tuple[K, V]]:
        """Return entries with low <= key <= high, descending; None is no bound."""
        return _values(self._inner.reverse_range(low, high))

    def all(self) -> Iterator[tuple[K, V]]:
        """Return all entries, ascending."""
        return _values(self._inner.all())

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Return all entries, descending."""
        return _values(self._inner.reverse_all())

    def prefix_scan(self, prefix: object, serialize: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, V]]:
        """Return entries whose serialised key starts with `prefix`, ascending; see `KeyValueStore`."""
        return _values(self._inner.prefix_scan(prefix, serialize))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys."""
        return self._inner.approximate_num_entries()


class WindowStoreFacade(Generic[K, V]):
    """A timestamped window store with the methods of `WindowStore`. Values that are put have timestamp -1."""

    def __init__(self, inner: TimestampedWindowStore[K, V]) -> None:
        self._inner = inner
        self.name: str = inner.name

    def put(self, key: K, value: V | None, window_start_ms: int) -> None:
        """Set the value of a key in the window that starts at a time (epoch ms); None deletes it."""
        self._inner.put(key, _timeless(value), window_start_ms)

    @overload
    def fetch(self, key: K, from_ms: int) -> V | None: ...

    @overload
    def fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]: ...

    def fetch(self, key: K, from_ms: int, to_ms: int | None = None) -> V | Iterator[tuple[int, V]] | None:
        """Return one window's value, or all windows of the key that start in a range; see `WindowStore`."""
        if to_ms is None:
            return _value(self._inner.fetch(key, from_ms))
        return _values(self._inner.fetch(key, from_ms, to_ms))

    def backward_fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]:
        """Return all windows of the key that start in a range, descending. See `fetch`."""
        return _values(self._inner.backward_fetch(key, from_ms, to_ms))

    def fetch_range(
        self, key_from: K | None, key_to: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return windows that start in a range of keys in a range, both inclusive; see `WindowStore`."""
        return _values(self._inner.fetch_range(key_from, key_to, from_ms, to_ms))

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of `fetch_range`, descending."""
        return _values(self._inner.backward_fetch_range(key_from, key_to, from_ms, to_ms))

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return windows of all keys that start in a range (inclusive)."""
        return _values(self._inner.fetch_all(from_ms, to_ms))

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of `fetch_all`, descending."""
        return _values(self._inner.backward_fetch_all(from_ms, to_ms))

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Return all windows that have not expired."""
        return _values(self._inner.all())

    def backward_all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of `all`, descending."""
        return _values(self._inner.backward_all())
