"""Lookups of a table's current value by key, for joins: from its store, or computed from the table above."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from millpond.topology import NodeContext

__all__ = (
    "FilteredLookup",
    "Get",
    "Lookup",
    "MappedLookup",
    "StoreLookup",
    "StoredBytes",
    "TimedGet",
    "WindowLookup",
    "as_forwarded",
    "stored_bytes",
)

Get: TypeAlias = Callable[[Any], Any]
"""f(key) -> the value, or None for a missing key. Keys are never None."""

TimedGet: TypeAlias = Callable[[Any], tuple[Any, int]]
"""f(key) -> the value and its timestamp in ms; (None, …) for a missing key. The time is -1 if it is not known."""

_ABSENT: tuple[None, int] = (None, -1)


class StoredBytes(NamedTuple):
    """The bytes from which a table's values are decoded. An older type may have written them."""

    read: Callable[[Any], bytes | None]
    """f(key) -> the encoded value as the last commit has it, or None."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]


class Lookup(Protocol):
    """A way to read a table. All tasks share the object."""

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""


class _ForwardedStore:
    """A store whose entries are as it has forwarded them."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.entry = store.forwarded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _WithForwardedStores:
    """The context of a node whose stores are as they have forwarded their entries."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def store(self, name: str) -> Any:
        store = self._node.store(name)
        return _ForwardedStore(store) if store.caching else store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def as_forwarded(node: NodeContext) -> NodeContext:
    """Return a context for `Lookup.bind`, so that the lookup reads what tables have forwarded.

    A table with a cache forwards its changes at a commit, and none for a key that came and went in between. A join of
    two tables has to read each as the other half of the join sees it: what it forwards for one change would otherwise
    be of a row that is never forwarded, or is forwarded again later. Joins of a stream read the newest values.
    """
    return cast("NodeContext", _WithForwardedStores(node))


def stored_bytes(lookup: Lookup, node: NodeContext) -> StoredBytes | None:
    """Return how one task reads the bytes of a table's values; None for values that are computed from other ones."""
    while isinstance(lookup, FilteredLookup):
        lookup = lookup.above
    if not isinstance(lookup, StoreLookup):
        return None
    store = node.store(lookup.store)
    serialize, stored, serde = store.serialize_key, store.stored, store.value_serde
    return StoredBytes(lambda key: stored(serialize(key)), serde.deserialize, serde.serialize)


@dataclass(frozen=True, slots=True)
class StoreLookup:
    """A lookup that reads a key-value store."""

    store: str

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry

        def get(key: Any) -> Any:
            return entry(serialize(key))[0]

        return get

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry

        def get(key: Any) -> tuple[Any, int]:
            found: tuple[Any, int] = entry(serialize(key))
            return found

        return get


@dataclass(frozen=True, slots=True)
class WindowLookup:
    """A lookup that reads a window store by windowed key."""

    store: str

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry

        def get(windowed: Any) -> Any:
            return entry(serialize(windowed.key), windowed.start_ms)[0]

        return get

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry

        def get(windowed: Any) -> tuple[Any, int]:
            found: tuple[Any, int] = entry(serialize(windowed.key), windowed.start_ms)
            return found

        return get


@dataclass(frozen=True, slots=True)
class FilteredLookup:
    """A lookup that reads the table above and hides the rows that the filter drops."""

    above: Lookup
    predicate: Callable[[Any, Any], object]
    negate: bool

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        above, predicate, negate = self.above.bind(node), self.predicate, self.negate

        def get(key: Any) -> Any:
            value = above(key)
            return value if value is not None and bool(predicate(key, value)) is not negate else None

        return get

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""
        above, predicate, negate = self.above.bind_timed(node), self.predicate, self.negate

        def get(key: Any) -> tuple[Any, int]:
            found = above(key)
            value = found[0]
            return found if value is not None and bool(predicate(key, value)) is not negate else _ABSENT

        return get


@dataclass(frozen=True, slots=True)
class MappedLookup:
    """A lookup that reads the table above and maps its values."""

    above: Lookup
    mapper: Callable[..., Any]
    with_key: bool

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        above, mapper, with_key = self.above.bind(node), self.mapper, self.with_key

        def get(key: Any) -> Any:
            value = above(key)
            if value is None:
                return None
            return mapper(key, value) if with_key else mapper(value)

        return get

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""
        above, mapper, with_key = self.above.bind_timed(node), self.mapper, self.with_key

        def get(key: Any) -> tuple[Any, int]:
            value, timestamp = above(key)
            if value is None:
                return _ABSENT
            return mapper(key, value) if with_key else mapper(value), timestamp

        return get
