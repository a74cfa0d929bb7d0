"""Avro, by fastavro."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, overload
from uuid import UUID

import msgspec

from millpond.errors import ConfigError, SerializationError
from millpond.serdes.serde import Serde
from millpond.serdes.structured import is_immutable

from . import avro_fields, avro_json, wire
from .avro_defaults import decode_defaults, has_changeable_defaults
from .avro_logical import adopt
from .avro_names import are_ambiguous, paired
from .client import Reference, RegisteredSchema, SchemaRegistry, SubjectName, topic_name

__all__ = ("Avro",)

T = TypeVar("T")

_AS_THEY_ARE = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)
"""Types that fastavro itself turns into Avro's bytes and logical types."""


@overload
def Avro(
    *,
    registry: SchemaRegistry,
    schema: str | Mapping[str, Any] | None = None,
    references: Sequence[Reference] = (),
    subject: SubjectName = topic_name,
    auto_register: bool = True,
) -> Serde[Any]: ...
@overload
def Avro(
    type: type[T],
    /,
    *,
    registry: SchemaRegistry,
    schema: str | Mapping[str, Any] | None = None,
    references: Sequence[Reference] = (),
    subject: SubjectName = topic_name,
    auto_register: bool = True,
) -> Serde[T]: ...
def Avro(  # noqa: C901, PLR0913 - the functions of one serde; options are keywords
    type: Any = Any,
    /,
    *,
    registry: SchemaRegistry,
    schema: str | Mapping[str, Any] | None = None,
    references: Sequence[Reference] = (),
    subject: SubjectName = topic_name,
    auto_register: bool = True,
) -> Serde[Any]:
    """Return a serde for Avro with a schema registry.

    Args:
        type: type of the values: dictionaries by default, or anything that msgspec converts to and from them.
        registry: the schema registry.
        schema: an Avro schema in JSON. Values are written with it, and values of other schemas are read into it by
            Avro's rules of schema resolution. Without one, values are written with the subject's newest schema, and
            read as they were written.
        references: registered schemas that this one uses by name, such as each record type of a topic whose schema is
            a union: `schema='["shop.Paid", "shop.Cancelled"]'`.
        subject: how subjects are named: `topic_name`, `record_name` or `topic_record_name`.
        auto_register: whether to register a schema that is not registered; otherwise that is an error.

    A field of the type that the schema does not have is an error, since its values would be lost. Where the schema is
    one of the registry, that is an error of the first value that is written.

    Raises:
        ConfigError: the extra `avro` is not installed, or the type does not fit the schema.
        SerializationError: the schema is not an Avro schema.
    """
    fastavro = _fastavro()
    convert = None if type is Any else type
    text = None if schema is None else schema if isinstance(schema, str) else json.dumps(schema)
    parsed: list[_Parsed] = []  # the reader's schema, parsed at its first use: its references may be in the registry
    name = "Avro" if type is Any else f"Avro({getattr(type, '__qualname__', type)})"
    readers: dict[wire.SchemaId, Callable[[io.BytesIO], Any]] = {}

    def checked(found: _Parsed, *, written: bool = False) -> _Parsed:
        if convert is not None and (
            problems := avro_fields.problems(convert, found.schema, found.named, written=written)
        ):
            raise ConfigError(
                f"{name} does not fit its schema: {'; '.join(problems)}. Correct the schema or the type, so that they "
                "have the same fields."
            )
        return found

    def own() -> _Parsed | None:
        if text is None:
            return None
        if not parsed:
            found = _parse(fastavro, registry, text, references)
            if found.wrong_defaults:
                raise SerializationError(f"an Avro schema cannot be used: {found.wrong_defaults[0]}")
            parsed.append(checked(found))
        return parsed[0]

    if text is not None and not references:
        own()  # raises for a malformed schema here, and not only with the first record

    def record() -> str | None:
        found = own()
        return found.schema.get("name") if found is not None and isinstance(found.schema, dict) else None

    def writes(registered: RegisteredSchema) -> _Parsed:
        return checked(own() or _parse(fastavro, registry, registered.text, registered.references), written=True)

    def converter(registered: RegisteredSchema) -> Callable[[Any], Any]:
        found = writes(registered)
        return avro_json.converter(found.schema, found.named, names_records=convert is None)

    def register(name: str) -> RegisteredSchema:
        if text is None:
            return registry.latest(name)
        return (registry.register if auto_register else registry.lookup)(name, "AVRO", text, references)

    def encoder(registered: RegisteredSchema) -> wire.Encode:
        prefix = wire.prefix(registered.id)
        schema = writes(registered).schema
        write, buffer, to_builtins = fastavro.schemaless_writer, io.BytesIO, msgspec.to_builtins

        def encode(value: Any) -> bytes:
            out = buffer()
            out.write(prefix)
            write(out, schema, value if convert is None else to_builtins(value, builtin_types=_AS_THEY_ARE))
            return out.getvalue()

        return encode

    def reader(schema_id: wire.SchemaId) -> Callable[[io.BytesIO], Any]:
        registered = registry.by_id(schema_id)
        source = _parse(fastavro, registry, registered.text, registered.references)
        readers[schema_id] = _decoder(fastavro.schemaless_reader, source, own(), copies=convert is None)
        return readers[schema_id]

    def deserialize(data: bytes, /) -> Any:
        schema_id = wire.schema_id(data)
        stream = io.BytesIO(data)
        stream.seek(wire.after_schema_id(data))
        try:
            value = (readers.get(schema_id) or reader(schema_id))(stream)
        except fastavro.read.SchemaResolutionError as error:
            raise SerializationError(_mismatch(registry, schema_id, own(), error)) from error
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes are left over after the value")
        return value if convert is None else msgspec.convert(value, convert)

    immutable = type is not Any and is_immutable(type)
    return wire.frame(
        name, subject, register, encoder, record, deserialize, immutable=immutable, type=type, converter=converter
    )


def _decoder(
    read: Callable[..., Any], source: _Parsed, wanted: _Parsed | None, *, copies: bool
) -> Callable[[io.BytesIO], Any]:
    """Return the function that decodes values of one schema into another, or as they were written."""
    schema, written = None, source.schema
    if wanted is not None and (are_ambiguous(source.named) or are_ambiguous(wanted.named)):
        written, named, schema, wanted_named = paired(*source[:2], *wanted[:2])
        written, schema = _complete(written, named), _complete(schema, wanted_named)
    elif wanted is not None:
        schema, written = wanted.schema, adopt(*source[:2], *wanted[:2])

    def decode(data: io.BytesIO) -> Any:
        return read(data, written, schema)

    def decode_own(data: io.BytesIO) -> Any:
        return copy.deepcopy(read(data, written, schema))  # else all values would share the lists of defaults

    shares = copies and wanted is not None and schema != written and has_changeable_defaults(wanted.named)
    return decode_own if shares else decode


class _Parsed(NamedTuple):
    """A parsed schema whose defaults are values."""

    schema: Any
    named: dict[str, Any]
    """All named schemas, by their full names."""
    wrong_defaults: list[str]
    """Sentences about defaults that do not fit their fields."""


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as error:
        raise ConfigError(f"Avro needs an extra: pip install 'millpond[avro]' ({error}).") from error
    return fastavro


def _mismatch(registry: SchemaRegistry, schema_id: wire.SchemaId, wanted: _Parsed | None, error: Exception) -> str:
    """Return why values of a registered schema cannot be read into another one, without the text of both."""
    written = json.loads(registry.by_id(schema_id).text)
    names = [_record_name(written), "" if wanted is None else _record_name(wanted.schema)]
    if not all(names) or names[0] == names[1]:
        return f"a value of schema {schema_id} cannot be read: {error}"
    return (
        f"schema {schema_id} of the registry is '{names[0]}' and not '{names[1]}': if the registry lost its schemas "
        "and gave their ids again, restore them; else the value is in the wrong topic"
    )


def _record_name(schema: Any) -> str:
    if not isinstance(schema, dict) or "name" not in schema:
        return ""
    name, space = str(schema["name"]), schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _parse(fastavro: ModuleType, registry: SchemaRegistry, text: str, references: Sequence[Reference]) -> _Parsed:
    named: dict[str, Any] = {}
    _collect(fastavro, registry, references, named)
    try:
        schema = _complete(fastavro.parse_schema(json.loads(text), named_schemas=named), named)
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise SerializationError(f"an Avro schema cannot be used: {type(error).__name__}: {error}") from error
    return _Parsed(schema, named, decode_defaults(named, fastavro.read.LOGICAL_READERS))


def _complete(schema: Any, named: dict[str, Any]) -> Any:
    """Return a parsed schema that has all named schemas, in fastavro's own form.

    fastavro itself adds them to records. For other schemas it would have to parse the referenced ones with each value.
    """
    if isinstance(schema, list):
        return [_complete(each, named) for each in schema]
    if isinstance(schema, str):
        return _complete(named[schema], named) if schema in named else schema
    return {**schema, "__fastavro_parsed": True, "__named_schemas": named}


def _collect(
    fastavro: ModuleType, registry: SchemaRegistry, references: Sequence[Reference], named: dict[str, Any]
) -> None:
    """Parse referenced schemas into `named`; a schema comes after the schemas that it references."""
    for one in references:
        if one.name not in named:
            found = registry.version(one.subject, one.version)
            _collect(fastavro, registry, found.references, named)
            fastavro.parse_schema(json.loads(found.text), named_schemas=named)
