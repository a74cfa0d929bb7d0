"""The newest rows of a window store in memory, by key: a search in their times never reads the backend.

Rows are evicted by time, the oldest first, as the store's memory requires it. So records that are about as old as
stream time find all that they need in memory, whatever the number of keys. The older rows of a key are read when a
search needs them, and kept until memory is short. Only keys that have lost rows are read, as long as these are few.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import add
from typing import Any, TypeVar

from millpond.serdes import Serde
from millpond.state.backend import Backend, Row, Rows
from millpond.state.formats import (
    ROW_PREFIX_LENGTH,
    pack_timestamp,
    pack_window_suffix,
    segment_prefix,
    split_window_key,
)
from millpond.state.stores.encoding import Produced, encode_entries
from millpond.state.stores.staged_window import StagedWindows

__all__ = ("NewestRows", "TimedRow")

K = TypeVar("K")
V = TypeVar("V")

TimedRow = tuple[int, Any, Any]
"""Time in epoch ms, and what a kind of store keeps for it."""

_Placed = tuple[Sequence[int], Sequence[bytes]]
"""The times of puts, and their raw keys."""

#: Rows are evicted in slices of time; the retention has this many.
_SLICES = 32


class NewestRows(StagedWindows[K, V]):
    """A window store whose rows are in memory by key and time."""

    matches: Callable[[bytes, int, int], Sequence[TimedRow]]
    """Returns the rows of a serialised key with first <= time <= last (epoch ms), in their order."""

    backend_reads: int

    _persists_deletions: bool = False
    """Whether a put of None deletes a row of the backend."""

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        retention_ms: int,
        window_size_ms: int,
        persistent: bool = True,
        caching: bool = False,
        changelog_topic: str | None = None,
    ) -> None:
        # All rows from `_known_from` on, and late ones that have been put since.
        self._held: dict[bytes, list[TimedRow]] = {}
        # The keys that lost rows from `_known_from` on, with the time of their last such row; the end of these times.
        self._evicted: dict[bytes, int] = {}
        self._evicted_end = 0
        # Rows from before `_known_from` or `_evicted_end` of the keys that were searched for there, as they were in the
        # backend.
        self._older: dict[bytes, list[TimedRow]] = {}
        # Puts that are flushed and sealed, as the rows of `_flushed` and `_sealed`, and the keys of those in the
        # backend by slice of time: a key may be there several times, and without a row.
        self._flushed_puts: list[_Placed] = []
        self._sealed_puts: list[_Placed] = []
        self._slices: dict[int, list[bytes]] = {}
        self._slice_ms = max(1, retention_ms // _SLICES)
        # About the number of rows in `_held` and `_older`.
        self._row_count = 0
        super().__init__(
            name,
            partition,
            backend,
            key,
            value,
            retention_ms=retention_ms,
            window_size_ms=window_size_ms,
            persistent=persistent,
            caching=caching,
            changelog_topic=changelog_topic,
        )

    def _identity(self, row: TimedRow) -> Any:
        """Return the part of a row that no other row of its key has."""
        raise NotImplementedError

    def _decode_held(self, time: int, sequence: int, data: bytes) -> TimedRow:
        """Return a row of the backend as `_held` has it."""
        raise NotImplementedError

    def _places_since_flush(self) -> Iterable[tuple[int, bytes]]:
        """Return time and raw key of each put since the last flush."""
        raise NotImplementedError

    # For operators

    def _matching(self) -> Callable[[bytes, int, int], Sequence[TimedRow]]:
        held, with_older, evicted = self._held.get, self._with_older, self._evicted

        def matches(raw_key: bytes, first: int, last: int, /) -> Sequence[TimedRow]:
            if first <= self._floor:
                first = self._floor + 1
            unknown = first < self._known_from or (evicted and evicted.get(raw_key, -1) >= first)
            rows = with_older(raw_key) if unknown else held(raw_key)
            if not rows:
                return ()
            newest = rows[-1][0]
            if newest < first:
                return ()
            low = 0 if rows[0][0] >= first else bisect_left(rows, (first,))
            return rows[low:] if newest <= last else rows[low : bisect_left(rows, (last + 1,), low)]

        return matches

    def _with_older(self, raw_key: bytes) -> list[TimedRow]:
        """Return all rows of a key, also those that are not in memory."""
        end = max(self._known_from, self._evicted_end)
        older = self._older.get(raw_key) if end else []
        if older is None:
            self._check_open()
            self.backend_reads += 1
            older = self._older[raw_key] = list(self._rows_before(raw_key, end))
            self._row_count += len(older)
        held = self._held.get(raw_key)
        if not held:
            return older
        if not older or held[0][0] > older[-1][0]:
            return older + held
        # Late rows, which may have been committed before the older ones were read; those of a window replace them.
        rows = {self._identity(row): row for row in (*older, *held)}
        return sorted(rows.values(), key=self._identity)

    def _rows_before(self, raw_key: bytes, end: int) -> Iterator[TimedRow]:
        """Return a key's rows from before a time that the backend has, in order."""
        first, last = max(self._floor + 1, 0), end - 1
        if last < first:
            return
        # Without staged rows: those are in `_held`.
        for key, data in self._committed(raw_key, raw_key, first, last, reverse=False):
            found, time, sequence = split_window_key(key, ROW_PREFIX_LENGTH)
            if found == raw_key and first <= time <= last:
                yield self._decode_held(time, sequence, data)

    def _advance(self, observed: int) -> None:
        self._observed = observed
        self._floor = self._floor_at(observed)

    # For the runtime

    def _encode_puts(  # noqa: PLR0913  # the columns, once per flush
        self,
        times: Sequence[int],
        raw_keys: Sequence[bytes],
        sequences: Iterable[int],
        data: Sequence[bytes | None],
        timestamps: Sequence[int],
        out: list[Produced],
    ) -> None:
        """Append the changelog record and the row of each put; puts to expired segments have no row."""
        if self._persists_deletions or None not in data:
            self._flushed_puts.append((times, raw_keys))
        else:
            kept = [at for at, value in enumerate(data) if value is not None]
            self._flushed_puts.append(([times[at] for at in kept], [raw_keys[at] for at in kept]))
        keys = list(map(add, raw_keys, map(pack_window_suffix, times, sequences)))
        first, segment = min(times), max(times) // self._interval
        rows: Rows = self._flushed
        simple = (
            segment == first // self._interval
            and first > self._floor
            and (self._persists_deletions or None not in data)
        )
        encode_entries(
            keys,
            data,
            timestamps,
            timestamped=self.timestamped,
            topic=self.changelog_topic,
            partition=self.partition,
            prefix=segment_prefix(self.partition, segment),
            suffix=b"",
            out=out,
            rows=rows if simple else Rows(),
        )
        if not simple:
            rows += self._rows_by_segment(times, keys, data, timestamps)

    def _rows_by_segment(
        self, times: Sequence[int], keys: Sequence[bytes], data: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> Iterator[Row]:
        partition, interval, floor, timestamped = self.partition, self._interval, self._floor, self.timestamped
        deletes, expired = self._persists_deletions, self._expired
        prefixes: dict[int, bytes] = {}
        for time, key, value, timestamp in zip(times, keys, data, timestamps, strict=True):
            if (value is None and not deletes) or (time <= floor and expired(time)):
                continue
            segment = time // interval
            prefix = prefixes.get(segment)
            if prefix is None:
                prefix = prefixes[segment] = segment_prefix(partition, segment)
            yield prefix + key, pack_timestamp(timestamp) + value if timestamped and value is not None else value

    def _sweep_memory(self) -> None:
        """Delete expired segments from the backend; then forget what was read from it."""
        before = self._swept
        self._sweep(self._flushed)
        if self._swept != before:
            self._older.clear()
            self._row_count = sum(map(len, self._held.values()))
        self._flushed_metadata = self._encode_metadata()

    def seal(self) -> Rows:
        """Return the rows flushed since the last seal, and the deletions of segments that expired until then."""
        self._sealed_puts += self._flushed_puts
        self._flushed_puts = []
        return super().seal()

    def committed(self) -> None:
        """Confirm that the rows of the last `seal` are in the backend; discard expired rows, and others for memory."""
        width, slices = self._slice_ms, self._slices
        for times, raw_keys in self._sealed_puts:
            self._place(times, raw_keys)
        self._sealed_puts = []
        live = (self._floor + 1) // width
        if slices and min(slices) < live:
            self._discard([each for each in slices if each < live], live * width)
            if self._evicted:
                floor = self._floor
                for raw_key in [raw_key for raw_key, time in self._evicted.items() if time <= floor]:
                    del self._evicted[raw_key]
        super().committed()

    def _place(self, times: Sequence[int], raw_keys: Sequence[bytes]) -> None:
        """Add keys of puts to their slices of time, at once for times that are in order."""
        width, slices = self._slice_ms, self._slices
        if sorted(times) == list(times):
            start, end = 0, len(times)
            while start < end:
                each = times[start] // width
                after = bisect_left(times, (each + 1) * width, start)
                slices.setdefault(each, []).extend(raw_keys[start:after])
                start = after
            return
        for time, raw_key in zip(times, raw_keys, strict=True):
            of_slice = slices.get(time // width)
            if of_slice is None:
                slices[time // width] = [raw_key]
            else:
                of_slice.append(raw_key)

    def _discard(self, slices: list[int], end: int) -> None:
        """Discard the rows in memory of slices of time, which end at `end` or before."""
        held, older, oldest = self._held, self._older, (end,)
        # Expired rows are not missed.
        evicted, known_from = self._evicted, max(self._known_from, self._floor + 1)
        # Keys with a late row that is not in the backend yet keep their rows until it is.
        puts = chain(self._sealed_puts, self._flushed_puts)
        flushed = (zip(*each, strict=True) for each in puts if min(each[0], default=end) < end)
        staged = chain(self._places_since_flush(), *flushed)
        uncommitted = {raw_key for time, raw_key in staged if time < end}
        count = 0
        for each in slices:
            raw_keys = self._slices.pop(each)
            if uncommitted and not uncommitted.isdisjoint(raw_keys):
                self._slices[each] = [raw_key for raw_key in raw_keys if raw_key in uncommitted]
            for raw_key in raw_keys:
                rows = held.get(raw_key)
                if rows is None or rows[0][0] >= end or raw_key in uncommitted:
                    continue
                if raw_key in older:
                    count += len(older.pop(raw_key))
                gone = len(rows) if rows[-1][0] < end else bisect_left(rows, oldest)
                if rows[gone - 1][0] >= known_from:
                    evicted[raw_key] = max(rows[gone - 1][0], evicted.get(raw_key, 0))
                if gone == len(rows):
                    del held[raw_key]
                else:
                    del rows[:gone]
                count += gone
        self._row_count -= count

    def _discard_entries(self) -> None:
        super()._discard_entries()
        self._held.clear()
        self._older.clear()
        self._evicted.clear()
        self._evicted_end = 0
        self._flushed_puts = []
        self._sealed_puts = []
        self._slices.clear()
        self._row_count = 0

    def _evict(self, count: int) -> None:
        enough = self._entry_count() - count
        self._row_count -= sum(map(len, self._older.values()))
        self._older.clear()
        for each in sorted(self._slices):
            if self._entry_count() <= enough:
                break
            end = (each + 1) * self._slice_ms
            self._evicted_end = max(self._evicted_end, end)
            self._discard([each], end)
        if len(self._evicted) > self._row_count:
            # It takes less memory to read every key.
            self._known_from = max(self._known_from, self._evicted_end)
            self._evicted.clear()

    def _entry_count(self) -> int:
        return self._row_count + len(self._older) + len(self._evicted) // 2

    def _some_entries(self) -> Iterable[object]:
        # The first row of a key stands for the key and its list, too.
        for raw_key, rows in self._held.items():
            yield raw_key, rows[0]
            yield from islice(rows, 1, None)
        yield from self._older.items()
