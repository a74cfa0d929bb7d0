"""Merging and comparing objects by their types, like sigs.k8s.io/structured-merge-diff."""

from __future__ import annotations

from typing import Any

from tests.cluster.memory.field_management.fields import Node, item_key
from tests.cluster.memory.field_management.schemas import Schema

__all__ = ("Untyped", "changes", "merged", "removed", "set_of", "validate")

_MISSING: Any = object()


class Untyped(Exception):
    """An object does not match its type."""


def validate(schema: Schema, value: Any, path: str = "") -> None:
    """Check that a configuration matches its type.

    Raises:
        Untyped: it does not.
    """
    kind = schema.kind
    if value is None or kind == "any":
        return
    if kind == "scalar":
        if isinstance(value, (dict, list)):
            raise Untyped(f"{path}: expected {schema.type or 'scalar'}, got {_go(value)}")
    elif kind == "list":
        if not isinstance(value, list):
            raise Untyped(f"{path}: expected list, got {_go(value)}")
        _validate_list(schema, value, path)
    else:
        if not isinstance(value, dict):
            raise Untyped(f"{path}: expected map, got {_go(value)}")
        for key, each in value.items():
            field = schema.fields.get(key) if kind == "struct" else schema.items
            if field is None:
                if schema.items.kind != "any":
                    raise Untyped(f"{path}.{key}: field not declared in schema")
                field = schema.items
            validate(field, each, f"{path}.{key}")


def _validate_list(schema: Schema, value: list[Any], path: str) -> None:
    seen = set()
    for number, each in enumerate(value):
        where = f"{path}[{number}]"
        if not schema.atomic:
            try:
                key = item_key(schema, each)
            except ValueError as error:
                raise Untyped(f"{path}: element {number}: {error}") from None
            if key in seen:
                raise Untyped(f"{path}: duplicate entries for key {_shown(key)}")
            seen.add(key)
            where = f"{path}{_shown(key)}"
        validate(schema.items, each, where)


def _shown(key: str) -> str:
    if key.startswith("v:"):
        return f"[={key[2:]}]"
    return "[" + key[3:-1].replace('":', "=").replace('"', "", 1).replace(',"', ",") + "]"


def _go(value: Any) -> str:
    return f"&{{{value}}}"


def _leaf(schema: Schema, value: Any) -> bool:
    """Whether a value is set as a whole."""
    kind = schema.kind
    if kind == "scalar" or schema.atomic:
        return True
    if kind == "any":
        return not isinstance(value, dict)
    return False


def merged(schema: Schema, left: Any, right: Any) -> Any:
    """The result of applying `right` to `left`."""
    if right is None and isinstance(left, (dict, list)) and left and not _leaf(schema, left):
        return left
    if left is None or left == right or _leaf(schema, right):
        return right
    if isinstance(right, dict):
        if not isinstance(left, dict) or not (left or right):
            return right
        made = dict(left)
        struct = schema.kind == "struct"
        for key, each in right.items():
            if key in left:
                field = schema.fields.get(key, schema.items) if struct else schema.items
                each = merged(field, left[key], each)
            made[key] = each
        return made
    if not isinstance(left, list) or not left:
        return right
    return _merged_list(schema, left, right) if right else left


def _merged_list(schema: Schema, left: list[Any], right: list[Any]) -> list[Any]:
    right_keys = [item_key(schema, each) for each in right]
    left_keys = [item_key(schema, each) for each in left]
    rights = dict(zip(right_keys, right, strict=True))
    lefts: dict[str, Any] = {}
    for key, each in zip(left_keys, left, strict=True):
        lefts[key] = None if key in lefts else each
    shared = [key for key in right_keys if key in lefts]
    shared.reverse()
    next_shared = shared.pop() if shared else None
    done: set[str] = set()
    made: list[Any] = []
    at, other = 0, 0
    while at < len(left) or other < len(right):
        if at < len(left) and other < len(right):
            key = left_keys[at]
            if key == right_keys[other]:
                done.add(key)
                made.append(merged(schema.items, lefts[key], rights[key]))
                at, other = at + 1, other + 1
                next_shared = shared.pop() if shared else None
                continue
            if key in rights and next_shared is not None and next_shared != key:
                at += 1
                continue
        if at < len(left):
            key = left_keys[at]
            if key not in rights:
                made.append(left[at])
                at += 1
                continue
            if key in done:
                at += 1
        if other < len(right):
            key = right_keys[other]
            done.add(key)
            made.append(merged(schema.items, lefts[key], rights[key]) if key in lefts else rights[key])
            other += 1
            if next_shared == key:
                next_shared = shared.pop() if shared else None
    return made


def set_of(schema: Schema, value: dict[str, Any]) -> Node:
    """The fields that an applied configuration sets."""
    return _set_of(schema, value)


def _set_of(schema: Schema, value: Any) -> Node:
    """The fields below a value that is no leaf."""
    made: Node = {}
    if isinstance(value, dict):
        struct = schema.kind == "struct"
        for key, each in value.items():
            declared = struct and key in schema.fields
            field = schema.fields[key] if declared else schema.items
            if each is None or each == {} or _leaf(field, each):
                made[f"f:{key}"] = {}
                continue
            below = _set_of(field, each)
            if not declared:
                made[f"f:{key}"] = {".": {}, **below} if below else {}
            elif below:
                made[f"f:{key}"] = below
    elif isinstance(value, list):
        keys = [item_key(schema, each) for each in value]
        twice = {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else ()
        for key, each in zip(keys, value, strict=True):
            if key in twice or _leaf(schema.items, each):
                made[key] = {}
                continue
            below = _set_of(schema.items, each)
            made[key] = {".": {}, **below} if below else {}
    return made


def changes(schema: Schema, old: dict[str, Any], new: dict[str, Any]) -> tuple[Node, Node, Node]:
    """The added, changed and removed fields between two objects."""
    added, changed, removed = _below(schema, old, new)
    return added or {}, changed or {}, removed or {}


_Three = tuple[Node | None, Node | None, Node | None]


def _changes(schema: Schema, old: Any, new: Any) -> _Three:
    if old is _MISSING:
        return _all(schema, new), None, None
    if new is _MISSING:
        return None, None, _all(schema, old)
    if old == new:
        return None, None, None
    if _leaf(schema, new) or _leaf(schema, old) or (not old and not new):
        return None, {}, None
    return _below(schema, old, new)


def _below(schema: Schema, old: Any, new: Any) -> _Three:
    if isinstance(old, list) or isinstance(new, list):
        return _below_list(schema, old or [], new or [])
    three: tuple[Node, Node, Node] = ({}, {}, {})
    old, new = old or {}, new or {}
    struct = schema.kind == "struct"
    for key in old.keys() | new.keys():
        before, after = old.get(key, _MISSING), new.get(key, _MISSING)
        if before is after or before == after:
            continue
        field = schema.fields.get(key, schema.items) if struct else schema.items
        for into, found in zip(three, _changes(field, before, after), strict=True):
            if found is not None:
                into[f"f:{key}"] = found
    return three[0] or None, three[1] or None, three[2] or None


def _below_list(schema: Schema, old: list[Any], new: list[Any]) -> _Three:
    three: tuple[Node, Node, Node] = ({}, {}, {})
    before, after = _by_key(schema, old), _by_key(schema, new)
    for key in before | after:
        lefts, rights = before.get(key, []), after.get(key, [])
        found: _Three
        if len(lefts) <= 1 and len(rights) <= 1:
            found = _changes(schema.items, lefts[0] if lefts else _MISSING, rights[0] if rights else _MISSING)
        elif len(lefts) >= 2 and len(rights) >= 2:
            found = (None, None if lefts == rights else {}, None)
        elif len(lefts) >= 2:
            found = (_all(schema.items, rights[0]) if rights else None, None, {})
        else:
            found = ({}, None, _all(schema.items, lefts[0]) if lefts else None)
        for into, each in zip(three, found, strict=True):
            if each is not None:
                into[key] = each
    return three[0] or None, three[1] or None, three[2] or None


def _by_key(schema: Schema, items: list[Any]) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {}
    for each in items:
        made.setdefault(item_key(schema, each), []).append(each)
    return made


def _all(schema: Schema, value: Any) -> Node:
    """A value and everything in it."""
    if not value or _leaf(schema, value):
        return {}
    made: Node = {".": {}}
    if isinstance(value, dict):
        struct = schema.kind == "struct"
        for key, each in value.items():
            made[f"f:{key}"] = _all(schema.fields.get(key, schema.items) if struct else schema.items, each)
    else:
        for key, items in _by_key(schema, value).items():
            made[key] = _all(schema.items, items[0]) if len(items) == 1 else {}
    return made


def removed(schema: Schema, value: Any, fields: Node) -> Any:
    """A value without fields; None when nothing remains."""
    if not isinstance(value, (dict, list)):
        return value
    if not value or schema.atomic or (schema.kind == "any" and isinstance(value, list)):
        return None
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        struct = schema.kind == "struct"
        for key, each in value.items():
            node = fields.get(f"f:{key}")
            if node is not None:
                if not node or "." in node:
                    continue
                each = removed(schema.fields.get(key, schema.items) if struct else schema.items, each, node)
            made[key] = each
        return made or None
    items: list[Any] = []
    for each in value:
        node = fields.get(item_key(schema, each))
        if node is not None:
            if not node or "." in node:
                continue
            each = removed(schema.items, each, node)
        items.append(each)
    return items or None
