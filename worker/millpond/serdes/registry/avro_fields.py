"""Compares a type with an Avro schema: fields that would be lost, and types that no value fits."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import inspect

__all__ = ("members_of", "problems")

_RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_KINDS: dict[type, str] = {
    inspect.BoolType: "number",
    inspect.IntType: "number",
    inspect.FloatType: "fraction",
    inspect.StrType: "text",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.DateTimeType: "time",
    inspect.DateType: "time",
    inspect.TimeType: "time",
    inspect.TimeDeltaType: "time",
    inspect.DecimalType: "decimal",
    inspect.UUIDType: "uuid",
    inspect.ListType: "array",
    inspect.VarTupleType: "array",
    inspect.TupleType: "array",
    inspect.SetType: "array",
    inspect.FrozenSetType: "array",
    inspect.DictType: "object",
    inspect.StructType: "object",
    inspect.DataclassType: "object",
    inspect.TypedDictType: "object",
}
_ACCEPTED: dict[tuple[str, str | None], frozenset[str]] = {
    ("boolean", None): frozenset({"number"}),
    ("int", None): frozenset({"number", "fraction", "decimal"}),
    ("long", None): frozenset({"number", "fraction", "decimal"}),
    ("float", None): frozenset({"number", "fraction", "decimal"}),
    ("double", None): frozenset({"number", "fraction", "decimal"}),
    ("long", "timestamp-millis"): frozenset({"time", "number"}),
    ("long", "timestamp-micros"): frozenset({"time", "number"}),
    ("long", "local-timestamp-millis"): frozenset({"time", "number"}),
    ("long", "local-timestamp-micros"): frozenset({"time", "number"}),
    ("int", "date"): frozenset({"time", "number", "text"}),
    ("int", "time-millis"): frozenset({"time", "number"}),
    ("long", "time-micros"): frozenset({"time", "number"}),
    ("string", None): frozenset({"text", "bytes", "time", "decimal", "uuid"}),
    ("string", "uuid"): frozenset({"text", "uuid"}),
    ("bytes", None): frozenset({"bytes", "text", "uuid"}),
    ("bytes", "decimal"): frozenset({"decimal", "bytes", "text", "number", "fraction"}),
    ("fixed", None): frozenset({"bytes", "text", "uuid"}),
    ("fixed", "decimal"): frozenset({"decimal", "bytes", "text", "number", "fraction"}),
    ("enum", None): frozenset({"text"}),
    ("array", None): frozenset({"array"}),
    ("map", None): frozenset({"object"}),
    ("record", None): frozenset({"object"}),
    ("error", None): frozenset({"object"}),
}
"""The kinds of values that can be written to or read from a type, also if only one of both works."""
_WRITTEN = {("int", None): frozenset({"number"}), ("long", None): frozenset({"number"})}
"""The kinds that can be written, where these are fewer: fastavro cuts fractions off."""


def problems(type: Any, schema: Any, named: Mapping[str, Any], *, written: bool = False) -> list[str]:
    """Return sentences about the differences between a type and a schema for which values would be lost or rejected.

    Args:
        type: a type of values.
        schema: a schema that fastavro has parsed.
        named: all named schemas, by their full names.
        written: whether values are written, and not only read.
    """
    return list(
        _Comparison(named, _ACCEPTED | _WRITTEN if written else _ACCEPTED).compare(inspect.type_info(type), schema, "")
    )


class _Comparison:
    def __init__(self, named: Mapping[str, Any], accepted: Mapping[tuple[str, str | None], frozenset[str]]) -> None:
        self._named = named
        self._accepted = accepted
        self._seen: set[tuple[type, str]] = set()

    def compare(self, info: Any, schema: Any, path: str) -> Iterator[str]:
        """Yield the problems of a type and a schema; `path` names the field that has them, and is empty at the root."""
        branches = self._branches(schema)
        members = members_of(info)
        accepted = [self._accepted.get((each["type"], each.get("logicalType"))) for each in branches]
        if (mismatch := _mismatch(members, branches, accepted)) is not None:
            yield f"{path or 'the value'} is {mismatch}"
            return
        for member in members:
            if isinstance(member, _RECORDS):
                if not getattr(member, "array_like", False):
                    yield from self._compare_record(member, branches)
            elif isinstance(member, (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)):
                if (found := _only(branches, "array")) is not None:
                    yield from self.compare(member.item_type, found["items"], f"{path}[]")
            elif isinstance(member, inspect.DictType) and (found := _only(branches, "map")) is not None:
                yield from self.compare(member.value_type, found["values"], f"{path}{{}}")

    def _compare_record(self, info: Any, branches: list[Any]) -> Iterator[str]:
        records = [each for each in branches if each["type"] in ("record", "error")]
        names = [each.encode_name for each in info.fields]
        if len(records) > 1:  # a union of records: that of the same name, else no field is known to be lost
            records = [each for each in records if each["name"].rpartition(".")[2] == info.cls.__name__]
        if len(records) > 1:  # in several namespaces: that which has most fields, as values are written
            records = [max(records, key=lambda each: len({field["name"] for field in each["fields"]} & {*names}))]
        if len(records) != 1 or (info.cls, records[0]["name"]) in self._seen:
            return
        [record] = records
        self._seen.add((info.cls, record["name"]))
        fields = {each["name"]: each for each in record["fields"]}
        lost = [each for each in names if each not in fields]
        if lost:
            shown = ", ".join(f"'{each}'{_hint(each, names, fields)}" for each in lost)
            yield (
                f"the record '{record['name']}' of the schema has no field{'s' if len(lost) > 1 else ''} {shown} of "
                f"{info.cls.__qualname__}"
            )
        for each in info.fields:
            if each.encode_name in fields:
                yield from self.compare(
                    each.type, fields[each.encode_name]["type"], f"{info.cls.__qualname__}.{each.encode_name}"
                )

    def _branches(self, schema: Any) -> list[Any]:
        """Return the types of a schema that are not null, as dictionaries: of a union several."""
        if isinstance(schema, list):
            return [branch for each in schema for branch in self._branches(each)]
        if isinstance(schema, dict) and not isinstance(schema["type"], str):
            return self._branches(schema["type"])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in self._named:
            return self._branches(self._named[kind])
        if kind == "null":
            return []
        return [schema if isinstance(schema, dict) else {"type": kind}]


def members_of(info: Any) -> list[Any]:
    """Return the types of a type that are not None: of a union several."""
    if isinstance(info, inspect.Metadata):
        return members_of(info.type)
    if isinstance(info, inspect.UnionType):
        return [member for each in info.types for member in members_of(each)]
    return [] if isinstance(info, inspect.NoneType) else [info]


def _kind(info: Any) -> str | None:
    """Return the kind of a type; None if it is not known which values it has."""
    if isinstance(info, inspect.StructType) and info.array_like:
        return "array"
    if isinstance(info, (inspect.EnumType, inspect.LiteralType)):
        values = [each.value for each in info.cls] if isinstance(info, inspect.EnumType) else info.values
        kinds = {_kind_of_value(each) for each in values}
        return kinds.pop() if len(kinds) == 1 else None
    return _KINDS.get(type(info))


def _kind_of_value(value: Any) -> str:
    return "text" if isinstance(value, str) else "fraction" if isinstance(value, float) else "number"


def _mismatch(members: list[Any], branches: list[Any], accepted: list[frozenset[str] | None]) -> str | None:
    """Return which type and schema do not fit, if no value fits both; None if one may."""
    kinds = [_kind(each) for each in members]
    if not kinds or not accepted or None in kinds or None in accepted:
        return None
    if any(kind in each for kind in kinds for each in accepted if each is not None):
        return None
    types = " or ".join(_shown(each) for each in members)
    return f"{types}, but {' or '.join(each.get('logicalType', each['type']) for each in branches)} in the schema"


def _shown(info: Any) -> str:
    cls = getattr(info, "cls", None)
    return cls.__name__ if isinstance(cls, type) else type(info).__name__.removesuffix("Type").lower()


def _only(branches: list[Any], kind: str) -> Any:
    found = [each for each in branches if each["type"] == kind]
    return found[0] if len(found) == 1 else None


def _hint(name: str, names: list[str], fields: Mapping[str, Any]) -> str:
    """Return the field of the schema that may be meant: by an alias, which helps readers only, or by a like name."""
    free = [each for each in fields if each not in names]
    for each in free:
        if name in fields[each].get("aliases", ()):
            return f" (an alias of '{each}', which is the name to use)"
    near = difflib.get_close_matches(name, free, 1)
    return f" (it has '{near[0]}')" if near else ""
