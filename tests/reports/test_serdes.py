"""Reports about serdes with a schema registry, from the trackers of peers."""

from __future__ import annotations

import json
import math
import warnings
from decimal import Decimal
from typing import Any

import pytest

import millpond as mp

pytest.importorskip("authlib", reason="needs the extra avro")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the client's own dependencies about each other
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

from millpond.serdes.registry import Avro, JsonSchema, Reference, SchemaRegistry, record_name
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
