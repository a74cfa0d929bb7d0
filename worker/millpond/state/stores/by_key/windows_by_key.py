"""The window stores of aggregations by sliding windows: nearly every record changes windows with starts of their own.

So windows are in memory by key, as sorted lists of start, aggregate and timestamp. A record finds all windows of its
key at once, and a flush encodes all changed windows together, whatever their starts are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeVar

from millpond.serdes import Long, Windowed
from millpond.state.backend import Backend
from millpond.state.formats import (
    ABSENT_SEQUENCE,
    ROW_PREFIX_LENGTH,
    segment_prefix,
    split_window_key,
    window_suffix,
)
from millpond.state.stores.encoding import Produced
from millpond.state.stores.flush_columns import Change, encoded_changes, timestamp_of, windows_of
from millpond.state.stores.staged_store import ABSENT, changed_since_flush, forward_changes
from millpond.state.stores.time_ordered import TimeOrderedWindowStore
from millpond.state.stores.window import TimestampedWindowStore
from millpond.state.stores.window_puts import Entry

from .newest_rows import NewestRows, TimedRow

__all__ = ("TimeOrderedWindowsByKey", "WindowRow", "WindowsByKey")

K = TypeVar("K")
V = TypeVar("V")

WindowRow = tuple[int, Any, int]
"""Start in epoch ms, value (an object of an immutable serde, else its bytes; None if deleted), timestamp in ms."""


_NO_ROW: WindowRow = (-1, None, -1)
_Place = tuple[int, bytes]
"""Window start and raw key."""


class WindowsByKey(NewestRows[K, V], TimestampedWindowStore[K, V]):
    """A window store with timestamps, whose windows are in memory by key."""

    _persists_deletions = True

    # Declared again, since a type checker does not take the types of what `_bind` assigns from the base class.
    entry: Callable[[bytes, int], tuple[V | None, int]]
    forwarded: Callable[[bytes, int], tuple[V | None, int]]
    stage: Callable[[bytes, int, K, V | None, int, V | None], None]
    stage_count: Callable[[bytes, int, K, V | None, int, V | None], None]
    matches: Callable[[bytes, int, int], Any]
    backend_reads: int

    def __init__(self, name: str, partition: int, backend: Backend, *serdes: Any, **options: Any) -> None:
        # The changes since the last flush, in the order of the last puts.
        self._dirty: dict[_Place, Change] = {}
        super().__init__(name, partition, backend, *serdes, **options)

    def _bind(self) -> None:
        self.matches = self._matching()
        self.entry = self._entry_of
        self.forwarded = self._forwarded_of if self.caching else self.entry
        self.stage = self._staging(counts=False)
        self.stage_count = self._staging(counts=True) if self.value_serde is Long else self.stage

    def _entry_of(self, raw_key: bytes, start: int, /) -> Entry:
        row = self._row(raw_key, start)
        if row is None:
            return ABSENT
        _, value, timestamp = row
        return (
            value if value is None or self.value_serde.immutable else self.value_serde.deserialize(value)
        ), timestamp

    def _forwarded_of(self, raw_key: bytes, start: int, /) -> Entry:
        change = self._dirty.get((start, raw_key))
        if change is None:
            return self._entry_of(raw_key, start)
        value = change[1]
        return (value if value is None or self.value_serde.immutable else self.value_serde.deserialize(value)), change[
            5
        ]

    def _row(self, raw_key: bytes, start: int) -> TimedRow | None:
        self._check_open()
        if start > self._observed or start <= self._floor:
            return None
        unknown = start < self._known_from or self._evicted.get(raw_key, -1) >= start
        rows = self._with_older(raw_key) if unknown else self._held.get(raw_key)
        if not rows:
            return None
        at = bisect_left(rows, (start,))
        return rows[at] if at < len(rows) and rows[at][0] == start else None

    def _staging(self, *, counts: bool) -> Callable[[bytes, int, K, V | None, int, V | None], None]:  # noqa: C901, PLR0915  # one flat function per put
        """Return `stage`; with `counts` for values that are always encodable: the flush encodes them."""
        held, dirty, row_of = self._held, self._dirty, self._row
        encode, encoded, immutable = self.value_serde.serialize, self._encoded, self.value_serde.immutable
        as_decoded, stable = self._as_decoded, self._stable_types
        context = self._context if self.caching else None
        headers, origins = self._dirty_headers, self._dirty_origins if self._keeps_origins else None

        def stage(  # noqa: C901, PLR0913  # the hot path
            raw_key: bytes, start: int, key: K, value: Any, timestamp: int, old: Any, /
        ) -> None:
            data = None
            if value is not None and not counts:
                if type(value) in stable:
                    try:
                        data = encode(value)
                    except Exception:  # noqa: BLE001  # the serde is the user's
                        data = encoded(key, value)
                else:
                    data = encoded(key, value)
                    value = as_decoded(value, data) if immutable else data
            place = start, raw_key
            # Removed and inserted again, so that changes are forwarded in the order of the last puts.
            before = dirty.pop(place, None)
            if before is not None:
                old, since = before[1], before[5]
            elif immutable and old is None:
                since = -1
            else:
                # `old` may be the object that user code has just changed in place into `value`; the row's bytes are
                # not.
                _, held_value, since = row_of(raw_key, start) or _NO_ROW
                old = old if immutable else held_value
            rows = held.get(raw_key)
            if rows is None:
                self._check_open()
            dirty[place] = (key, old, data, value, timestamp, since)
            if context is not None:
                if context.headers:
                    headers[place] = context.headers
                elif headers:
                    headers.pop(place, None)
                if origins is not None:
                    origins[place] = context.message if context.origin is None else context.origin
            if start > self._observed:
                self._advance(start)
            elif start <= self._floor:
                # Put and logged, but not read; expired unless its segment is live.
                if self._expired(start):
                    self.expired_puts += 1
                return
            if rows is None:
                held[raw_key] = [(start, value, timestamp)]
            elif rows[-1][0] < start:
                rows.append((start, value, timestamp))
            else:
                at = bisect_left(rows, (start,))
                if rows[at][0] == start:
                    rows[at] = (start, value, timestamp)
                    return
                rows.insert(at, (start, value, timestamp))
            self._row_count += 1

        return stage

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn changes into rows and changelog records (appended to `out`); call a cache's listener."""
        places = list(self._dirty)
        changes = changed_since_flush(self._dirty, has_listener=self.caching and self._listener is not None)
        if len(changes) < len(places):
            # Windows that were created and deleted have no rows, but are in memory until their time is evicted.
            gone = [place for place in places if place not in changes]
            self._flushed_puts.append(([start for start, _ in gone], [raw_key for _, raw_key in gone]))
        written = len(self._flushed)
        if changes:
            starts, raw_keys = zip(*changes, strict=True)
            of_windows = changes.values()
            data, timestamps = encoded_changes(of_windows, self.value_serde), list(map(timestamp_of, of_windows))
            self._encode_puts(starts, raw_keys, repeat(ABSENT_SEQUENCE), data, timestamps, out)
            self._row_size.sample(self._flushed[written : written + 16])
            self._entry_size.sample(self._some_entries())
            if self.caching:
                self._forward(changes, starts, raw_keys, data, timestamps)
        self._sweep_memory()

    def _forward(  # the columns, once per flush
        self,
        changes: dict[_Place, Change],
        starts: tuple[int, ...],
        raw_keys: tuple[bytes, ...],
        data: list[bytes | None],
        timestamps: list[int],
    ) -> None:
        """Call the listener for each change, with a windowed key; see `forward_changes`."""
        headers, origins, size = self._dirty_headers, self._dirty_origins, self.window_size_ms
        records = None
        if headers or origins:
            records = list(zip(map(headers.get, changes), map(origins.get, changes), strict=True))
            headers.clear()
            origins.clear()
        if self._listener is None:
            return
        if records is None and self._forward_columns(
            raw_keys, changes.values(), data, timestamps, starts=starts, size_ms=size
        ):
            return
        forward_changes(
            self._listener,
            self._context,
            [
                (Windowed(key, *window), old, new, timestamp)
                for window, (key, old, _, new, timestamp, _) in zip(
                    windows_of(starts, size), changes.values(), strict=True
                )
            ],
            records,
            None if self.value_serde.immutable else self.value_serde.deserialize,
        )

    def _discard_entries(self) -> None:
        super()._discard_entries()
        self._dirty.clear()

    def _identity(self, row: TimedRow) -> int:
        return row[0]

    def _decode_held(self, time: int, sequence: int, data: bytes) -> WindowRow:
        return time, *self._decode_row(data)

    def _places_since_flush(self) -> Iterator[_Place]:
        return iter(self._dirty)

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _staged_between(self, first: int, last: int) -> dict[bytes, Any]:
        """Return the uncommitted rows with first <= window start <= last, by full row key."""
        staged: dict[bytes, Any] = {}
        for rows in (self._sealed, self._flushed):
            staged.update(
                (key, ABSENT if data is None else data)
                for key, data in rows
                if first <= split_window_key(key, ROW_PREFIX_LENGTH)[1] <= last
            )
        partition, interval = self.partition, self._interval
        staged.update(
            (segment_prefix(partition, start // interval) + raw_key + window_suffix(start), (value, timestamp))
            for (start, raw_key), (_, _, _, value, timestamp, _) in self._dirty.items()
            if first <= start <= last
        )
        return staged


class TimeOrderedWindowsByKey(WindowsByKey[K, V], TimeOrderedWindowStore[K, V]):
    """The store of an aggregation by sliding windows that sends final results only."""
