"""The key-value stores that users read and write, plain and with timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from millpond.state.formats import next_prefix
from millpond.state.values import ValueAndTimestamp, no_key, unpacked

from .staged_key_value import Entry, StagedKeyValues

__all__ = ("KeyValueStore", "TimestampedKeyValueStore")

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class _KeyValueMethods(StagedKeyValues[K, V], Generic[K, V, W]):
    """The methods to read and write keys and values as objects; W is the type of values for the user."""

    def _to_user(self, entry: Entry) -> W:
        raise NotImplementedError

    def _to_entry(self, value: W) -> Entry:
        raise NotImplementedError

    def get(self, key: K) -> W | None:
        """Return the value of a key; None for a missing key.

        Raises:
            SerializationError: the key is None.
        """
        if key is None:
            raise no_key(self.name, "get")
        entry = self.entry(self.serialize_key(key))
        return None if entry[0] is None else self._to_user(entry)

    def put(self, key: K, value: W | None) -> None:
        """Set the value; None deletes it.

        Raises:
            SerializationError: the key is None.
        """
        self._check_open()
        if key is None:
            raise no_key(self.name, "put")
        raw_key = self.serialize_key(key)
        plain, timestamp = (None, self._timestamp()) if value is None else self._to_entry(value)
        self.stage(raw_key, key, plain, timestamp, self.entry(raw_key)[0] if self.caching else None)

    def put_if_absent(self, key: K, value: W) -> W | None:
        """Set the value of a missing key; return the previous value."""
        previous = self.get(key)
        if previous is None:
            self.put(key, value)
        return previous

    def put_all(self, entries: Iterable[tuple[K, W | None]]) -> None:
        """Set or delete many keys, in the given order."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> W | None:
        """Delete the key; return the previous value."""
        previous = self.get(key)
        self.put(key, None)
        return previous

    def range(self, low: K | None, high: K | None) -> Iterator[tuple[K, W]]:
        """Return the entries with low <= key <= high, ascending; None is no bound."""
        return self._between(low, high, reverse=False)

    def reverse_range(self, low: K | None, high: K | None) -> Iterator[tuple[K, W]]:
        """Return the entries with low <= key <= high, descending; None is no bound."""
        return self._between(low, high, reverse=True)

    def all(self) -> Iterator[tuple[K, W]]:
        """Return all entries, ascending."""
        return self._between(None, None, reverse=False)

    def reverse_all(self) -> Iterator[tuple[K, W]]:
        """Return all entries, descending."""
        return self._between(None, None, reverse=True)

    def prefix_scan(self, prefix: object, serialize: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, W]]:
        """Return the entries whose serialised key starts with `prefix`, ascending.

        Args:
            prefix: bytes are used unchanged; anything else is serialised.
            serialize: serialises the prefix; the store's key serde by default.
        """
        encode = self.serialize_key if serialize is None else serialize
        first = prefix if isinstance(prefix, bytes) else encode(cast("Any", prefix))
        return self._objects(self._scan(first, next_prefix(first), reverse=False))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys; staged writes count as new keys."""
        self._check_open()
        return self._backend.count(self.name, self.partition) + len(self._dirty)

    def _between(self, low: K | None, high: K | None, *, reverse: bool) -> Iterator[tuple[K, W]]:
        encode = self.serialize_key
        first = b"" if low is None else encode(low)
        last = None if high is None else encode(high)
        self._check_range(low, high, first, last)
        if last is not None and first > last:
            return iter(())
        above = None if last is None else last + b"\0"  # inclusive: the smallest key above it
        return self._objects(self._scan(first, above, reverse=reverse))

    def _objects(self, found: Iterator[tuple[bytes, Entry]]) -> Iterator[tuple[K, W]]:
        decode, to_user = self.key_serde.deserialize, self._to_user
        return ((decode(raw_key), to_user(entry)) for raw_key, entry in found)


class KeyValueStore(_KeyValueMethods[K, V, V], Generic[K, V]):
    """A key-value store. Writes are visible to the task at once, and durable with the task's next commit.

    Iterators show the store as of their creation, without later puts, also after a commit.
    Keys are in the order of their bytes, within the task's partition.
    """

    def _to_user(self, entry: Entry) -> V:
        return cast("V", entry[0])

    def _to_entry(self, value: V) -> Entry:
        return value, self._timestamp()


class TimestampedKeyValueStore(_KeyValueMethods[K, V, ValueAndTimestamp[V]], Generic[K, V]):
    """A key-value store whose values are `ValueAndTimestamp`; otherwise like `KeyValueStore`."""

    timestamped = True

    def _to_user(self, entry: Entry) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(*entry)

    def _to_entry(self, value: ValueAndTimestamp[V]) -> Entry:
        return unpacked(self.name, value)
