"""The stores of aggregations that send final results: iterators over all keys are in the order of time.

Kafka Streams reads the windows that have closed from such a store, and misses those that have left the retention since
the last time. Here an expired window stays readable for the operator until its segment expires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, overload

from millpond.state.formats import ROW_PREFIX_LENGTH, split_window_key
from millpond.state.rows import first_live_segment
from millpond.state.values import ValueAndTimestamp

from .merge import merge
from .session import SessionStore
from .staged_window import Entry
from .window import TimestampedWindowStore

__all__ = ("TimeOrderedSessionStore", "TimeOrderedWindowStore")

K = TypeVar("K")
V = TypeVar("V")

_MAX_LONG = 2**63 - 1


class TimeOrderedWindowStore(TimestampedWindowStore[K, V]):
    """A window store of an aggregation that sends final results; iterators over all keys are by start, then key bytes.

    A persistent store returns windows that start at stream time - retention, too, as in Kafka Streams.
    """

    @property
    def _by_time(self) -> bool:
        return True

    @property
    def visible_from(self) -> int:
        """The smallest window start that readers see, in epoch ms."""
        return max(0, self._observed - self.retention_ms + (0 if self.persistent else 1))

    def unsent(self, first: int | None, last: int = _MAX_LONG) -> Iterator[tuple[bytes, int]]:
        """Return serialised key and start of the windows that start at times, both inclusive, by segment and key.

        Args:
            first: the first time, in epoch ms; None is the first one that readers see.
            last: the last time.
        """
        self._check_open()
        first = self.visible_from if first is None else max(0, first, self._floor + 1)
        last = min(last, self._observed)
        if last < first:
            return
        # Values stay as they are: one that cannot be decoded is an error when it is sent.
        committed = self._committed(None, None, first, last, reverse=False)
        for key, row in merge(committed, self._staged_between(first, last), reverse=False):
            raw_key, start, _ = split_window_key(key, ROW_PREFIX_LENGTH)
            if first <= start <= last and (isinstance(row, bytes) or row[0] is not None):
                yield raw_key, start

    def loses(self, start: int, newest: int) -> bool:
        """Return whether a put at a time deletes the windows with this start."""
        return start // self._interval < first_live_segment(newest, self.retention_ms)

    @overload
    def fetch(self, key: K, from_ms: int) -> ValueAndTimestamp[V] | None: ...

    @overload
    def fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, ValueAndTimestamp[V]]]: ...

    def fetch(
        self, key: K, from_ms: int, to_ms: int | None = None
    ) -> ValueAndTimestamp[V] | Iterator[tuple[int, ValueAndTimestamp[V]]] | None:
        """See `WindowStore.fetch`."""
        if to_ms is not None:
            return super().fetch(key, from_ms, to_ms)
        found = super().fetch(key, from_ms)
        return found if from_ms >= self.visible_from else None

    def _floor_at(self, observed: int) -> int:
        return first_live_segment(observed, self.retention_ms) * self._interval - 1

    def _expired(self, start: int) -> bool:
        return start // self._interval < self._first_live_segment()

    def _scan(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        first: int,
        last: int,
        reverse: bool,  # noqa: FBT001 - as in the base class
    ) -> Iterator[tuple[bytes, int, Entry]]:
        # In the order of the rows' keys, which queries rely on.
        return super()._scan(key_from, key_to, max(first, self.visible_from), last, reverse)


class TimeOrderedSessionStore(SessionStore[K, V]):
    """A session store of an aggregation that sends final results."""

    @property
    def visible_from(self) -> int:
        """The smallest session end that readers see, in epoch ms."""
        return max(0, self._observed - self.retention_ms + 1)

    def unsent(self, first: int | None, last: int = _MAX_LONG) -> Iterator[tuple[bytes, int, int]]:
        """Return serialised key, start and end of the sessions that end at times, both inclusive; None: all."""
        found = super()._scan(None, None, max(0, first or 0), _MAX_LONG, False, last)  # noqa: FBT003 - not reverse
        return ((raw_key, start, end) for raw_key, end, start, _ in found)

    def loses(self, end: int, newest: int) -> bool:
        """Return whether a put of a session that ends at a time deletes the sessions with this end."""
        return end // self._interval < first_live_segment(newest, self.retention_ms)

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """See `SessionStore.fetch_session`."""
        found = super().fetch_session(key, start_ms, end_ms)
        return found if end_ms >= self.visible_from else None

    def _advance(self, observed: int) -> None:
        self._observed = observed
        self._floor = floor = observed - self.retention_ms
        self._visible = floor - floor % self._interval if floor > 0 else 0

    def _oldest_kept(self) -> int:
        return self._first_live_segment() * self._interval

    def _scan(  # noqa: PLR0913 - as in the base class
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        reverse: bool,  # noqa: FBT001 - as in the base class
        latest_end: int = _MAX_LONG,
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        # As in Kafka Streams, a persistent store returns expired sessions, too, when it is asked by their ends.
        if latest_end == _MAX_LONG or not self.persistent:
            earliest_end = max(earliest_end, self.visible_from)
        return super()._scan(key_from, key_to, earliest_end, latest_start, reverse, latest_end)
