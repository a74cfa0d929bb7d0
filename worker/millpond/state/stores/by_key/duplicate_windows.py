"""The window store of stream-stream joins: it keeps every value of a key and time, in the order of the puts.

Each put gets a sequence number, which is the last part of its key in the changelog. Numbers start at 1 with each task,
as in Kafka Streams. There, a put after a restart may replace an older one of the same key and time; here, it gets a
number above those of the rows that the task found.

To find it, a late put after a restart reads the backend, which takes longer than the put. After many of them, all rows
are read, a part with each flush; then the numbers are above all that were used, and late puts read nothing.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    MAX_SEQUENCE,
    ROW_PREFIX_LENGTH,
    partition_prefix,
    segment_prefix,
    split_window_key,
    window_suffix,
)
from millpond.state.stores.encoding import Produced
from millpond.state.stores.staged_store import ABSENT, ChangelogRecord, StoreContext
from millpond.state.stores.window import WindowStore
from millpond.state.stores.window_puts import Entry

from .newest_rows import NewestRows, TimedRow

__all__ = ("DuplicateWindowStore", "JoinRow")

K = TypeVar("K")
V = TypeVar("V")

JoinRow = tuple[int, int, Any]
"""Time in epoch ms, sequence number, value: an object of an immutable serde, else its bytes."""

_MANY_LOOKUPS = 10_000
"""Late puts after a restart that look for used sequence numbers each; then all rows are looked at once."""
_PART = 2_000
"""Rows that are looked at with each flush."""
_SEQUENCE_LENGTH = 4
"""Bytes at the end of the key of a row."""

_Put = tuple[bytes, int, int, bytes | None, int]
"""Raw key, time, sequence number, encoded value, and the timestamp of the record."""


class DuplicateWindowStore(NewestRows[K, V], WindowStore[K, V]):
    """A window store that keeps all values that are put for a key and time, in the order of the puts.

    A put of None is only logged: it deletes nothing. `fetch` without a range returns the value that was put last into
    the store, if it is of that key and time, else None, as in Kafka Streams.
    """

    matches: Callable[[bytes, int, int], Sequence[JoinRow]]
    """Returns the rows of a serialised key with first <= time <= last (epoch ms), by time and order of puts."""

    append: Callable[[bytes, K, V | None, int, int], None]
    """Puts a value: serialised key, key, value, time, and time of the record that puts it, both in epoch ms."""

    on_not_kept: Callable[[int], None] | None
    """Called for a value that is too old to be found, with the ms by which it is; None to call nothing."""

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
        self.on_not_kept: Callable[[int], None] | None = None
        self._puts_since_flush: list[_Put] = []
        self._sequence = 0
        # The sequence number of the last put of a value.
        self._last_value = 0
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
        self._look_up_again()

    @property
    def floor(self) -> int:
        """The time up to which rows are not found any more, in epoch ms."""
        return self._floor

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task."""
        self._context = context
        self._bind()

    def _bind(self) -> None:
        self.matches = self._matching()
        self.append = self._appending()
        self.entry = self._last_put
        self.stage = self.stage_count = self._stage

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
                if self.on_not_kept is not None:
                    self.on_not_kept(self._floor - time)
                if self.persistent:
                    self._last_value = sequence
                return
            self._last_value = sequence
            self._row_count += 1
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
        self._lookups += 1
        prefix = segment_prefix(self.partition, time // self._interval) + raw_key
        low, high = prefix + window_suffix(time), prefix + window_suffix(time, MAX_SEQUENCE) + b"\0"
        # The rows of a key that begins with this one, or the other way around, may be among them.
        for key, _ in self._backend.range(self.name, low, high, reverse=True):
            found, start, sequence = split_window_key(key, ROW_PREFIX_LENGTH)
            if found == raw_key and start == time:
                self._sequence = max(self._sequence, sequence)
                return

    def _look_up_again(self) -> None:
        """Look up the sequence numbers of late puts from now on."""
        self._lookups = 0
        # The largest number of the rows that were looked at, and the full key from which on they are.
        self._largest_used = 0
        self._unseen_from = self._prefix

    def _look_at_rows(self) -> None:
        """Look at the sequence numbers of the next rows of the backend; after the last one, use larger ones only."""
        rows = self._backend.range(self.name, self._unseen_from, partition_prefix(self.partition + 1))
        keys = [key for key, _ in islice(rows, _PART)]
        used = max((int.from_bytes(key[-_SEQUENCE_LENGTH:], "big") for key in keys), default=0)
        self._largest_used = max(self._largest_used, used)
        if len(keys) == _PART:
            self._unseen_from = keys[-1] + b"\0"
            return
        largest = self._largest_used
        self._look_up_again()
        if largest < MAX_SEQUENCE // 2:  # else the numbers may begin again at 0 soon
            self._sequence = max(self._sequence, largest)
            self._inherited = -1

    def _stage(  # noqa: PLR0913  # the signature of `stage`
        self, raw_key: bytes, start: int, key: K, value: V | None, timestamp: int, old: V | None, /
    ) -> None:
        self.append(raw_key, key, value, start, timestamp)

    def _last_put(self, raw_key: bytes, start: int, /) -> Entry:
        for _, sequence, value in self.matches(raw_key, start, start):
            if sequence == self._last_value:
                return (value if self.value_serde.immutable else self.value_serde.deserialize(value)), -1
        return ABSENT

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn puts into rows and changelog records (appended to `out`)."""
        puts = self._puts_since_flush.copy()
        self._puts_since_flush.clear()
        written = len(self._flushed)
        if puts:
            raw_keys, times, sequences, data, timestamps = zip(*puts, strict=True)
            self._encode_puts(times, raw_keys, sequences, data, timestamps, out)
            self._row_size.sample(self._flushed[written : written + 16])
            self._entry_size.sample(self._some_entries())
        self._sweep_memory()
        if self._lookups > _MANY_LOOKUPS:
            self._look_at_rows()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys."""
        rows = super().restore(records)
        self._inherited = self._observed
        self._look_up_again()
        return rows

    def revert(self) -> None:
        """Go back to the backend's rows and stream time."""
        super().revert()
        self._inherited = max(self._inherited, self._observed)
        self._look_up_again()

    def _discard_entries(self) -> None:
        super()._discard_entries()
        self._puts_since_flush.clear()

    def _identity(self, row: TimedRow) -> tuple[int, int]:
        return row[0], row[1]

    def _decode_held(self, time: int, sequence: int, data: bytes) -> JoinRow:
        return time, sequence, self.value_serde.deserialize(data) if self.value_serde.immutable else data

    def _places_since_flush(self) -> Iterator[tuple[int, bytes]]:
        return ((put[1], put[0]) for put in self._puts_since_flush)

    def _dirty_count(self) -> int:
        return len(self._puts_since_flush)

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
                if data is not None and first <= split_window_key(key, ROW_PREFIX_LENGTH)[1] <= last
            )
        return staged
