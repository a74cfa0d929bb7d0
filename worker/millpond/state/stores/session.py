"""The session store that users read and write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from millpond.serdes import Windowed
from millpond.state.values import no_key

from .staged_session import StagedSessions

__all__ = ("SessionStore",)

K = TypeVar("K")
V = TypeVar("V")

_MAX_LONG = 2**63 - 1


class SessionStore(StagedSessions[K, V]):
    """A session store: values by key and session, which is a start and an end, both inclusive.

    Iterators show the store as of their creation, without later puts, also after a commit.
    Expired sessions are never shown. A persistent store orders by segment of ends, then key bytes, end and start; an
    in-memory store by end, key bytes, and start from the latest: each as in Kafka Streams.
    """

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set the value of a session; None deletes it.

        A put to an expired session is dropped and counted.

        Raises:
            SerializationError: the key is None, or the value cannot be encoded.
        """
        self._check_open()
        if session.key is None:
            raise no_key(self.name, "put")
        raw_key = self.serialize_key(session.key)
        self.stage(raw_key, session.key, session.start_ms, session.end_ms, value, self._timestamp())

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session.

        Raises:
            SerializationError: the key is None.
        """
        self.put(session, None)

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Return the value of the session with exactly this start and end, in epoch ms; None without one.

        Raises:
            SerializationError: the key is None.
        """
        self._check_open()
        if key is None:
            raise no_key(self.name, "fetch_session")
        return self.entry(self.serialize_key(key), start_ms, end_ms)

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key, ascending.

        Raises:
            SerializationError: the key is None.
        """
        return self._found("fetch", (key,), 0, _MAX_LONG, reverse=False)

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Return the same as `fetch`, descending."""
        return self._found("backward_fetch", (key,), 0, _MAX_LONG, reverse=True)

    def fetch_range(self, key_from: K | None, key_to: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a range of keys, ascending; the range is inclusive, and None is no bound."""
        return self._found("", (key_from, key_to), 0, _MAX_LONG, reverse=False)

    def backward_fetch_range(self, key_from: K | None, key_to: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Return the same as `fetch_range`, descending."""
        return self._found("", (key_from, key_to), 0, _MAX_LONG, reverse=True)

    def find_sessions(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key that end at or after a time and start at or before one, ascending.

        Args:
            key: the key.
            earliest_end_ms: the first end, in epoch ms.
            latest_start_ms: the last start, in epoch ms.

        Raises:
            SerializationError: the key is None.
        """
        return self._found("find_sessions", (key,), earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the same as `find_sessions`, descending."""
        return self._found("backward_find_sessions", (key,), earliest_end_ms, latest_start_ms, reverse=True)

    def find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the same as `find_sessions`, of a range of keys; it is inclusive, and None is no bound."""
        return self._found("", (key_from, key_to), earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the same as `find_sessions_range`, descending."""
        return self._found("", (key_from, key_to), earliest_end_ms, latest_start_ms, reverse=True)

    def find_sessions_ending(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return the sessions of all keys that end in a range of times (inclusive), by end, start and key bytes.

        In an in-memory store they are in order of end, key bytes, and start from the latest.
        """
        found = list(self._scan(None, None, from_ms, _MAX_LONG, False, to_ms))  # noqa: FBT003  # not reverse
        if self.persistent:
            found.sort(key=lambda row: (row[1], row[2], row[0]))
        else:
            found.sort(key=lambda row: (row[1], row[0], -row[2]))
        return self._decoded(iter(found))

    def _found(
        self, method: str, keys: tuple[K | None, ...], earliest_end: int, latest_start: int, *, reverse: bool
    ) -> Iterator[tuple[Windowed[K], V]]:
        if len(keys) == 1 and keys[0] is None:
            raise no_key(self.name, method)
        encode = self.serialize_key
        low, high = (None if key is None else encode(key) for key in (keys[0], keys[-1]))
        self._check_range(keys[0], keys[-1], low, high)
        rows = self._scan(low, high, earliest_end, latest_start, reverse)
        if not self.persistent:
            rows = iter(sorted(rows, key=lambda row: (row[1], row[0], -row[2]), reverse=reverse))
        return self._decoded(rows)

    def _decoded(self, rows: Iterator[tuple[bytes, int, int, bytes]]) -> Iterator[tuple[Windowed[K], V]]:
        key, value = self.key_serde.deserialize, self.value_serde.deserialize
        for raw_key, end, start, data in rows:
            yield Windowed(key(raw_key), start, end), value(data)
