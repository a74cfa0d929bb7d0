"""A serde reads back what it wrote, for generated values; it rejects others, or reads them as such values."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import serdes
from millpond.serdes import varint
from millpond.state import formats

longs = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]))
times = st.integers(0, 2**53)

PRIMITIVES: list[tuple[serdes.Serde[Any], st.SearchStrategy[Any]]] = [
    (serdes.Bytes, st.binary()),
    (serdes.String, texts),
    (serdes.Short, st.integers(-(2**15), 2**15 - 1)),
    (serdes.Int, st.integers(-(2**31), 2**31 - 1)),
    (serdes.Long, longs),
    (serdes.Float, st.floats(width=32, allow_nan=False)),
    (serdes.Double, st.floats(allow_nan=False)),
    (serdes.Boolean, st.booleans()),
    (serdes.UUID, st.uuids()),
]


@pytest.mark.parametrize(("serde", "values"), PRIMITIVES, ids=[serde.name for serde, _ in PRIMITIVES])
@given(data=st.data())
def test_primitives_round_trip(serde: serdes.Serde[Any], values: st.SearchStrategy[Any], data: Any) -> None:
    """Every value of a primitive serde is read back equal."""
    value = data.draw(values)
    assert serde.deserialize(serde.serialize(value)) == value


def test_nan_round_trips() -> None:
    """NaN, which equals nothing, is written and read as NaN."""
    for serde in (serdes.Float, serdes.Double):
        assert math.isnan(serde.deserialize(serde.serialize(math.nan)))


@given(longs, longs)
def test_byte_order_is_the_order_of_non_negative_longs(one: int, other: int) -> None:
    """Stores sort keys by their bytes, so non-negative numbers must sort the same way."""
    one, other = abs(one) >> 1, abs(other) >> 1
    assert (serdes.Long.serialize(one) < serdes.Long.serialize(other)) == (one < other)


@pytest.mark.parametrize(("serde", "values"), PRIMITIVES, ids=[serde.name for serde, _ in PRIMITIVES])
@given(data=st.data())
def test_lists_round_trip(serde: serdes.Serde[Any], values: st.SearchStrategy[Any], data: Any) -> None:
    """A list of values and missing ones is read back equal, also inside another list."""
    entries = data.draw(st.lists(st.none() | values, max_size=6))
    lists = serdes.ListSerde(serde)
    assert lists.deserialize(lists.serialize(entries)) == entries
    nested = serdes.ListSerde(lists)
    assert nested.deserialize(nested.serialize([entries, entries])) == [entries, entries]


@given(st.binary(max_size=40))
def test_no_bytes_break_the_list_serdes(data: bytes) -> None:
    """Arbitrary bytes are a list that is written with the same bytes, or a ValueError."""
    for serde in (serdes.ListSerde(serdes.Bytes), serdes.ListSerde(serdes.Int)):
        try:
            entries = serde.deserialize(data)
        except ValueError:
            continue
        assert serde.deserialize(serde.serialize(entries)) == entries


@given(st.binary(max_size=8))
def test_buffers_of_all_kinds_have_the_same_bytes(data: bytes) -> None:
    """Bytes, arrays of bytes and views are written alike, and read as a view of the bytes."""
    for value in (data, bytearray(data), memoryview(data)):
        assert serdes.ByteBuffer.serialize(value) == data
    assert serdes.ByteBuffer.deserialize(data) == data


@given(texts, times)
def test_windowed_keys_of_a_changelog_are_read(key: str, start: int) -> None:
    """The keys of a window store's changelog have a sequence number after the window, which is not kept."""
    serde = serdes.TimeWindowedSerde(serdes.String, timedelta(seconds=1), changelog=True)
    windowed = serdes.Windowed(key, start, start + 1000)
    assert serde.deserialize(formats.window_key(key.encode(), start, 7)) == windowed
    assert serde.serialize(windowed) == formats.window_key(key.encode(), start)
    assert serde.partition_by is not None
    assert serde.partition_by(serde.serialize(windowed)) == key.encode()


@given(texts, times, st.integers(1, 10**9))
def test_time_windowed_keys_round_trip(key: str, start: int, size: int) -> None:
    """A windowed key comes back with its window, whose end follows from the size."""
    serde = serdes.TimeWindowedSerde(serdes.String, timedelta(milliseconds=size))
    windowed = serdes.Windowed(key, start, start + size)
    assert serde.deserialize(serde.serialize(windowed)) == windowed


def test_a_window_ends_at_the_last_timestamp() -> None:
    """A window that would end after the largest timestamp ends there, as in Kafka Streams."""
    serde = serdes.TimeWindowedSerde(serdes.String, timedelta(seconds=1))
    late = serde.deserialize(b"k" + serdes.Long.serialize(2**63 - 10))
    assert late.end_ms == 2**63 - 1


@given(texts, times, times)
def test_session_windowed_keys_round_trip(key: str, one: int, other: int) -> None:
    """A session key comes back with both ends of its session."""
    windowed = serdes.Windowed(key, min(one, other), max(one, other))
    serde = serdes.SessionWindowedSerde(serdes.String)
    assert serde.deserialize(serde.serialize(windowed)) == windowed


changes = st.tuples(st.none() | texts, st.none() | texts).filter(lambda change: change != (None, None))


@given(changes)
def test_changes_round_trip(change: tuple[str | None, str | None]) -> None:
    """New and old value of a table's update come back, each of them or both."""
    serde = serdes.ChangeSerde(serdes.String)
    assert serde.deserialize(serde.serialize(change)) == change


@given(changes, st.booleans())
def test_changes_of_later_versions_are_read(change: tuple[str | None, str | None], latest: bool) -> None:
    """The formats with a flag for the latest update, which Kafka Streams reads but does not write, are read."""
    serde = serdes.ChangeSerde(serdes.String)
    written = serde.serialize(change)
    later = written[:-1] + bytes([latest, written[-1] + 3])
    assert serde.deserialize(later) == change


@given(st.binary(max_size=40))
def test_no_bytes_break_the_change_serde(data: bytes) -> None:
    """Arbitrary bytes are a change or a ValueError, never anything else."""
    serde = serdes.ChangeSerde(serdes.Bytes)
    try:
        new, old = serde.deserialize(data)
    except ValueError:
        return
    assert (new, old) != (None, None)
    assert len(new or b"") + len(old or b"") <= len(data)


@given(st.integers(0, 2**31 - 1), st.binary(max_size=3))
def test_varints_come_back_from_the_middle_of_bytes(number: int, before: bytes) -> None:
    """A length is read from its position, with the position after it."""
    written = varint.write(number)
    data = before + written + b"rest"
    assert varint.read(data, len(before), len(data)) == (number, len(before) + len(written))
