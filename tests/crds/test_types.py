from __future__ import annotations

import types
import typing
from datetime import timedelta
from typing import Any

import msgspec

from millpond_operator.resources import StateBootstrapSpec, StreamAppSpec


def fields(struct: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {each.encode_name: each for each in msgspec.structs.fields(struct)}


def struct_in(kind: Any) -> type | None:
    """The struct that a type is, may be, or is a tuple of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if typing.get_origin(kind) in {typing.Union, types.UnionType, tuple}:
        return next((found for each in typing.get_args(kind) if (found := struct_in(each))), None)
    return None


def choices(kind: Any) -> set[str]:
    """The literals that a type allows."""
    if typing.get_origin(kind) is typing.Literal:
        return set(typing.get_args(kind))
    return {one for each in typing.get_args(kind) for one in choices(each)}


def spelled(default: Any) -> Any:
    return str(default) if isinstance(default, timedelta) else default


def compared(struct: type, schema: dict[str, Any], path: str):
    """The differences between a struct and a schema, recursively."""
    own, theirs = fields(struct), schema["properties"]
    for name in own.keys() ^ theirs.keys():
        yield f"{path}.{name} is only in {'the types' if name in own else 'the definition'}"
    for name in own.keys() & theirs.keys():
        field, other, where = own[name], theirs[name], f"{path}.{name}"
        if field.required != (name in schema.get("required", ())):
            yield f"{where} is required in one of the two only"
        if (enum := other.get("enum")) and choices(field.type) and choices(field.type) != set(enum):
            yield f"{where} allows {sorted(choices(field.type))} and {sorted(enum)}"
        inner = struct_in(field.type)
        if inner is not None:
            yield from compared(inner, other.get("items", other), where)
        elif "default" in other and spelled(field.default) != other["default"]:
            yield f"{where} is {field.default!r} by default, and {other['default']!r}"


def test_types_match_the_definition(definitions):
    """Fields, defaults, choices and requirements are the same in both."""
    for kind, struct in (("StreamApp", StreamAppSpec), ("StateBootstrap", StateBootstrapSpec)):
        (version,) = definitions[kind]["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert list(compared(struct, schema, "spec")) == []
