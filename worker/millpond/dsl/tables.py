"""The logic of a KTable while the topology is built: where its values are looked up, and whether it sends old values.

Later operators decide both. A join looks values up, and so makes a source table materialise. A regrouping needs old
values from all tables above it, up to the nearest store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from millpond.dsl.operators.lookup import FilteredLookup, Lookup, MappedLookup, StoreLookup
from millpond.dsl.operators.table_filter import FilterTable
from millpond.dsl.operators.table_mapping import MapTableValues
from millpond.dsl.operators.table_source import MaterializedSource, PassingSource
from millpond.dsl.operators.table_transform import TransformedLookup, TransformTableValues
from millpond.serdes import Serde
from millpond.topology import Body, StoreBuilder, TimestampOf, Topology
from millpond.topology.transformer import ValueTransformerWithKeySupplier

from .graph import GraphNode
from .materialized import Storage

__all__ = (
    "Aggregated",
    "FilteredTable",
    "MappedTable",
    "SourceTable",
    "TableLogic",
    "TransformedTable",
    "View",
    "stored_view",
)


@dataclass(frozen=True)
class View:
    """The way a join reads a table: the lookup, and the names of the stores that it reads."""

    lookup: Lookup
    stores: tuple[str, ...]
    history_ms: int | None = None
    """For a versioned table, how long it keeps old values, in ms; joins of streams then read it as of their time."""


def stored_view(storage: Storage) -> View:
    """Return the view of a table that has a key-value store."""
    return View(StoreLookup(storage.name), (storage.name,), storage.history_ms)


class TableLogic(Protocol):
    """The part of a table that later operators may change."""

    def send_old_values(self, *, materialize: bool) -> bool:
        """Send old values with each change, if they are known.

        Args:
            materialize: get a store if old values are not known without one.

        Returns:
            whether old values are sent.
        """

    def view(self) -> View:
        """Return the lookup of values; this call gives a source table a store."""


class SourceTable:
    """A topic or a stream that is read as a table. It has a store only if an operator or a query needs one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._materialized = storage.queryable
        self._send_old = False

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        if not materialize and not self._materialized:
            return False
        self._materialized = self._send_old = True
        return True

    def view(self) -> View:
        """See `TableLogic`."""
        self._materialized = True
        return stored_view(self._storage)

    def body(self) -> Body:
        """Return the body of the table's node."""
        if not self._materialized:
            return PassingSource()
        return MaterializedSource(self._storage.name, self._send_old)

    def store(self) -> StoreBuilder | None:
        """Return the builder of the table's store; None without a store."""
        return self._storage.key_value() if self._materialized else None


class Aggregated:
    """The result of an aggregation, which always has a store."""

    def __init__(self, view: View, make: Callable[[bool], Body]) -> None:
        self._view = view
        self._make = make
        self._send_old = False

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        del materialize
        self._send_old = True
        return True

    def view(self) -> View:
        """See `TableLogic`."""
        return self._view

    def body(self) -> Body:
        """Return the body of the table's node."""
        return self._make(self._send_old)


class _Derived:
    """A table that is computed from another one. It has a store only if the user names one."""

    def __init__(self, parent: Parent, storage: Storage | None) -> None:
        self._parent = parent
        self._storage = storage if storage is not None and storage.queryable else None
        self._send_old = False

    @property
    def parent(self) -> Parent:
        """The table from which this one is computed."""
        return self._parent

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        if self._storage is not None or self._parent.send_old_values(materialize=materialize):
            self._send_old = True
        return self._send_old

    def view(self) -> View:
        """See `TableLogic`."""
        if self._storage is not None:
            return stored_view(self._storage)
        above = self._parent.view()
        return View(self._derive(above.lookup), above.stores, above.history_ms)

    def store(self) -> StoreBuilder | None:
        """Return the builder of the table's store; None without a store."""
        return None if self._storage is None else self._storage.key_value()

    @property
    def _store_name(self) -> str | None:
        return None if self._storage is None else self._storage.name

    def _derive(self, lookup: Lookup) -> Lookup:
        raise NotImplementedError


class Parent(Protocol):
    """The table from which this one is computed."""

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""

    def view(self) -> View:
        """See `TableLogic`."""


class FilteredTable(_Derived):
    """The rows for which a predicate is true. `versioned` is called when the topology is built."""

    def __init__(
        self,
        parent: Parent,
        storage: Storage | None,
        predicate: Callable[[Any, Any], object],
        *,
        negate: bool,
        versioned: Callable[[], bool],
    ) -> None:
        super().__init__(parent, storage)
        self._predicate = predicate
        self._negate = negate
        self._versioned = versioned
        # With old values, no tombstone is sent for a row that passed neither before nor now.
        self._send_old = parent.send_old_values(materialize=False)

    def body(self) -> Body:
        """Return the body of the table's node."""
        return FilterTable(self._predicate, self._negate, self._store_name, self._send_old, self._versioned())

    def _derive(self, lookup: Lookup) -> Lookup:
        return FilteredLookup(lookup, self._predicate, self._negate)


class TransformedTable(_Derived):
    """The rows with values that a transformer makes."""

    def __init__(
        self,
        parent: Parent,
        storage: Storage | None,
        supplier: ValueTransformerWithKeySupplier[Any, Any, Any],
        stores: tuple[str, ...],
    ) -> None:
        super().__init__(parent, storage)
        self._supplier = supplier
        self._stores = stores

    def view(self) -> View:
        """See `TableLogic`. A lookup has a transformer of its own, which uses the same stores."""
        found = super().view()
        if self._storage is not None:
            return found
        return replace(found, stores=tuple(dict.fromkeys((*found.stores, *self._stores))))

    def body(self) -> Body:
        """Return the body of the table's node."""
        return TransformTableValues(self._supplier, self._store_name, self._send_old)

    def _derive(self, lookup: Lookup) -> Lookup:
        return TransformedLookup(lookup, self._supplier)


class MappedTable(_Derived):
    """The rows with mapped values."""

    def __init__(self, parent: Parent, storage: Storage | None, mapper: Callable[..., Any], *, with_key: bool) -> None:
        super().__init__(parent, storage)
        self._mapper = mapper
        self._with_key = with_key

    def body(self) -> Body:
        """Return the body of the table's node."""
        return MapTableValues(self._mapper, self._with_key, self._store_name, self._send_old)

    def _derive(self, lookup: Lookup) -> Lookup:
        return MappedLookup(lookup, self._mapper, self._with_key)


class TableSourceGraphNode(GraphNode):
    """A source that reads a topic as a table.

    Attributes:
        reuse_topic: whether the topic is the changelog of the table's store, too (`reuse.ktable.source.topics`).
    """

    def __init__(  # noqa: PLR0913 - the arguments of table(), resolved
        self,
        name: str,
        source: str,
        topic: str,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        logic: SourceTable,
        timestamp: TimestampOf[Any] | None,
        reset: str | timedelta | None,
    ) -> None:
        super().__init__(name)
        self.reuse_topic = False
        self._source, self._topic, self._key, self._value, self._logic = source, topic, key, value, logic
        self._timestamp, self._reset = timestamp, reset

    def write(self, topology: Topology) -> None:
        """Add the source and the table's processor, and its store if it has one."""
        topology.add_source(
            self._source,
            self._topic,
            key=self._key,
            value=self._value,
            timestamp=self._timestamp,
            reset=self._reset,
            table=True,
        )
        topology.add_body(self.name, self._logic.body(), (self._source,), table=True)
        builder = self._logic.store()
        if builder is not None:
            if self.reuse_topic:
                builder = builder.restored_from(self._topic)
            topology.add_state_store(builder, self.name)
