"""A type that does not fit its Avro schema is an error where the serde is made, and one that fits never is."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

import millpond as mp
from millpond.errors import ConfigError, ProcessingFailed, SerializationError
from millpond.serdes.registry import Avro, SchemaRegistry
from millpond.serdes.registry.avro import _AS_THEY_ARE
from millpond.serdes.registry.client import Reference

pytest.importorskip("fastavro", reason="needs the extra avro")

_REGISTRY = SchemaRegistry("mock://fields")


class Item(mp.Struct):
    name: str
    note: str = ""


class Order(mp.Struct):
    item: Item
    more: list[Item]
    by_shelf: dict[str, Item]
    gift: Item | None = None


class Renamed(mp.Struct, rename="camel"):
    unit_price: float = 0.0


class Tree(mp.Struct):
    name: str
    note: str = ""
    left: Tree | None = None


class Pair(mp.Struct, array_like=True):
    one: int
    two: int


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Plain:
    name: str
    note: str = ""


class Typed(TypedDict):
    name: str
    note: str


class Grade(Enum):
    A = "a"


class Level(Enum):
    LOW = 1


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


def _logical(kind: str, logical: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **rest}


_ITEM = _record("Item", name="string", note="string")
_SHORT = _record("Item", name="string")


def _avro(type: type[Any], schema: Any) -> mp.Serde[Any]:
    return Avro(type, registry=_REGISTRY, schema=schema)


@pytest.mark.parametrize("kind", [Item, Plain, Typed])
def test_a_field_that_the_schema_does_not_have_is_an_error(kind: type[Any]) -> None:
    """Its values would be lost in silence. The message names type, schema and fields."""
    with pytest.raises(ConfigError) as error:
        _avro(kind, {**_SHORT, "name": "shop.Item"})
    assert f"Avro({kind.__name__}) does not fit its schema" in str(error.value)
    assert f"the record 'shop.Item' of the schema has no field 'note' of {kind.__name__}" in str(error.value)
    assert "Correct the schema or the type" in str(error.value)


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ({"name": "notes", "type": "string", "default": ""}, "'note' (it has 'notes')"),
        ({"name": "remark", "type": "string", "aliases": ["note"]}, "'note' (an alias of 'remark', which is the name"),
    ],
)
def test_a_field_with_another_name_in_the_schema_is_named(field: dict[str, Any], hint: str) -> None:
    """Avro's aliases are for readers: a value is not written under one."""
    with pytest.raises(ConfigError) as error:
        _avro(Item, {**_SHORT, "fields": [*_SHORT["fields"], field]})
    assert hint in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"item": _record("I", name="string")},
        {"more": {"type": "array", "items": _SHORT}},
        {"by_shelf": {"type": "map", "values": _SHORT}},
        {"gift": ["null", _SHORT]},
        {"gift": ["null", _SHORT, _record("Other", name="string")]},
    ],
)
def test_fields_of_nested_records_are_compared(fields: dict[str, Any]) -> None:
    """In arrays, in maps, in unions, and where a record is used by its name."""
    whole: dict[str, Any] = {
        "item": _record("I", name="string", note="string"), "more": {"type": "array", "items": "I"},
        "by_shelf": {"type": "map", "values": "I"}, "gift": ["null", "I"],
    }  # fmt: skip
    _avro(Order, _record("Order", **whole))
    with pytest.raises(ConfigError, match="has no field 'note' of Item"):
        _avro(Order, _record("Order", **whole | fields))


def test_types_that_refer_to_themselves_are_compared() -> None:
    _avro(Tree, _record("Tree", name="string", note="string", left=["null", "Tree"]))
    with pytest.raises(ConfigError, match="no field 'note' of Tree"):
        _avro(Tree, _record("Tree", name="string", left=["null", "Tree"]))


_MILLIS = _logical("long", "timestamp-millis")
_DECIMAL = _logical("bytes", "decimal", precision=9, scale=2)
_ENUM = {"type": "enum", "name": "E", "symbols": ["a"]}


_OK: list[tuple[Any, Any]] = [
    (str, ["null", "string"]), (str | None, "string"), (datetime | None, ["null", _MILLIS]),
    (datetime, _logical("long", "timestamp-nanos")), (Grade, _ENUM), (Grade, "string"), (Literal["a"], _ENUM),
    (Level, "int"), (Literal[1, "a"], "string"), (Any, "int"), (object, "string"), (int, {"type": "int"}),
    (int | str, ["string", "long"]), (int | str, "string"), (Annotated[int, msgspec.Meta(gt=0)], "long"),
    (tuple[int, ...], {"type": "array", "items": "long"}), (list[Any], {"type": "array", "items": "string"}),
    (Pair, {"type": "array", "items": "int"}), (Point, {"type": "array", "items": "int"}),
    (dict[str, Any], _ITEM), (Item, [_record("Other", x="int"), _ITEM]), (Item, {"type": "map", "values": "string"}),
    (Item, {**_ITEM, "fields": [*_ITEM["fields"], {"name": "extra", "type": "int"}]}),
    (Renamed, _record("R", unitPrice="double")),
]  # fmt: skip


@pytest.mark.parametrize(("type", "schema"), _OK)
def test_types_that_can_be_written_or_read_are_no_error(type: Any, schema: Any) -> None:
    holder = msgspec.defstruct("Holder", [("x", type)])
    _avro(holder, _record("Holder", x=schema))


_VALUES: list[tuple[Any, Any]] = [
    (str, "a"), (int, 5), (float, 2.0), (bool, True), (bytes, b"ab"), (bytearray, bytearray(b"ab")),
    (UUID, UUID(int=1)), (datetime, datetime(2026, 1, 1, tzinfo=UTC)), (date, date(2026, 1, 1)),
    (time, time(9)), (timedelta, timedelta(1)),
    (Decimal, Decimal("1.25")), (Grade, Grade.A), (Level, Level.LOW), (list[int], [5]), (dict[str, int], {"a": 5}),
    (Item, Item("tea")), (tuple[int, int], (5, 5)),
]  # fmt: skip
_SCHEMAS: list[tuple[Any, Any]] = [
    ("string", "a"), ("string", "2026-01-01"), ("string", "2026-01-01T00:00:00Z"), ("string", "09:00:00"),
    ("string", "P1D"),
    ("string", "1.25"), ("string", str(UUID(int=1))), ("int", 5), ("int", 1), ("long", 5), ("float", 2.0),
    ("double", 2.0), ("boolean", True), ("bytes", b"ab"), ("bytes", UUID(int=1).bytes),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab"), (_ENUM, "a"), (_DECIMAL, Decimal("1.25")),
    (_MILLIS, datetime(2026, 1, 1, tzinfo=UTC)),
    (_logical("long", "timestamp-micros"), datetime(2026, 1, 1, tzinfo=UTC)),
    (_logical("long", "local-timestamp-millis"), datetime(2026, 1, 1)), (_logical("int", "date"), date(2026, 1, 1)),
    (_logical("int", "time-millis"), time(9)), (_logical("long", "time-micros"), time(9)),
    (_logical("string", "uuid"), UUID(int=1)), ({"type": "array", "items": "int"}, [5]),
    ({"type": "map", "values": "int"}, {"a": 5}), (_ITEM, {"name": "tea", "note": ""}),
]  # fmt: skip


def _comes_back(type: Any, value: Any, serde: mp.Serde[Any]) -> bool:
    try:
        data = serde.serialize({"x": msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE)})
        return bool(msgspec.convert(serde.deserialize(data)["x"], type) == value)
    except (TypeError, ValueError, AttributeError, KeyError):
        return False


def test_no_type_is_refused_that_can_be_written_or_read() -> None:
    """Each type with each schema: where the serde is an error, neither direction works without the comparison."""
    refused = 0
    for (type, value), (schema, stored) in itertools.product(_VALUES, _SCHEMAS):
        record = _record("Holder", x=schema)
        try:
            _avro(msgspec.defstruct("Holder", [("x", type)]), record)
        except ConfigError:
            refused += 1
            assert not _comes_back(type, value, Avro(registry=_REGISTRY, schema=record).for_topic("t"))
            with pytest.raises(msgspec.ValidationError):
                msgspec.convert(stored, type)
    assert refused > 200


@pytest.mark.parametrize(
    ("type", "schema", "cause"),
    [
        (str, "int", "Holder.x is str, but int in the schema"),
        (int, "string", "Holder.x is int, but string in the schema"),
        (int | None, ["null", "string"], "Holder.x is int, but string in the schema"),
        (str, _MILLIS, "Holder.x is str, but timestamp-millis in the schema"),
        (datetime, "long", "Holder.x is datetime, but long in the schema"),
        (Decimal, "bytes", "Holder.x is decimal, but bytes in the schema"),
        (list[str], {"type": "array", "items": "int"}, r"Holder.x\[\] is str, but int in the schema"),
        (dict[str, str], {"type": "map", "values": "int"}, "Holder.x{} is str, but int in the schema"),
        (Item, "string", "Holder.x is Item, but string in the schema"),
        (str, _ITEM, "Holder.x is str, but record in the schema"),
        (str | list[int], ["int", "boolean"], "is str or list, but int or boolean in the schema"),
        (Level, "string", "Holder.x is Level, but string in the schema"),
    ],
)
def test_a_type_that_no_value_of_the_schema_has_is_an_error(type: Any, schema: Any, cause: str) -> None:
    holder = msgspec.defstruct("Holder", [("x", type)])
    with pytest.raises(ConfigError, match=cause):
        _avro(holder, _record("Holder", x=schema))


def test_the_newest_schema_of_the_registry_is_compared_before_a_value_is_written() -> None:
    """It is not known before. Values of it can be read; a field that they do not have gets its default."""
    Avro(registry=_REGISTRY, schema=_SHORT).for_topic("short").serialize({"name": "tea"})
    serde = Avro(Item, registry=_REGISTRY).for_topic("short")
    with pytest.raises(ConfigError, match="has no field 'note' of Item"):
        serde.serialize(Item("tea", "for ann"))
    data = Avro(registry=_REGISTRY, schema=_SHORT).for_topic("short").serialize({"name": "tea"})
    assert serde.deserialize(data) == Item("tea")


@pytest.mark.parametrize("kind", [float, Decimal])
def test_a_fraction_is_not_written_as_an_integer(kind: Any) -> None:
    """It would be cut off in silence. Integers can be read as fractions."""
    holder = msgspec.defstruct("Holder", [("x", kind)])
    record = _record("Holder", x="long")
    serde = _avro(holder, record).for_topic("fractions")
    data = Avro(registry=_REGISTRY, schema=record).for_topic("fractions").serialize({"x": 5})
    assert serde.deserialize(data) == holder(kind(5))
    with pytest.raises(ConfigError, match=f"Holder.x is {kind.__name__.lower()}, but long in the schema"):
        serde.serialize(holder(kind("2.5")))


def test_a_schema_with_references_is_compared_before_a_value_is_written() -> None:
    Avro(registry=_REGISTRY, schema=_SHORT).for_topic("items").serialize({"name": "tea"})
    schema, references = _record("Gift", item="Item"), [Reference("Item", "items-value", 1)]

    class Gift(mp.Struct):
        item: Item

    serde = Avro(Gift, registry=_REGISTRY, schema=schema, references=references).for_topic("gifts")
    with pytest.raises(ConfigError, match="has no field 'note' of Item"):
        serde.serialize(Gift(Item("tea")))


def test_a_registry_that_gave_an_id_again_is_told_in_a_sentence() -> None:
    """The message has the names of both schemas, and not their text."""
    other = Avro(registry=_REGISTRY, schema=_record("shop.Product", cents="int")).for_topic("products")
    data = other.serialize({"cents": 5})
    with pytest.raises(SerializationError) as error:
        Avro(Item, registry=_REGISTRY, schema={**_ITEM, "namespace": "shop"}).deserialize(data)
    assert "of the registry is 'shop.Product' and not 'shop.Item': if the registry lost its schemas" in str(error.value)
    assert len(str(error.value)) < 200


def test_a_row_of_a_store_whose_schema_the_registry_lost_has_the_cure_of_the_registry() -> None:
    """A reset would not help: the rows would be read with the same ids."""
    item, product = _avro(Item, _ITEM), Avro(registry=_REGISTRY, schema=_record("Product", cents="int"))
    rows, given_again = item.for_topic("rows"), product.for_topic("products").serialize({"cents": 5})
    is_lost = False
    lost = mp.Serde("Lost", rows.serialize, lambda data: rows.deserialize(given_again if is_lost else data))
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    grouped.aggregate(lambda: Item("tea"), lambda _key, note, item: Item(item.name, note), store="rows", value=lost)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        topic.pipe_input("a", "x")
        is_lost = True
        with pytest.raises(ProcessingFailed) as error:
            topic.pipe_input("a", "y")
    assert "store 'rows' has a row that Lost cannot decode: schema" in str(error.value)
    assert "is 'Product' and not 'Item': if the registry lost its schemas" in str(error.value)
    assert "millpond reset" not in str(error.value)


def test_a_serde_outside_of_a_topology_says_how_to_get_one_for_a_topic() -> None:
    serde = _avro(Item, _ITEM)
    with pytest.raises(SerializationError, match=r"call for_topic\('orders'\) on it first"):
        serde.serialize(Item("tea"))
    topical = serde.for_topic("orders")
    assert topical.deserialize(topical.serialize(Item("tea", "for ann"))) == Item("tea", "for ann")
