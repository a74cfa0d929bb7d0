"""Avro's schema resolution: defaults are values of their field's type, and so are fields whose logical type changed."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from millpond.errors import SerializationError

pytest.importorskip("authlib", reason="needs the extra avro")

from millpond.serdes.registry import Avro, SchemaRegistry, avro_schema

OLD = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "string"}]}
AN_ID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "city", "type": "string", "default": "Bern"},
        {"name": "code", "type": "bytes", "default": "\u00ff"},
    ],
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
CASES: list[tuple[Any, Any, Any]] = [
    ({"type": "long", "logicalType": "timestamp-millis"}, 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ({"type": "long", "logicalType": "timestamp-micros"}, 1, datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)),
    ({"type": "int", "logicalType": "date"}, -1, date(1969, 12, 31)),
    ({"type": "int", "logicalType": "time-millis"}, 1000, time(0, 0, 1)),
    ({"type": "string", "logicalType": "uuid"}, str(AN_ID), AN_ID),
    (DECIMAL, "\u0000\u00c8", Decimal("2.00")),
    ({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0000\u00c8",
     Decimal("2.00")),
    ("bytes", "\u0000\u00ff", b"\x00\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
    ("double", 3, 3.0),
    ("float", "Infinity", float("inf")),
    (["null", DECIMAL], None, None),
    ([DECIMAL, "null"], "\u0000\u00c8", Decimal("2.00")),
    ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [0], [date(1970, 1, 1)]),
    ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
    (PLACE, {"city": "Ulm"}, {"city": "Ulm", "code": b"\xff"}),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"),
]  # fmt: skip


def _newer(schema: Any, default: Any) -> dict[str, Any]:
    return {**OLD, "fields": [*OLD["fields"], {"name": "added", "type": schema, "default": default}]}


@pytest.mark.parametrize(("schema", "default", "expected"), CASES)
def test_a_default_is_a_value_of_its_type(schema: Any, default: Any, expected: Any) -> None:
    """A reader fills it in for older records, and a writer writes it for a field that a value does not have."""
    registry = SchemaRegistry("mock://defaults")
    newer = Avro(registry=registry, schema=_newer(schema, default)).for_topic("new")
    read = newer.deserialize(Avro(registry=registry, schema=OLD).for_topic("old").serialize({"id": "a"}))
    assert read == {"id": "a", "added": expected}
    assert type(read["added"]) is type(expected)
    assert newer.deserialize(newer.serialize({"id": "a"})) == read


def test_a_default_fits_the_type_of_a_field() -> None:
    """Structs get the default where the older record has no such field."""

    class Event(msgspec.Struct):
        id: str
        at: datetime
        price: Decimal

    registry = SchemaRegistry("mock://typed-defaults")
    fields = [
        *OLD["fields"],
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "price", "type": DECIMAL, "default": "\u0001"},
    ]
    old = Avro(registry=registry, schema=OLD).for_topic("old").serialize({"id": "a"})
    read = Avro(Event, registry=registry, schema={**OLD, "fields": fields}).deserialize(old)
    assert read == Event("a", datetime(1970, 1, 1, tzinfo=UTC), Decimal("0.01"))


def test_a_change_of_a_default_changes_no_other_value() -> None:
    """Each value has its own list: one that a function changes is not the default of the next record."""
    registry = SchemaRegistry("mock://changed")
    tags = _newer({"type": "array", "items": "string"}, [])
    old = Avro(registry=registry, schema=OLD).for_topic("old").serialize({"id": "a"})
    serde = Avro(registry=registry, schema=tags)
    serde.deserialize(old)["added"].append("changed")
    assert serde.deserialize(old)["added"] == []


@pytest.mark.parametrize(
    ("schema", "default", "cause"),
    [
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, "the default of 'added' in the record 'Event'"),
        ({"type": "string", "logicalType": "uuid"}, "x", "badly formed"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "it has 3 bytes and not 2"),
        ("bytes", "\u0100", "latin-1"),
        (PLACE, {"city": 1}, "1 is no string"),
    ],
)
def test_a_default_of_another_type_is_found_where_it_is_written(schema: Any, default: Any, cause: str) -> None:
    """A serde with such a schema cannot be made, since no older record could be read."""
    with pytest.raises(SerializationError, match=cause):
        Avro(registry=SchemaRegistry("mock://wrong"), schema=_newer(schema, default))


def test_the_schema_of_a_type_has_defaults_of_bytes_and_times() -> None:
    """Older records are read with the defaults that the type has."""

    class Event(msgspec.Struct, frozen=True):
        id: str
        raw: bytes = b"\xff"
        at: datetime = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
        day: date = date(2026, 1, 2)
        hour: time = time(3, 4)
        key: uuid.UUID = AN_ID

    registry = SchemaRegistry("mock://of-type")
    old = Avro(registry=registry, schema=OLD).for_topic("old").serialize({"id": "a"})
    assert Avro(Event, registry=registry, schema=avro_schema(Event)).deserialize(old) == Event("a")


STAMP, MICROS, DAY = (
    {"type": kind, "logicalType": logical}
    for kind, logical in (("long", "timestamp-millis"), ("long", "timestamp-micros"), ("int", "date"))
)
SECOND = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "value", "wanted", "expected"),
    [
        ("long", 1000, STAMP, SECOND),
        (STAMP, SECOND, "long", 1000),
        (STAMP, SECOND, MICROS, SECOND),
        (["null", "long"], 1000, ["null", STAMP], SECOND),
        (["null", "long"], None, ["null", STAMP], None),
        ({"type": "array", "items": "int"}, [0], {"type": "array", "items": DAY}, [date(1970, 1, 1)]),
        ({"type": "map", "values": DAY}, {"a": date(1970, 1, 1)}, {"type": "map", "values": "int"}, {"a": 0}),
        (DECIMAL, Decimal("2.00"), {**DECIMAL, "scale": 4}, Decimal("2.00")),
        ("bytes", b"\x00\xc8", DECIMAL, Decimal("2.00")),
        ("int", 7, "double", 7.0),
    ],
)
def test_a_field_has_the_logical_type_of_the_reader(written: Any, value: Any, wanted: Any, expected: Any) -> None:
    """A number becomes a time where the reader's schema says so. Between two logical types, the moment is the same."""
    registry = SchemaRegistry("mock://logical")

    def of(kind: Any) -> Any:
        inner = {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": kind}]}
        return {**OLD, "fields": [{"name": "one", "type": inner}, {"name": "two", "type": ["null", "Inner"]}]}

    one = {"one": {"at": value}, "two": {"at": value}}
    data = Avro(registry=registry, schema=of(written)).for_topic("old").serialize(one)
    read = Avro(registry=registry, schema=of(wanted)).deserialize(data)
    assert read == {"one": {"at": expected}, "two": {"at": expected}}
    assert type(read["one"]["at"]) is type(expected)
