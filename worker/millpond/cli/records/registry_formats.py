"""The formats of a schema registry by name, for topics whose types are not known: each value says its schema."""

from __future__ import annotations

import base64
import binascii
import importlib
from pathlib import Path
from typing import Any

import msgspec

from millpond.errors import ConfigError, SerializationError
from millpond.serdes import Serde, varint
from millpond.serdes.registry import Avro, JsonSchema, SchemaRegistry, topic_name, wire
from millpond.serdes.registry.client import RegisteredSchema

__all__ = ("REGISTRY_FORMATS", "registry_serde")

REGISTRY_FORMATS = ("avro", "protobuf", "jsonschema")
"""The names of the formats."""

#: Python modules of the files that every registry has.
_MODULES = (("confluent/", "confluent_kafka.schema_registry.confluent."), ("", ""))


def registry_serde(
    name: str, topic: str, *, is_key: bool, registry: str | None = None, schema: Path | None = None
) -> Serde[Any]:
    """Return the serde of a format for the keys or the values of a topic.

    Args:
        name: one of `REGISTRY_FORMATS`.
        topic: the topic, which names the subject.
        is_key: whether it is for keys.
        registry: the URL of the registry; None for `SCHEMA_REGISTRY_URL`.
        schema: the file of the schema to write with; None for the newest one of the subject.

    Raises:
        ConfigError: the schema cannot be read, the registry has no address, or the extra is not installed.
    """
    try:
        text = None if schema is None else schema.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the schema cannot be read: {error}.") from error
    client = SchemaRegistry(registry)
    if name == "avro":
        serde = Avro(registry=client, schema=text)
    elif name == "protobuf":
        serde = _protobuf(client)
    else:
        serde = _json(client) if text is None else JsonSchema(registry=client, schema=text)
    return serde.for_topic(topic, is_key)


def _json(registry: SchemaRegistry) -> Serde[Any]:
    """Return the serde of JSON with a schema: it writes with the subject's newest one, and reads values as they are."""

    def encoder(registered: RegisteredSchema) -> wire.Encode:
        checking = JsonSchema(registry=registry, schema=registered.text, auto_register=False)
        prefix, check = wire.prefix(registered.id), checking.deserialize

        def encode(value: Any) -> bytes:
            data = prefix + msgspec.json.encode(value)
            check(data)
            return data

        return encode

    def deserialize(data: bytes, /) -> Any:
        wire.schema_id(data)
        return msgspec.json.decode(memoryview(data)[wire.after_schema_id(data) :])

    return wire.frame(
        "JsonSchema", topic_name, registry.latest, encoder, lambda: None, deserialize, immutable=False
    )  # fmt: skip


def _protobuf(registry: SchemaRegistry) -> Serde[Any]:
    """Return the serde of Protobuf: it writes the first message of the subject's newest schema, and reads any."""
    messages = _Messages(registry)

    def encoder(registered: RegisteredSchema) -> wire.Encode:
        prefix = wire.prefix(registered.id) + wire.message_path([0])

        def encode(value: Any) -> bytes:
            return prefix + bytes(value.SerializeToString())

        return encode

    def converter(registered: RegisteredSchema) -> Any:
        from google.protobuf.json_format import ParseDict, ParseError

        kind = messages.of(registered.id, (0,))

        def convert(value: Any) -> Any:
            try:
                return ParseDict(value, kind())
            except ParseError as error:
                raise ValueError(str(error)) from error

        return convert

    def deserialize(data: bytes, /) -> Any:
        schema_id = wire.schema_id(data)
        count, at = varint.read(data, wire.after_schema_id(data), len(data))
        path = []
        for _ in range(count):
            index, at = varint.read(data, at, len(data))
            path.append(index)
        return messages.of(schema_id, tuple(path) or (0,)).FromString(data[at:])

    return wire.frame(
        "Protobuf", topic_name, registry.latest, encoder, lambda: None, deserialize, immutable=False,
        converter=converter,
    )  # fmt: skip


class _Messages:
    """Message classes made from the schemas of a registry."""

    def __init__(self, registry: SchemaRegistry) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        except ImportError as error:
            raise ConfigError(f"Protobuf needs an extra: pip install 'millpond[protobuf]' ({error}).") from error
        self._registry = registry
        self._file: Any = descriptor_pb2.FileDescriptorProto
        self._new_pool: Any = descriptor_pool.DescriptorPool
        self._known_files: Any = descriptor_pool.Default
        self._class: Any = message_factory.GetMessageClass
        self._files: dict[wire.SchemaId, Any] = {}
        self._classes: dict[tuple[wire.SchemaId, tuple[int, ...]], Any] = {}

    def of(self, schema_id: wire.SchemaId, path: tuple[int, ...]) -> Any:
        """Return the class of the message at a path in the file of a schema."""
        known = self._classes.get((schema_id, path))
        if known is None:
            if schema_id not in self._files:
                pool, name = self._new_pool(), f"schema-{schema_id}.proto"
                self._add(pool, name, self._registry.by_id(schema_id, serialized=True))
                self._files[schema_id] = pool.FindFileByName(name)
            kinds, found = list(self._files[schema_id].message_types_by_name.values()), None
            for index in path:
                if index >= len(kinds):
                    raise ValueError(f"schema {schema_id} of the registry has no message at the path {list(path)}")
                found = kinds[index]
                kinds = found.nested_types
            known = self._classes[schema_id, path] = self._class(found)
        return known

    def _add(self, pool: Any, name: str, schema: RegisteredSchema) -> None:
        for each in schema.references:
            self._add(pool, each.name, self._registry.version(each.subject, each.version, serialized=True))
        try:
            file = self._file.FromString(base64.b64decode(schema.text, validate=True))
        except (binascii.Error, ValueError) as error:
            raise SerializationError(
                f"schema {schema.id} of the registry is no Protobuf schema, or the registry does not serialize those "
                "(`format=serialized`): choose another format, or give --application"
            ) from error
        file.name = name
        for each in file.dependency:
            self._add_known(pool, each)
        pool.Add(file)

    def _add_known(self, pool: Any, name: str) -> None:
        """Add a file that registries have without a reference, such as google/protobuf/timestamp.proto."""
        try:
            pool.FindFileByName(name)
        except KeyError:
            start, package = next(each for each in _MODULES if name.startswith(each[0]))
            module = package + name.removeprefix(start).removesuffix(".proto").replace("/", ".") + "_pb2"
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise SerializationError(
                    f"the schema imports {name}, which is neither in the registry nor installed as {module}"
                ) from error
            found = self._known_files().FindFileByName(name)
            file = self._file()
            found.CopyToProto(file)
            for each in file.dependency:
                self._add_known(pool, each)
            pool.Add(file)
