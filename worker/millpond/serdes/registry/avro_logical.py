"""Logical types of a writer's schema where the reader's schema has others. fastavro reads with the writer's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ("adopt", "full_schema")

_ATTRIBUTES = ("logicalType", "precision", "scale")


def adopt(written: Any, named: Mapping[str, Any], wanted: Any, wanted_named: Mapping[str, Any]) -> Any:
    """Return a writer's schema with the reader's logical type where only one of both has one; it changes `named`.

    So a number becomes a `datetime` if the reader's schema says so, and stays a number if it does not. If both have a
    logical type, the writer's says what the number means.

    Args:
        written: the writer's schema, parsed.
        named: its named schemas, by their full names.
        wanted: the reader's schema, parsed.
        wanted_named: the named schemas of that.
    """
    return _Resolution(named, wanted_named).of(written, wanted)


class _Resolution:
    def __init__(self, named: Mapping[str, Any], wanted_named: Mapping[str, Any]) -> None:
        self._named = named
        self._wanted_named = wanted_named
        self._seen: set[str] = set()

    def of(self, written: Any, wanted: Any) -> Any:
        """Return the writer's schema for a part of both schemas."""
        if isinstance(written, list):
            return [self.of(each, wanted) for each in written]
        kind = _kind(self._named, written)
        if isinstance(wanted, list):
            alike = [each for each in wanted if _kind(self._wanted_named, each) == kind]
            return self.of(written, alike[0]) if len(alike) == 1 else written
        if _kind(self._wanted_named, wanted) != kind:
            return written
        one, other = full_schema(self._named, written), full_schema(self._wanted_named, wanted)
        match kind:
            case "record" | "error":
                self._record(one, other)
            case "array":
                return {**one, "items": self.of(one["items"], other["items"])}
            case "map":
                return {**one, "values": self.of(one["values"], other["values"])}
            case "enum" | "fixed":
                pass
            case _ if ("logicalType" in one) != ("logicalType" in other):
                own = {name: value for name, value in one.items() if name not in _ATTRIBUTES}
                return own | {name: other[name] for name in _ATTRIBUTES if name in other}
        return written

    def _record(self, written: Any, wanted: Any) -> None:
        if written["name"] in self._seen:
            return
        self._seen.add(written["name"])
        fields = {alias: each for each in wanted["fields"] for alias in each.get("aliases", ())}
        fields |= {each["name"]: each for each in wanted["fields"]}
        for field in written["fields"]:
            if field["name"] in fields:
                field["type"] = self.of(field["type"], fields[field["name"]]["type"])


def full_schema(named: Mapping[str, Any], schema: Any) -> Any:
    """Return a schema that is no union as a dictionary."""
    if isinstance(schema, str):
        return named.get(schema, {"type": schema})
    return full_schema(named, schema["type"]) if isinstance(schema["type"], dict) else schema


def _kind(named: Mapping[str, Any], schema: Any) -> Any:
    return "union" if isinstance(schema, list) else full_schema(named, schema)["type"]
