"""The bodies of join, left_join and outer_join of two tables with the same keys.

A join is three nodes: one for the changes of each table, and one that forwards the changes of both, and stores them if
the result has a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Get, Lookup, TimedGet, as_forwarded
from millpond.dsl.operators.versioned.updates import only_latest, update_functions
from millpond.topology import NodeContext, TableForward

__all__ = ("JoinKind", "JoinTables", "JoinedLookup", "MergeJoined", "StoreJoined")

JoinKind: TypeAlias = Literal["inner", "left", "outer"]

_ABSENT: tuple[None, int] = (None, -1)


@dataclass(frozen=True, slots=True)
class JoinTables:
    """A body that joins each change of one table with the other table's current row of its key.

    The timestamp of a result is the later one of both rows. Changes without a key are dropped and counted.
    """

    other: Lookup
    combine: Callable[..., Any]
    with_key: bool
    kind: JoinKind
    mirrored: bool
    """Whether the changes are those of the right table: then they are the second value of `combine`."""
    send_old: bool
    versioned: bool = False
    """Whether the changed table is versioned: then changes that are not their key's latest are dropped (KIP-914)."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        # In a left join each side needs the left table's value.
        mine = self.kind == "inner" or (self.kind == "left" and not self.mirrored)
        other = self.kind == "inner" or (self.kind == "left" and self.mirrored)
        combine = _combine(self.combine, with_key=self.with_key, mirrored=self.mirrored)
        lookup, send_old = self.other.bind_timed(as_forwarded(node)), self.send_old
        if mine and other and not send_old:
            join = _inner(node, lookup, combine)
        else:
            join = _any(node, lookup, combine, needs_mine=mine, needs_other=other, send_old=send_old)
        return only_latest(node, join) if self.versioned else join


def _combine(combine: Callable[..., Any], *, with_key: bool, mirrored: bool) -> Callable[[Any, Any, Any], Any]:
    """Return f(key, value of the changed table, value of the other table) -> joined value."""
    if with_key:
        return (lambda key, mine, other: combine(key, other, mine)) if mirrored else combine
    if mirrored:
        return lambda _key, mine, other: combine(other, mine)
    return lambda _key, mine, other: combine(mine, other)


def _inner(node: NodeContext, lookup: TimedGet, combine: Callable[[Any, Any, Any], Any]) -> TableForward:
    """Return the function for the most frequent case."""
    forward, failed, dropped = node.forward, node.failed, node.dropped

    def join(key: Any, new: Any, _old: Any, timestamp: int) -> None:
        if key is None:
            return dropped(Drop.NULL_KEY)
        try:
            value, latest = lookup(key)
            if value is None:
                return
            joined = None if new is None else combine(key, new, value)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, new, timestamp)
        forward(key, joined, None, max(timestamp, latest))

    return join


def _any(  # noqa: PLR0913 - the parts of a join
    node: NodeContext,
    lookup: TimedGet,
    combine: Callable[[Any, Any, Any], Any],
    *,
    needs_mine: bool,
    needs_other: bool,
    send_old: bool,
) -> TableForward:
    forward, failed, dropped = node.forward, node.failed, node.dropped

    def joined(key: Any, mine: Any, value: Any) -> Any:
        if mine is None and (needs_mine or value is None):
            return None
        return combine(key, mine, value)

    def join(key: Any, new: Any, old: Any, timestamp: int) -> None:
        if key is None:
            return dropped(Drop.NULL_KEY)
        try:
            value, latest = lookup(key)
            if value is None:
                if needs_other or (new is None and old is None):
                    return
                latest = timestamp
            after = joined(key, new, value)
            before = joined(key, old, value) if send_old else None
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, new, timestamp)
        forward(key, after, before, max(timestamp, latest))

    return join


@dataclass(frozen=True, slots=True)
class MergeJoined:
    """A body that forwards the results of both sides of a join, without a store."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change: that of the children."""
        return node.forward


@dataclass(frozen=True, slots=True)
class StoreJoined:
    """A body that stores the results of both sides of a join, and forwards them."""

    store: str

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        store = node.store(self.store)
        serialize, entry, failed = store.serialize_key, store.entry, node.failed
        stage, forward = update_functions(node, store)
        caching = store.caching
        if caching:
            store.on_flush(forward)

        def keep(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                raw = serialize(key)
                stage(raw, key, new, timestamp, entry(raw)[0] if caching else None)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            if not caching:
                forward(key, new, old, timestamp)

        return keep


@dataclass(frozen=True, slots=True)
class JoinedLookup:
    """A lookup that reads both tables and joins their values."""

    left: Lookup
    right: Lookup
    combine: Callable[..., Any]
    with_key: bool
    kind: JoinKind

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        get = self.bind_timed(node)
        return lambda key: get(key)[0]

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""
        left, right = self.left.bind_timed(node), self.right.bind_timed(node)
        combine = _combine(self.combine, with_key=self.with_key, mirrored=False)
        needs_left, needs_right = self.kind != "outer", self.kind == "inner"

        def get(key: Any) -> tuple[Any, int]:
            mine, at = left(key)
            if mine is None:
                if needs_left:
                    return _ABSENT
                at = -1
            value, other_at = right(key)
            if value is None:
                if needs_right or mine is None:
                    return _ABSENT
                return combine(key, mine, value), at
            return combine(key, mine, value), max(at, other_at)

        return get
