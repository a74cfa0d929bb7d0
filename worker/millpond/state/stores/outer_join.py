"""The store of stream-stream left and outer joins: the records that no record of the other side has joined yet.

A key is the record's time, its side and its key, in this order; a value is the list of the values of such records, as
in Kafka Streams' ListValueStore. So all records are in the order of their times, in which the join sends their results
once their windows have closed.

Records are in memory. When they need more than the store's share, the oldest ones stay in the backend alone, and are
read when their windows close.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from millpond.errors import StateCorrupted
from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import PARTITION_LENGTH, pack_timestamp, partition_prefix, unpack_timestamp
from millpond.state.rows import key_value_rows

from .encoding import Produced
from .staged_store import ChangelogRecord, StagedStore

__all__ = ("NOTHING_WAITS", "OuterJoinStore", "decode_list", "encode_list", "side_prefix")

K = TypeVar("K")

NOTHING_WAITS = 2**63 - 1
"""`min_time` of an empty store."""

_VARIABLE_SIZE = b"\x01"
_count = struct.Struct(">i")
_SIDE_AT = 8
_FEWEST_STALE = 1024
_EVICTED_PART = 8

side_prefix: Callable[[int, bool], bytes] = struct.Struct(">q?").pack
"""Returns the bytes before the key: of the record's time in epoch ms, and whether it is of the left side."""


class OuterJoinStore(StagedStore[K, Any]):
    """The records of both sides of a join that wait for a record of the other side.

    The key serde is that of the records' keys, the value serde that of the left side's values.
    """

    min_time: int
    """The time of a waiting record, up to which nothing is due; `NOTHING_WAITS` if the store is empty.

    As in Kafka Streams, it may be later than that of the oldest record.
    """

    times: object
    """The times that both sides of the join share in this task; the join sets them."""

    incomplete: bytes
    """Rows with keys below these bytes may be in the backend alone. Empty if all rows are in memory."""

    backend_reads: int

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        left: Serde[Any],
        right: Serde[Any],
        *,
        changelog_topic: str | None = None,
    ) -> None:
        super().__init__(name, partition, backend, key, left, caching=False, changelog_topic=changelog_topic)
        self.right_serde = right
        self.times = None
        self._held: dict[bytes, list[bytes]] = {}
        # The keys in `_held` in their order, of the right side and of the left one, with keys that were removed since.
        self._orders: tuple[list[bytes], list[bytes]] = ([], [])
        # Time of the last change of each key since the last flush.
        self._dirty: dict[bytes, int] = {}
        # Keys that were put for the first time since the last flush.
        self._fresh: set[bytes] = set()
        # Keys below `incomplete` whose removal the backend may not have yet.
        self._removed: set[bytes] = set()
        self._end = partition_prefix(partition + 1)
        self._forget()

    def waiting(self, *, left: bool) -> list[bytes]:
        """Return the keys of one side's records in memory, as a list that the store changes; some may be removed."""
        return self._orders[left]

    def encoded(self, key: K, value: Any, *, left: bool) -> bytes:
        """Return the bytes of one value.

        Raises:
            SerializationError: the side's serde cannot encode it.
        """
        if left:
            return b"\x01" + self._encoded(key, value)
        return b"\x00" + self._encoded(key, value, self.right_serde)

    def add(self, raw_key: bytes, data: bytes, timestamp: int) -> None:
        """Let a record wait.

        Args:
            raw_key: its time, side and key.
            data: its side and value.
            timestamp: the timestamp of the change in the changelog, in epoch ms.
        """
        values = self._held.get(raw_key)
        if values is None and raw_key < self.incomplete:
            values = self._read_back(raw_key)
            self._removed.discard(raw_key)
        if values is None:
            self._check_open()
            self._held[raw_key] = [data]
            if raw_key not in self._dirty:
                self._fresh.add(raw_key)
            self._arrange(raw_key)
        else:
            values.append(data)
        self._dirty[raw_key] = timestamp
        time = _time_of(raw_key)
        if time < self.min_time:
            self.min_time = time

    def discard(self, raw_key: bytes, timestamp: int) -> None:
        """Let the records of a key wait no longer, if any do; `timestamp` is that of the change, in epoch ms."""
        if self._held.pop(raw_key, None) is None:
            if raw_key >= self.incomplete or self._read_back(raw_key) is None:
                return
            del self._held[raw_key]
        if raw_key < self.incomplete:
            self._removed.add(raw_key)
        if raw_key in self._fresh:
            self._fresh.remove(raw_key)
            del self._dirty[raw_key]
        else:
            self._dirty[raw_key] = timestamp

    def closed(self, left_below: int, right_below: int, timestamp: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the key and the value of each record whose time is below its side's bound, by key, and remove them.

        As in Kafka Streams, a record is removed after the next one was handled.

        Args:
            left_below: the bound for records of the left side, in epoch ms.
            right_below: the bound for those of the right side.
            timestamp: the timestamp of the removals in the changelog.
        """
        if self.incomplete:
            self._read_below(max(left_below, right_below))
        rights, lefts = self._orders
        left_count, right_count = _count_below(lefts, left_below), _count_below(rights, right_below)
        due = lefts[:left_count]
        if right_count:
            due += rights[:right_count]
            due.sort()
        previous = None
        for raw_key in due:
            for data in tuple(self._held.get(raw_key, ())):
                self.min_time = _time_of(raw_key)
                yield raw_key, data
                if previous is not None and previous != raw_key:
                    self.discard(previous, timestamp)
                previous = raw_key
        if previous is not None:
            self.discard(previous, timestamp)
        del lefts[:left_count], rights[:right_count]
        self.min_time = self._next_min_time(previous, max(left_below, right_below, 0))

    def _next_min_time(self, last_closed: bytes | None, read_below: int) -> int:
        """Return the time of the record at which Kafka Streams ends the iteration over all records.

        It ends after it has seen a record with an open window on both sides; else, with the last record.
        """
        rights, lefts = self._orders
        held = self._held
        _drop_removed(lefts, held)
        _drop_removed(rights, held)
        if self.incomplete:
            first = next(self._rows_in_backend(pack_timestamp(read_below), self.incomplete), None)
            times = [keys[0] for keys in self._orders if keys] + ([first[0]] if first else [])
            return _time_of(min(times)) if times else NOTHING_WAITS
        if lefts and rights:
            both = max(lefts[0], rights[0])
            if len(held[both]) > 1:
                return _time_of(both)
            following = [key for key in (_following(lefts, both, held), _following(rights, both, held)) if key]
            return _time_of(min(following, default=both))
        last = max((key for key in (_last(lefts), _last(rights), last_closed) if key is not None), default=None)
        return NOTHING_WAITS if last is None else _time_of(last)

    def _arrange(self, raw_key: bytes) -> None:
        order = self._orders[raw_key[_SIDE_AT]]
        if not order or raw_key > order[-1]:
            order.append(raw_key)
            return
        place = bisect_left(order, raw_key)
        if order[place] != raw_key:
            order.insert(place, raw_key)

    # Rows in the backend alone

    def _read_back(self, raw_key: bytes) -> list[bytes] | None:
        """Return the values of a key below `incomplete` that is not in memory; if there are any, it is from now on."""
        if raw_key in self._removed:
            return None
        self._check_open()
        self.backend_reads += 1
        data = self._read(self._prefix + raw_key)
        if data is None:
            return None
        values = self._held[raw_key] = self._decoded(data)
        self._arrange(raw_key)
        return values

    def _read_below(self, time: int) -> None:
        if time <= 0:
            return
        self._check_open()
        bound = min(pack_timestamp(time), self.incomplete)
        found = {raw_key: self._decoded(data) for raw_key, data in self._rows_in_backend(b"", bound)}
        if found:
            self._held.update(found)
            self._order_again()
        if bound == self.incomplete:
            self.incomplete = b""
            self._removed.clear()

    def _rows_in_backend(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        held, removed, skip = self._held, self._removed, PARTITION_LENGTH
        for key, data in self._backend.range(self.name, self._prefix + low, self._prefix + high):
            raw_key = key[skip:]
            if raw_key not in held and raw_key not in removed:
                yield raw_key, data

    def _decoded(self, data: bytes) -> list[bytes]:
        try:
            return decode_list(data)
        except ValueError as error:
            raise StateCorrupted(f"store '{self.name}' has a list that cannot be read: {error}", self.name) from error

    def _order_again(self) -> None:
        """Make the orders anew, from the keys in memory."""
        for side, order in enumerate(self._orders):
            order[:] = sorted(key for key in self._held if key[_SIDE_AT] == side)

    def _forget(self) -> None:
        """Forget all rows in memory."""
        self._held.clear()
        for order in self._orders:
            order.clear()
        self._dirty.clear()
        self._fresh.clear()
        self._removed.clear()
        last = next(self._backend.range(self.name, self._prefix, self._end, reverse=True), None)
        self.incomplete = b"" if last is None else last[0][PARTITION_LENGTH:] + b"\0"
        # With rows, the next record that advances stream time looks for those whose windows have closed.
        self.min_time = NOTHING_WAITS if last is None else -NOTHING_WAITS

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn the changes since the last flush into rows and into changelog records, which are appended to `out`."""
        topic, partition, prefix = self.changelog_topic, self.partition, self._prefix
        rows, held = self._flushed, self._held
        written = len(rows)
        for raw_key, timestamp in self._dirty.items():
            values = held.get(raw_key)
            data = None if values is None else encode_list(values)
            if topic is not None:
                out.append((topic, data, raw_key, partition, None, None, timestamp))
            rows.append((prefix + raw_key, data))
        self._entry_size.sample((raw_key, held.get(raw_key)) for raw_key in self._dirty)
        self._dirty.clear()
        self._fresh.clear()
        self._row_size.sample(rows[written : written + 16])
        if sum(map(len, self._orders)) > 2 * len(held) + _FEWEST_STALE:
            self._order_again()

    def committed(self) -> None:
        """See `StagedStore`."""
        if self._removed:
            self._removed.intersection_update({*self._dirty, *(key[PARTITION_LENGTH:] for key, _ in self._flushed)})
        super().committed()

    def revert(self) -> None:
        """Go back to the backend's rows."""
        self._flushed = Rows()
        self._sealed = Rows()
        self._forget()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys."""
        row = key_value_rows(self.partition)
        rows = Rows([row(key, value, timestamp, None) for key, value, timestamp, _ in records if key is not None])
        self._held.clear()
        for order in self._orders:
            order.clear()
        if rows:
            last = max(key for key, _ in rows)[PARTITION_LENGTH:] + b"\0"
            self.incomplete = max(self.incomplete, last)
            self.min_time = -NOTHING_WAITS
        return rows

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._held.clear()
        self._dirty.clear()
        self._fresh.clear()

    def _evict(self, count: int) -> None:
        # Each time costs a sort of all keys: so a part of them, and not with each commit.
        count = max(count, len(self._held) // _EVICTED_PART)
        uncommitted = {key[PARTITION_LENGTH:] for key in self._uncommitted_rows()}
        evicted = sorted(key for key in self._held if key not in self._dirty and key not in uncommitted)[:count]
        if not evicted:
            return
        for raw_key in evicted:
            del self._held[raw_key]
        self.incomplete = max(self.incomplete, evicted[-1] + b"\0")
        self._removed.update(key for key in (*self._dirty, *uncommitted) if key not in self._held)
        self._order_again()

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _entry_count(self) -> int:
        return len(self._held)

    def _some_entries(self) -> Iterable[object]:
        return self._held.items()


def encode_list(values: list[bytes]) -> bytes:
    """Return the bytes of Kafka's ListSerde of byte arrays."""
    if len(values) == 1:
        return b"\x01\0\0\0\x01" + _count.pack(len(values[0])) + values[0]
    parts = [_VARIABLE_SIZE, _count.pack(len(values))]
    for value in values:
        parts += (_count.pack(len(value)), value)
    return b"".join(parts)


def decode_list(data: bytes) -> list[bytes]:
    """Return the values of `encode_list`.

    Raises:
        ValueError: the bytes are no such list.
    """
    try:
        if data[:1] != _VARIABLE_SIZE:
            raise ValueError("it is no list of byte arrays")
        (count,) = _count.unpack_from(data, 1)
        place, values = 5, []
        for _ in range(count):
            (length,) = _count.unpack_from(data, place)
            value = data[place + 4 : place + 4 + length]
            if len(value) != length:
                raise ValueError("it ends within a value")
            values.append(value)
            place += 4 + length
    except struct.error as error:
        raise ValueError("it ends within a length") from error
    return values


def _time_of(raw_key: bytes) -> int:
    (time,) = unpack_timestamp(raw_key)
    return int(time)


def _count_below(order: list[bytes], time: int) -> int:
    return bisect_left(order, pack_timestamp(time)) if time > 0 else 0


def _drop_removed(order: list[bytes], held: dict[bytes, list[bytes]]) -> None:
    """Remove keys that are not held from both ends."""
    while order and order[-1] not in held:
        order.pop()
    count = 0
    for key in order:
        if key in held:
            break
        count += 1
    del order[:count]


def _following(order: list[bytes], after: bytes, held: dict[bytes, list[bytes]]) -> bytes | None:
    """Return the first held key of an order that is above another key."""
    for place in range(bisect_left(order, after + b"\0"), len(order)):
        if order[place] in held:
            return order[place]
    return None


def _last(order: list[bytes]) -> bytes | None:
    return order[-1] if order else None
