"""The row layouts of stores: the rules that turn a changelog record of any kind of store into a local row. Pure.

The row functions themselves are in `millpond.state.rows`, where the stores' `restore` uses them.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from millpond.errors import StateError
from millpond.state.backend import Row
from millpond.state.builders import (
    JoinBufferBuilder,
    KeyValueStoreBuilder,
    OuterJoinStoreBuilder,
    SessionStoreBuilder,
    StoreBuilder,
    TimeOrderedBufferBuilder,
    VersionedKeyValueStoreBuilder,
    WindowStoreBuilder,
)
from millpond.state.formats import segment_interval, split_session_key, split_window_key
from millpond.state.own_stores import StateStoreBuilder
from millpond.state.rows import (
    Headers,
    RowOf,
    buffer_rows,
    first_live_segment,
    join_buffer_rows,
    key_value_rows,
    session_rows,
    timestamped_key_value_rows,
    window_rows,
)

__all__ = (
    "GLOBAL_PARTITION",
    "StoreKind",
    "StoreLayout",
    "check_metadata",
    "covered",
    "expired_before",
    "layout_of",
    "metadata",
    "row",
    "row_function",
    "time_of",
)


GLOBAL_PARTITION = 0
"""The partition of all rows of a global store."""


class StoreKind(StrEnum):
    """The kind of a store, which determines the format of its rows."""

    KEY_VALUE = "key_value"
    TIMESTAMPED_KEY_VALUE = "timestamped_key_value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped_window"
    SESSION = "session"
    BUFFER = "buffer"
    JOIN_BUFFER = "join_buffer"
    OUTER_JOIN = "outer_join"
    VERSIONED = "versioned"


class StoreLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """All facts that determine the bytes of a store's rows. Rows of one layout cannot be used with another."""

    kind: StoreKind
    retention_ms: int = 0
    """The retention of a store of windows, sessions or versions in ms. It decides which windows and sessions share a
    segment. 0 for other kinds."""
    is_global: bool = False
    """Whether the store is global: the rows of all partitions of its topic belong to one partition, number 0."""
    serdes: str = ""
    """The names of a global store's serdes, which make its rows. Rows of other stores have their changelogs' bytes."""
    segment_ms: int = 0
    """The length of a segment of a versioned store in ms. 0 for other kinds."""

    @property
    def windowed(self) -> bool:
        """Whether keys end with a window or a session, and so expire."""
        return self.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION)

    @property
    def has_stream_time(self) -> bool:
        """Whether the metadata of rows has the stream time of the store."""
        return self.windowed or self.kind is StoreKind.VERSIONED


def covered(builder: StoreBuilder[Any, Any]) -> bool:
    """Return whether snapshots can include the stores that a builder makes.

    A store with `max_entries` is small, and has its entries in the order of the puts in the changelog. The rows of a
    global store are made from its topic by the key alone, so it cannot be versioned.
    """
    return _kind_of(builder) is not None


def _kind_of(builder: StoreBuilder[Any, Any]) -> StoreKind | None:
    match builder:
        case KeyValueStoreBuilder(max_entries=None):
            return StoreKind.TIMESTAMPED_KEY_VALUE if builder.timestamped else StoreKind.KEY_VALUE
        case WindowStoreBuilder():
            return StoreKind.TIMESTAMPED_WINDOW if builder.timestamped else StoreKind.WINDOW
        case SessionStoreBuilder():
            return StoreKind.SESSION
        case StateStoreBuilder():
            return StoreKind.TIMESTAMPED_KEY_VALUE
        case TimeOrderedBufferBuilder():
            return StoreKind.BUFFER
        case JoinBufferBuilder():
            return StoreKind.JOIN_BUFFER
        case OuterJoinStoreBuilder():
            return StoreKind.OUTER_JOIN
        case VersionedKeyValueStoreBuilder():
            return StoreKind.VERSIONED
        case _:
            return None


def layout_of(builder: StoreBuilder[Any, Any], *, is_global: bool = False, serdes: str = "") -> StoreLayout:
    """Return the layout of the stores that a builder makes.

    Args:
        builder: the builder of the stores.
        is_global: whether the builder makes a global store.
        serdes: the names of a global store's serdes; see `StoreLayout.serdes`.

    Raises:
        StateError: the builder is of a kind that snapshots do not cover.
    """
    kind = _kind_of(builder)
    if kind is None:
        bounded = " with max_entries=" if isinstance(builder, KeyValueStoreBuilder) else ""
        raise StateError(
            f"snapshots do not cover stores of {type(builder).__name__}{bounded}: exclude store '{builder.name}' from "
            "the snapshot"
        )
    if isinstance(builder, VersionedKeyValueStoreBuilder):
        return StoreLayout(kind, builder.history_retention_ms, is_global, serdes, builder.interval_ms)
    retention_ms = builder.retention_ms if isinstance(builder, WindowStoreBuilder | SessionStoreBuilder) else 0
    return StoreLayout(kind, retention_ms, is_global, serdes)


def row_function(layout: StoreLayout, partition: int) -> RowOf:
    """Return the function that makes the rows of one store partition.

    It takes the key, the value (None is a deletion), the timestamp in ms and the headers of a changelog record, and
    returns the full key and the value of the row. For many records it is faster than `row`. For a suppress buffer it
    raises `StateError` when a value is not in format version 3, and for a join buffer when a value cannot be read.

    For a versioned store it takes versions, as `histories.versions_of` returns them, in place of records.

    Args:
        layout: the layout of the store.
        partition: the partition of the changelog; the rows of a global store do not depend on it.
    """
    if layout.is_global:
        partition = GLOBAL_PARTITION
    match layout.kind:
        case StoreKind.KEY_VALUE | StoreKind.OUTER_JOIN | StoreKind.VERSIONED:
            return key_value_rows(partition)
        case StoreKind.TIMESTAMPED_KEY_VALUE:
            return timestamped_key_value_rows(partition)
        case StoreKind.WINDOW | StoreKind.TIMESTAMPED_WINDOW:
            timestamped = layout.kind is StoreKind.TIMESTAMPED_WINDOW
            return window_rows(partition, layout.retention_ms, timestamped=timestamped)
        case StoreKind.SESSION:
            return session_rows(partition, layout.retention_ms)
        case StoreKind.BUFFER:
            return buffer_rows(partition)
        case StoreKind.JOIN_BUFFER:
            return join_buffer_rows(partition)


_cached_row_function = lru_cache(maxsize=1024)(row_function)


def row(  # noqa: PLR0913  # the fields of a record
    layout: StoreLayout,
    partition: int,
    key: bytes,
    value: bytes | None,
    timestamp_ms: int,
    headers: Headers | None,
) -> Row:
    """Return the full local key and value that restoring one changelog record writes.

    Args:
        layout: the layout of the store.
        partition: the partition of the store.
        key: the record's key.
        value: the record's value; None is a deletion, and the row's value is then None.
        timestamp_ms: the record's timestamp.
        headers: the record's headers; only a suppress buffer reads them.

    Raises:
        StateError: a suppress buffer's value is not in format version 3.
    """
    return _cached_row_function(layout, partition)(key, value, timestamp_ms, headers)


def time_of(layout: StoreLayout, key: bytes) -> int | None:
    """Return the time in ms by which a row expires, from its key or its changelog key; None if it does not expire.

    It is the start of a window, and the end of a session.
    """
    if layout.kind is StoreKind.SESSION:
        return split_session_key(key)[1]
    return split_window_key(key)[1] if layout.windowed else None


def expired_before(layout: StoreLayout, stream_time_ms: int | None) -> int | None:
    """Return the `time_of` in ms below which rows have expired; None for a store whose rows do not expire.

    Args:
        layout: the layout of the store.
        stream_time_ms: the largest `time_of` of the partition's records, deletions included; None without records.
    """
    if not layout.windowed:
        return None
    stream_time = -1 if stream_time_ms is None else stream_time_ms
    return first_live_segment(stream_time, layout.retention_ms) * segment_interval(layout.retention_ms)


def metadata(layout: StoreLayout, stream_time_ms: int | None) -> bytes:
    """Return the metadata that is written with the offset of a restored store partition.

    Args:
        layout: the layout of the store.
        stream_time_ms: see `expired_before`; of a versioned store, the largest timestamp of the partition's records.
    """
    if not layout.has_stream_time:
        return b""
    # A time below 0 does not advance stream time, which begins at -1.
    return msgspec.msgpack.encode({"observed_stream_time": max(-1, -1 if stream_time_ms is None else stream_time_ms)})


def check_metadata(layout: StoreLayout, data: bytes) -> None:
    """Check that metadata has the format of `metadata`.

    Raises:
        ValueError: a store cannot read the metadata.
    """
    if not layout.has_stream_time:
        if data:
            raise ValueError(f"a store of kind {layout.kind.value} has no metadata")
        return
    try:
        found = msgspec.msgpack.decode(data, type=dict[str, int])
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if set(found) != {"observed_stream_time"}:
        raise ValueError("it has other fields than that of a store of windows, sessions or versions")
