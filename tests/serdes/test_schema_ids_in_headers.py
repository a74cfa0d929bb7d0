"""Records whose schema id is in a header, as Confluent's serializers write them with `schema.id.serializer`."""

from __future__ import annotations

import json
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.errors import SerializationError

pytest.importorskip("authlib", reason="needs the extras avro, protobuf, jsonschema")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the client's own dependencies about each other
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

from confluent_kafka import Message
from google.protobuf.timestamp_pb2 import Timestamp

from millpond.cli.records.application_coders import Coders
from millpond.cli.records.coders import named, of_serde
from millpond.cli.records.decoding import decode
from millpond.runtime.restoring.schema_headers import recoding
from millpond.serdes.registry import Avro, JsonSchema, Protobuf, SchemaRegistry
from tests.serdes.registry_server import RegistryServer

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "number", "type": "long"}]}
NUMBER = {"type": "object", "title": "Number", "properties": {"number": {"type": "integer"}}}
IN_HEADER = {"schema.id.serializer": header_schema_id_serializer}


class Number(msgspec.Struct, frozen=True):
    number: int


@pytest.fixture
def theirs(server: RegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


def _written(serializer: Any, value: Any, *, is_key: bool = False) -> tuple[bytes, list[Any]]:
    """Return the bytes and the headers that Confluent's serializer writes to the topic `in`."""
    headers: list[Any] = []
    field = MessageField.KEY if is_key else MessageField.VALUE
    return serializer(value, SerializationContext("in", field, headers)), headers


def _avro(client: SchemaRegistryClient) -> Any:
    return AvroSerializer(client, json.dumps(FLIGHT), conf=IN_HEADER)


def _cases(client: SchemaRegistryClient, registry: SchemaRegistry) -> dict[str, tuple[Any, Any, Any, Any]]:
    """Return serializer, value, serde and the value that it reads, by format."""
    when = Timestamp(seconds=3)
    protobuf = ProtobufSerializer(Timestamp, client, conf={**IN_HEADER, "skip.known.types": True})
    return {
        "avro": (_avro(client), {"number": 7}, Avro(registry=registry, schema=FLIGHT), {"number": 7}),
        "avro-unnamed": (_avro(client), {"number": 7}, Avro(registry=registry), {"number": 7}),
        "json": (
            JSONSerializer(json.dumps(NUMBER), client, conf=IN_HEADER), {"number": 7},
            JsonSchema(Number, registry=registry), Number(7),
        ),
        "protobuf": (protobuf, when, Protobuf(Timestamp, registry=registry), when),
    }  # fmt: skip


@pytest.mark.parametrize("form", ["avro", "avro-unnamed", "json", "protobuf"])
def test_values_with_their_schema_id_in_a_header_are_read(
    theirs: SchemaRegistryClient, registry: SchemaRegistry, form: str
) -> None:
    """Such records stand between records of the usual format, and other headers pass through to the output."""
    serializer, value, serde, expected = _cases(theirs, registry)[form]
    seen: list[Any] = []
    builder = mp.StreamsBuilder()
    read = builder.stream("in", key=mp.String, value=serde).peek(lambda _key, value: seen.append(value))
    read.map_values(lambda _value: "out").to("out", key=mp.String, value=mp.String)
    data, headers = _written(serializer, value)
    usual = serde.for_topic("in").serialize(expected) if form != "avro-unnamed" else b"\0\0\0\0\1" + data
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.Bytes)
        topic.pipe_input("a", data, headers=[*headers, ("tenant", b"x")])
        topic.pipe_input("a", usual)
        topic.pipe_input("a", usual, headers=[("tenant", b"x")])
        records = driver.create_output_topic("out", key=mp.String, value=mp.String).read_records_to_list()
    assert seen == [expected] * 3
    assert [list(record.headers) for record in records] == [[("tenant", b"x")], [], [("tenant", b"x")]]


def test_an_output_has_no_header_with_the_schema_id_of_its_input(
    theirs: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    """Confluent's deserializer believes the header rather than the bytes, and would read them with another schema."""
    text = {"type": "record", "name": "Text", "fields": [{"name": "text", "type": "string"}]}
    builder = mp.StreamsBuilder()
    flights = builder.stream("in", key=mp.String, value=Avro(registry=registry))
    flights.map_values(lambda value: {"text": str(value["number"])}).to(
        "out", key=mp.String, value=Avro(registry=registry, schema=text)
    )
    data, headers = _written(_avro(theirs), {"number": 7})
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Bytes).pipe_input("a", data, headers=headers)
        record = driver.create_output_topic("out", key=mp.String, value=mp.Bytes).read_record()
    context = SerializationContext("out", MessageField.VALUE, list(record.headers))
    assert AvroDeserializer(theirs)(record.value, context) == {"text": "7"}


def test_a_key_and_a_row_of_a_global_table_are_read(theirs: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    """Keys have their own header, and tables their rows by them."""
    builder = mp.StreamsBuilder()
    names = builder.global_table(
        "in", key=Avro(registry=registry, schema=FLIGHT), value=Avro(registry=registry), store="names"
    )
    numbers = builder.stream("numbers", key=mp.String, value=mp.Long)
    joined = numbers.join(names, lambda number, row: number + row["number"], on=lambda _key, number: {"number": number})
    joined.to("out", key=mp.String, value=mp.Long)
    key, key_headers = _written(_avro(theirs), {"number": 7}, is_key=True)
    value, headers = _written(_avro(theirs), {"number": 100})
    assert [name for name, _ in key_headers + headers] == ["__key_schema_id", "__value_schema_id"]
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.Bytes, value=mp.Bytes).pipe_input(
            key, value, headers=key_headers + headers
        )
        driver.create_input_topic("numbers", key=mp.String, value=mp.Long).pipe_input("a", 7)
        assert driver.create_output_topic("out", key=mp.String, value=mp.Long).read_value() == 107


def test_a_restored_row_has_the_bytes_of_a_processed_one(
    theirs: SchemaRegistryClient, registry: SchemaRegistry
) -> None:
    """A store that is restored from its input topic has its rows under the same keys as one that processed it."""
    serde = Avro(registry=registry, schema=FLIGHT)
    builder = mp.StreamsBuilder()
    builder.table("in", key=serde, value=serde, store="names")
    key, key_headers = _written(_avro(theirs), {"number": 7}, is_key=True)
    value, headers = _written(_avro(theirs), {"number": 100})

    class Store:
        key_serde = serde.for_topic("in", is_key=True)
        value_serde = serde.for_topic("in")

    recoded = recoding(Store)
    assert recoded is not None
    expected = (Store.key_serde.serialize({"number": 7}), Store.value_serde.serialize({"number": 100}))
    assert recoded((key, value, 5, key_headers + headers))[:2] == expected
    assert recoded((*expected, 5, None))[:2] == expected
    assert recoded((key, None, 5, key_headers))[:2] == (expected[0], None)


def test_consume_shows_such_values(theirs: SchemaRegistryClient, registry: SchemaRegistry) -> None:
    data, headers = _written(_avro(theirs), {"number": 7})
    coders = Coders(named("auto", "in", is_key=True), of_serde(Avro(registry=registry).for_topic("in")))
    line = decode(Message(topic="in", key=b"a", value=data, headers=headers, timestamp=(1, 5)), coders).line
    assert line["value"] == {"number": 7}
    assert line["headers"][0][0] == "__value_schema_id"


def test_an_unknown_schema_in_a_header_is_told_by_its_guid(registry: SchemaRegistry) -> None:
    guid = uuid.UUID(int=7)
    serde = Avro(registry=registry).for_topic("in")
    with pytest.raises(SerializationError, match=f"schema {guid} does not exist"):
        serde.deserialize(serde.framed(b"\x0e", [("__value_schema_id", b"\x01" + guid.bytes)]))


def test_a_record_that_is_passed_on_as_bytes_keeps_its_header(theirs: SchemaRegistryClient) -> None:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.Bytes).to("out", key=mp.String, value=mp.Bytes)
    data, headers = _written(_avro(theirs), {"number": 7})
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Bytes).pipe_input("a", data, headers=headers)
        record = driver.create_output_topic("out", key=mp.String, value=mp.Bytes).read_record()
    assert (record.value, list(record.headers)) == (data, headers)
