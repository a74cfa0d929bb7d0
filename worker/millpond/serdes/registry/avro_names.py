"""Named types of two schemas where names are ambiguous without their namespaces. Fastavro compares names without them.

In a union it takes the first type with the same last part of the name: a record `b.Thing` is read as `a.Thing`, and
fields that only `b.Thing` has are lost. Java prefers the type with the same full name; so it is here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from .avro_logical import adopt, full_schema

__all__ = ("are_ambiguous", "paired")

_RECORDS = ("record", "error")
_NAMED = (*_RECORDS, "enum", "fixed")


def are_ambiguous(named: Mapping[str, Any]) -> bool:
    """Return whether two named types have the same name in two namespaces."""
    return any(count > 1 for count in Counter(map(_last, named)).values())


def paired(
    written: Any, named: Mapping[str, Any], wanted: Any, wanted_named: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], Any, dict[str, Any]]:
    """Return a writer's and a reader's schema, each with its named types, for the decoding of values.

    Each type of the writer and the type that it is read into have the same new name, which no other type has. Logical
    types are those of `adopt`.

    Args:
        written: the writer's schema, parsed.
        named: its named types, by their full names.
        wanted: the reader's schema, parsed.
        wanted_named: the named types of that.
    """
    pairs = _Pairs(named, wanted_named)
    one, other = pairs.of(written, wanted)
    return one, pairs.written, other, pairs.wanted


class _Pairs:
    def __init__(self, named: Mapping[str, Any], wanted_named: Mapping[str, Any]) -> None:
        self._named, self._wanted_named = named, wanted_named
        self._names: dict[tuple[str, str], str] = {}
        # With the types as they were: fields that the reader does not have are skipped by these.
        self.written, self.wanted = dict(named), dict(wanted_named)

    def of(self, written: Any, wanted: Any) -> tuple[Any, Any]:
        """Return both schemas for a part of both."""
        if isinstance(written, list):
            return self._of_union(written, wanted)
        one = full_schema(self._named, written)
        kind = one["type"]
        if isinstance(wanted, list):
            found = _branch(one, [full_schema(self._wanted_named, each) for each in wanted])
            if found is None:
                return adopt(written, self._named, wanted, self._wanted_named), wanted
            return self.of(written, found)
        other = full_schema(self._wanted_named, wanted)
        if other["type"] != kind:
            return written, wanted
        if kind in _NAMED:
            name = self._pair(one, other) if _may_be_read_as(one, other) else None
            return (written, wanted) if name is None else (name, name)
        for inner in {"array": ("items",), "map": ("values",)}.get(kind, ()):
            mine, theirs = self.of(one[inner], other[inner])
            return {**one, inner: mine}, {**other, inner: theirs}
        return adopt(written, self._named, wanted, self._wanted_named), wanted

    def _of_union(self, branches: list[Any], wanted: Any) -> tuple[Any, Any]:
        mine, theirs = [], []
        for each in branches:
            one, other = self.of(each, wanted)
            mine.append(one)
            theirs += [new for new in (other if isinstance(other, list) else [other]) if new not in theirs]
        return mine, theirs

    def _pair(self, one: Any, other: Any) -> str:
        """Return the new name of a type of the writer and the type of the reader that it is read into."""
        pair = one["name"], other["name"]
        if pair in self._names:
            return self._names[pair]
        name = self._names[pair] = f"millpond.Pair{len(self._names)}"
        mine, theirs = {**one, "name": name}, {**other, "name": name}
        theirs.pop("aliases", None)
        if one["type"] in _RECORDS:
            fields = {alias: each for each in other["fields"] for alias in each.get("aliases", ())}
            fields |= {each["name"]: each for each in other["fields"]}
            types: dict[str, Any] = {}
            mine["fields"] = []
            for each in one["fields"]:
                kind = each["type"]
                if (field := fields.get(each["name"])) is not None:
                    kind, types[field["name"]] = self.of(kind, field["type"])
                mine["fields"].append({**each, "type": kind})
            theirs["fields"] = [{**each, "type": types.get(each["name"], each["type"])} for each in other["fields"]]
        self.written[name], self.wanted[name] = mine, theirs
        return name


def _branch(one: Any, branches: list[Any]) -> Any:
    """Return the branch of a reader's union for a type that is not plain: that of its full name, if there is one."""
    alike = [each for each in branches if each["type"] == one["type"]]
    if one["type"] in _NAMED:
        alike = [each for each in alike if _may_be_read_as(one, each)]
        alike.sort(key=lambda each: each["name"] != one["name"])
    elif one["type"] not in ("array", "map"):
        return None
    return alike[0] if alike else None


def _may_be_read_as(one: Any, other: Any) -> bool:
    aliases = other.get("aliases", ())
    name = one["name"]
    if one["type"] == "fixed" and one["size"] != other["size"]:
        return False
    return _last(name) == _last(other["name"]) or name in aliases or _last(name) in aliases


def _last(name: str) -> str:
    return name.rpartition(".")[2]
