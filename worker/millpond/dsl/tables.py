"""What stands behind a KTable while it is built: where its values can be looked up, and whether it sends old ones.

Both are decided by what comes later: a join looks values up and so makes a source table materialise; a regrouping
needs old values, all the way up to the nearest store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from millpond.dsl.operators.lookup import FilteredLookup, Lookup, MappedLookup, StoreLookup
from millpond.dsl.operators.table_filter import FilterTable
from millpond.dsl.operators.table_mapping import MapTableValues
from millpond.dsl.operators.table_source import MaterializedSource, PassingSource
from millpond.state import KeyValueStoreBuilder
from millpond.topology import Body

from .materialized import Storage

__all__ = ("Aggregated", "FilteredTable", "MappedTable", "SourceTable", "TableLogic", "View")


@dataclass(frozen=True)
class View:
    """How a join reads a table: through which function, from which stores."""

    lookup: Lookup
    stores: tuple[str, ...]


class TableLogic(Protocol):
    """The part of a table that later operators may change."""

    def send_old_values(self, *, materialize: bool) -> bool:
        """Start sending old values if there are any; with `materialize`, make sure there are.

        Returns:
            whether old values are sent from now on.
        """

    def view(self) -> View:
        """How to look values up; a source table materialises when asked."""


class SourceTable:
    """A topic, or a stream, read as a table. It has a store only if something needs one."""

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
        return View(StoreLookup(self._storage.name), (self._storage.name,))

    def body(self) -> Body:
        """What its node does."""
        if not self._materialized:
            return PassingSource()
        return MaterializedSource(self._storage.name, self._send_old)

    def store(self) -> KeyValueStoreBuilder[Any, Any] | None:
        """Its store, when it has one."""
        return self._storage.key_value() if self._materialized else None


class Aggregated:
    """The result of an aggregation, which always has a store."""

    def __init__(self, lookup: Lookup, store: str, make: Callable[[bool], Body]) -> None:
        self._view = View(lookup, (store,))
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
        """What its node does."""
        return self._make(self._send_old)


class _Derived:
    """A table computed from another one, materialised only on request."""

    def __init__(self, parent: Parent, storage: Storage | None) -> None:
        self._parent = parent
        self._storage = storage if storage is not None and storage.queryable else None
        self._send_old = False

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        if self._storage is not None or self._parent.send_old_values(materialize=materialize):
            self._send_old = True
        return self._send_old

    def view(self) -> View:
        """See `TableLogic`."""
        if self._storage is not None:
            return View(StoreLookup(self._storage.name), (self._storage.name,))
        above = self._parent.view()
        return View(self._derive(above.lookup), above.stores)

    def store(self) -> KeyValueStoreBuilder[Any, Any] | None:
        """Its store, when it has one."""
        return None if self._storage is None else self._storage.key_value()

    @property
    def _store_name(self) -> str | None:
        return None if self._storage is None else self._storage.name

    def _derive(self, lookup: Lookup) -> Lookup:
        raise NotImplementedError


class Parent(Protocol):
    """The table above, as its logic is reached through the KTable."""

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""

    def view(self) -> View:
        """See `TableLogic`."""


class FilteredTable(_Derived):
    """The rows for which a predicate holds."""

    def __init__(
        self, parent: Parent, storage: Storage | None, predicate: Callable[[Any, Any], object], *, negate: bool
    ) -> None:
        super().__init__(parent, storage)
        self._predicate = predicate
        self._negate = negate
        # With old values at hand a row that neither passed before nor passes now needs no tombstone downstream.
        self._send_old = parent.send_old_values(materialize=False)

    def body(self) -> Body:
        """What its node does."""
        return FilterTable(self._predicate, self._negate, self._store_name, self._send_old)

    def _derive(self, lookup: Lookup) -> Lookup:
        return FilteredLookup(lookup, self._predicate, self._negate)


class MappedTable(_Derived):
    """The rows with another value each."""

    def __init__(self, parent: Parent, storage: Storage | None, mapper: Callable[..., Any], *, with_key: bool) -> None:
        super().__init__(parent, storage)
        self._mapper = mapper
        self._with_key = with_key

    def body(self) -> Body:
        """What its node does."""
        return MapTableValues(self._mapper, self._with_key, self._store_name, self._send_old)

    def _derive(self, lookup: Lookup) -> Lookup:
        return MappedLookup(lookup, self._mapper, self._with_key)
