"""The records that a stream's aggregations have in common: grouped by key, and repartitioned if need be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from millpond.dsl.operators.lookup import Lookup
from millpond.serdes import Long, Serde
from millpond.topology import Body, StoreBuilder

from .graph import Graph, GraphNode, OperatorNode, RepartitionGraphNode
from .materialized import Storage
from .tables import Aggregated, View

if TYPE_CHECKING:
    from .ktable import KTable

__all__ = ("Grouping", "resolve", "resolve_count", "resolve_sliding_count")


@dataclass
class Grouping:
    """The grouped records; the first aggregation repartitions them if their keys may have changed."""

    graph: Graph
    name: str
    node: GraphNode
    key: Serde[Any] | None
    value: Serde[Any] | None
    sources: frozenset[str]
    repartition: bool
    topic_name: str | None
    _repartitioned: RepartitionGraphNode | None = field(default=None, init=False)

    def aggregate(  # noqa: PLR0913 - what the three aggregations have in common
        self,
        name: str,
        storage: Storage,
        builder: Callable[[], StoreBuilder],
        lookup: Lookup,
        make: Callable[[bool], Body],
        key: Serde[Any] | None,
        open_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """Add an aggregation; add a repartition topic above it if keys may have changed."""
        from .ktable import KTable

        parent, sources = self.node, self.sources
        if self.repartition:
            # As in Kafka Streams, each aggregation takes indexes for a topic, even if it uses an earlier one's.
            named = self.topic_name is not None or storage.queryable
            prefix = self.topic_name or storage.name
            node = RepartitionGraphNode(self.graph, prefix, self.key, self.value, named=named)
            if self._repartitioned is None or self.topic_name is None:
                self._repartitioned = node
            self.graph.add(self._repartitioned, parent)
            parent, sources = self._repartitioned, frozenset({self._repartitioned.name})
        logic = Aggregated(View(lookup, (storage.name,), storage.history_ms), make)
        operator = OperatorNode(name, logic.body, store=builder, table=True, open_ms=open_ms)
        operator.output_versioned = storage.history_ms is not None
        self.graph.add(operator, parent)
        return KTable(self.graph, name, operator, key, storage.value, sources, logic, storage)


def resolve(
    grouping: Grouping, options: Any, name: str | None, prefix: str, value: Serde[Any] | None
) -> tuple[Storage, str]:
    """Return the resolved options of an aggregation's store, and the name of its node."""
    storage = Storage.of(cast("dict[str, Any]", options), grouping.graph, prefix, grouping.key, value)
    return storage, grouping.graph.name_or(name, prefix)


def resolve_count(grouping: Grouping, options: Any, name: str | None) -> tuple[Storage, str]:
    """Return the same as `resolve` for a count."""
    if options and "store" not in options:
        # As Kafka Streams does, for the sake of names in topologies of its older versions.
        grouping.graph.generate_store("KSTREAM-AGGREGATE-")
    return resolve_sliding_count(grouping, options, name)


def resolve_sliding_count(grouping: Grouping, options: Any, name: str | None) -> tuple[Storage, str]:
    """Return the same as `resolve` for a count in sliding windows."""
    return resolve(grouping, options, name, "KSTREAM-AGGREGATE-", Long)
