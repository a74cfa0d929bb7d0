"""Protobuf messages with a schema registry."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.serdes.serde import Serde

from . import wire
from .client import Reference, RegisteredSchema, SchemaRegistry, SubjectName, topic_name

if TYPE_CHECKING:
    from google.protobuf.message import Message

__all__ = ("Protobuf",)

M = TypeVar("M", bound="Message")

# Files that every registry has: they are not registered as references.
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")


def Protobuf(
    type: type[M], /, *, registry: SchemaRegistry, subject: SubjectName = topic_name, auto_register: bool = True
) -> Serde[M]:
    """Return a serde for Protobuf with a schema registry.

    Args:
        type: a generated message class. The files that its file imports are registered first, each with its name as the
            subject, and then its file.
        registry: the schema registry.
        subject: how subjects are named: `topic_name`, `record_name` or `topic_record_name`.
        auto_register: whether to register a schema that is not registered; otherwise that is an error.
    """
    descriptor = type.DESCRIPTOR
    path = wire.message_path(_indexes(descriptor))
    parse = type.FromString
    to_bytes = type.SerializeToString

    def register(name: str) -> RegisteredSchema:
        return _register(registry, name, descriptor.file, auto_register=auto_register)

    def encoder(registered: RegisteredSchema) -> wire.Encode:
        prefix = wire.prefix(registered.id) + path

        def encode(message: Any) -> bytes:
            return prefix + to_bytes(message)

        return encode

    def deserialize(data: bytes, /) -> M:
        wire.schema_id(data)
        at = wire.after_schema_id(data)
        return parse(data[at + 1 :] if data[at : at + 1] == b"\x00" else data[wire.skip_message_path(data) :])

    def converter(_registered: RegisteredSchema) -> Callable[[Any], Any]:
        from google.protobuf.json_format import ParseDict, ParseError

        def convert(value: Any) -> M:
            try:
                return ParseDict(value, type())
            except ParseError as error:
                raise ValueError(str(error)) from error

        return convert

    name = f"Protobuf({descriptor.name})"
    return wire.frame(
        name, subject, register, encoder, lambda: descriptor.full_name, deserialize, immutable=False,
        converter=converter,
    )  # fmt: skip


def _indexes(descriptor: Any) -> list[int]:
    """Return the path to a message in its file: the indexes of its outer messages, then its own index."""
    outer = descriptor.containing_type
    if outer is None:
        siblings = list(descriptor.file.message_types_by_name)
        return [siblings.index(descriptor.name)]
    return [*_indexes(outer), [one.name for one in outer.nested_types].index(descriptor.name)]


def _register(registry: SchemaRegistry, subject: str, file: Any, *, auto_register: bool) -> RegisteredSchema:
    references = []
    for imported in file.dependencies:
        if not imported.name.startswith(_BUILT_IN):
            found = _register(registry, imported.name, imported, auto_register=auto_register)
            if found.version is None:  # registering returns only the id; a lookup returns the version too
                found = registry.lookup(imported.name, "PROTOBUF", found.text, found.references)
            references.append(Reference(imported.name, imported.name, found.version or 1))
    text = base64.standard_b64encode(file.serialized_pb).decode("ascii")
    return (registry.register if auto_register else registry.lookup)(subject, "PROTOBUF", text, references)
