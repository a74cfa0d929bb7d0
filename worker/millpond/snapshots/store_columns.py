"""The rows of a store as Arrow columns, decoded with the store's serdes. Pure; needs pyarrow.

    rows ──split──> key bytes, window, value bytes, timestamp ──serdes──> objects ──types──> Arrow arrays

The columns of a store are these, in this order:

- `key`: the decoded key; for a windowed key, without the window.
- `window_start`, `window_end`: for stores and keys with windows or sessions. The end of a window is null where the
  windows' size is unknown.
- `value`: the decoded value; for a suppress buffer, the pending result; for a versioned store, null for a deletion. For
  records that wait for a partner in an outer join it is bytes: values of both sides.
- `timestamp`: of the record that made the value; not for stores without timestamps.
- `partition`.
- `key_raw`, `value_raw`: the bytes that could not be decoded, else null. They exist only with serdes; without, `key`
  and `value` are bytes.

Times are microseconds in UTC, null where Arrow has no such time. `millpond.snapshots.arrow_types` maps types
to columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millpond.errors import BrokerError
from millpond.serdes import Bytes, Serde, Windowed
from millpond.state.builders import StoreBuilder, store_serdes
from millpond.state.formats import (
    PARTITION_LENGTH,
    ROW_PREFIX_LENGTH,
    TIMESTAMP_LENGTH,
    decode_buffer_value,
    split_session_key,
    split_window_key,
    unpack_timestamp,
)
from millpond.state.stores.versioned.history import VERSION_LENGTH, version_of

from .arrow_types import Column, bytes_column, column_of_serde
from .layouts import StoreKind, StoreLayout, layout_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = (
    "BUFFER_TIME_LENGTH",
    "SEQUENCE_LENGTH",
    "SIDE_LENGTH",
    "Batch",
    "SplitRow",
    "StoreColumns",
    "columns_of",
    "split_function",
)

_MAX_LONG = 2**63 - 1
BUFFER_TIME_LENGTH = 9
"""Bytes before the key in a join buffer: a zero byte, and the time."""
SEQUENCE_LENGTH = 4
"""Bytes after the key in a join buffer."""
SIDE_LENGTH = 9
"""Bytes before the key of a record that waits for a partner: its time, and its side."""


class SplitRow(NamedTuple):
    """The parts of a local row."""

    key: bytes
    """The serialised key; in a suppress buffer it may end with the window."""
    window_start: int | None
    """The start of the window or session in epoch ms; None for other stores."""
    window_end: int | None
    """The end of the session in epoch ms; None for other stores."""
    value: bytes | None
    """The serialised value; None for a deletion that is pending in a suppress buffer, or that is a version."""
    timestamp: int | None
    """The timestamp in epoch ms; None for stores without timestamps."""
    partition: int


class Batch(NamedTuple):
    """Some rows as columns."""

    columns: pa.RecordBatch
    undecoded_keys: int
    undecoded_values: int


def split_function(layout: StoreLayout) -> Callable[[bytes, bytes], SplitRow]:
    """Return the function from a local row, full key and value, to its parts.

    It raises ValueError or struct.error for a row of another layout.
    """
    kind = layout.kind
    timestamped = kind in (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW)

    def partition_of(key: bytes) -> int:
        return int.from_bytes(key[:PARTITION_LENGTH], "big", signed=True)

    def buffered(key: bytes, value: bytes) -> SplitRow:
        held, _ = decode_buffer_value(value)
        return SplitRow(key[PARTITION_LENGTH:], None, None, held.new, held.context.timestamp, partition_of(key))

    def waiting(key: bytes, value: bytes) -> SplitRow:
        held, _ = decode_buffer_value(value)
        raw = key[PARTITION_LENGTH + BUFFER_TIME_LENGTH : -SEQUENCE_LENGTH]
        return SplitRow(raw, None, None, held.new, held.context.timestamp, partition_of(key))

    def unmatched(key: bytes, value: bytes) -> SplitRow:
        (timestamp,) = unpack_timestamp(key, PARTITION_LENGTH)
        return SplitRow(key[PARTITION_LENGTH + SIDE_LENGTH :], None, None, value, timestamp, partition_of(key))

    def version(key: bytes, value: bytes) -> SplitRow:
        (timestamp,) = unpack_timestamp(key, len(key) - VERSION_LENGTH)
        raw = key[PARTITION_LENGTH:-VERSION_LENGTH]
        return SplitRow(raw, None, None, version_of(value), timestamp, partition_of(key))

    def windowed(key: bytes, value: bytes) -> SplitRow:
        raw, start, _ = split_window_key(key, ROW_PREFIX_LENGTH)
        return SplitRow(raw, start, None, *_timed(value, timestamped=timestamped), partition_of(key))

    def of_session(key: bytes, value: bytes) -> SplitRow:
        raw, end, start = split_session_key(key, ROW_PREFIX_LENGTH)
        return SplitRow(raw, start, end, value, None, partition_of(key))

    def plain(key: bytes, value: bytes) -> SplitRow:
        return SplitRow(key[PARTITION_LENGTH:], None, None, *_timed(value, timestamped=timestamped), partition_of(key))

    others = {
        StoreKind.BUFFER: buffered,
        StoreKind.JOIN_BUFFER: waiting,
        StoreKind.OUTER_JOIN: unmatched,
        StoreKind.SESSION: of_session,
        StoreKind.VERSIONED: version,
    }
    return others.get(kind, windowed if layout.windowed else plain)


def _timed(value: bytes, *, timestamped: bool) -> tuple[bytes, int | None]:
    if not timestamped:
        return value, None
    (timestamp,) = unpack_timestamp(value)
    return value[TIMESTAMP_LENGTH:], timestamp


def columns_of(builder: StoreBuilder[Any, Any], topic: str | None) -> StoreColumns:
    """Return the columns of the stores that a builder makes, decoded with its serdes.

    Args:
        builder: the builder, with serdes; default serdes are filled in.
        topic: real name of the changelog, for serdes with a schema registry; None for a store without one.

    Raises:
        StateError: the builder is of a kind that snapshots do not cover.
        ConfigError: a serde is missing.
    """
    key, value = store_serdes(builder, topic)
    return StoreColumns(
        layout_of(builder), key=key, value=value, window_size_ms=getattr(builder, "window_size_ms", None)
    )


class StoreColumns:
    """The columns of one store.

    Attributes:
        schema: the schema of every batch.
        decoded: whether serdes are given.
    """

    schema: pa.Schema
    decoded: bool

    def __init__(
        self,
        layout: StoreLayout,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        window_size_ms: int | None = None,
    ) -> None:
        """Derive the schema.

        Args:
            layout: the layout of the store.
            key: serde of the keys, made for the changelog; None to return bytes.
            value: serde of the values, given when `key` is given.
            window_size_ms: the size of a window store's windows, to compute their ends; None if it is not known.

        Raises:
            ValueError: only one serde is given.
        """
        if (key is None) != (value is None):
            raise ValueError("only one serde is given: give the serdes of both key and value, or none")
        self.decoded = key is not None
        self._split = split_function(layout)
        self._size = window_size_ms
        if value is not None and layout.kind is StoreKind.OUTER_JOIN:
            value = Bytes  # a list of values of both sides
        self._key_serde, self._value_serde = key, value
        # Keys of other stores may have a window, too: in a table made by a windowed aggregation.
        self._key_has_window = not layout.windowed and key is not None and key.partition_by is not None
        self._windows = layout.windowed or self._key_has_window
        self._timestamped = layout.kind not in (StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.SESSION)
        if key is None or value is None:
            self._key, self._value = bytes_column(), bytes_column()
        else:
            self._key = column_of_serde(key, inner=self._key_has_window)
            self._value = column_of_serde(value)
        self.schema = self._schema()

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        time = pa.timestamp("us", "UTC")
        fields: list[tuple[str, Any]] = [("key", self._key.type)]
        if self._windows:
            fields += [("window_start", time), ("window_end", time)]
        fields.append(("value", self._value.type))
        if self._timestamped:
            fields.append(("timestamp", time))
        fields.append(("partition", pa.int32()))
        if self.decoded:
            fields += [("key_raw", pa.binary()), ("value_raw", pa.binary())]
        return pa.schema(fields)

    def batch(self, rows: Sequence[tuple[bytes, bytes]]) -> Batch:
        """Return rows as columns.

        Args:
            rows: full keys and values, as in the state file and in a snapshot's files.

        Raises:
            ValueError, struct.error: a row is of another layout.
        """
        import pyarrow as pa

        split = self._split
        parts = [split(key, value) for key, value in rows]
        raw_keys = [part.key for part in parts]
        raw_values = [part.value for part in parts]
        starts: list[int | None] = [part.window_start for part in parts]
        ends: list[int | None] = [part.window_end for part in parts]
        if self._size is not None:
            ends = [None if start is None else start + self._size for start in starts]
        if self._key_serde is None or self._value_serde is None:
            keys, values = self._key.array(raw_keys), self._value.array(raw_values)
            raw: list[Any] = []
            failed = [0, 0]
        else:
            decode = self._windowed(starts, ends) if self._key_has_window else self._key_serde.deserialize
            keys, key_raw, failed_keys = _decoded(self._key, decode, raw_keys)
            values, value_raw, failed_values = _decoded(self._value, self._value_serde.deserialize, raw_values)
            raw = [pa.array(each, pa.binary()) for each in (key_raw, value_raw)]
            failed = [failed_keys, failed_values]
        columns = [keys]
        if self._windows:
            columns += [_times(starts), _times(ends)]
        columns.append(values)
        if self._timestamped:
            columns.append(_times([part.timestamp for part in parts]))
        columns.append(pa.array([part.partition for part in parts], pa.int32()))
        return Batch(pa.record_batch([*columns, *raw], schema=self.schema), *failed)

    def _windowed(self, starts: list[int | None], ends: list[int | None]) -> Callable[[bytes], Any]:
        """Return a function that decodes keys one after the other, and puts their windows into two lists."""
        assert self._key_serde is not None
        deserialize = self._key_serde.deserialize
        at = -1

        def decode(data: bytes) -> Any:
            nonlocal at
            at += 1
            found = deserialize(data)
            if not isinstance(found, Windowed):
                return found
            starts[at], ends[at] = found.start_ms, found.end_ms
            return found.key

        return decode


def _decoded(
    column: Column, decode: Callable[[bytes], Any], raw: Sequence[bytes | None]
) -> tuple[pa.Array, list[bytes | None], int]:
    """Return the column of the decoded objects, the bytes that cannot be decoded, and their number.

    Raises:
        BrokerError: a schema registry does not answer.
    """
    objects: list[Any] = []
    failed: list[bytes | None] = []
    for data in raw:
        try:
            objects.append(None if data is None else decode(data))
            failed.append(None)
        except BrokerError:
            raise  # a schema registry that does not answer: the rows are right
        except Exception:  # noqa: BLE001  # the serde is the user's
            objects.append(None)
            failed.append(data)
    try:
        array = column.array(objects)
    except Exception:  # noqa: BLE001  # a value that does not fit its column, such as an integer of more than 64 bits
        for at, found in enumerate(objects):
            try:
                column.array([found])
            except Exception:  # noqa: BLE001  # as above
                objects[at], failed[at] = None, raw[at]
        array = column.array(objects)
    return array, failed, sum(each is not None for each in failed)


def _times(ms: Sequence[int | None]) -> pa.Array:
    """Return epoch milliseconds as times; those out of the range of microseconds are null."""
    import pyarrow as pa

    limit = _MAX_LONG // 1000
    micros = [None if each is None or not -limit <= each <= limit else each * 1000 for each in ms]
    return pa.array(micros, pa.timestamp("us", "UTC"))
