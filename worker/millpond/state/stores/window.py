"""The window stores that users read and write, plain and with timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, cast, overload

from millpond.serdes import Windowed
from millpond.state.values import ValueAndTimestamp, no_key, unpacked

from .staged_window import Entry, StagedWindows

__all__ = ("TimestampedWindowStore", "WindowStore")

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

_MAX_LONG = 2**63 - 1


class _WindowMethods(StagedWindows[K, V], Generic[K, V, W]):
    """The methods to read and write keys and values as objects; W is the type of values for the user."""

    @property
    def _by_time(self) -> bool:
        """Whether iterators over several keys are in the order of window starts."""
        return not self.persistent

    def _to_user(self, entry: Entry) -> W:
        raise NotImplementedError

    def _to_entry(self, value: W) -> Entry:
        raise NotImplementedError

    def put(self, key: K, value: W | None, window_start_ms: int) -> None:
        """Set the value of a key in the window that starts at a time; None deletes it.

        A put to an expired window is dropped and counted.

        Raises:
            SerializationError: the key is None.
        """
        self._check_open()
        if key is None:
            raise no_key(self.name, "put")
        raw_key = self.serialize_key(key)
        plain, timestamp = (None, self._timestamp()) if value is None else self._to_entry(value)
        old = self.entry(raw_key, window_start_ms)[0] if self.caching else None
        self.stage(raw_key, window_start_ms, key, plain, timestamp, old)

    @overload
    def fetch(self, key: K, from_ms: int) -> W | None: ...

    @overload
    def fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, W]]: ...

    def fetch(self, key: K, from_ms: int, to_ms: int | None = None) -> W | Iterator[tuple[int, W]] | None:
        """Return one window's value, or all windows of the key that start in a range.

        Args:
            key: the key.
            from_ms: the window's start; with `to_ms` the first start of the range.
            to_ms: the last start of the range, inclusive.

        Returns:
            Without `to_ms` the value or None; with it (window start in ms, value) pairs, ascending by start.

        Raises:
            SerializationError: the key is None.
        """
        if key is None:
            raise no_key(self.name, "fetch")
        if to_ms is not None:
            return self._of_key(key, from_ms, to_ms, reverse=False)
        entry = self.entry(self.serialize_key(key), from_ms)
        return None if entry[0] is None else self._to_user(entry)

    def backward_fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, W]]:
        """Return the same as `fetch` for a range of starts, in descending order."""
        return self._of_key(key, from_ms, to_ms, reverse=True)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], W]]:
        """Return the windows that start in a range, of keys in a range, ascending; both ranges are inclusive.

        A persistent store orders by segment, then key bytes, then start; an in-memory store by start, then key bytes:
        each as in Kafka Streams.

        Args:
            key_from: None is no bound, as for `key_to`.
            key_to: …
            from_ms: the first start.
            to_ms: the last start.
        """
        return self._windowed(key_from, key_to, from_ms, to_ms, reverse=False)

    def backward_fetch_range(
        self, key_from: K | None, key_to: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], W]]:
        """Return the same as `fetch_range`, descending."""
        return self._windowed(key_from, key_to, from_ms, to_ms, reverse=True)

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], W]]:
        """Return the windows of all keys that start in a range (inclusive), in the order of `fetch_range`."""
        return self._windowed(None, None, from_ms, to_ms, reverse=False)

    def backward_fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], W]]:
        """Return the same as `fetch_all`, descending."""
        return self._windowed(None, None, from_ms, to_ms, reverse=True)

    def all(self) -> Iterator[tuple[Windowed[K], W]]:
        """Return all windows that have not expired, in the order of `fetch_range`."""
        return self._windowed(None, None, 0, _MAX_LONG, reverse=False)

    def backward_all(self) -> Iterator[tuple[Windowed[K], W]]:
        """Return the same as `all`, descending."""
        return self._windowed(None, None, 0, _MAX_LONG, reverse=True)

    def _of_key(self, key: K, from_ms: int, to_ms: int, *, reverse: bool) -> Iterator[tuple[int, W]]:
        raw_key = self.serialize_key(key)
        to_user = self._to_user
        found = self._scan(raw_key, raw_key, from_ms, to_ms, reverse=reverse)
        return ((start, to_user(entry)) for _, start, entry in found)

    def _windowed(
        self, key_from: K | None, key_to: K | None, from_ms: int, to_ms: int, *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], W]]:
        encode, decode = self.serialize_key, self.key_serde.deserialize
        size, to_user = self.window_size_ms, self._to_user
        low = None if key_from is None else encode(key_from)
        high = None if key_to is None else encode(key_to)
        self._check_range(key_from, key_to, low, high)
        found = self._scan(low, high, from_ms, to_ms, reverse=reverse)
        if self._by_time:
            found = iter(sorted(found, key=lambda row: (row[1], row[0]), reverse=reverse))
        return (
            (Windowed(decode(raw_key), start, min(start + size, _MAX_LONG)), to_user(entry))
            for raw_key, start, entry in found
        )


class WindowStore(_WindowMethods[K, V, V], Generic[K, V]):
    """A window store: values by key and window start.

    Iterators show the store as of their creation, without later puts, also after a commit.
    Expired windows are never shown.
    """

    def _to_user(self, entry: Entry) -> V:
        return cast(V, entry[0])

    def _to_entry(self, value: V) -> Entry:
        return value, self._timestamp()


class TimestampedWindowStore(_WindowMethods[K, V, ValueAndTimestamp[V]], Generic[K, V]):
    """A window store whose values are `ValueAndTimestamp`; otherwise like `WindowStore`."""

    timestamped = True

    def _to_user(self, entry: Entry) -> ValueAndTimestamp[V]:
        return ValueAndTimestamp(*entry)

    def _to_entry(self, value: ValueAndTimestamp[V]) -> Entry:
        return unpacked(self.name, value)
