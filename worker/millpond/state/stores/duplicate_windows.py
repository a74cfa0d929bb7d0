"""The window store of stream-stream joins: it keeps every value of a key and time, in the order of the puts.

Each put gets a sequence number, which is the last part of its key in the changelog. Numbers start at 1 with each task,
as in Kafka Streams. There, a put after a restart may replace an older one of the same key and time; here, it gets a
number above those of the rows that the task found.

All rows of the newest times are in memory, by key, as many as the store's memory allows: a search in these times never
reads the backend. So records that are about as old as stream time find their partners in memory, whatever the number of
keys. The older rows of a key are read when a search needs them, and kept until memory is short.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Any, TypeVar

from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    MAX_SEQUENCE,
    PARTITION_LENGTH,
    SEGMENT_LENGTH,
    pack_window_suffix,
    segment_prefix,
    split_window_key,
    window_suffix,
)

from .encoding import Produced, encode_entries
from .staged_store import ABSENT, ChangelogRecord, StoreContext
from .window import WindowStore
from .window_puts import Entry

__all__ = ("DuplicateWindowStore", "JoinRow")

K = TypeVar("K")
V = TypeVar("V")

JoinRow = tuple[int, int, Any]
"""Time in epoch ms, sequence number, value: an object of an immutable serde, else its bytes."""

_Put = tuple[bytes, int, int, bytes | None, int]
"""Raw key, time, sequence number, encoded value, and the timestamp of the record."""

_ROW_PREFIX_LENGTH = PARTITION_LENGTH + SEGMENT_LENGTH
#: Rows are evicted in slices of time; the retention has this many.
_SLICES = 32
_Placed = tuple[Sequence[int], Sequence[bytes]]
"""The times of puts, and their raw keys."""


class DuplicateWindowStore(WindowStore[K, V]):
    """A window store that keeps all values that are put for a key and time, in the order of the puts.

    A put of None is only logged: it deletes nothing. `fetch` without a range returns the value that was put last into
    the store, if it is of that key and time, else None, as in Kafka Streams.
    """

    matches: Callable[[bytes, int, int], Sequence[JoinRow]]
    """Returns the rows of a serialised key with first <= time <= last (epoch ms), by time and order of puts."""

    append: Callable[[bytes, K, V | None, int, int], None]
    """Puts a value: serialised key, key, value, time, and time of the record that puts it, both in epoch ms."""

    # Declared again, since a type checker does not take the types of what `_bind` assigns from the base class.
    entry: Callable[[bytes, int], tuple[V | None, int]]
    stage: Callable[[bytes, int, K, V | None, int, V | None], None]
    stage_count: Callable[[bytes, int, K, V | None, int, V | None], None]
    backend_reads: int

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
        changelog_topic: str | None = None,
    ) -> None:
        # All rows from `_known_from` on, and late ones that have been put since.
        self._held: dict[bytes, list[JoinRow]] = {}
        # Rows from before `_known_from` of the keys that were searched for there, as they were in the backend.
        self._older: dict[bytes, list[JoinRow]] = {}
        self._puts_since_flush: list[_Put] = []
        # Puts that are flushed and sealed, as the rows of `_flushed` and `_sealed`, and the keys of those in the
        # backend by slice of time: a key may be there several times, and without a row.
        self._flushed_puts: list[_Placed] = []
        self._sealed_puts: list[_Placed] = []
        self._slices: dict[int, list[bytes]] = {}
        self._slice_ms = max(1, retention_ms // _SLICES)
        self._sequence = 0
        # The sequence number of the last put of a value.
        self._last_value = 0
        # About the number of rows in `_held` and `_older`, as of the last flush.
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
            changelog_topic=changelog_topic,
        )
        # The time up to which the backend may have rows with sequence numbers of an earlier task.
        self._inherited = self._observed

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task."""
        self._context = context
        self._bind()

    def _bind(self) -> None:
        self.matches = self._matching()
        self.append = self._appending()
        self.entry = self._last_put
        self.stage = self.stage_count = self._stage

    def _matching(self) -> Callable[[bytes, int, int], Sequence[JoinRow]]:
        held, with_older = self._held.get, self._with_older

        def matches(raw_key: bytes, first: int, last: int, /) -> Sequence[JoinRow]:
            if first <= self._floor:
                first = self._floor + 1
            rows = with_older(raw_key) if first < self._known_from else held(raw_key)
            if not rows or rows[-1][0] < first or first > last:
                return ()
            low = 0 if rows[0][0] >= first else bisect_left(rows, (first,))
            return rows[low:] if rows[-1][0] <= last else rows[low : bisect_left(rows, (last + 1,), low)]

        return matches

    def _appending(self) -> Callable[[bytes, K, V | None, int, int], None]:  # noqa: C901  # one flat function per put
        held, put = self._held, self._puts_since_flush.append
        encode, encoded = self.value_serde.serialize, self._encoded
        as_decoded, stable, immutable = self._as_decoded, self._stable_types, self.value_serde.immutable

        def append(raw_key: bytes, key: K, value: V | None, time: int, timestamp: int, /) -> None:  # noqa: C901
            data = None
            if value is not None:
                if type(value) in stable:
                    try:
                        data = encode(value)
                    except Exception:  # noqa: BLE001  # the serde is the user's
                        data = encoded(key, value)
                else:
                    data = encoded(key, value)
                    if immutable:
                        value = as_decoded(value, data)
            if time <= self._inherited:
                self._skip_used_sequences(raw_key, time)
            sequence = self._sequence = self._sequence + 1 & MAX_SEQUENCE
            put((raw_key, time, sequence, data, timestamp))
            if data is None:
                # As in Kafka Streams, where the store on disk does not take notice of it.
                if time > self._observed and not self.persistent:
                    self._advance(time)
                return
            if time > self._observed:
                self._observed = time
                self._floor = time - self.retention_ms
            elif time <= self._floor:
                if self._expired(time):
                    self.expired_puts += 1
                if self.persistent:
                    self._last_value = sequence
                return
            self._last_value = sequence
            row = (time, sequence, value if immutable else data)
            rows = held.get(raw_key)
            if rows is None:
                held[raw_key] = [row]
            elif rows[-1][0] <= time:
                rows.append(row)
            else:
                insort(rows, row)

        return append

    def _skip_used_sequences(self, raw_key: bytes, time: int) -> None:
        """Raise the sequence number above those of rows of this key and time that an earlier task put."""
        prefix = segment_prefix(self.partition, time // self._interval) + raw_key
        low, high = prefix + window_suffix(time), prefix + window_suffix(time, MAX_SEQUENCE) + b"\0"
        # The rows of a key that begins with this one, or the other way around, may be among them.
        for key, _ in self._backend.range(self.name, low, high, reverse=True):
            found, start, sequence = split_window_key(key, _ROW_PREFIX_LENGTH)
            if found == raw_key and start == time:
                self._sequence = max(self._sequence, sequence)
                return

    def _stage(  # noqa: PLR0913  # the signature of `stage`
        self, raw_key: bytes, start: int, key: K, value: V | None, timestamp: int, old: V | None, /
    ) -> None:
        self.append(raw_key, key, value, start, timestamp)

    def _last_put(self, raw_key: bytes, start: int, /) -> Entry:
        for _, sequence, value in self.matches(raw_key, start, start):
            if sequence == self._last_value:
                return (value if self.value_serde.immutable else self.value_serde.deserialize(value)), -1
        return ABSENT

    def _with_older(self, raw_key: bytes) -> list[JoinRow]:
        """Return all rows of a key, also those from before `_known_from`."""
        older = self._older.get(raw_key) if self._known_from else []
        if older is None:
            self._check_open()
            self.backend_reads += 1
            decode = self.value_serde.deserialize if self.value_serde.immutable else bytes
            older = [(start, sequence, decode(data)) for start, sequence, data in self._rows_of_key(raw_key)]
            self._older[raw_key] = older
            self._row_count += len(older)
        held = self._held.get(raw_key)
        if not held:
            return older
        if not older or held[0][0] >= self._known_from:
            return older + held
        # Late rows, which may have been committed before the older ones were read.
        rows = {(row[0], row[1]): row for row in (*older, *held)}
        return sorted(rows.values(), key=_place)

    def _rows_of_key(self, raw_key: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Return time, sequence number and value of a key's rows from before `_known_from` in the backend, in order."""
        first, last = max(self._floor + 1, 0), self._known_from - 1
        if last < first:
            return
        for segment in range(first // self._interval, last // self._interval + 1):
            prefix = segment_prefix(self.partition, segment) + raw_key
            low = prefix + window_suffix(first)
            high = prefix + window_suffix(last, MAX_SEQUENCE) + b"\0"
            for key, data in self._backend.range(self.name, low, high):
                found, start, sequence = split_window_key(key, _ROW_PREFIX_LENGTH)
                if found == raw_key and first <= start <= last:
                    yield start, sequence, data

    def _advance(self, observed: int) -> None:
        self._observed = observed
        self._floor = observed - self.retention_ms

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn puts into rows and changelog records (appended to `out`)."""
        puts = self._puts_since_flush.copy()
        self._puts_since_flush.clear()
        rows: Rows = self._flushed
        written = len(rows)
        if puts:
            raw_keys, times, sequences, data, timestamps = zip(*puts, strict=True)
            self._flushed_puts.append((times, raw_keys))
            first, last = min(times), max(times)
            segment = first // self._interval
            simple = first > self._floor and segment == last // self._interval and None not in data
            encode_entries(
                list(map(add, raw_keys, map(pack_window_suffix, times, sequences))),
                data,
                timestamps,
                timestamped=False,
                topic=self.changelog_topic,
                partition=self.partition,
                prefix=segment_prefix(self.partition, segment),
                suffix=b"",
                out=out,
                rows=rows if simple else Rows(),
            )
            if not simple:
                rows += self._rows_of(puts)
        self._row_size.sample(rows[written : written + 16])
        self._entry_size.sample(self._some_entries())
        self._row_count += len(puts)
        before = self._swept
        self._sweep(rows)
        if self._swept != before:
            self._older.clear()
            self._row_count = sum(map(len, self._held.values()))
        self._flushed_metadata = self._encode_metadata()

    def _rows_of(self, puts: list[_Put]) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows of puts; those without a value, or to an expired segment, have none."""
        partition, interval = self.partition, self._interval
        for raw_key, time, sequence, data, _ in puts:
            if data is not None and (time > self._floor or not self._expired(time)):
                yield segment_prefix(partition, time // interval) + raw_key + window_suffix(time, sequence), data

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
        super().committed()

    def _place(self, times: Sequence[int], raw_keys: Sequence[bytes]) -> None:
        """Add keys of puts to their slices of time, at once for times that are in order."""
        width, slices = self._slice_ms, self._slices
        ordered = sorted(times)
        if ordered != list(times):
            order = sorted(range(len(times)), key=times.__getitem__)
            raw_keys = [raw_keys[each] for each in order]
        start, end = 0, len(ordered)
        while start < end:
            each = ordered[start] // width
            after = bisect_left(ordered, (each + 1) * width, start)
            slices.setdefault(each, []).extend(raw_keys[start:after])
            start = after

    def _discard(self, slices: list[int], end: int) -> int:
        """Discard the rows in memory of slices of time, which end at `end` or before; return their number."""
        held, older, oldest = self._held, self._older, (end,)
        # Keys with a late row that is not in the backend yet keep their rows until it is.
        uncommitted = {
            raw_key
            for times, raw_keys in self._flushed_puts
            for time, raw_key in zip(times, raw_keys, strict=True)
            if time < end
        }
        uncommitted.update(put[0] for put in self._puts_since_flush if put[1] < end)
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
                if rows[-1][0] < end:
                    count += len(held.pop(raw_key))
                else:
                    expired = bisect_left(rows, oldest)
                    del rows[:expired]
                    count += expired
        self._row_count -= count
        return count

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys."""
        rows = super().restore(records)
        self._inherited = self._observed
        return rows

    def revert(self) -> None:
        """Go back to the backend's rows and stream time."""
        super().revert()
        self._inherited = max(self._inherited, self._observed)

    def _discard_entries(self) -> None:
        super()._discard_entries()
        self._held.clear()
        self._older.clear()
        self._puts_since_flush.clear()
        self._flushed_puts = []
        self._sealed_puts = []
        self._slices.clear()
        self._row_count = 0

    def _evict(self, count: int) -> None:
        older = sum(map(len, self._older.values()))
        count -= older + len(self._older)
        self._row_count -= older
        self._older.clear()
        for each in sorted(self._slices):
            if count <= 0:
                return
            end = (each + 1) * self._slice_ms
            self._known_from = max(self._known_from, end)
            count -= self._discard([each], end)

    def _dirty_count(self) -> int:
        return len(self._puts_since_flush)

    def _entry_count(self) -> int:
        return self._row_count + len(self._older)

    def _some_entries(self) -> Iterable[object]:
        yield from ((raw_key, row) for raw_key, rows in self._held.items() for row in rows)
        yield from self._older.items()

    def _staged_between(self, first: int, last: int) -> dict[bytes, Any]:
        """Return the uncommitted rows with first <= time <= last, by full row key."""
        partition, interval = self.partition, self._interval
        staged = {
            segment_prefix(partition, time // interval) + raw_key + window_suffix(time, sequence): data
            for raw_key, time, sequence, data, _ in self._puts_since_flush
            if data is not None and first <= time <= last
        }
        for rows in (self._sealed, self._flushed):
            staged.update(
                (key, data)
                for key, data in rows
                if data is not None and first <= split_window_key(key, _ROW_PREFIX_LENGTH)[1] <= last
            )
        return staged


def _place(row: JoinRow) -> tuple[int, int]:
    return row[0], row[1]
