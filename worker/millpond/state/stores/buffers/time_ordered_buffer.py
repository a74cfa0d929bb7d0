"""The buffer behind `suppress`: one pending update per key, evicted in the order of buffer time, then key bytes.

All pending updates are in memory, as in Kafka Streams. The backend has them too, as of the last commit, so a restart
reads them from there and not from the beginning of the changelog. An update is serialised when it is put, as in Kafka
Streams, so that an error belongs to the record that puts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from millpond.errors import StateCorrupted, StateError
from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    BUFFER_HEADERS,
    PARTITION_LENGTH,
    BufferValue,
    RecordContext,
    decode_buffer_value,
    encode_buffer_value,
    partition_prefix,
)
from millpond.state.rows import check_buffer_record
from millpond.state.stores.encoding import Produced
from millpond.state.stores.staged_store import ChangelogRecord, StagedStore
from millpond.state.unreadable_rows import raise_error, row_error

__all__ = ("Pending", "TimeOrderedBuffer")

K = TypeVar("K")
V = TypeVar("V")

NOTHING_BUFFERED = 2**63 - 1

_VALUE_SIZES = 8
_CONTEXT_SIZES = 8 + 8 + 4


class Pending(NamedTuple, Generic[K, V]):
    """An update that is evicted from the buffer."""

    key: K
    new: V | None
    old: V | None
    """The value before this update, as the upstream operator forwarded it."""

    context: RecordContext
    """The context of the record that made the update."""


class _Buffered:
    """A pending update; its values are bytes."""

    __slots__ = ("context", "new", "old", "prior", "size", "time")

    def __init__(
        self, time: int, prior: bytes | None, old: bytes | None, new: bytes | None, context: RecordContext
    ) -> None:
        self.time = time
        self.prior = prior
        self.old = old
        self.new = new
        self.context = context
        self.size = 0


class TimeOrderedBuffer(StagedStore[K, V], Generic[K, V]):
    """The suppress buffer of one task.

    Attributes:
        min_timestamp: the smallest buffer time (ms), 2**63 - 1 when empty; an operator checks it for each record.
    """

    min_timestamp: int

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        changelog_topic: str | None = None,
        count_bytes: bool = False,
    ) -> None:
        """Read the pending updates from the backend.

        Args:
            name: the store's name.
            partition: the task's partition.
            backend: the backend of committed updates.
            key: serde of the (usually windowed) keys.
            value: serde of the values.
            changelog_topic: the changelog topic; None without a changelog.
            count_bytes: whether `buffer_size` is exact after each put; else it is that of the last flush.
        """
        super().__init__(name, partition, backend, key, value, caching=False, changelog_topic=changelog_topic)
        self._count_bytes = count_bytes
        self._updates: dict[bytes, _Buffered] = {}
        # A heap with one item per key in _updates, and stale items of keys that a restored deletion removed.
        self._order: list[tuple[int, bytes]] = []
        self._dirty: dict[bytes, None] = {}
        self._size = 0
        self._load()

    @property
    def num_records(self) -> int:
        """The number of keys with a pending update."""
        return len(self._updates)

    @property
    def buffer_size(self) -> int:
        """The bytes of all pending updates, as in Kafka Streams; without `count_bytes`, as of the last flush."""
        return self._size

    def put(  # noqa: PLR0913  # as Kafka Streams' TimeOrderedKeyValueBuffer
        self, buffer_time: int, raw_key: bytes, key: K, new: V | None, old: V | None, context: RecordContext
    ) -> None:
        """Buffer an update. It replaces a pending update of the key, whose buffer time stays.

        Args:
            buffer_time: the time by which the buffer is ordered, in ms.
            raw_key: the serialised key.
            key: the key, for error messages.
            new: the new value, None for a deletion.
            old: the value before it.
            context: the context of the current record.

        Raises:
            SerializationError: a value cannot be encoded.
        """
        new_kept = None if new is None else self._encoded(key, new)
        old_kept = None if old is None else self._encoded(key, old)
        held = self._updates.get(raw_key)
        if held is None:
            self._check_open()
            self._insert(raw_key, _Buffered(buffer_time, old_kept, old_kept, new_kept, context))
        else:
            held.old, held.new, held.context = old_kept, new_kept, context
            if self._count_bytes:
                self._measure(raw_key, held)
        self._dirty[raw_key] = None

    def prior_value(self, raw_key: bytes) -> tuple[bool, V | None]:
        """Return whether the key has a pending update, and the value that is visible downstream until its eviction."""
        held = self._updates.get(raw_key)
        return (False, None) if held is None else (True, self._object(held.prior))

    def evict_while(
        self,
        predicate: Callable[[], bool],
        callback: Callable[[Pending[K, V]], None],
        unreadable: Callable[[Exception, int], None] = raise_error,
    ) -> None:
        """Evict pending updates from the front, as long as `predicate` is true.

        `unreadable` is called with the error and the timestamp (ms) of an update that cannot be decoded. If it returns,
        the update is removed.

        The predicate is called before each update, with `min_timestamp`, `num_records` and, with `count_bytes`,
        `buffer_size` up to date. An update is removed after its callback has returned.
        """
        updates, order = self._updates, self._order
        decode = self.key_serde.deserialize
        while updates and predicate():
            _, raw_key = order[0]
            held = updates[raw_key]
            serde: Serde[Any] = self.key_serde
            try:
                key, serde = decode(raw_key), self.value_serde
                pending = Pending(key, self._object(held.new), self._object(held.old), held.context)
            except Exception as error:  # noqa: BLE001  # the serdes are the user's
                unreadable(row_error(error, self, serde=serde, waited="held-back result"), held.context.timestamp)
            else:
                callback(pending)
            heappop(order)
            del updates[raw_key]
            self._size -= held.size
            self._dirty[raw_key] = None
            self._drop_stale()

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn the changes since the last flush into rows and into changelog records, which are appended to `out`."""
        if not self._dirty:
            return
        topic, partition, prefix = self.changelog_topic, self.partition, self._prefix
        updates, rows = self._updates, self._flushed
        # Kafka Streams sends these without a timestamp, and its producer sets the wall clock. No code reads it, but a
        # broker rejects one that is an hour ahead, and a clock may be wrong where event times are right.
        now = self._timestamp()
        for raw_key in self._dirty:
            held = updates.get(raw_key)
            data = None
            if held is not None:
                if not self._count_bytes:
                    self._measure(raw_key, held)
                value = BufferValue(held.prior, held.old, held.new, held.context)
                data = encode_buffer_value(value, held.time)
            if topic is not None:
                change = (topic, data, raw_key, partition, None, None, now)
                out.append(change if data is None else (*change, BUFFER_HEADERS))
            rows.append((prefix + raw_key, data))
        self._dirty.clear()
        self._row_size.sample(rows)
        self._entry_size.sample(
            (key, held.prior, held.old, held.new, held.context, held.time) for key, held in updates.items()
        )

    def revert(self) -> None:
        """Go back to the backend's updates."""
        self._flushed = Rows()
        self._sealed = Rows()
        self._load()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys.

        Raises:
            StateError: a record is not of format version 3, which Kafka 2.5.1 and newer write. Not `StateCorrupted`:
                restoring from the same changelog again would not help.
        """
        rows = Rows()
        for raw_key, value, _, headers in records:
            if raw_key is None:
                continue
            if value is None:
                self._remove(raw_key)
            else:
                try:
                    check_buffer_record(value, headers)
                except ValueError as error:
                    raise self._unreadable(str(error)) from error
                self._accept(raw_key, value)
            rows.append((self._prefix + raw_key, value))
        return rows

    def _unreadable(self, what: str) -> StateError:
        return StateError(
            f"the changelog of '{self.name}' has {what}; Kafka Streams writes version 3 since 2.5.1: run the "
            "application once with such a version, or reset it"
        )

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._clear()

    def _load(self) -> None:
        self._clear()
        low, high = partition_prefix(self.partition), partition_prefix(self.partition + 1)
        for key, value in self._backend.range(self.name, low, high):
            self._accept(key[PARTITION_LENGTH:], value)

    def _accept(self, raw_key: bytes, data: bytes) -> None:
        try:
            value, time = decode_buffer_value(data)
        except ValueError as error:
            raise StateCorrupted(
                f"store '{self.name}' has an update that cannot be read: {error}", self.name
            ) from error
        held = self._updates.get(raw_key)
        prior, old, new = (None if part is None else bytes(part) for part in value[:3])
        if held is not None and held.time == time:
            held.prior, held.old, held.new, held.context = prior, old, new, value.context
            self._measure(raw_key, held)
            return
        if held is not None:
            self._remove(raw_key)
        update = _Buffered(time, prior, old, new, value.context)
        self._insert(raw_key, update)
        if not self._count_bytes:
            self._measure(raw_key, update)

    def _insert(self, raw_key: bytes, update: _Buffered) -> None:
        self._updates[raw_key] = update
        heappush(self._order, (update.time, raw_key))
        self.min_timestamp = min(self.min_timestamp, update.time)
        if self._count_bytes:
            self._measure(raw_key, update)

    def _remove(self, raw_key: bytes) -> None:
        held = self._updates.pop(raw_key, None)
        if held is not None:
            self._size -= held.size
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Remove stale items from the front, and set `min_timestamp` to the time of the first update."""
        order, updates = self._order, self._updates
        while order:
            time, raw_key = order[0]
            held = updates.get(raw_key)
            if held is not None and held.time == time:
                self.min_timestamp = time
                return
            heappop(order)
        self.min_timestamp = NOTHING_BUFFERED

    def _clear(self) -> None:
        self._updates.clear()
        self._order.clear()
        self._dirty.clear()
        self._size = 0
        self.min_timestamp = NOTHING_BUFFERED

    def _object(self, kept: bytes | None) -> V | None:
        return None if kept is None else self.value_serde.deserialize(kept)

    def _measure(self, raw_key: bytes, held: _Buffered) -> None:
        prior, old, new, context = held.prior, held.old, held.new, held.context
        size = _VALUE_SIZES + len(raw_key) + len(prior or b"") + len(new or b"")
        if old is not None and old != prior:
            size += len(old)
        size += _CONTEXT_SIZES + len(context.topic or "")
        for name, value in context.headers or ():
            size += len(name) + len(value or b"")
        self._size += size - held.size
        held.size = size

    def _evict(self, count: int) -> None:
        """Evict nothing, since all pending updates stay in memory, in their order."""

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _entry_count(self) -> int:
        return len(self._updates)

    def _some_entries(self) -> Iterable[object]:
        return ((key, held.prior, held.old, held.new, held.context) for key, held in self._updates.items())
