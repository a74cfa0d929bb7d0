"""The bodies of join and left_join of a stream with a table, by its key, or with a global table, by a selected key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop, null_part
from millpond.topology import NodeContext, StreamForward

from .guard import FATAL
from .lookup import Lookup, StoreLookup
from .versioned.as_of_lookup import bind_as_of

__all__ = ("JoinGlobalTable", "JoinTable")


def _joiner(combine: Callable[..., Any], *, with_key: bool) -> Callable[[Any, Any, Any], Any]:
    return combine if with_key else lambda _key, value, other: combine(value, other)


@dataclass(frozen=True, slots=True)
class JoinTable:
    """A body that joins each record with the table's row of its key: the current one, or the one at the record's time.

    A left join joins records without a row, or without a key, with None. Records without a value are dropped and
    counted; for an inner join also those without a key.
    """

    table: Lookup
    combine: Callable[..., Any]
    with_key: bool
    left: bool
    versioned: bool = False
    """Whether the table is versioned: then a record is joined with the row at its own time (KIP-914)."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        if self.versioned:
            return join_as_of(node, self.table, self.combine, with_key=self.with_key, left=self.left)
        if not self.left and not self.with_key and isinstance(self.table, StoreLookup):
            return _inner(node, self.table.store, self.combine)
        get, combine, left = self.table.bind(node), _joiner(self.combine, with_key=self.with_key), self.left
        forward, failed, dropped = node.forward, node.failed, node.dropped

        def join(key: Any, value: Any, timestamp: int) -> None:
            if value is None or (key is None and not left):
                return dropped(Drop.NULL_VALUE if value is None else Drop.NULL_KEY)
            try:
                other = None if key is None else get(key)
                if other is None and not left:
                    return
                joined = combine(key, value, other)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(key, joined, timestamp)

        return join


def _inner(node: NodeContext, name: str, combine: Callable[[Any, Any], Any]) -> StreamForward:
    """Return the function for the most frequent case, with as few calls as possible."""
    store = node.store(name)
    serialize, entry = store.serialize_key, store.entry
    forward, failed, dropped = node.forward, node.failed, node.dropped

    def join(key: Any, value: Any, timestamp: int) -> None:
        if key is None or value is None:
            return dropped(null_part(key))
        try:
            other = entry(serialize(key))[0]
            if other is None:
                return
            joined = combine(value, other)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        forward(key, joined, timestamp)

    return join


def join_as_of(
    node: NodeContext, table: Lookup, combine: Callable[..., Any], *, with_key: bool, left: bool
) -> StreamForward:
    """Return the function that joins each record with the row that a versioned table had at the record's time."""
    get, combine = bind_as_of(table, node), _joiner(combine, with_key=with_key)
    forward, failed, dropped = node.forward, node.failed, node.dropped

    def join(key: Any, value: Any, timestamp: int) -> None:
        if value is None or (key is None and not left):
            return dropped(Drop.NULL_VALUE if value is None else Drop.NULL_KEY)
        try:
            other = None if key is None else get(key, timestamp)
            if other is None and not left:
                return
            joined = combine(key, value, other)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, value, timestamp)
        forward(key, joined, timestamp)

    return join


@dataclass(frozen=True, slots=True)
class JoinGlobalTable:
    """A body that joins each record with the row of the key `selector(key, value)`.

    Records without a value are dropped and counted. If the selected key is None, an inner join drops and counts the
    record, and a left join joins it with None.
    """

    table: Lookup
    selector: Callable[[Any, Any], Any]
    combine: Callable[..., Any]
    with_key: bool
    left: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        get, selector, left = self.table.bind(node), self.selector, self.left
        combine = _joiner(self.combine, with_key=self.with_key)
        forward, failed, dropped = node.forward, node.failed, node.dropped

        def join(key: Any, value: Any, timestamp: int) -> None:
            if value is None:
                return dropped(Drop.NULL_VALUE)
            try:
                selected = selector(key, value)
                if selected is None and not left:
                    return dropped(Drop.NO_LOOKUP_KEY)
                other = None if selected is None else get(selected)
                if other is None and not left:
                    return
                joined = combine(key, value, other)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(key, joined, timestamp)

        return join
