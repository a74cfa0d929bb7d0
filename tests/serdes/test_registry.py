"""Avro, Protobuf and JSON Schema against a schema registry over HTTP, and against Confluent's own serializers."""

from __future__ import annotations

import functools
import json
import uuid
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.errors import BrokerError, ConfigError, SerializationError
from tests.serdes.registry_server import RegistryServer, serve

pytest.importorskip("authlib", reason="needs the extras avro, protobuf, jsonschema")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the client's own dependencies about each other
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from millpond.cli.records.coders import NotEncodable, of_serde
from millpond.serdes.registry import (
    Avro,
    JsonSchema,
    Protobuf,
    SchemaRegistry,
    record_name,
    topic_record_name,
    wire,
)
from millpond.serdes.registry.client import Reference

CARRIER = {"type": "record", "name": "Carrier", "namespace": "air", "fields": [{"name": "code", "type": "string"}]}
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "double"], "default": None},
    ],
}
NEWER_FLIGHT = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "gate", "type": "int", "default": 7}]}


class Flight(msgspec.Struct):
    carrier: str
    delay: float | None = None


_open: list[Any] = []


def connect(url: str) -> SchemaRegistry:
    """A registry client without retries, closed after the test."""
    _open.append(SchemaRegistry(url, {"max.retries": 0}))
    return _open[-1]


def confluents(server: RegistryServer) -> SchemaRegistryClient:
    """Confluent's client, closed after the test."""
    _open.append(SchemaRegistryClient({"url": server.url}))
    return _open[-1]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return connect(server.url)


def _messages() -> Any:
    """Message classes as protoc would generate them: a nested one, and one of an imported file."""
    pool = descriptor_pool.DescriptorPool()
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="air", syntax="proto3")
    carrier = common.message_type.add(name="Carrier")
    carrier.field.add(name="code", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    flights = descriptor_pb2.FileDescriptorProto(
        name="flights.proto", package="air", syntax="proto3", dependency=["common.proto"]
    )
    flight = flights.message_type.add(name="Flight")
    flight.field.add(name="carrier", number=1, type="TYPE_MESSAGE", type_name=".air.Carrier", label="LABEL_OPTIONAL")
    flight.field.add(name="delay", number=2, type="TYPE_DOUBLE", label="LABEL_OPTIONAL")
    other = flights.message_type.add(name="Other")
    other.nested_type.add(name="First")
    inner = other.nested_type.add(name="Inner")
    inner.field.add(name="number", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
    pool.Add(common)
    pool.Add(flights)
    names = ("air.Flight", "air.Other.Inner", "air.Carrier")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]


FlightMessage, InnerMessage, CarrierMessage = _messages()


def _context(topic: str = "flights") -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_bytes_are_confluents(server: RegistryServer, registry: SchemaRegistry) -> None:
    """Confluent's serializer writes the same bytes, and each reads the other's."""
    client = confluents(server)
    theirs = AvroSerializer(client, json.dumps(FLIGHT))
    ours = Avro(registry=registry, schema=FLIGHT).for_topic("flights", is_key=False)
    value = {"carrier": "AA", "delay": 2.5}
    data = ours.serialize(value)
    assert data == theirs(value, _context())
    assert AvroDeserializer(client)(data, _context()) == value
    assert ours.deserialize(data) == value


def test_protobuf_bytes_are_confluents(server: RegistryServer, registry: SchemaRegistry) -> None:
    """First, nested and imported messages carry the path Confluent's serializer writes."""
    client = confluents(server)
    values = [
        FlightMessage(carrier=CarrierMessage(code="AA"), delay=1.5),
        InnerMessage(number=7),
        CarrierMessage(code="ZZ"),
    ]
    for value in values:
        kind = type(value)
        ours = Protobuf(kind, registry=registry).for_topic(kind.DESCRIPTOR.name, is_key=False)
        data = ours.serialize(value)
        assert data == ProtobufSerializer(kind, client)(value, _context(kind.DESCRIPTOR.name))
        assert ours.deserialize(data) == value
        assert ProtobufDeserializer(kind)(data, _context()) == value
    assert set(server.subjects) == {"common.proto", "Flight-value", "Inner-value", "Carrier-value"}


def test_json_schema_is_read_by_confluents(server: RegistryServer, registry: SchemaRegistry) -> None:
    """Confluent's deserializer accepts the bytes and validates them against the registered schema."""
    client = confluents(server)
    ours = JsonSchema(Flight, registry=registry).for_topic("flights", is_key=False)
    data = ours.serialize(Flight("AA", 2.5))
    read = JSONDeserializer(None, schema_registry_client=client)(data, _context())
    assert read == {"carrier": "AA", "delay": 2.5}
    assert ours.deserialize(data) == Flight("AA", 2.5)
    assert json.loads(server.schemas[0]["schema"])["title"] == "Flight"


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json"])
def test_the_registry_is_asked_once_and_not_per_record(server: RegistryServer, kind: str) -> None:
    """A thousand records cost the requests of the first one, when written and when read by a fresh process."""

    def build() -> tuple[Any, Any]:
        registry = connect(server.url)
        match kind:
            case "avro":
                return Avro(Flight, registry=registry, schema=FLIGHT), Flight("AA")
            case "protobuf":
                return Protobuf(InnerMessage, registry=registry), InnerMessage(number=3)
            case _:
                return JsonSchema(Flight, registry=registry), Flight("AA")

    serde, value = build()
    topical = serde.for_topic("t", is_key=False)
    assert server.requests == []
    data = topical.serialize(value)
    asked = len(server.requests)
    assert asked > 0
    assert {topical.serialize(value) for _ in range(1000)} == {data}
    assert serde.for_topic("t", is_key=False).serialize(value) == data
    assert len(server.requests) == asked
    reader, _ = build()
    server.requests.clear()
    assert all(reader.deserialize(data) == value for _ in range(1000))
    assert len(server.requests) <= 1


def test_a_topic_that_is_only_read_registers_nothing(server: RegistryServer, registry: SchemaRegistry) -> None:
    """Reading registers no schema, so it needs no right to."""
    data = Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=False).serialize({"carrier": "AA"})
    server.requests.clear()
    Avro(registry=connect(server.url), schema=NEWER_FLIGHT).for_topic("u", is_key=False).deserialize(data)
    assert [one for one in server.requests if one.startswith("POST")] == []


def test_avro_reads_what_an_older_schema_wrote(registry: SchemaRegistry) -> None:
    """Avro's schema resolution: the reader's defaults fill fields that the writer did not have."""
    old = Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=False)
    new = Avro(registry=registry, schema=NEWER_FLIGHT)
    assert new.deserialize(old.serialize({"carrier": "AA", "delay": None})) == {
        "carrier": "AA",
        "delay": None,
        "gate": 7,
    }


def test_avro_without_a_schema_takes_the_newest(registry: SchemaRegistry) -> None:
    """A program that names no schema writes with the subject's newest one."""
    for schema in (FLIGHT, NEWER_FLIGHT):
        Avro(registry=registry, schema=schema).for_topic("t", is_key=False).serialize({"carrier": "AA"})
    serde = Avro(registry=registry).for_topic("t", is_key=False)
    assert serde.deserialize(serde.serialize({"carrier": "BB", "gate": 1})) == {
        "carrier": "BB",
        "delay": None,
        "gate": 1,
    }


def test_avro_schemas_may_refer_to_registered_ones(server: RegistryServer, registry: SchemaRegistry) -> None:
    """A named type of another subject is found, when writing and when a fresh process reads."""
    Avro(registry=registry, schema=CARRIER).for_topic("carriers", is_key=False).serialize({"code": "x"})
    leg = {"type": "record", "name": "Leg", "fields": [{"name": "by", "type": "air.Carrier"}]}
    references = [Reference("air.Carrier", "carriers-value", 1)]
    serde = Avro(registry=registry, schema=leg, references=references).for_topic("legs", is_key=False)
    data = serde.serialize({"by": {"code": "AA"}})
    fresh = Avro(registry=connect(server.url))
    assert fresh.deserialize(data) == {"by": {"code": "AA"}}


@functools.cache
def _in_process() -> SchemaRegistry:
    """Confluent's registry inside this process; it opens no connections."""
    return SchemaRegistry("mock://typed")


@given(carrier=st.text(st.characters(exclude_categories=["Cs"])), delay=st.none() | st.floats(allow_nan=False))
def test_typed_avro_round_trips(carrier: str, delay: float | None) -> None:
    """Structs go through Avro's dictionaries and come back as structs."""
    serde = Avro(Flight, registry=_in_process(), schema=FLIGHT).for_topic("t", is_key=False)
    assert serde.deserialize(serde.serialize(Flight(carrier, delay))) == Flight(carrier, delay)


def test_typed_avro_keeps_logical_types(registry: SchemaRegistry) -> None:
    """A timestamp is a datetime on both sides."""

    class Event(msgspec.Struct):
        at: datetime
        raw: bytes

    schema = {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "raw", "type": "bytes"},
        ],
    }
    serde = Avro(Event, registry=registry, schema=schema).for_topic("t", is_key=False)
    event = Event(datetime(2026, 1, 2, 3, 4, 5, 678, UTC), b"\x00\xff")
    assert serde.deserialize(serde.serialize(event)) == event


def test_subjects_follow_topic_and_record(server: RegistryServer, registry: SchemaRegistry) -> None:
    """The three naming strategies, for keys and for values."""
    Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=True).serialize({"carrier": "AA"})
    Avro(registry=registry, schema=FLIGHT, subject=record_name).for_topic("t", is_key=False).serialize(
        {"carrier": "AA"}
    )
    Protobuf(CarrierMessage, registry=registry, subject=topic_record_name).for_topic("t", is_key=False).serialize(
        CarrierMessage()
    )
    assert set(server.subjects) == {"t-key", "air.Flight", "t-air.Carrier"}


def test_without_auto_register_an_unknown_schema_is_an_error(server: RegistryServer, registry: SchemaRegistry) -> None:
    """With auto_register=False a program registers no schema."""
    serde = Avro(registry=registry, schema=FLIGHT, auto_register=False).for_topic("t", is_key=False)
    with pytest.raises(SerializationError, match="subject 't-value' has no such AVRO schema"):
        serde.serialize({"carrier": "AA"})
    assert server.subjects == {}


def test_incompatible_schema_reports_the_registrys_reason(server: RegistryServer, registry: SchemaRegistry) -> None:
    """The error has the registry's reason for a rejection."""
    server.incompatible.add("t-value")
    with pytest.raises(SerializationError, match="incompatible with an earlier schema"):
        Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=False).serialize({"carrier": "AA"})


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_silent_registry_is_not_a_bad_record(server: RegistryServer, status: int) -> None:
    """A registry that is down is a BrokerError, so no record is dropped, and it can be read later."""
    registry = connect(server.url)
    data = Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=False).serialize({"carrier": "AA"})
    fresh = Avro(registry=connect(server.url))
    server.failing = status
    with pytest.raises(BrokerError, match="cannot be used now"):
        fresh.deserialize(data)
    server.failing = None
    assert fresh.deserialize(data)["carrier"] == "AA"


def test_a_registry_that_cannot_be_reached_is_a_broker_error() -> None:
    """The error has the address of a registry that cannot be reached, without its password."""
    with serve() as gone:
        address = gone.url.replace("http://", "http://user:hunter2@")
    registry = connect(address)
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1") as refused:
        Avro(registry=registry).deserialize(b"\x00\x00\x00\x00\x01x")
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(registry)


@pytest.mark.parametrize("handler", ["fail", "continue"])
@pytest.mark.parametrize("side", ["read", "written"])
def test_a_registry_that_is_down_drops_no_record(server: RegistryServer, handler: str, side: str) -> None:
    """The error is raised past the handlers of bad records, which would drop a good record."""
    data = Avro(registry=connect(server.url), schema=FLIGHT).for_topic("t", is_key=False).serialize({"carrier": "AA"})
    avro = Avro(registry=connect(server.url), schema=FLIGHT)
    builder = mp.StreamsBuilder()
    source = builder.stream("t", key=mp.String, value=avro if side == "read" else mp.Json())
    source.to("u", key=mp.String, value=mp.Json() if side == "read" else avro)
    config = {"deserialization.exception.handler": handler, "production.exception.handler": handler}
    server.failing = 503
    with mp.testing.TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("t", key=mp.String, value=mp.Bytes)
        with pytest.raises(BrokerError, match="cannot be used now"):
            topic.pipe_input("a", data if side == "read" else b'{"carrier": "AA"}')
        assert driver.metrics()["dropped"] == 0


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", "zero byte"),
        (b"\x01\x00\x00\x00\x01x", "zero byte"),
        (b"plain text", "zero byte"),
        (b"\x00\x00\x00\x00", "zero byte"),
        (b"\x00\x00\x00\x03\xe7x", "schema 999 does not exist"),
    ],
)
def test_bytes_of_another_origin_are_rejected(registry: SchemaRegistry, data: bytes, cause: str) -> None:
    """Records that no registry serde wrote are malformed input, and the error has the cause."""
    with pytest.raises((ValueError, SerializationError), match=cause):
        Avro(registry=registry).deserialize(data)


def test_bytes_after_the_value_are_rejected(registry: SchemaRegistry) -> None:
    """A value that ends before its record does was not written with this schema."""
    serde = Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=False)
    with pytest.raises(ValueError, match="left over"):
        serde.deserialize(serde.serialize({"carrier": "AA"}) + b"x")


def test_serde_needs_its_topic(registry: SchemaRegistry) -> None:
    """Without a topic there is no subject, and the error says what to do."""
    with pytest.raises(SerializationError, match="for_topic"):
        Avro(registry=registry, schema=FLIGHT).serialize({"carrier": "AA"})


def test_untyped_json_is_validated_both_ways(registry: SchemaRegistry) -> None:
    """Dictionaries are checked against the schema; the error has the rule and the place, and not the value."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}, "required": ["n"]}
    strict = JsonSchema(registry=registry, schema=schema).for_topic("t", is_key=False)
    assert strict.deserialize(strict.serialize({"n": 5})) == {"n": 5}
    with pytest.raises(ValueError, match=r"'maximum' at \$\.n") as refused:
        strict.serialize({"n": 4111})
    assert "4111" not in str(refused.value)
    with pytest.raises(ValueError, match="'required'"):
        strict.deserialize(b"\x00\x00\x00\x00\x01{}")


def test_a_field_that_a_json_schema_forbids_is_an_error(registry: SchemaRegistry) -> None:
    """Other programs would reject each value. A schema that allows other properties loses nothing."""

    class Route(msgspec.Struct):
        flights: list[Flight]

    flight = {"type": "object", "properties": {"carrier": {"type": "string"}}}
    closed = {**flight, "additionalProperties": False}
    route = {"type": "object", "properties": {"flights": {"type": "array", "items": {"$ref": "#/$defs/F"}}}}
    JsonSchema(Flight, registry=registry, schema=flight)
    JsonSchema(Route, registry=registry, schema={**route, "$defs": {"F": flight}})
    JsonSchema(Flight, registry=registry, schema={**closed, "patternProperties": {"d.*": {}}})
    for type, schema in ((Flight, closed), (Route, {**route, "$defs": {"F": closed}})):
        with pytest.raises(ConfigError, match="it allows no 'delay' of Flight"):
            JsonSchema(type, registry=registry, schema=schema)


def test_a_protobuf_value_that_is_shown_can_be_written_again() -> None:
    serde = Protobuf(FlightMessage, registry=_in_process()).for_topic("shown")
    coder, data = of_serde(serde), serde.serialize(FlightMessage(carrier=CarrierMessage(code="AA"), delay=1.5))
    assert coder.encode(coder.decode(data)) == data
    with pytest.raises(NotEncodable, match="nots"):
        coder.encode({"nots": 1})


def test_malformed_schemas_are_found_where_they_are_written(registry: SchemaRegistry) -> None:
    """A typing mistake in a schema fails when the topology is built, not at the first record."""
    with pytest.raises(SerializationError, match="Avro schema"):
        Avro(registry=registry, schema='{"type": "recrod"}')
    with pytest.raises(ConfigError, match="JSON Schema"):
        JsonSchema(registry=registry, schema={"type": "objekt"})
    with pytest.raises(ConfigError, match="not valid JSON"):
        JsonSchema(registry=registry, schema="{")


def test_credentials_reach_the_registry_and_nothing_else(server: RegistryServer) -> None:
    """Basic authentication is sent, and not shown."""
    registry = SchemaRegistry(server.url, {"basic.auth.user.info": "user:hunter2"})
    _open.append(registry)
    Avro(registry=registry, schema=FLIGHT).for_topic("t", is_key=False).serialize({"carrier": "AA"})
    assert server.authorization[0] is not None
    assert "hunter2" not in repr(registry)


def test_settings_of_the_registry_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No address, or a setting the client does not know, is a ConfigError."""
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    with pytest.raises(ConfigError, match="SCHEMA_REGISTRY_URL"):
        SchemaRegistry()
    with pytest.raises(ConfigError, match=r"basic\.auth\.user"):
        SchemaRegistry("http://127.0.0.1:1", {"basic.auth.user": "x"})
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://127.0.0.1:1")
    assert repr(SchemaRegistry()) == "SchemaRegistry(http://127.0.0.1:1)"


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.binary(max_size=5))
def test_message_paths_are_skipped_whole(indexes: list[int], rest: bytes) -> None:
    """For every message of every file, the payload starts where the path ends."""
    data = wire.prefix(7) + wire.message_path(indexes) + rest
    begins = 6 if indexes == [0] else wire.skip_message_path(data)
    assert data[begins:] == rest


def test_a_topic_of_the_test_driver_gives_its_name_to_the_serde(registry: SchemaRegistry) -> None:
    """Neither the piped records nor the results need for_topic()."""
    flights = Avro(registry=registry, schema=FLIGHT)
    builder = mp.StreamsBuilder()
    builder.stream("flights", key=mp.String, value=flights).to("copies", key=mp.String, value=flights)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        flight = {"carrier": "AA", "delay": 2.0}
        driver.create_input_topic("flights", key=mp.String, value=flights).pipe_input("a", flight)
        copies = driver.create_output_topic("copies", key=mp.String, value=flights)
        assert copies.read_values_to_list() == [flight]


def test_mocks_of_one_name_are_one_registry() -> None:
    """As in Java: a test reads what its application has written, each with an object of its own."""
    schema = '{"type": "string"}'
    name = f"mock://{uuid.uuid4()}"
    first, second, other = SchemaRegistry(name), SchemaRegistry(name), SchemaRegistry(f"{name}-other")
    registered = first.register("orders-value", "AVRO", schema)
    assert second.by_id(registered.id).text == schema
    with pytest.raises(SerializationError):
        other.by_id(registered.id)
    del first, second
    with pytest.raises(SerializationError):  # nothing of an earlier test is left
        SchemaRegistry(name).by_id(registered.id)
