"""Types of objects, field by field: built-in kinds as in Go, custom resources as in their schemas."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from millpond_operator.manifests.quantities import canonical

__all__ = ("ANY", "Mismatch", "Schema", "built_in", "normalised", "structural")


class Mismatch(Exception):
    """A value does not have its field's type."""


class Schema:
    """A type.

    Attributes:
        kind: `scalar`, `struct`, `map`, `list` or `any`.
        type: of scalars: `string`, `integer`, `number`, `boolean`, `quantity`, `time`, ...
        fields: of structs, by name.
        items: of maps and lists.
        atomic: whether it is set as a whole.
        keys: of lists whose items are identified by fields.
        default: of the field.
        pointer: whether Go distinguishes empty from missing.
        always: whether Go writes it even when it is empty.
        patch: the key by which strategic merge patches merge lists; empty for values, None for lists that they replace.
    """

    __slots__ = ("always", "atomic", "default", "fields", "items", "keys", "kind", "patch", "pointer", "type")

    def __init__(self, kind: str, **given: Any) -> None:
        self.kind = kind
        self.type: str = given.get("type", "")
        self.fields: dict[str, Schema] = given.get("fields", {})
        self.items: Schema = given.get("items", self)
        self.atomic: bool = given.get("atomic", False)
        self.keys: tuple[str, ...] = given.get("keys", ())
        self.default: Any = given.get("default")
        self.pointer: bool = given.get("pointer", False)
        self.always: bool = given.get("always", False)
        self.patch: str | None = given.get("patch")


ANY = Schema("any")
"""JSON of any form; maps in it merge, lists do not."""
_ATOMIC = Schema("any", atomic=True)
_SCALAR = Schema("scalar")


@functools.cache
def built_in(name: str) -> Schema:
    """The type of a built-in kind, or of a part of one."""
    found = _types()[name]
    return Schema("struct", fields=_fields(name), atomic=found.get("atomic", False), pointer=False, always=True)


@functools.cache
def _types() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(__file__).parents[1].joinpath("types.json").read_text())
    return loaded


@functools.cache
def _fields(name: str) -> dict[str, Schema]:
    return {field: _built_in_field(given) for field, given in _types()[name]["fields"].items()}


def _built_in_field(given: dict[str, Any]) -> Schema:
    more = {key: given[key] for key in ("default", "pointer", "always", "patch") if key in given}
    match given["type"]:
        case "struct":
            atomic = given.get("atomic") or _types()[given["of"]].get("atomic", False)
            return Schema("struct", fields=_fields(given["of"]), atomic=atomic, **more)
        case "list":
            associative = "keys" in given or given.get("set")
            keys = tuple(given.get("keys", ()))
            return Schema("list", items=_built_in_field(given["items"]), atomic=not associative, keys=keys, **more)
        case "map":
            return Schema("map", items=_built_in_field(given["items"]), atomic=given.get("atomic", False), **more)
        case "any":
            return Schema("any", atomic=True, **more)
        case scalar:
            return Schema("scalar", type=scalar, **more)


def structural(given: dict[str, Any], *, root: bool = False) -> Schema:
    """The type that a custom resource's schema describes, for merging."""
    if given.get("x-kubernetes-int-or-string"):
        return Schema("scalar", default=given.get("default"))
    match given.get("type"):
        case "object":
            atomic = given.get("x-kubernetes-map-type") == "atomic"
            if root or given.get("x-kubernetes-embedded-resource"):
                fields = {key: structural(each) for key, each in given.get("properties", {}).items()}
                fields |= {"apiVersion": _SCALAR, "kind": _SCALAR, "metadata": built_in(_META)}
                return Schema("struct", fields=fields, atomic=atomic)
            if "properties" in given:
                fields = {key: structural(each) for key, each in given["properties"].items()}
                unknown = ANY if given.get("x-kubernetes-preserve-unknown-fields") else Schema("scalar")
                return Schema("struct", fields=fields, atomic=atomic, items=unknown, default=given.get("default"))
            if isinstance(given.get("additionalProperties"), dict):
                items = structural(given["additionalProperties"])
                return Schema("map", items=items, atomic=atomic, default=given.get("default"))
            return Schema("any", atomic=atomic)
        case "array":
            relation = given.get("x-kubernetes-list-type", "atomic")
            keys = tuple(given.get("x-kubernetes-list-map-keys", ()))
            items = structural(given["items"])
            return Schema("list", items=items, atomic=relation == "atomic", keys=keys, default=given.get("default"))
        case None:
            return ANY
    return Schema("scalar", default=given.get("default"))


_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False, "quantity": "0", "int-or-string": 0}


def normalised(schema: Schema, value: Any, unknown: list[str], path: str = "") -> Any:
    """A value as Go reads and writes it: without unknown fields, and with those that are always written.

    Args:
        schema: its type.
        value: from the client.
        unknown: gets the paths of unknown fields.
        path: of the value.

    Raises:
        Mismatch: it does not have its type.
    """
    kind = schema.kind
    if kind == "scalar":
        return _scalar(schema.type, value, path)
    if kind == "struct":
        if not isinstance(value, dict):
            raise Mismatch(f"{path}: expected an object")
        return _struct(schema, value, unknown, path)
    if value is None or kind == "any":
        return value
    if kind == "map":
        if not isinstance(value, dict):
            raise Mismatch(f"{path}: expected a map")
        items = schema.items
        return {
            key: _empty(items) if each is None else normalised(items, each, unknown, f"{path}.{key}")
            for key, each in value.items()
        }
    if not isinstance(value, list):
        raise Mismatch(f"{path}: expected a list")
    items = schema.items
    return [
        _empty(items) if each is None else normalised(items, each, unknown, f"{path}[{number}]")
        for number, each in enumerate(value)
    ]


def _struct(schema: Schema, value: dict[str, Any], unknown: list[str], path: str) -> dict[str, Any]:
    fields = schema.fields
    made: dict[str, Any] = {}
    for key, each in value.items():
        field = fields.get(key)
        if field is None:
            unknown.append(f"{path}.{key}".lstrip("."))
            continue
        if each is None:
            continue
        each = normalised(field, each, unknown, f"{path}.{key}")
        if each or field.pointer or field.always or field.kind == "any":
            made[key] = each
    for key, field in _always(fields):
        if key not in made:
            made[key] = _empty(field)
    return made


_known_always: dict[int, list[tuple[str, Schema]]] = {}


def _always(fields: dict[str, Schema]) -> list[tuple[str, Schema]]:
    found = _known_always.get(id(fields))
    if found is None:
        found = [(key, field) for key, field in fields.items() if field.always and not field.pointer]
        _known_always[id(fields)] = found
        _kept.append(fields)  # or another dictionary might get its id
    return found


_kept: list[Any] = []


def _empty(field: Schema) -> Any:
    if field.kind == "struct":
        return _struct(field, {}, [], "")
    if field.kind == "scalar":
        return _ZERO.get(field.type)
    return None


def _scalar(type: str, value: Any, path: str) -> Any:
    if type == "string":
        if not isinstance(value, str):
            raise Mismatch(f"{path}: expected a string")
    elif type == "integer":
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise Mismatch(f"{path}: expected an integer")
    elif type == "boolean":
        if not isinstance(value, bool):
            raise Mismatch(f"{path}: expected a boolean")
    elif type == "quantity":
        try:
            return canonical(value)
        except ValueError as error:
            raise Mismatch(f"{path}: {error}") from None
    elif type == "microtime" and isinstance(value, str) and value:
        head, _, fraction = value.removesuffix("Z").partition(".")
        return f"{head}.{fraction[:6]:0<6}Z"
    return value
