"""`avro_schema` writes the schema of a type, with which all its values come back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypedDict
from uuid import UUID

import pytest

import millpond as mp
from millpond.errors import ConfigError
from millpond.serdes.registry import Avro, SchemaRegistry, avro_schema

pytest.importorskip("fastavro", reason="needs the extra avro")

_REGISTRY = SchemaRegistry("mock://schemas")


class Grade(Enum):
    A = "A"
    B = "B"


class Level(Enum):
    LOW = 1


class Color(Enum):
    RED = "dark red"


class Part(mp.Struct):
    name: str
    grade: Grade
    parts: list[Part] = []  # noqa: RUF012 - msgspec makes a new one for each struct


class Order(mp.Struct, rename="camel"):
    unit_price: float
    at: datetime
    day: date
    opens: time
    id: UUID
    raw: bytes
    part: Part
    by_shelf: dict[str, Part]
    level: Level
    color: Color
    kind: Literal["x", "y"]
    count: int | str
    paid: bool = False
    other: Part | None = None
    note: str | None = "none"
    grade: Grade = Grade.B


@dataclass
class Plain:
    name: str
    number: int = 5


class Typed(TypedDict):
    name: str
    number: int


_PART = Part("wheel", Grade.A, [Part("tire", Grade.B)])
_ORDER = Order(
    2.5, datetime(2026, 1, 31, 12, 0, 10, 5, tzinfo=UTC), date(2026, 1, 31), time(9, 30), UUID(int=7), b"\xff", _PART,
    {"a": _PART}, Level.LOW, Color.RED, "y", "many", other=_PART,
)  # fmt: skip


@pytest.mark.parametrize(
    ("type", "value"), [(Order, _ORDER), (Plain, Plain("a")), (Typed, {"name": "a", "number": 1}), (Part, _PART)]
)
def test_values_come_back_with_the_schema_of_their_type(type: Any, value: Any) -> None:
    """The serde compares the type with it, too."""
    schema = avro_schema(type, namespace="shop")
    serde = Avro(type, registry=_REGISTRY, schema=schema).for_topic("t")
    assert serde.deserialize(serde.serialize(value)) == value


def test_defaults_of_fields_are_those_of_the_schema() -> None:
    """So records that were written before a field was added can be read."""
    schema = avro_schema(Order)
    fields = {each["name"]: each for each in schema["fields"]}
    assert "default" not in fields["unitPrice"]
    assert (fields["paid"]["default"], fields["other"]["default"], fields["grade"]["default"]) == (False, None, "B")
    assert fields["other"]["type"] == ["null", "Part"]
    assert (fields["note"]["type"], fields["note"]["default"]) == (["string", "null"], "none")
    first = {**schema, "fields": [each for each in schema["fields"] if "default" not in each]}
    old = Avro(registry=_REGISTRY, schema=first).for_topic("old")
    given = Avro(Order, registry=_REGISTRY, schema=schema).for_topic("new")
    shown = Avro(registry=_REGISTRY).deserialize(given.serialize(_ORDER))
    read = given.deserialize(old.serialize(shown))
    assert (read.paid, read.other, read.note, read.grade) == (False, None, "none", Grade.B)


class Money(mp.Struct):
    amount: Decimal


class Anything(mp.Struct):
    what: Any


class Dashed(mp.Struct, rename="kebab"):
    unit_price: int


@pytest.mark.parametrize(
    ("type", "cause"),
    [
        (Money, "no Avro type for Money.amount"),
        (Anything, "no Avro type for Anything.what"),
        (Dashed, "'unit-price' of Dashed.unit-price, which is no name in Avro"),
        (int, "needs a struct"),
    ],
)
def test_a_type_without_a_schema_names_the_field(type: Any, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        avro_schema(type)


def test_two_types_of_one_name_are_not_mixed_up() -> None:
    class Pair(mp.Struct):
        one: Part
        two: other

    with pytest.raises(ConfigError, match="two types with the name Part"):
        avro_schema(Pair)


other = type("Part", (mp.Struct,), {"__annotations__": {"x": int}, "__module__": __name__})
