"""Sets of fields, in the form of `managedFields`.

A node is a dictionary of the elements below it. It is a member of the set itself when it is empty or has the key `.`;
the
root never is. Nodes are immutable.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tests.cluster.memory.field_management.schemas import Schema

__all__ = ("Node", "difference", "intersection", "item_key", "named", "union", "without")

Node = dict[str, Any]
_json = msgspec.json.Encoder(order="deterministic").encode


def _member(node: Node) -> bool:
    return not node or "." in node


def _made(children: Node, member: bool) -> Node | None:
    """A node that is not the root; None when it is empty."""
    if not children:
        return {} if member else None
    return {".": {}, **children} if member else children


def union(one: Node, other: Node) -> Node:
    """The union of two roots."""
    made = dict(one)
    for key, node in other.items():
        there = made.get(key)
        made[key] = node if there is None else _union(there, node)
    return made


def _union(one: Node, other: Node) -> Node:
    if one is other or one == other:
        return one
    member = _member(one) or _member(other)
    children = {key: node for key, node in one.items() if key != "."}
    for key, node in other.items():
        if key != ".":
            there = children.get(key)
            children[key] = node if there is None else _union(there, node)
    return _made(children, member) or {}


def difference(one: Node, other: Node) -> Node:
    """The difference of two roots."""
    if not other or not one:
        return one
    made: Node = {}
    for key, node in one.items():
        there = other.get(key)
        left = node if there is None else _difference(node, there)
        if left is not None:
            made[key] = left
    return made


def _difference(one: Node, other: Node) -> Node | None:
    children: Node = {}
    for key, node in one.items():
        if key != ".":
            there = other.get(key)
            left = node if there is None else _difference(node, there)
            if left is not None:
                children[key] = left
    return _made(children, _member(one) and not _member(other))


def intersection(one: Node, other: Node) -> Node:
    """The intersection of two roots."""
    made: Node = {}
    for key, node in one.items():
        there = other.get(key)
        if there is not None:
            both = _intersection(node, there)
            if both is not None:
                made[key] = both
    return made


def _intersection(one: Node, other: Node) -> Node | None:
    children: Node = {}
    for key, node in one.items():
        there = other.get(key)
        if key != "." and there is not None:
            both = _intersection(node, there)
            if both is not None:
                children[key] = both
    return _made(children, _member(one) and _member(other))


def without(one: Node, other: Node) -> Node:
    """The fields of one root that are neither in the other nor below one of its members."""
    if not other:
        return one
    made: Node = {}
    for key, node in one.items():
        there = other.get(key)
        left = node if there is None else _without(node, there)
        if left is not None:
            made[key] = left
    return made


def _without(one: Node, other: Node) -> Node | None:
    if _member(other):
        return None
    children: Node = {}
    for key, node in one.items():
        if key != ".":
            there = other.get(key)
            left = node if there is None else _without(node, there)
            if left is not None:
                children[key] = left
    return _made(children, _member(one))


def named(schema: Schema, node: Node) -> Node:
    """The set with all struct fields that contain a member; a root."""
    return {key: _named(_below(schema, key), child, _is_field(schema, key)) for key, child in node.items()}


def _named(schema: Schema, node: Node, member: bool) -> Node:
    if not node:
        return node
    children = {
        key: _named(_below(schema, key), child, _is_field(schema, key)) for key, child in node.items() if key != "."
    }
    return {".": {}, **children} if member or "." in node else children


def _is_field(schema: Schema, key: str) -> bool:
    return schema.kind == "struct" and key[:2] == "f:" and key[2:] in schema.fields


def _below(schema: Schema, key: str) -> Schema:
    if schema.kind == "struct":
        return schema.fields.get(key[2:], schema.items)
    return schema.items


def item_key(schema: Schema, item: Any) -> str:
    """The key of an item of a list.

    Raises:
        ValueError: it has none.
    """
    if not schema.keys:
        if item is None or isinstance(item, (dict, list)):
            raise ValueError("associative list without keys has an element that's a map type")
        return f"v:{_json(item).decode()}"
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")
    found: dict[str, Any] = {}
    for name in schema.keys:
        if name in item:
            found[name] = item[name]
        else:
            field = schema.items.fields.get(name)
            if field is not None and field.default is not None:
                found[name] = field.default
    if not found:
        keys = " ".join(f'"{name}"' for name in schema.keys)
        raise ValueError(
            f"associative list with keys has an element that omits all key fields [{keys}] "
            "(and doesn't have default values for any key fields)"
        )
    return f"k:{_json(found).decode()}"
