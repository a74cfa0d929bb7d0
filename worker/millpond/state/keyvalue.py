"""The key-value store as users see it, plain and with timestamps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from .formats import next_prefix
from .staged_keyvalue import Entry, StagedKeyValues
from .values import ValueAndTimestamp, no_key, taken

__all__ = ("KeyValueStore", "TimestampedKeyValueStore")

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class _KeyValueMethods(StagedKeyValues[K, V], Generic[K, V, W]):
    """Reading and writing with keys and values as objects; W is what a value is for the user."""

    def _given(self, entry: Entry) -> W:
        raise NotImplementedError

    def _taken(self, value: W) -> Entry:
        raise NotImplementedError

    def get(self, key: K) -> W | None:
        """The value, None when there is none.

        Raises:
            SerializationError: the key is None.
        """
        if key is None:
            raise no_key(self.name, "get")
        entry = self.entry(self.serialize_key(key))
        return None if entry[0] is None else self._given(entry)

    def put(self, key: K, value: W | None) -> None:
        """Set the value; None deletes it.

        Raises:
            SerializationError: the key is None.
        """
        self._check_open()
        if key is None:
            raise no_key(self.name, "put")
        raw_key = self.serialize_key(key)
        plain, timestamp = (None, self._timestamp()) if value is None else self._taken(value)
        self.stage(raw_key, key, plain, timestamp, self.entry(raw_key)[0] if self.caching else None)

    def put_if_absent(self, key: K, value: W) -> W | None:
        """Set the value unless there is one; the value that was there."""
        held = self.get(key)
        if held is None:
            self.put(key, value)
        return held

    def put_all(self, entries: Iterable[tuple[K, W | None]]) -> None:
        """Set or delete many, in the order given."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: K) -> W | None:
        """Remove the key; the value that was there."""
        held = self.get(key)
        self.put(key, None)
        return held

    def range(self, low: K | None, high: K | None) -> Iterator[tuple[K, W]]:
        """Entries with low <= key <= high, ascending; None is no bound."""
        return self._between(low, high, False)

    def reverse_range(self, low: K | None, high: K | None) -> Iterator[tuple[K, W]]:
        """Entries with low <= key <= high, descending; None is no bound."""
        return self._between(low, high, True)

    def all(self) -> Iterator[tuple[K, W]]:
        """All entries, ascending."""
        return self._between(None, None, False)

    def reverse_all(self) -> Iterator[tuple[K, W]]:
        """All entries, descending."""
        return self._between(None, None, True)

    def prefix_scan(self, prefix: object, serialize: Callable[[Any], bytes] | None = None) -> Iterator[tuple[K, W]]:
        """Entries whose serialised key starts with `prefix`, ascending.

        Args:
            prefix: bytes as they are; anything else goes through `serialize`.
            serialize: how the prefix becomes bytes; the store's key serde unless given.
        """
        encode = self.serialize_key if serialize is None else serialize
        first = prefix if isinstance(prefix, bytes) else encode(cast("Any", prefix))
        return self._objects(self._scan(first, next_prefix(first), False))

    def approximate_num_entries(self) -> int:
        """About how many keys the store has; staged writes count as new keys."""
        self._check_open()
        return self._backend.count(self.name, self.partition) + len(self._dirty)

    def _between(self, low: K | None, high: K | None, reverse: bool) -> Iterator[tuple[K, W]]:
        encode = self.serialize_key
        first = b"" if low is None else encode(low)
        last = None if high is None else encode(high) + b"\0"  # inclusive: the smallest key above it
        return iter(()) if last is not None and first >= last else self._objects(self._scan(first, last, reverse))

    def _objects(self, found: Iterator[tuple[bytes, Entry]]) -> Iterator[tuple[K, W]]:
        decode, given = self.key_serde.deserialize, self._given
        return ((decode(raw_key), given(entry)) for raw_key, entry in found)


class KeyValueStore(_KeyValueMethods[K, V, V], Generic[K, V]):
    """A key-value store. Writes are visible to the task at once, and durable with the task's next commit.

    Iterators show the store as it was when they were made, whatever is put while they run; they end with the task's
    next commit. Keys come in the order of their bytes, within the task's partition.
    """

    def _given(self, entry: Entry) -> V:
        return cast("V", entry[0])

    def _taken(self, value: V) -> Entry:
        return value, self._timestamp()


class TimestampedKeyValueStore(_KeyValueMethods[K, V, ValueAndTimestamp[V]], Generic[K, V]):
    """A key-value store whose values are `ValueAndTimestamp`; in all else like `KeyValueStore`."""

    timestamped = True

    def _given(self, entry: Entry) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(*entry)

    def _taken(self, value: ValueAndTimestamp[V]) -> Entry:
        return taken(self.name, value)
