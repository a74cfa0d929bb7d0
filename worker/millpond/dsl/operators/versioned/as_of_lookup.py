"""Lookups of the value that a versioned table had at a time, for joins of streams (KIP-914)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from millpond.dsl.operators.lookup import FilteredLookup, Lookup, MappedLookup, StoreLookup
from millpond.dsl.operators.table_transform import TransformedLookup
from millpond.errors import TopologyError
from millpond.topology import NodeContext

__all__ = ("AsOfGet", "bind_as_of")

AsOfGet: TypeAlias = Callable[[Any, int], Any]
"""f(key, time in epoch ms) -> the value that the table had at that time, or None for a missing key."""


def bind_as_of(lookup: Lookup, node: NodeContext) -> AsOfGet:
    """Return the function with which one task looks up the value of a key at a time.

    Raises:
        TopologyError: the lookup is not that of a versioned table, or of a view of one.
    """
    match lookup:
        case StoreLookup():
            return _from_store(node.store(lookup.store))
        case FilteredLookup():
            return _filtered(lookup, bind_as_of(lookup.above, node))
        case MappedLookup():
            return _mapped(lookup, bind_as_of(lookup.above, node))
        case TransformedLookup():
            above, map_found = bind_as_of(lookup.above, node), lookup.mapped(node)
            return lambda key, as_of: map_found(key, above(key, as_of), -1)
    raise TopologyError(f"'{node.name}' reads a table as of a time, but the table is not versioned.")


def _from_store(store: Any) -> AsOfGet:
    serialize, entry_as_of = store.serialize_key, store.entry_as_of

    def get(key: Any, as_of: int) -> Any:
        return entry_as_of(serialize(key), as_of)[0]

    return get


def _filtered(lookup: FilteredLookup, above: AsOfGet) -> AsOfGet:
    predicate, negate = lookup.predicate, lookup.negate

    def get(key: Any, as_of: int) -> Any:
        value = above(key, as_of)
        return value if value is not None and bool(predicate(key, value)) is not negate else None

    return get


def _mapped(lookup: MappedLookup, above: AsOfGet) -> AsOfGet:
    mapper, with_key = lookup.mapper, lookup.with_key

    def get(key: Any, as_of: int) -> Any:
        value = above(key, as_of)
        if value is None:
            return None
        return mapper(key, value) if with_key else mapper(value)

    return get
