"""Rows become columns: every type of value has a column, and undecodable bytes are kept."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import serdes
from millpond.inspection.decoding import RowDecoder
from millpond.serdes import Windowed
from millpond.snapshots.layouts import StoreKind, StoreLayout, layout_of, row
from millpond.snapshots.store_columns import StoreColumns, columns_of, split_function
from millpond.state.formats import BufferValue, RecordContext, encode_buffer_value, session_key, window_key
from tests.snapshots.changelogs import BUILDERS, changelogs
from tests.snapshots.reference import newest_rows
from tests.support import generated

pa = pytest.importorskip("pyarrow")

PLAIN = StoreLayout(StoreKind.KEY_VALUE)


class Colour(enum.Enum):
    """An enum of text."""

    RED = "red"


class Inner(msgspec.Struct):
    """Nested."""

    x: int
    y: float | None = None


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int


class Pair(NamedTuple):
    """A named tuple."""

    a: str
    b: bool


class Entry(TypedDict, total=False):
    """A TypedDict with a key that may be missing."""

    a: int
    b: str


class Tree(msgspec.Struct, omit_defaults=True):
    """A type that contains itself, and omits default fields from its bytes."""

    name: str = "leaf"
    child: Tree | None = None


NOW = dt.datetime(2026, 1, 31, 12, 30, 1, 5, tzinfo=dt.UTC)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
TYPES: list[tuple[Any, Any, str, Any]] = [
    (int, 7, "int64", 7),
    (float, 1.5, "double", 1.5),
    (int | float, 2, "double", 2.0),
    (bool, True, "bool", True),
    (str, "é", "string", "é"),
    (bytes, b"\xff", "binary", b"\xff"),
    (dt.datetime, NOW, "timestamp[us, tz=UTC]", NOW),
    (dt.date, NOW.date(), "date32[day]", NOW.date()),
    (dt.timedelta, dt.timedelta(seconds=90), "string", "PT90S"),
    (decimal.Decimal, decimal.Decimal("1.20"), "string", "1.20"),
    (uuid.UUID, ID, "string", str(ID)),
    (Colour, Colour.RED, "string", "red"),
    (Literal[1, 2], 2, "int64", 2),
    (Inner, Inner(1), "struct<x: int64, y: double>", {"x": 1, "y": None}),
    (Point, Point(3), "struct<x: int64>", {"x": 3}),
    (Pair, Pair("a", True), "struct<a: string, b: bool>", {"a": "a", "b": True}),
    (Entry, {"b": "x"}, "struct<a: int64, b: string>", {"a": None, "b": "x"}),
    (Tree, Tree(child=Tree()), "struct<name: string, child: string>", {"name": "leaf", "child": "{}"}),
    (list[Inner], [Inner(1, 2.0)], "list<item: struct<x: int64, y: double>>", [{"x": 1, "y": 2.0}]),
    (tuple[int, str], (1, "a"), "struct<_1: int64, _2: string>", {"_1": 1, "_2": "a"}),
    (dict[str, list[int]], {"a": [1]}, "map<string, list<item: int64>>", [("a", [1])]),
    (int | str, "a", "string", '"a"'),
    (Any, {"a": [1]}, "string", '{"a":[1]}'),
]  # fmt: skip


@pytest.mark.parametrize(("type", "value", "column", "cell"), TYPES, ids=lambda each: str(each)[:30])
def test_every_type_has_its_column(type: Any, value: Any, column: str, cell: Any) -> None:
    """Also with nulls, and with bytes of another type."""
    for serde in (serdes.Json(type), serdes.MsgPack(type)):
        columns = StoreColumns(PLAIN, key=serdes.String, value=serde)
        assert str(columns.schema.field("value").type) == column
        raw = serde.serialize(value)
        batch = columns.batch([(b"\0\0\0\1a", raw), (b"\0\0\0\1b", b"\xc1{"), (b"\0\0\0\1c", raw)])
        assert batch.columns.column("value").to_pylist() == [cell, None, cell]
        assert batch.columns.column("value_raw").to_pylist() == [None, b"\xc1{", None]
        assert (batch.undecoded_keys, batch.undecoded_values) == (0, 1)
        assert columns.batch([]).columns.num_rows == 0


def test_a_value_that_its_column_cannot_hold_is_kept_as_bytes() -> None:
    """An integer of more than 64 bits, in one row of many."""
    serde = serdes.Json(int)
    rows = [(b"\0\0\0\0" + bytes([each]), serde.serialize(2**70 if each == 3 else each)) for each in range(6)]
    batch = StoreColumns(PLAIN, key=serdes.Bytes, value=serde).batch(rows)
    assert batch.columns.column("value").to_pylist() == [0, 1, 2, None, 4, 5]
    assert batch.undecoded_values == 1
    assert batch.columns.column("value_raw").to_pylist()[3] == rows[3][1]


def test_windowed_keys_of_any_store_have_window_columns() -> None:
    """Window stores, tables with windowed keys, and suppress buffers; an undecodable key does not shift the others."""
    size = dt.timedelta(hours=1)
    keys = serdes.TimeWindowedSerde(serdes.String, size)
    columns = StoreColumns(PLAIN, key=keys, value=serdes.Long)
    value = serdes.Long.serialize(1)
    full = [b"\0\0\0\2" + keys.serialize(Windowed("JFK", hour * 3_600_000, 0)) for hour in (1, 2)]
    batch = columns.batch([(full[0], value), (b"\0\0\0\2x", value), (full[1], value)])
    assert batch.columns.column("key").to_pylist() == ["JFK", None, "JFK"]
    assert [each and each.hour for each in batch.columns.column("window_start").to_pylist()] == [1, None, 2]
    assert [each and each.hour for each in batch.columns.column("window_end").to_pylist()] == [2, None, 3]
    assert batch.undecoded_keys == 1

    held = encode_buffer_value(BufferValue(None, None, value, RecordContext(5_000, 1, 0, "in", None)), 9)
    batch = StoreColumns(StoreLayout(StoreKind.BUFFER), key=keys, value=serdes.Long).batch([(full[0], held)])
    (found,) = batch.columns.to_pylist()
    assert (found["key"], found["value"], found["timestamp"].second, found["window_end"].hour) == ("JFK", 1, 5, 2)


def test_times_beyond_all_clocks_are_null() -> None:
    """For example the ends of windows without an end."""
    layout = StoreLayout(StoreKind.TIMESTAMPED_WINDOW, 60_000)
    full = row(layout, 1, window_key(b"k", 5), b"v", 2**62, None)
    (found,) = StoreColumns(layout, window_size_ms=2**63 - 1).batch([full]).columns.to_pylist()
    assert (found["window_end"], found["timestamp"], found["window_start"].microsecond) == (None, None, 5_000)


def test_sessions_have_both_times() -> None:
    """Their row has start and end, and no timestamp."""
    layout = StoreLayout(StoreKind.SESSION, 60_000)
    full = row(layout, 1, session_key(b"k", 5_000, 9_000), b"v", 7, None)
    (found,) = StoreColumns(layout).batch([full]).columns.to_pylist()
    assert (found["key"], found["value"], found["window_start"].second, found["window_end"].second) == (
        b"k",
        b"v",
        5,
        9,
    )
    assert "timestamp" not in found
    shown = RowDecoder(layout).row(*full)
    assert shown == {"key": b"k".hex(), "window": {"start": 5_000, "end": 9_000}, "value": b"v".hex()}


@pytest.mark.parametrize("kind", BUILDERS)
@settings(max_examples=generated.examples(40))
@given(data=st.data())
def test_columns_have_what_rows_have(kind: str, data: st.DataObject) -> None:
    """With serdes and without, for every kind of store: no row is lost, in the order of rows."""
    builder = BUILDERS[kind]
    rows, _ = newest_rows(layout_of(builder), 3, data.draw(changelogs(kind)))
    parts = [split_function(layout_of(builder))(*each) for each in rows]
    for columns in (StoreColumns(layout_of(builder)), columns_of(builder, None)):
        batch = columns.batch(rows)
        assert batch.columns.schema == columns.schema
        found = batch.columns.to_pydict()
        assert found["key"] == [each.key for each in parts]
        assert found["value"] == [each.value for each in parts]
        assert found["partition"] == [3] * len(rows)
        assert batch[1:] == (0, 0)


def test_one_serde_alone_is_rejected() -> None:
    """Otherwise either keys or values would silently be bytes."""
    with pytest.raises(ValueError, match="both key and value, or none"):
        StoreColumns(PLAIN, key=serdes.String)
