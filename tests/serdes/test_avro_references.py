"""Avro schemas that refer to registered ones: unions, arrays, maps and names, as for several event types in a topic."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

pytest.importorskip("authlib", reason="needs the extra avro")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the client's own dependencies about each other
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

from millpond.cli.records.coders import of_serde
from millpond.serdes.registry import Avro, Reference, SchemaRegistry, record_name
from tests.serdes.registry_server import RegistryServer

TIME = {"type": "record", "name": "shop.Time", "fields": [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]}  # fmt: skip
PAID = {"type": "record", "name": "shop.Paid", "fields": [
    {"name": "cents", "type": "long"}, {"name": "when", "type": "shop.Time"}, {"name": "seen", "type": "shop.Time"},
]}  # fmt: skip
SENT = {"type": "record", "name": "shop.Sent", "fields": [{"name": "to", "type": "string"}]}
REFERENCES = [Reference("shop.Paid", "shop.Paid", 1), Reference("shop.Sent", "shop.Sent", 1)]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
A_PAYMENT = {"cents": 250, "when": {"at": NOON}, "seen": {"at": NOON}}
SHAPES: dict[str, tuple[Any, Any]] = {
    "union": (["shop.Paid", "shop.Sent"], A_PAYMENT),
    "union-other": (["shop.Paid", "shop.Sent"], {"to": "Ulm"}),
    "union-null": (["null", "shop.Paid"], A_PAYMENT),
    "array": ({"type": "array", "items": "shop.Paid"}, [A_PAYMENT]),
    "array-of-unions": ({"type": "array", "items": ["shop.Paid", "shop.Sent"]}, [{"to": "Ulm"}, A_PAYMENT]),
    "union-of-array": (["null", {"type": "array", "items": "shop.Sent"}], [{"to": "Ulm"}]),
    "map": ({"type": "map", "values": "shop.Paid"}, {"a": A_PAYMENT}),
    "name": ("shop.Paid", A_PAYMENT),
}


@pytest.fixture
def registry(registry: SchemaRegistry) -> SchemaRegistry:
    """The registry's client, when it has the schemas that others refer to."""
    to_time = [Reference("shop.Time", "shop.Time", 1)]
    Avro(registry=registry, schema=TIME, subject=record_name).for_topic("t").serialize({"at": NOON})
    Avro(registry=registry, schema=PAID, references=to_time, subject=record_name).for_topic("t").serialize(A_PAYMENT)
    Avro(registry=registry, schema=SENT, subject=record_name).for_topic("t").serialize({"to": ""})
    return registry


@pytest.mark.parametrize("shape", SHAPES)
def test_schemas_of_every_shape_refer_to_registered_ones(
    server: RegistryServer, registry: SchemaRegistry, shape: str
) -> None:
    """Values are written and read, also by a program that names no schema, and into the same schema."""
    schema, value = SHAPES[shape]
    serde = Avro(registry=registry, schema=msgspec.json.encode(schema).decode(), references=REFERENCES).for_topic(shape)
    data = serde.serialize(value)
    assert serde.deserialize(data) == value
    fresh = SchemaRegistry(server.url, {"max.retries": 0})
    unnamed = Avro(registry=fresh).for_topic(shape)
    assert unnamed.deserialize(data) == value
    assert unnamed.serialize(value) == data
    coder = of_serde(serde)
    assert coder.encode(coder.decode(data)) == data
    fresh.close()


def test_a_union_of_references_has_confluents_bytes(server: RegistryServer, registry: SchemaRegistry) -> None:
    """Confluent's serializer writes the same bytes for the union with its records written out."""
    context = SerializationContext("inline", MessageField.VALUE)
    inline = msgspec.json.encode([PAID | {"fields": PAID["fields"][:1]}, SENT]).decode()
    serde = Avro(registry=registry, schema=inline).for_topic("inline")
    theirs = AvroSerializer(registry._client, inline)
    for value in ({"cents": 1}, {"to": "Ulm"}):
        assert serde.serialize(value) == theirs(value, context)
    referring = Avro(registry=registry, schema='["shop.Paid", "shop.Sent"]', references=REFERENCES).for_topic("u")
    assert referring.serialize({"to": "Ulm"})[5:] == serde.serialize({"to": "Ulm"})[5:]


def test_a_typed_union_tells_its_records_apart(registry: SchemaRegistry) -> None:
    """Tagged structs are read as the type that their record has."""

    class Added(msgspec.Struct, tag=True, frozen=True):
        item: str

    class Removed(msgspec.Struct, tag=True, frozen=True):
        item: str

    def record(name: str) -> dict[str, Any]:
        symbol = {"type": "enum", "name": f"Is{name}", "symbols": [name]}
        return {"type": "record", "name": name, "fields": [
            {"name": "type", "type": symbol}, {"name": "item", "type": "string"},
        ]}  # fmt: skip

    Avro(registry=registry, schema=record("Added"), subject=record_name).for_topic("t").serialize(
        {"type": "Added", "item": ""}
    )
    Avro(registry=registry, schema=record("Removed"), subject=record_name).for_topic("t").serialize(
        {"type": "Removed", "item": ""}
    )
    references = [Reference("Added", "Added", 1), Reference("Removed", "Removed", 1)]
    serde: Any = Avro(
        Added | Removed,  # type: ignore[arg-type]  # a union is no class
        registry=registry, schema='["Added", "Removed"]', references=references,
    ).for_topic("changes")  # fmt: skip
    for value in (Added("tea"), Removed("tea")):
        assert serde.deserialize(serde.serialize(value)) == value


def test_a_name_names_its_subject(server: RegistryServer, registry: SchemaRegistry) -> None:
    """The record of a schema that is a name gives the subject its name."""
    serde = Avro(registry=registry, schema='"shop.Sent"', references=REFERENCES[1:], subject=record_name)
    serde.for_topic("t").serialize({"to": "Ulm"})
    assert len(server.subjects["shop.Sent"]) == 2
