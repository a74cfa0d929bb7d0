"""Reports about serdes with a schema registry, from the trackers of peers."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.cli.records.coders import NotEncodable, of_serde
from millpond.errors import ConfigError

pytest.importorskip("authlib", reason="needs the extra avro")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the client's own dependencies about each other
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

from millpond.serdes.registry import Avro, JsonSchema, Reference, SchemaRegistry, record_name, wire
from tests.serdes.registry_server import RegistryServer


def test_the_default_of_a_decimal_is_a_decimal(registry: SchemaRegistry) -> None:
    """The library fastavro cannot write the default of a field of bytes that are a decimal.

    https://github.com/fastavro/fastavro/issues/814
    """
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 15, "scale": 2}
    paid = {"name": "paid", "type": decimal, "default": "\u0000"}
    user = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}, paid]}
    serde = Avro(registry=registry, schema=user).for_topic("users")
    assert serde.deserialize(serde.serialize({"id": 1})) == {"id": 1, "paid": Decimal("0.00")}


def test_a_union_of_referenced_records_is_read(registry: SchemaRegistry) -> None:
    """confluent-kafka-python does not know the records of a union that the registry has as references.

    https://github.com/confluentinc/confluent-kafka-python/issues/1562
    """
    for name in ("Schema1", "Schema2"):
        one = {"type": "record", "name": name, "fields": [{"name": name.lower(), "type": "string"}]}
        Avro(registry=registry, schema=one, subject=record_name).for_topic("t").serialize({name.lower(): ""})
    references = [Reference(name, name, 1) for name in ("Schema1", "Schema2")]
    both = Avro(registry=registry, schema='["Schema1", "Schema2"]', references=references).for_topic("t")
    data = both.serialize({"schema2": "x"})
    assert Avro(registry=registry).for_topic("t").deserialize(data) == {"schema2": "x"}


def test_a_record_that_a_union_refers_to_twice_is_read(registry: SchemaRegistry) -> None:
    """confluent-kafka-python redefines a named type that a top-level union uses twice.

    https://github.com/confluentinc/confluent-kafka-python/issues/1924
    """
    inner = {"type": "record", "name": "B", "fields": []}
    fields = [{"name": "First", "type": inner}, {"name": "Second", "type": "B"}]
    union = ["null", {"type": "record", "name": "A", "namespace": "test", "fields": fields}]
    serde = Avro(registry=registry, schema=json.dumps(union)).for_topic("t")
    assert Avro(registry=registry).for_topic("t").deserialize(serde.serialize({"First": {}, "Second": {}})) == {
        "First": {}, "Second": {},
    }  # fmt: skip


def test_a_value_with_its_schema_in_a_header_is_read(server: RegistryServer, registry: SchemaRegistry) -> None:
    """A producer with the header serializer writes values that a stream processor takes for malformed ones.

    https://github.com/turbolytics/sql-flow/issues/315
    """
    schema = {"type": "record", "name": "A", "fields": [{"name": "a", "type": "long"}]}
    headers: list[Any] = []
    with SchemaRegistryClient({"url": server.url}) as client:
        write = AvroSerializer(client, json.dumps(schema), conf={"schema.id.serializer": header_schema_id_serializer})
        data = write({"a": 7}, SerializationContext("in", MessageField.VALUE, headers))
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=Avro(registry=registry)).map_values(lambda value: value["a"]).to(
        "out", key=mp.String, value=mp.Long
    )
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Bytes).pipe_input("k", data, headers=headers)
        assert driver.create_output_topic("out", key=mp.String, value=mp.Long).read_value() == 7


def test_json_with_a_schema_has_no_nan(registry: SchemaRegistry) -> None:
    """A null in place of NaN would break the schema, and its readers would stop.

    https://github.com/msgspec/msgspec/issues/826
    """
    schema = {"type": "object", "properties": {"level": {"type": "number"}}}
    serde = JsonSchema(registry=registry, schema=schema).for_topic("levels")
    assert serde.deserialize(serde.serialize({"level": 1.5})) == {"level": 1.5}
    with pytest.raises(ValueError, match=r"\$.level is NaN, which JSON does not have"):
        serde.serialize({"level": math.nan})


def _thing(space: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Thing", "namespace": space, "fields": list(fields)}


_ID, _NOTE = {"name": "id", "type": "int"}, {"name": "note", "type": "string", "default": "none"}
_AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
_MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("shape", ["union", "field", "array", "map", "reference"])
def test_records_of_one_name_in_two_namespaces_are_read_as_what_they_are(registry: SchemaRegistry, shape: str) -> None:
    """The library fastavro compares names without namespaces: it reads `b.Thing` as `a.Thing`, without its fields.

    https://issues.apache.org/jira/browse/AVRO-3622, https://github.com/fastavro/fastavro/pull/636
    """

    def schema(*more: dict[str, Any]) -> Any:
        one, other = _thing("a", _NOTE, *more), _thing("b", _ID, _AT, *more)
        both: list[Any] = [one, other]
        if shape == "reference":  # the second use of each is its name
            fields = [{"name": "first", "type": both}, {"name": "rest", "type": ["null", "a.Thing", "b.Thing"]}]
        else:
            several = {"array": {"type": "array", "items": both}, "map": {"type": "map", "values": both}}
            fields = [{"name": "first", "type": several.get(shape, both)}]
        return both if shape == "union" else {"type": "record", "name": "Parcel", "fields": fields}

    def value(thing: Any) -> Any:
        match shape:
            case "union":
                return thing
            case "array":
                return {"first": [thing, thing]}
            case "map":
                return {"first": {"k": thing}}
            case "reference":
                return {"first": thing, "rest": thing}
        return {"first": thing}

    more = {"name": "more", "type": "int", "default": 7}
    older = Avro(registry=registry, schema=json.dumps(schema())).for_topic("things")
    newer = Avro(registry=registry, schema=json.dumps(schema(more))).for_topic("things")
    for thing in ({"note": "x"}, {"id": 5, "at": _MOMENT}):
        assert newer.deserialize(older.serialize(value(thing))) == value(thing | {"more": 7})
        assert older.deserialize(newer.serialize(value(thing | {"more": 8}))) == value(thing)


def test_a_record_moves_to_another_namespace(registry: SchemaRegistry) -> None:
    """Without a record of the same full name, that of the same name in another namespace is read.

    https://github.com/mtth/avsc/issues/361
    """

    def schema(*spaces: str) -> str:
        fields = [{"name": "first", "type": _thing(spaces[0], _ID)}]
        if spaces[1:]:
            fields.append({"name": "second", "type": ["null", _thing(spaces[1], _ID)], "default": None})
        return json.dumps({"type": "record", "name": "Parcel", "fields": fields})

    old = Avro(registry=registry, schema=schema("v1")).for_topic("parcels")
    both = Avro(registry=registry, schema=schema("v2", "v1")).for_topic("parcels")
    assert both.deserialize(old.serialize({"first": {"id": 5}})) == {"first": {"id": 5}, "second": None}


def test_a_recursive_record_of_one_name_in_two_namespaces_is_read(registry: SchemaRegistry) -> None:
    """A record that contains itself by its name is the one of its own namespace."""

    def schema(*more: dict[str, Any]) -> str:
        child = {"name": "child", "type": ["null", "b.Thing", "a.Thing"], "default": None}
        return json.dumps([_thing("a", _NOTE, *more), _thing("b", _ID, child, *more)])

    older = Avro(registry=registry, schema=schema()).for_topic("trees")
    newer = Avro(registry=registry, schema=schema({"name": "more", "type": "int", "default": 7})).for_topic("trees")
    leaf: Any = {"note": "leaf"}
    tree = {"id": 1, "child": {"id": 2, "child": leaf}}
    read = newer.deserialize(older.serialize(tree))
    assert read == {"id": 1, "more": 7, "child": {"id": 2, "more": 7, "child": {"note": "leaf", "more": 7}}}


def test_a_type_loses_no_field_to_two_records_of_its_name(registry: SchemaRegistry) -> None:
    """A field that neither of two records of the type's name has is an error, as with one record.

    https://github.com/fastavro/fastavro/issues/401
    """

    class Thing(msgspec.Struct):
        id: int
        colour: str

    both = json.dumps([_thing("a", _NOTE), _thing("b", _ID)])
    with pytest.raises(ConfigError, match=r"the record 'b.Thing' of the schema has no field 'colour' of .*Thing"):
        Avro(Thing, registry=registry, schema=both)
    Avro(
        Thing, registry=registry, schema=json.dumps([_thing("a", _NOTE), _thing("b", _ID, {**_NOTE, "name": "colour"})])
    )


def test_a_consumed_record_is_produced_as_the_type_it_had(registry: SchemaRegistry) -> None:
    """A record whose fields another one of the union has too is not written as the first of both.

    https://github.com/fastavro/fastavro/issues/401
    """
    text = {"name": "note", "type": "string", "default": ""}
    things = [_thing("a", _ID, text), _thing("b", _ID), _thing("c", _AT), _thing("d", _AT)]
    serde = Avro(registry=registry, schema=json.dumps(things)).for_topic("things")
    coder = of_serde(serde)
    data = serde.serialize(("b.Thing", {"id": 5}))
    assert coder.encode(coder.decode(data)) == data != serde.serialize(("a.Thing", {"id": 5}))
    with pytest.raises(NotEncodable, match=r"it can be c.Thing or d.Thing in this union"):
        coder.encode({"at": "2026-01-31T12:00:00Z"})


def test_a_message_path_with_a_negative_index_is_refused() -> None:
    """An index of -1 named the last message of a file: the value was read as another type.

    https://github.com/confluentinc/confluent-kafka-python/pull/2271
    """
    framed = wire.prefix(1)
    assert wire.skip_message_path(framed + b"\x02\x02" + b"value") == len(framed) + 2
    for count in (b"\x02\x01", b"\x01"):
        with pytest.raises(ValueError, match="a length or a count in the data is malformed"):
            wire.skip_message_path(framed + count + b"value")


_JSON: dict[str, Any] = {"title": "User", "type": "object", "properties": {"id": {"type": "integer"}}}
_USER = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}


@pytest.mark.parametrize(
    "make", [lambda to: Avro(registry=to, schema=_USER), lambda to: JsonSchema(registry=to, schema=_JSON)]
)
def test_a_tombstone_of_a_registry_serde_is_null_and_asks_no_registry(
    make: Callable[[SchemaRegistry], Any], registry: SchemaRegistry, server: RegistryServer
) -> None:
    """Clients of C# looked for the id of a schema in a tombstone, and failed; or asked the registry about it.

    https://github.com/thomhurst/Dekaf/issues/2564
    """
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=make(registry)).to("out", key=mp.String, value=mp.Bytes)
    topology = builder.build()
    server.requests.clear()
    with mp.testing.TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Bytes).pipe_input("k", None)
        out = driver.create_output_topic("out", key=mp.String, value=mp.Bytes)
        assert out.read_key_values_to_list() == [("k", None)]
    assert server.requests == []


def test_data_of_a_schema_with_references_is_read_with_the_expanded_schema(registry: SchemaRegistry) -> None:
    """confluent-kafka-python 2.8.2 and later cannot read records whose schema the registry has with references.

    https://github.com/confluentinc/confluent-kafka-python/issues/2173
    """
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    Avro(registry=registry, schema=address, subject=record_name).for_topic("t").serialize({"city": ""})
    outer = {
        "type": "record", "name": "User", "namespace": "shop", "fields": [
            {"name": "home", "type": "shop.Address"},
            {"name": "work", "type": ["null", "shop.Address"], "default": None},
        ],
    }  # fmt: skip
    references = [Reference("shop.Address", "shop.Address", 1)]
    written = Avro(registry=registry, schema=outer, references=references).for_topic("t")
    value = {"home": {"city": "Bern"}, "work": {"city": "Chur"}}
    data = written.serialize(value)
    expanded = {**outer, "fields": [{"name": "home", "type": address}, outer["fields"][1]]}  # type: ignore[index]
    for reading in (Avro(registry=registry), Avro(registry=registry, schema=expanded)):
        assert reading.for_topic("t").deserialize(data) == value
