"""Values of an Avro schema from JSON, as `millpond consume` and queries show them."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from .avro_logical import full_schema

__all__ = ("converter",)

Convert = Callable[[Any], Any]
"""f(JSON value) -> the value that fastavro writes; raises ValueError for a value that the schema does not allow."""

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def converter(schema: Any, named: Mapping[str, Any], *, names_records: bool = False) -> Convert:
    """Return the function from JSON values to values of a schema.

    Times are ISO text, decimals and UUIDs are text, bytes are base64. Fields that the schema does not have are errors:
    fastavro would leave them out.

    Args:
        schema: a schema that fastavro has parsed.
        named: all named schemas, by their full names.
        names_records: whether to return a record of a union with several ones as a pair of its name and its fields.
    """
    return _Converters(named, names_records=names_records).of(schema)


class _Converters:
    def __init__(self, named: Mapping[str, Any], *, names_records: bool) -> None:
        self._named = named
        self._names_records = names_records
        self._records: dict[str, Convert] = {}

    def of(self, schema: Any) -> Convert:
        if isinstance(schema, list):
            records = [self._record_of(each) for each in schema]
            branches = list(zip(records, map(self.of, schema), strict=True))
            return _union(branches, names_records=self._names_records and len(records) - records.count(None) > 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self.of(kind)
        if kind in self._named:
            return self._reference(kind)
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "map":
            return self._map(schema)
        if kind == "enum":
            return _enum(schema["symbols"])
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]
        return _fixed(schema["size"]) if kind == "fixed" else _PLAIN[kind]

    def _record_of(self, schema: Any) -> Any:
        """Return the record of a branch of a union; None for other types."""
        found = full_schema(self._named, schema)
        return found if found["type"] in ("record", "error") else None

    def _reference(self, name: str) -> Convert:
        def convert(value: Any) -> Any:
            if name not in self._records:
                self._records[name] = self.of(self._named[name])
            return self._records[name](value)

        return convert

    def _record(self, schema: Any) -> Convert:
        fields = {each["name"]: self.of(each["type"]) for each in schema["fields"]}
        needed = [each["name"] for each in schema["fields"] if "default" not in each and not _nullable(each["type"])]

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise ValueError(f"it is no object, as the record {schema['name']} needs")
            if more := value.keys() - fields.keys():
                raise ValueError(f"the record {schema['name']} has no field '{min(more)}'")
            if missing := [each for each in needed if each not in value]:
                raise ValueError(f"the field '{missing[0]}' of the record {schema['name']} is missing")
            return {name: _at(name, fields[name], each) for name, each in value.items()}

        return convert

    def _array(self, schema: Any) -> Convert:
        item = self.of(schema["items"])

        def convert(value: Any) -> Any:
            return [item(each) for each in _needs(value, list, "an array")]

        return convert

    def _map(self, schema: Any) -> Convert:
        item = self.of(schema["values"])

        def convert(value: Any) -> Any:
            return {key: _at(key, item, each) for key, each in _needs(value, dict, "an object").items()}

        return convert


def _nullable(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _at(name: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _union(branches: list[tuple[Any, Convert]], *, names_records: bool) -> Convert:
    """Return the function for a union; its branches are a record, or None for other types, and their functions."""

    def convert(value: Any) -> Any:
        records: list[tuple[Any, Any]] = []
        found: list[Any] = []
        causes = []
        for record, branch in branches:
            try:
                one = branch(value)
            except ValueError as error:
                causes.append(str(error))
                continue
            if record is not None:
                records.append((record, one))
            elif not any(type(one) is type(each) and one == each for each in found):
                found.append(one)
        chosen = _only_record(records, value) if records else None
        if chosen is not None and not found:
            return (chosen[0]["name"], chosen[1]) if names_records else chosen[1]
        found += [] if chosen is None or chosen[1] in found else [chosen[1]]
        if not found:
            raise ValueError(" and ".join(dict.fromkeys(causes)))
        if len(found) > 1:
            raise ValueError(
                f"it can be {' or '.join(type(each).__name__ for each in found)} in this union; write it with a program"
            )
        return found[0]

    return convert


def _only_record(records: list[tuple[Any, Any]], value: Any) -> tuple[Any, Any]:
    """Return the record whose fields a value has, of those that accept it, with the value of this record."""
    if len(records) > 1:
        records = [each for each in records if value.keys() == _names(each[0])] or records
    if len(records) > 1:
        raise ValueError(
            f"it can be {' or '.join(each['name'] for each, _ in records)} in this union; give all fields of one of "
            "them, or write it with a program"
        )
    return records[0]


def _names(record: Any) -> set[str]:
    return {each["name"] for each in record["fields"]}


def _enum(symbols: list[str]) -> Convert:
    def convert(value: Any) -> Any:
        if value not in symbols:
            raise ValueError(f"it is none of {', '.join(symbols)}")
        return value

    return convert


def _fixed(size: int) -> Convert:
    def convert(value: Any) -> Any:
        data = _bytes(value)
        if len(data) != size:
            raise ValueError(f"it has {len(data)} bytes and not {size}")
        return data

    return convert


def _needs(value: Any, wanted: type, shown: str) -> Any:
    if type(value) is not wanted:
        raise ValueError(f"it is not {shown}")
    return value


def _integer(bits: int) -> Convert:
    def convert(value: Any) -> Any:
        number: int = _needs(value, int, "an integer")
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError(f"it has more than {bits} bits")
        return number

    return convert


def _fraction(value: Any) -> Any:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    return _needs(value, type(value) if type(value) in (int, float) else float, "a number")


def _bytes(value: Any) -> bytes:
    text = _needs(value, str, "text in base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is not base64") from None


def _iso(parse: Callable[[str], Any], shown: str, *, zone: bool | None = None) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is int:
            return value
        try:
            found = parse(_needs(value, str, f"text such as {shown}"))
        except ValueError:
            raise ValueError(f"it is not text such as {shown}") from None
        if zone is not None and (found.tzinfo is not None) is not zone:
            raise ValueError(f"it has {'a' if found.tzinfo else 'no'} time zone; write text such as {shown}")
        return found

    return convert


def _decimal(value: Any) -> Any:
    try:
        found = Decimal(_needs(str(value) if type(value) in (int, float) else value, str, "text such as 1.25"))
    except InvalidOperation:
        raise ValueError("it is not text such as 1.25") from None
    if not found.is_finite():
        raise ValueError("it is no finite number")
    return found


def _uuid(value: Any) -> Any:
    try:
        return UUID(_needs(value, str, "the text of a UUID"))
    except ValueError:
        raise ValueError("it is not the text of a UUID") from None


_PLAIN: dict[str, Convert] = {
    "null": lambda value: _needs(value, type(None), "null"),
    "boolean": lambda value: _needs(value, bool, "true or false"),
    "int": _integer(32),
    "long": _integer(64),
    "float": _fraction,
    "double": _fraction,
    "string": lambda value: _needs(value, str, "text"),
    "bytes": _bytes,
}

_instant = _iso(datetime.fromisoformat, "2026-01-31T12:00:10Z", zone=True)
_local = _iso(datetime.fromisoformat, "2026-01-31T12:00:10", zone=False)
_time = _iso(time.fromisoformat, "12:00:10", zone=False)

_LOGICAL: dict[tuple[str, Any], Convert] = {
    ("long", "timestamp-millis"): _instant,
    ("long", "timestamp-micros"): _instant,
    ("long", "local-timestamp-millis"): _local,
    ("long", "local-timestamp-micros"): _local,
    ("int", "date"): _iso(date.fromisoformat, "2026-01-31"),
    ("int", "time-millis"): _time,
    ("long", "time-micros"): _time,
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): _uuid,
}
"""The logical types that fastavro reads and writes as Python's types."""
