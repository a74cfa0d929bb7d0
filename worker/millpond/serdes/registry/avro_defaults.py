"""Defaults of an Avro schema as values. Schemas have them as JSON, which fastavro returns and writes as it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ("decode_defaults", "has_changeable_defaults")

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def decode_defaults(named: Mapping[str, Any], logical_readers: Mapping[str, Callable[..., Any]]) -> list[str]:
    """Replace the default of each field by its value: a `datetime`, bytes, a record with its own defaults.

    Args:
        named: all named schemas that fastavro has parsed, by their full names.
        logical_readers: fastavro's readers of logical types.

    Returns:
        sentences about the defaults that no value of their field's type has; these stay as they are.
    """
    decoder = _Decoder(named, logical_readers)
    found, problems = [], []
    for record, field in _fields(named):
        if "default" in field:
            try:
                found.append((field, decoder.value(field["type"], field["default"])))
            except (ValueError, ArithmeticError, KeyError) as error:
                problems.append(f"the default of '{field['name']}' in the record '{record}': {error}")
    for field, value in found:  # at the end, since records have the defaults of their fields
        field["default"] = value
    return problems


def has_changeable_defaults(named: Mapping[str, Any]) -> bool:
    """Return whether a decoded default is a list or a dictionary, which all values would share."""
    return any(isinstance(field.get("default"), (list, dict)) for _, field in _fields(named))


def _fields(named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, schema in named.items():
        for field in schema["fields"] if schema["type"] in ("record", "error") else ():
            yield name, field


class _Decoder:
    def __init__(self, named: Mapping[str, Any], logical_readers: Mapping[str, Callable[..., Any]]) -> None:
        self._named = named
        self._logical_readers = logical_readers

    def value(self, schema: Any, given: Any) -> Any:
        """Return the value of a default in JSON; raises ValueError if it is none of the schema."""
        if isinstance(schema, list):
            return self._of_union(schema, given)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self.value(kind, given)
        if kind in self._named and not isinstance(schema, dict):
            return self.value(self._named[kind], given)
        plain = self._plain(kind, schema, given)
        read = self._logical_readers.get(f"{kind}-{schema.get('logicalType')}") if isinstance(schema, dict) else None
        return plain if read is None else read(plain, schema, None)

    def _of_union(self, branches: list[Any], given: Any) -> Any:
        causes = []
        for branch in branches:
            try:
                return self.value(branch, given)
            except ValueError as error:
                causes.append(str(error))
        raise ValueError(" and ".join(causes))

    def _plain(self, kind: str, schema: Any, given: Any) -> Any:
        match kind, given:
            case ("null", None) | ("boolean", bool()) | ("string", str()):
                return given
            case ("int" | "long", int()) if not isinstance(given, bool):
                return given
            case ("float" | "double", int() | float()) if not isinstance(given, bool):
                return float(given)
            case ("float" | "double", "NaN" | "Infinity" | "-Infinity"):
                return _NOT_FINITE[given]
            case ("bytes" | "fixed", str()):
                return self._bytes(schema, given)
            case ("enum", str()) if given in schema["symbols"]:
                return given
            case ("array", list()):
                return [self.value(schema["items"], each) for each in given]
            case ("map", dict()):
                return {key: self.value(schema["values"], each) for key, each in given.items()}
            case ("record" | "error", dict()):
                return self._record(schema, given)
        raise ValueError(f"{given!r} is no {kind}")

    def _record(self, schema: Any, given: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for field in schema["fields"]:
            name = field["name"]
            if name not in given and "default" not in field:
                raise ValueError(f"it has no '{name}'")
            found[name] = self.value(field["type"], given.get(name, field.get("default")))
        return found

    def _bytes(self, schema: Any, given: str) -> bytes:
        data = given.encode("latin-1")  # Avro's rule: the code points 0 to 255 are the bytes
        if isinstance(schema, dict) and schema.get("size", len(data)) != len(data):
            raise ValueError(f"it has {len(data)} bytes and not {schema['size']}")
        return data
