"""Changelogs of every kind of store: deletions, expired windows, unordered timestamps, null keys, headers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from millpond import serdes
from millpond.state import (
    JoinBufferBuilder,
    KeyValueStoreBuilder,
    OuterJoinStoreBuilder,
    SessionStoreBuilder,
    StoreBuilder,
    TimeOrderedBufferBuilder,
    VersionedKeyValueStoreBuilder,
    WindowStoreBuilder,
)
from millpond.state.formats import (
    BUFFER_HEADERS,
    BufferValue,
    RecordContext,
    encode_buffer_value,
    session_key,
    window_key,
)
from millpond.state.stores.outer_join import encode_list, side_prefix

RETENTION_MS = 200_000
MINUTE = 60_000

BUILDERS: dict[str, StoreBuilder[Any, Any]] = {
    "key_value": KeyValueStoreBuilder(name="kv", key=serdes.Bytes, value=serdes.Bytes),
    "timestamped_key_value": KeyValueStoreBuilder(name="tkv", key=serdes.Bytes, value=serdes.Bytes, timestamped=True),
    "window": WindowStoreBuilder(
        name="win", key=serdes.Bytes, value=serdes.Bytes, retention_ms=RETENTION_MS, window_size_ms=MINUTE
    ),
    "timestamped_window": WindowStoreBuilder(
        name="twin",
        key=serdes.Bytes,
        value=serdes.Bytes,
        retention_ms=RETENTION_MS,
        window_size_ms=MINUTE,
        timestamped=True,
    ),
    "session": SessionStoreBuilder(name="ses", key=serdes.Bytes, value=serdes.Bytes, retention_ms=RETENTION_MS),
    "buffer": TimeOrderedBufferBuilder(name="buf", key=serdes.Bytes, value=serdes.Bytes, count_bytes=True),
    "join_buffer": JoinBufferBuilder(name="wait", key=serdes.Bytes, value=serdes.Bytes),
    "outer_join": OuterJoinStoreBuilder(name="out", key=serdes.Bytes, value=serdes.Bytes, right=serdes.Bytes),
    "versioned": VersionedKeyValueStoreBuilder(
        name="ver", key=serdes.Bytes, value=serdes.Bytes, history_retention_ms=RETENTION_MS
    ),
}
"""A builder for every kind, by the kind's name."""

_keys = st.one_of(st.sampled_from([b"", b"a", b"b", b"a\x00", b"\xff\xff"]), st.binary(max_size=4))
_values = st.one_of(st.none(), st.binary(max_size=12))
_times = st.integers(0, 2_000_000)
_headers = st.one_of(st.none(), st.just([]), st.just([("h", None)]), st.just([("h", b"1"), ("v", b"\x03")]))


def changelogs(kind: str, most: int = 60) -> st.SearchStrategy[list[Any]]:
    """Changelogs of one partition: lists of key, value, timestamp in ms, headers."""
    if kind.endswith("window"):
        starts = st.integers(-2, 40).map(lambda number: number * 30_000)
        key = st.builds(window_key, _keys, starts)
        record = st.tuples(key, _values, _times, _headers)
    elif kind == "session":
        ends = st.integers(-2, 40).map(lambda number: number * 30_000)
        lengths = st.integers(0, 3).map(lambda number: number * 25_000)
        key = st.builds(lambda raw, end, length: session_key(raw, end - length, end), _keys, ends, lengths)
        record = st.tuples(key, _values, _times, _headers)
    elif kind == "join_buffer":
        record = st.tuples(_keys, _values, _times, st.integers(0, 3)).map(_waiting)
    elif kind == "outer_join":
        key = st.builds(lambda time, left, raw: side_prefix(time, left) + raw, _times, st.booleans(), _keys)
        lists = st.lists(st.binary(max_size=9), min_size=1, max_size=3).map(encode_list)
        record = st.tuples(st.one_of(st.none(), key), st.one_of(st.none(), lists), _times, _headers)
    elif kind == "versioned":
        # Close together, so that many are late, replace each other, or expire.
        times = st.integers(0, 60).map(lambda number: number * 10_000)
        record = st.tuples(st.one_of(st.none(), _keys), _values, times, _headers)
    elif kind == "buffer":
        record = st.tuples(_keys, _values, _times, st.none()).flatmap(_buffered)
    else:
        record = st.tuples(st.one_of(st.none(), _keys) if kind == "key_value" else _keys, _values, _times, _headers)
    return st.lists(record, max_size=most)


def _buffered(record: tuple[bytes, bytes | None, int, None]) -> st.SearchStrategy[Any]:
    key, value, timestamp, _ = record
    if value is None:
        return st.just((key, None, timestamp, None))
    return st.builds(
        lambda prior, old, headers, time: (
            key,
            encode_buffer_value(BufferValue(prior, old, value, RecordContext(timestamp, 7, 0, "in", headers)), time),
            timestamp,
            BUFFER_HEADERS,
        ),
        _values,
        _values,
        st.sampled_from([None, [("n", None), ("m", b"x")]]),
        _times,
    )


def _waiting(drawn: tuple[bytes, bytes | None, int, int]) -> Any:
    key, value, timestamp, sequence = drawn
    place = b"\0" + timestamp.to_bytes(8, "big") + key + sequence.to_bytes(4, "big")
    if value is None:
        return place, None, timestamp, None
    context = RecordContext(timestamp, 7, 0, "in", [("n", None)])
    return place, encode_buffer_value(BufferValue(None, None, value, context), 0), timestamp, None


def seen_through_interface(builder: StoreBuilder[Any, Any], store: Any) -> Any:
    """Return everything that a store's methods return of its content."""
    if isinstance(builder, TimeOrderedBufferBuilder):
        shown: list[Any] = [store.num_records, store.buffer_size, store.min_timestamp]
        store.evict_while(lambda: True, shown.append)
        return shown
    if isinstance(builder, JoinBufferBuilder):
        shown = []
        store.evict_until(10**12, shown.append)
        return shown
    if isinstance(builder, OuterJoinStoreBuilder):
        return list(store.closed(10**12, 10**12, 0))
    if isinstance(builder, VersionedKeyValueStoreBuilder):
        rows = store._backend.range(builder.name, store._prefix, None)
        shown = []
        for key in sorted({row[4:-8] for row, _ in rows if row.startswith(store._prefix)}):
            read = list(store.versions(key)), [store.get(key, time) for time in (None, *range(0, 700_000, 5_000))]
            if read[0] or any(read[1]):
                shown.append((key, *read))
        return shown, store.observed_stream_time
    if isinstance(builder, SessionStoreBuilder):
        shown = list(store.fetch_range(None, None))
        return shown, store.observed_stream_time, list(store.backward_fetch_range(None, None))
    shown = list(store.all())
    if isinstance(builder, WindowStoreBuilder):
        return shown, store.observed_stream_time, list(store.backward_all())
    return shown, list(store.reverse_all()), [store.get(key) for key, _ in shown]
