"""Values of a schema registry by the name of their format, without an application that knows their types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("authlib", reason="needs the extras avro, protobuf, jsonschema")
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

import millpond as mp
from millpond.cli.records import registry_formats
from millpond.cli.records.coders import Coder, named
from millpond.cli.records.lines import BadLine, Target, parser
from millpond.errors import ConfigError, SerializationError
from millpond.serdes.registry import JsonSchema, Protobuf, SchemaRegistry
from tests.serdes.registry_server import RegistryServer, serve


class Order(mp.Struct):
    price: int


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with serve() as found:
        found.protobuf_sources = True
        yield found


@pytest.fixture
def connect(registry: RegistryServer) -> Iterator[Callable[[str | None], SchemaRegistry]]:
    """Makes clients, which end with the test."""
    clients: list[SchemaRegistry] = []

    def made(url: str | None) -> SchemaRegistry:
        clients.append(SchemaRegistry(url))
        return clients[-1]

    yield made
    for each in clients:
        each.close()


@pytest.fixture
def client(registry: RegistryServer, connect: Callable[[str | None], SchemaRegistry]) -> SchemaRegistry:
    """The client of the application that writes the values."""
    return connect(registry.url)


@pytest.fixture
def coder(registry: RegistryServer, connect: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coder]:
    """Return the coder of the values of a topic."""
    monkeypatch.setattr(registry_formats, "SchemaRegistry", connect)
    return lambda name, topic="orders", **options: named(name, topic, is_key=False, registry=registry.url, **options)


def _messages() -> tuple[type[Any], type[Any]]:
    """Two classes as protoc would make them: `Line.Item`, with an imported message and a time, and `Order`."""
    pool = descriptor_pool.DescriptorPool()
    times = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    pool.Add(times)
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="shop", syntax="proto3")
    common.message_type.add(name="Price").field.add(name="cents", number=1, type=3, label=1)
    pool.Add(common)
    file = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop", syntax="proto3",
        dependency=["common.proto", "google/protobuf/timestamp.proto"],
    )  # fmt: skip
    order = file.message_type.add(name="Order")
    order.field.add(name="user_id", number=1, type=9, label=1)
    order.field.add(name="ordered_at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    item = file.message_type.add(name="Line").nested_type.add(name="Item")
    item.field.add(name="price", number=1, type=11, label=1, type_name=".shop.Price")
    pool.Add(file)
    found = [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{each}")) for each in ("Order", "Line")]
    return found[0], message_factory.GetMessageClass(found[1].DESCRIPTOR.nested_types_by_name["Item"])


def test_protobuf_is_read_by_the_schema_of_each_value(client: SchemaRegistry, coder: Callable[..., Coder]) -> None:
    """Also nested messages, imported files and times; and written with the first message of the newest schema."""
    order, item = _messages()
    orders = Protobuf(order, registry=client).for_topic("orders")
    value = order(user_id="ann")
    value.ordered_at.FromJsonString("2026-01-31T12:00:10Z")
    shown = {"user_id": "ann", "ordered_at": "2026-01-31T12:00:10Z"}
    by_name = coder("protobuf")
    assert by_name.decode(orders.serialize(value)) == shown
    line = item()
    line.price.cents = 7
    assert by_name.decode(Protobuf(item, registry=client).for_topic("lines").serialize(line)) == {
        "price": {"cents": "7"}
    }
    assert by_name.encode(shown) == orders.serialize(value)
    write = parser(named("string", "orders", is_key=True), by_name, Target("orders", 1))
    with pytest.raises(BadLine, match='has no field named "user"'):
        write(b'{"value": {"user": "ann"}}')


def test_what_is_no_protobuf_of_the_registry_is_told(client: SchemaRegistry, coder: Callable[..., Coder]) -> None:
    """Bytes without a schema, a schema of another kind, a path that the schema does not have."""
    order, _ = _messages()
    data = Protobuf(order, registry=client).for_topic("orders").serialize(order(user_id="ann"))
    decode = coder("protobuf").decode
    with pytest.raises(SerializationError, match="do not start with a zero byte and a schema id"):
        decode(b"text that is longer than it")
    with pytest.raises(SerializationError, match="has no message at the path"):
        decode(data[:5] + b"\x02\x12" + data[6:])
    other = JsonSchema(Order, registry=client).for_topic("other").serialize(Order(3))
    with pytest.raises(SerializationError, match="is no Protobuf schema"):
        decode(other[:5] + b"\x00")


def test_json_schema_is_read_as_it_is_and_written_by_the_newest_schema(
    registry: RegistryServer, client: SchemaRegistry, coder: Callable[..., Coder], tmp_path: Path
) -> None:
    """A value that the schema does not allow is not written; a schema of a file is registered."""
    orders = JsonSchema(Order, registry=client).for_topic("orders")
    by_name = coder("jsonschema")
    assert by_name.decode(orders.serialize(Order(3))) == {"price": 3}
    assert by_name.encode({"price": 4}) == orders.serialize(Order(4))
    write = parser(named("string", "orders", is_key=True), by_name, Target("orders", 1))
    with pytest.raises(BadLine, match="breaks the schema's rule 'type' at"):
        write(b'{"value": {"price": "three"}}')
    with pytest.raises(SerializationError, match="do not start with a zero byte and a schema id"):
        by_name.decode(b'{"price": 3}')
    file = tmp_path / "order.json"
    file.write_text(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}))
    assert coder("jsonschema", "new", schema=file).encode({"id": 1})[5:] == b'{"id":1}'
    assert "new-value" in registry.subjects


def test_a_subject_without_a_schema_is_told(coder: Callable[..., Coder]) -> None:
    """It cannot be written to, which the line says."""
    for name in ("protobuf", "jsonschema"):
        write = parser(named("string", "t", is_key=True), coder(name, "t"), Target("t", 1))
        with pytest.raises(BadLine, match="subject 't-value' has no schema"):
            write(b'{"value": {}}')


def test_a_registry_without_an_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHEMA_REGISTRY_URL", raising=False)
    with pytest.raises(ConfigError, match="the schema registry has no address"):
        named("protobuf", "t", is_key=False)
