"""JSON with a registered JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

import msgspec
from msgspec import inspect

from millpond.errors import ConfigError
from millpond.serdes.finite import finite_json
from millpond.serdes.serde import Serde
from millpond.serdes.structured import is_immutable

from . import wire
from .avro_fields import members_of
from .client import RegisteredSchema, SchemaRegistry, SubjectName, topic_name

__all__ = ("JsonSchema",)

T = TypeVar("T")

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@overload
def JsonSchema(
    *,
    registry: SchemaRegistry,
    schema: str | Mapping[str, Any],
    subject: SubjectName = topic_name,
    auto_register: bool = True,
) -> Serde[Any]: ...
@overload
def JsonSchema(
    type: type[T],
    /,
    *,
    registry: SchemaRegistry,
    schema: str | Mapping[str, Any] | None = None,
    subject: SubjectName = topic_name,
    auto_register: bool = True,
) -> Serde[T]: ...
def JsonSchema(
    type: Any = Any,
    /,
    *,
    registry: SchemaRegistry,
    schema: str | Mapping[str, Any] | None = None,
    subject: SubjectName = topic_name,
    auto_register: bool = True,
) -> Serde[Any]:
    """Return a serde for JSON with a JSON Schema in a schema registry.

    Args:
        type: type of the values, for msgspec, which checks them while it decodes them. Without one, values are
            dictionaries, and are checked against the schema when they are written and when they are read.
        registry: the schema registry.
        schema: a JSON Schema; default: that of the type.
        subject: how subjects are named: `topic_name`, or one of the others if the schema has a title.
        auto_register: whether to register a schema that is not registered; otherwise that is an error.

    Raises:
        ConfigError: both type and schema are missing, the schema is not a JSON Schema, it forbids a field of the
            type, or the extra `jsonschema` is not installed.
    """
    if schema is None:
        if type is Any:
            raise ConfigError("JsonSchema has neither a type nor a schema; give it one of them.")
        schema = _schema_of(type)
    try:
        document = json.loads(schema) if isinstance(schema, str) else dict(schema)
    except ValueError as error:
        raise ConfigError(f"a JSON Schema is not valid JSON: {error}; correct it.") from error
    text = schema if isinstance(schema, str) else json.dumps(document)
    check = _validator(document) if type is Any else None
    dump = finite_json(msgspec.json.Encoder(order="deterministic").encode)
    parse = msgspec.json.Decoder(type).decode

    def register(name: str) -> RegisteredSchema:
        return (registry.register if auto_register else registry.lookup)(name, "JSON", text)

    def encoder(registered: RegisteredSchema) -> wire.Encode:
        prefix = wire.prefix(registered.id)

        def encode(value: Any) -> bytes:
            if check is not None:
                check(value)
            return prefix + dump(value)

        return encode

    def deserialize(data: bytes, /) -> Any:
        wire.schema_id(data)
        value = parse(memoryview(data)[wire.after_schema_id(data) :])
        if check is not None:
            check(value)
        return value

    name = "JsonSchema" if type is Any else f"JsonSchema({getattr(type, '__qualname__', type)})"
    _check_fields(name, type, document)
    immutable = type is not Any and is_immutable(type)
    return wire.frame(
        name, subject, register, encoder, lambda: document.get("title"), deserialize, immutable=immutable, type=type
    )


def _schema_of(type: Any) -> dict[str, Any]:
    """Return the schema of a type, with the type's definition at the root, where registries look for the title."""
    schema = msgspec.json.schema(type)
    definitions = schema.get("$defs", {})
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    root: dict[str, Any] = {"$schema": _DIALECT}
    if name in definitions and f'"#/$defs/{name}"' not in json.dumps(definitions):
        root |= definitions.pop(name)
        return root | {"$defs": definitions} if definitions else root
    return root | schema


def _check_fields(name: str, type: Any, document: Any) -> None:
    problems = [] if type is Any else list(_forbidden(inspect.type_info(type), document, document, set()))
    if problems:
        raise ConfigError(
            f"{name} does not fit its schema: {'; '.join(problems)}. Add them to the schema, or remove them there."
        )


def _forbidden(info: Any, node: Any, document: Any, seen: set[type]) -> Iterator[str]:
    """Yield the fields of a type that a schema does not allow: it has `additionalProperties: false` and not these."""
    if reference := str(node.get("$ref", "")):
        node = document if reference.startswith("#") else {}  # other documents are not known
        for name in reference.split("/")[1:]:
            node = node.get(name, {}) if isinstance(node, dict) else {}
    for member in members_of(info):
        if isinstance(member, (inspect.ListType, inspect.VarTupleType)) and isinstance(node.get("items"), dict):
            yield from _forbidden(member.item_type, node["items"], document, seen)
        fields = getattr(member, "fields", ())
        properties = node.get("properties")
        if not fields or member.cls in seen or not isinstance(properties, dict):
            continue
        seen.add(member.cls)
        names = [each.encode_name for each in fields if each.encode_name not in properties]
        if names and node.get("additionalProperties") is False and not node.get("patternProperties"):
            yield f"it allows no {', '.join(map(repr, names))} of {member.cls.__qualname__}"
        for each in fields:
            if isinstance(properties.get(each.encode_name), dict):
                yield from _forbidden(each.type, properties[each.encode_name], document, seen)


def _validator(document: Mapping[str, Any]) -> Callable[[Any], None]:
    try:
        import jsonschema
    except ImportError as error:
        raise ConfigError(
            f"JsonSchema without a type needs an extra: pip install 'millpond[jsonschema]' ({error})."
        ) from error
    known = jsonschema.validators.validator_for(document, default=jsonschema.Draft7Validator)
    try:
        known.check_schema(document)
    except jsonschema.SchemaError as error:
        raise ConfigError(f"a JSON Schema is not valid: {error.message}; correct it.") from error
    validator = known(document)

    def check(value: Any) -> None:
        for error in validator.iter_errors(value):
            # The library's message quotes the value, which may be secret.
            raise ValueError(f"the value breaks the schema's rule '{error.validator}' at {error.json_path}")

    return check
