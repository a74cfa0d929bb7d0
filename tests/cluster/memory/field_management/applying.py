"""Field management: server-side apply, and the `managedFields` of other writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.cluster.memory.failures import ApiFailure, bad_request
from tests.cluster.memory.field_management.fields import Node, difference, intersection, named, union, without
from tests.cluster.memory.field_management.merging import Untyped, changes, merged, removed, set_of, validate
from tests.cluster.memory.field_management.schemas import Schema

__all__ = ("Writer", "applied", "updated", "without_times")

Object = dict[str, Any]
_MOST_UPDATERS = 10
_STRIPPED: Node = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        **{
            f"f:{name}": {}
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        },
    },
}


class Writer(NamedTuple):
    """The manager of a write, and its operation."""

    name: str
    api_version: str
    subresource: str
    now: str
    """Time stamp."""
    ignored: Node
    """Fields that this way of writing leaves alone."""


class _Id(NamedTuple):
    operation: str
    name: str
    api_version: str
    """Empty for those who apply."""
    subresource: str


class _Entry(NamedTuple):
    fields: Node
    api_version: str
    time: str


_Managers = dict[_Id, _Entry]


def _decoded(item: Object) -> _Managers:
    found: _Managers = {}
    for each in item.get("metadata", {}).get("managedFields") or ():
        operation = each.get("operation", "")
        version = "" if operation == "Apply" else each.get("apiVersion", "")
        key = _Id(operation, each.get("manager", ""), version, each.get("subresource", ""))
        found[key] = _Entry(each.get("fieldsV1") or {}, each.get("apiVersion", ""), each.get("time", ""))
    return found


def _encoded(managers: _Managers) -> list[Object]:
    made: list[Object] = []
    order = sorted(managers, key=lambda key: (key.operation, managers[key].time, key.name, *key[2:]))
    for key in order:
        entry = managers[key]
        one: Object = {"manager": key.name, "operation": key.operation, "apiVersion": entry.api_version}
        if entry.time:
            one["time"] = entry.time
        one |= {"fieldsType": "FieldsV1", "fieldsV1": entry.fields}
        if key.subresource:
            one["subresource"] = key.subresource
        made.append(one)
    return made


def _with(item: Object, managers: _Managers) -> Object:
    metadata = dict(item.get("metadata", {}))
    metadata.pop("managedFields", None)
    if managers:
        metadata["managedFields"] = _encoded(managers)
    return {**item, "metadata": metadata}


def _bare(item: Object) -> Object:
    metadata = item.get("metadata", {})
    if "managedFields" not in metadata:
        return item
    return {**item, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def without_times(item: Object) -> Object:
    """An object without its managers' times, to compare the rest."""
    metadata = item.get("metadata", {})
    entries = metadata.get("managedFields")
    if not entries:
        return item
    bare = [{key: value for key, value in each.items() if key != "time"} for each in entries]
    return {**item, "metadata": {**metadata, "managedFields": bare}}


def _taken(
    schema: Schema, live: Object, new: Object, managers: _Managers, by: _Id, ignored: Node, *, force: bool
) -> tuple[Node, Node, Node]:
    """Take changed fields from all other managers.

    Raises:
        _Conflicts: that is not allowed.
    """
    added, changed, gone = (without(each, ignored) for each in changes(schema, live, new))
    written = union(changed, added)
    conflicts: dict[_Id, Node] = {}
    if written or gone:
        for key, entry in managers.items():
            if key != by and (both := intersection(entry.fields, written)):
                conflicts[key] = both
    if conflicts and not force:
        raise _Conflicts(conflicts, managers)
    for key in list(managers):
        if key != by:
            entry = managers[key]
            fields = entry.fields
            if key in conflicts:
                fields = difference(fields, conflicts[key])
            if gone:
                fields = difference(fields, gone)
            if fields is not entry.fields:
                managers[key] = entry._replace(fields=fields)
        if not managers[key].fields:
            del managers[key]
    return added, changed, gone


class _Conflicts(Exception):
    def __init__(self, conflicts: dict[_Id, Node], managers: _Managers) -> None:
        super().__init__()
        self.conflicts = conflicts
        self.managers = managers


def updated(schema: Schema, live: Object | None, new: Object, writer: Writer, empty: Object) -> Object:
    """The new object, with its managers after a write that is no apply.

    Args:
        schema: of its kind.
        live: the old object; None if it is new.
        new: the new object.
        writer: the writer.
        empty: an empty object of this kind.
    """
    given = new.get("metadata", {}).get("managedFields")
    before = live if live is not None else {}
    source = before
    if not writer.subresource and given is not None:
        if given in ([], [{}]):
            source = {}
        elif given:
            source = new
    managers = _decoded(source)
    if not managers and live is not None:
        return _with(new, {})
    bare = _bare(new)
    _updated(schema, _bare(live) if live is not None else empty, bare, managers, writer)
    return _with(bare, _capped(managers))


def _updated(schema: Schema, live: Object, new: Object, managers: _Managers, writer: Writer) -> None:
    me = _Id("Update", writer.name, writer.api_version, writer.subresource)
    nobody = _Id("Update", "\0", "", "")
    added, changed, _ = _taken(schema, live, new, managers, nobody, writer.ignored, force=True)
    mine = without(union(changed, added), writer.ignored)
    mine = difference(mine, _STRIPPED)
    if mine:
        before = managers.get(me)
        fields = union(mine, before.fields) if before is not None else mine
        managers[me] = _Entry(fields, writer.api_version, writer.now)


def _capped(managers: _Managers) -> _Managers:
    updaters = [key for key in managers if key.operation == "Update"]
    if len(updaters) <= _MOST_UPDATERS:
        return managers
    updaters.sort(key=lambda key: (managers[key].time, key.name))
    first: dict[str, _Id] = {}
    length = len(updaters)
    for key in updaters:
        if length <= _MOST_UPDATERS:
            break
        entry = managers[key]
        if entry.api_version not in first:
            first[entry.api_version] = key
            continue
        bucket = _Id("Update", "ancient-changes", entry.api_version, "")
        if bucket not in managers:
            managers[bucket] = managers.pop(first[entry.api_version])
        merged_fields = union(entry.fields, managers[bucket].fields)
        del managers[key]
        managers[bucket] = _Entry(merged_fields, entry.api_version, entry.time)
        length -= 1
    return managers


def applied(
    schema: Schema,
    live: Object,
    config: Object,
    writer: Writer,
    *,
    force: bool,
    empty: Object,
    finish: Callable[[Object], Object],
    where: str,
) -> Object:
    """The object after applying a configuration, with its managers.

    Args:
        schema: of its kind.
        live: the old object.
        config: the applied configuration.
        writer: the writer.
        force: whether to take fields from other managers.
        empty: an empty object of this kind.
        finish: completes the merged object with defaults.
        where: the object, in messages.

    Raises:
        ApiFailure: there is a conflict, or the configuration does not match the kind.
    """
    if "managedFields" in config.get("metadata", {}):
        raise bad_request("metadata.managedFields must be nil")
    managers = _decoded(live)
    bare = _bare(live)
    if not managers and bare.get("metadata", {}).get("uid"):
        before = writer._replace(name="before-first-apply", subresource=writer.subresource)
        _updated(schema, empty, bare, managers, before)
    try:
        validate(schema, config)
    except Untyped as error:
        raise ApiFailure(500, "", f"failed to create typed patch object ({where}): {error}") from None
    me = _Id("Apply", writer.name, "", writer.subresource)
    new = merged(schema, bare, config)
    last = managers.get(me)
    mine = without(set_of(schema, config), writer.ignored)
    managers[me] = _Entry(mine, writer.api_version, last.time if last is not None else "")
    if last is not None and last.fields:
        new = _pruned(schema, new, managers, mine, last.fields)
    try:
        _taken(schema, bare, new, managers, me, writer.ignored, force=force)
    except _Conflicts as error:
        raise _conflict(error, writer) from None
    if me in managers and not (kept := difference(mine, _STRIPPED)):
        del managers[me]
    elif me in managers:
        managers[me] = managers[me]._replace(fields=kept)
    if new == bare:
        return _with(bare, managers)
    if me in managers:
        managers[me] = managers[me]._replace(time=writer.now)
    return _with(finish(new), managers)


def _pruned(schema: Schema, new: Object, managers: _Managers, mine: Node, last: Node) -> Object:
    was = named(schema, last)
    if not difference(was, named(schema, mine)):
        return new
    cut = removed(schema, new, was) or {}
    managed: Node = {}
    for entry in managers.values():
        managed = union(managed, entry.fields)
    all_named = named(schema, set_of(schema, new))
    kept = union(named(schema, set_of(schema, cut)), named(schema, managed))
    cut = removed(schema, new, difference(all_named, kept)) or {}
    left = named(schema, set_of(schema, cut))
    return removed(schema, new, intersection(difference(all_named, left), was)) or {}


def _conflict(error: _Conflicts, writer: Writer) -> ApiFailure:
    causes: list[Object] = []
    lines: list[str] = []
    count = 0
    for key in sorted(error.conflicts, key=lambda each: (each.name, each.operation)):
        entry = error.managers[key]
        who = f'"{key.name}"'
        if key.subresource:
            who += f' with subresource "{key.subresource}"'
        if key.operation == "Update":
            who += f" using {entry.api_version}"
            if entry.time:
                who += f" at {entry.time}"
        elif entry.api_version != writer.api_version:
            who += f" using {entry.api_version}"
        paths = sorted(_paths(error.conflicts[key]))
        count += len(paths)
        lines.append(f"conflicts with {who}:")
        for path in paths:
            lines.append(f"- {path}")
            causes.append({"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path})
    if count == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        message = f"Apply failed with {count} conflicts: " + "\n".join(lines)
    return ApiFailure(409, "Conflict", message, {"causes": causes})


def _paths(node: Node, path: str = "") -> list[str]:
    found: list[str] = []
    for key, below in node.items():
        if key == ".":
            continue
        at = f"{path}.{key[2:]}" if key.startswith("f:") else f"{path}{_element(key)}"
        if not below or "." in below:
            found.append(at)
        found.extend(_paths(below, at))
    return found


def _element(key: str) -> str:
    if key.startswith("v:"):
        return f"[={key[2:]}]"
    return "[" + key[3:-1].replace('":', "=").replace('"', "", 1).replace(',"', ",") + "]"
