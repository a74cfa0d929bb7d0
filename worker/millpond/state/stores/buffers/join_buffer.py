"""The buffer of a join of a stream with a versioned table (KIP-923): records that wait for the grace period to pass.

A row is one record: partition ++ changelog key -> changelog value. The changelog key is a zero byte ++ time (8 bytes)
++ key ++ sequence number (4 bytes), as in Kafka Streams, so rows are in the order in which they leave the buffer. The
front of the buffer is in memory, with everything that is not committed yet; the rest is read from the backend in parts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from millpond.errors import StateCorrupted, StateError
from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    PARTITION_LENGTH,
    BufferValue,
    RecordContext,
    decode_buffer_value,
    encode_buffer_value,
    partition_prefix,
)
from millpond.state.stores.encoding import Produced
from millpond.state.stores.staged_store import ChangelogRecord, StagedStore
from millpond.state.unreadable_rows import raise_error, row_error

__all__ = ("JoinBuffer", "Waiting")

K = TypeVar("K")
V = TypeVar("V")

_time = struct.Struct(">xq")
_sequence = struct.Struct(">i")
_MAX_SEQUENCE = 0x7FFFFFFF
_PART = 500
"""Rows that are read from the backend at once."""
_EVICTED_PART = 8


class Waiting(NamedTuple, Generic[K, V]):
    """A record that leaves the buffer."""

    key: K
    value: V
    context: RecordContext
    """The context of the record, with its timestamp and headers."""


class JoinBuffer(StagedStore[K, V], Generic[K, V]):
    """The waiting records of one task, ordered by time, then by the bytes of the key, then by the order of the puts.

    Attributes:
        sequence: the number of the last put, which is a part of the record's changelog key; -1 until it is known.
    """

    sequence: int
    backend_reads: int

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        changelog_topic: str | None = None,
    ) -> None:
        super().__init__(name, partition, backend, key, value, caching=False, changelog_topic=changelog_topic)
        self.sequence = -1
        self._records: dict[bytes, bytes] = {}  # changelog keys and values
        self._order: list[bytes] = []  # a heap of the keys in _records
        # Rows of the backend from this key on are not in memory yet, unless they are in _records; None: all are.
        self._unread: bytes | None = b""
        self._changes: list[tuple[bytes, bytes | None]] = []

    def put(self, raw_key: bytes, key: K, value: V, context: RecordContext) -> None:
        """Add a record, at the timestamp of its context.

        Args:
            raw_key: the serialised key.
            key: the key, for error messages.
            value: the value.
            context: the context of the record.

        Raises:
            SerializationError: the value cannot be encoded.
        """
        self._check_open()
        data = encode_buffer_value(BufferValue(None, None, self._encoded(key, value), context), 0)
        if self.sequence < 0:
            self.sequence = self._last_sequence()
        self.sequence = sequence = (self.sequence + 1) & _MAX_SEQUENCE
        changelog_key = _time.pack(context.timestamp) + raw_key + _sequence.pack(sequence)
        self._records[changelog_key] = data
        heappush(self._order, changelog_key)
        self._changes.append((changelog_key, data))

    def evict_until(
        self,
        time_ms: int,
        callback: Callable[[Waiting[K, V]], None],
        unreadable: Callable[[Exception, int], None] = raise_error,
    ) -> None:
        """Remove the records up to a time (ms, inclusive), in their order.

        A record is removed after its callback has returned. `unreadable` is called with the error and the timestamp
        (ms) of a record that cannot be decoded. If it returns, the record is removed.
        """
        if time_ms < 0:
            return  # no record has such a time, and its bytes would be above all others
        end = _time.pack(time_ms + 1)
        order, records = self._order, self._records
        decode_key, decode = self.key_serde.deserialize, self.value_serde.deserialize
        while True:
            if not order or (self._unread is not None and self._unread <= order[0]):
                if self._unread is None or self._unread >= end:
                    return
                self._read_part()
                continue
            changelog_key = order[0]
            if changelog_key >= end:
                return
            kept, context = self._decoded(records[changelog_key])
            serde: Serde[Any] = self.key_serde
            try:
                key, serde = decode_key(changelog_key[_time.size : -_sequence.size]), self.value_serde
                waiting = Waiting(key, decode(kept), context)
            except Exception as error:  # noqa: BLE001  # the serdes are the user's
                unreadable(row_error(error, self, serde=serde, waited="waiting record"), context.timestamp)
            else:
                callback(waiting)
            heappop(order)
            del records[changelog_key]
            self._changes.append((changelog_key, None))

    def _read_part(self) -> None:
        """Read the next rows of the backend into memory."""
        records, order = self._records, self._order
        low, high = self._prefix + (self._unread or b""), partition_prefix(self.partition + 1)
        rows = iter(self._backend.range(self.name, low, high))
        self.backend_reads += 1
        for key, data in islice(rows, _PART):
            changelog_key = key[PARTITION_LENGTH:]
            if changelog_key not in records:
                records[changelog_key] = data
                heappush(order, changelog_key)
        following = next(rows, None)
        self._unread = None if following is None else following[0][PARTITION_LENGTH:]

    def _last_sequence(self) -> int:
        """Return the largest sequence number of the waiting records; 0 without any."""
        low, high = self._prefix, partition_prefix(self.partition + 1)
        rows = (key for key, _ in self._backend.range(self.name, low, high))
        return max((_sequence.unpack(key[-_sequence.size :])[0] for key in rows), default=0)

    def _decoded(self, data: bytes) -> tuple[bytes, RecordContext]:
        try:
            value, _ = decode_buffer_value(data)
        except ValueError as error:
            raise StateCorrupted(f"store '{self.name}' has a record that cannot be read: {error}", self.name) from error
        return bytes(value.new or b""), value.context

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn the changes since the last flush into rows and into changelog records, which are appended to `out`."""
        if not self._changes:
            return
        topic, partition, prefix = self.changelog_topic, self.partition, self._prefix
        if topic is not None:
            # As for the buffer of `suppress`: Kafka Streams sends these with the wall clock, and no code reads it.
            now = self._timestamp()
            out += [(topic, data, key, partition, None, None, now) for key, data in self._changes]
        rows = Rows((prefix + key, data) for key, data in dict(self._changes).items())
        self._changes.clear()
        self._row_size.sample(rows[:16])
        self._entry_size.sample(islice(self._records.items(), 16))
        self._flushed += rows

    def revert(self) -> None:
        """Go back to the backend's records."""
        self._flushed = Rows()
        self._sealed = Rows()
        self._clear()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys.

        Raises:
            StateError: a record cannot be read. Not `StateCorrupted`: restoring from the same changelog again would not
                help.
        """
        self._clear()
        rows = Rows()
        for key, value, _, _ in records:
            if key is None:
                continue
            if value is not None:
                try:
                    decode_buffer_value(value)
                except ValueError as error:
                    message = f"the changelog of '{self.name}' has a record that cannot be read: {error}"
                    raise StateError(message) from error
            rows.append((self._prefix + key, value))
        return rows

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._clear()

    def _clear(self) -> None:
        self._records.clear()
        self._order.clear()
        self._changes.clear()
        self._unread = b""
        self.sequence = -1

    def _evict(self, count: int) -> None:
        """Forget the records at the end that the backend has; they are read again when it is their turn."""
        # Each time costs a sort of all keys: so a part of them, and not with each commit.
        count = max(count, len(self._records) // _EVICTED_PART)
        uncommitted = {row[PARTITION_LENGTH:] for row in self._uncommitted_rows()}
        uncommitted.update(key for key, _ in self._changes)
        forgotten = [key for key in sorted(self._records)[-count:] if key not in uncommitted]
        if not forgotten:
            return
        for key in forgotten:
            del self._records[key]
        self._order[:] = self._records
        heapify(self._order)
        self._unread = forgotten[0] if self._unread is None else min(self._unread, forgotten[0])

    def _dirty_count(self) -> int:
        return len(self._changes)

    def _entry_count(self) -> int:
        return len(self._records)

    def _some_entries(self) -> Iterable[object]:
        return self._records.items()
