"""The grouped streams of a cogroup, each with its aggregator, and the nodes of their aggregation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from millpond.dsl.graph import GraphNode, OperatorNode, RepartitionGraphNode
from millpond.dsl.grouping import Grouping
from millpond.dsl.materialized import Storage
from millpond.dsl.operators.conversion import PassThrough
from millpond.dsl.operators.lookup import Lookup
from millpond.dsl.tables import View
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import Body, StoreBuilder

if TYPE_CHECKING:
    from millpond.dsl.ktable import KTable

__all__ = ("Cogrouping",)

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"

Aggregator = Callable[[Any, Any, Any], Any]
"""f(key, value, aggregate) -> new aggregate."""


class _MakeBody(Protocol):
    """The body that aggregates the records of one stream."""

    def __call__(self, aggregator: Aggregator, *, send_old: bool) -> Body: ...


class Cogrouping:
    """The streams that are aggregated together. It is shared by a CogroupedKStream and its windowed forms."""

    def __init__(self, grouping: Grouping, aggregator: Aggregator) -> None:
        self._streams = [(grouping, aggregator)]
        #: By stream, the topic into which it is repartitioned. As in Kafka Streams, all aggregations share it.
        self._repartitioned: dict[int, RepartitionGraphNode] = {}

    def add(self, grouping: Grouping, aggregator: Aggregator) -> None:
        """Add a stream.

        Raises:
            TopologyError: it comes from another StreamsBuilder, or was added before.
        """
        first = self._streams[0][0]
        if grouping.graph is not first.graph:
            raise TopologyError("The streams of cogroup() come from different StreamsBuilders; build both with one.")
        if any(known is grouping for known, _ in self._streams):
            raise TopologyError(
                f"cogroup() was given the grouped stream of '{grouping.name}' twice, but a record goes to one "
                "aggregator; do both steps in that one."
            )
        self._streams.append((grouping, aggregator))

    def storage(self, options: Any) -> Storage:
        """Return the resolved options of the aggregation's store; keys have the first serde that a stream has."""
        key = next((grouping.key for grouping, _ in self._streams if grouping.key is not None), None)
        return Storage.of(cast("dict[str, Any]", options), self._streams[0][0].graph, _AGGREGATE, key)

    def aggregate(  # noqa: PLR0913 - what the three kinds of aggregation have in common
        self,
        name: str | None,
        storage: Storage,
        builder: StoreBuilder,
        lookup: Lookup,
        make: _MakeBody,
        key: Serde[Any] | None,
        open_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """Add a node for each stream, which all use one store, and the node where their changes come together."""
        from millpond.dsl.ktable import KTable

        graph = self._streams[0][0].graph
        parents = self._parents(storage.name, named=storage.queryable)
        logic = _Cogrouped(View(lookup, (storage.name,), storage.history_ms))
        nodes: list[GraphNode] = []
        for number, ((_, aggregator), (parent, _)) in enumerate(zip(self._streams, parents, strict=True)):
            node = OperatorNode(
                graph.name_or(name, _AGGREGATE, f"-cogroup-agg-{number}"),
                _body(make, aggregator, logic),
                store=lambda: builder,
                table=True,
                open_ms=open_ms,
            )
            if open_ms is None:
                node.output_versioned = storage.history_ms is not None
            nodes.append(node)
            graph.add(node, parent)
        merge = OperatorNode(graph.name_or(name, _MERGE, "-cogroup-merge"), PassThrough, table=True)
        graph.add(merge, *nodes)
        sources = frozenset[str]().union(*(sources for _, sources in parents))
        return KTable(graph, merge.name, merge, key, storage.value, sources, logic, storage)

    def _parents(self, store: str, *, named: bool) -> list[tuple[GraphNode, frozenset[str]]]:
        """Return each stream's node, or its repartition topic, with the sources above; require equal partitions."""
        parents: list[tuple[GraphNode, frozenset[str]]] = []
        topics: set[str] = set()
        for grouping, _ in self._streams:
            if not grouping.repartition:
                parents.append((grouping.node, grouping.sources))
                continue
            # As in Kafka Streams, each aggregation takes indexes for a topic, even if it uses an earlier one's.
            prefix = grouping.topic_name or store
            given = named or grouping.topic_name is not None
            new = RepartitionGraphNode(grouping.graph, prefix, grouping.key, grouping.value, named=given)
            node = self._repartitioned.setdefault(id(grouping), new)
            if node.topic in topics:
                raise TopologyError(
                    f"cogroup() repartitions two streams into one topic, '{node.topic}'; group each of them with a "
                    "name= of its own."
                )
            topics.add(node.topic)
            if node is new:
                grouping.graph.add(node, grouping.node)
            parents.append((node, frozenset({node.name})))
        self._streams[0][0].graph.copartition(frozenset[str]().union(*(sources for _, sources in parents)))
        return parents


class _Cogrouped:
    """The logic of the table; see `TableLogic`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.send_old = False

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        del materialize
        self.send_old = True
        return True

    def view(self) -> View:
        """See `TableLogic`."""
        return self._view


def _body(make: _MakeBody, aggregator: Aggregator, logic: _Cogrouped) -> Callable[[], Body]:
    return lambda: make(aggregator, send_old=logic.send_old)
