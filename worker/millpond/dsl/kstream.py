"""KStream: an unbounded sequence of records, each independent of the earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.dsl.operators.conversion import PassThrough
from millpond.dsl.operators.mapping import SelectKey
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import Body, StreamPartitioner, TopicNameExtractor
from millpond.topology.naming import validate_name

from .branching import BranchedKStream
from .functions import (
    check_partitioner,
    check_same_builder,
    check_target,
)
from .graph import Graph, GraphNode, OperatorNode, ProcessorGraphNode, RepartitionGraphNode, SinkGraphNode
from .grouped_stream import KGroupedStream
from .materialized import Materialized, Storage
from .steps.processors import ProcessorSteps
from .steps.records import RecordSteps
from .stream_joins import TableJoins
from .tables import SourceTable

if TYPE_CHECKING:
    from .ktable import KTable

__all__ = ("KStream",)

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VR = TypeVar("VR")


@checked
class KStream(RecordSteps[K, V], ProcessorSteps[K, V], TableJoins[K, V], Generic[K, V]):
    """A stream of records with keys of type K and values of type V. `StreamsBuilder.stream()` makes one.

    *Functions* over values take the value, or key and value with `with_key=True`; all others take key and value. What
    they raise goes to the processing exception handler (KIP-1033).

    *Serdes*: operators that change a type take `key=` and `value=`, the serdes of their results. Without them, a later
    operator that needs bytes uses `default.key.serde` and `default.value.serde`. A serde never gets None, so
    that of V is right for a stream of `V | None`, too.

    *Repartitioning*: after an operator that may change keys, the next grouping, join or table sends the stream through
    an internal topic first, so that one task gets all records of a key.

    *Names*: `name=` names the operator's node (KIP-307); without it a name is generated.

    All operators raise TopologyError for arguments that they cannot use.
    """

    def __init__(  # noqa: PLR0913 - where its records come from
        self,
        graph: Graph,
        name: str,
        node: GraphNode,
        key: Serde[K] | None,
        value: Serde[V] | None,
        sources: frozenset[str],
        *,
        repartition: bool,
    ) -> None:
        self._graph = graph
        self._name = name
        self._node = node
        self._key = key
        self._value = value
        self._sources = sources
        self._repartition = repartition
        self._repartitioned: RepartitionGraphNode | None = None

    # Splitting and merging

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Divide the stream among branches: `.split().branch(predicate).branch(…).default_branch()` (KIP-418).

        Example:
            >>> branches = (
            ...     lines.split(name="line-")
            ...     .branch(lambda key, line: line.startswith("#"), name="comment")
            ...     .default_branch(name="text")
            ... )
            >>> branches["line-text"].to("texts")
        """
        return BranchedKStream(self, name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Return one stream with the records of both; their order relative to each other is not defined.

        Example:
            >>> more = builder.stream("more-lines", key=mp.String, value=mp.String)
            >>> lines.merge(more).to("all-lines")
        """
        if not isinstance(other, KStream):
            raise TopologyError(f"merge() needs a KStream, not {kind_of(other)}; to_stream() makes one of a table.")
        check_same_builder("The streams that merge() is given", self, other)
        node = OperatorNode(self._graph.name_or(name, "KSTREAM-MERGE-"), PassThrough)
        node.is_merge = True
        self._graph.add(node, self._node, other._node)
        return KStream(
            self._graph,
            node.name,
            node,
            self._key if self._key is other._key else None,
            self._value if self._value is other._value else None,
            self._sources | other._sources,
            repartition=self._repartition or other._repartition,
        )

    # Topics

    @overload
    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None: ...
    @overload
    def to(
        self: KStream[K, VR | None],
        topic: str | TopicNameExtractor,
        *,
        key: Serde[K] | None = None,
        value: Serde[VR],
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None: ...
    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write to a topic.

        Args:
            topic: the topic's name, or f(key, value, context) -> the name of the record's topic (KIP-303).
            key: serde of the keys.
            value: serde of the values.
            partitioner: f(topic, key, value, number of partitions) -> the partitions to write to (KIP-837): several are
                a multicast, none drops the record, and None is the default, murmur2 of the key's bytes.
            name: name of the node.

        Example:
            >>> lines.to("copy")
            >>> lines.to(lambda key, line, context: f"lines-{key}")
        """
        check_target(topic)
        check_partitioner("to()", partitioner)
        node = SinkGraphNode(
            self._graph.name_or(name, "KSTREAM-SINK-"), topic, key or self._key, value or self._value, partitioner
        )
        self._graph.add(node, self._node)

    @overload
    def repartition(
        self,
        *,
        partitions: int | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def repartition(
        self: KStream[K, VR | None],
        *,
        partitions: int | None = None,
        key: Serde[K] | None = None,
        value: Serde[VR],
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, VR | None]: ...
    def repartition(
        self,
        *,
        partitions: int | None = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Send the stream through an internal topic, so that one task gets all records of a key (KIP-221).

        Args:
            partitions: the topic's number of partitions; default: as many as upstream.
            key: serde of the keys.
            value: serde of the values.
            partitioner: see `to`.
            name: the topic is named `<application.id>-<name>-repartition`.

        Example:
            >>> prefixed = lines.select_key(lambda key, line: line[:2], key=mp.String)
            >>> prefixed.repartition(name="by-prefix", partitions=12).to("spread")
        """
        check_partitioner("repartition()", partitioner)
        graph, named = self._graph, name is not None
        prefix = graph.generate("KSTREAM-REPARTITION-") if name is None else validate_name(name)
        key, value = key or self._key, value or self._value
        node = RepartitionGraphNode(graph, prefix, key, value, partitioner, partitions, named=named, optimizable=False)
        self._graph.add(node, self._node)
        return KStream(self._graph, node.name, node, key, value, frozenset({node.name}), repartition=False)

    # Tables and aggregations

    @overload
    def to_table(self, *, name: str | None = None, **materialized: Unpack[Materialized[K, V]]) -> KTable[K, V]: ...
    @overload
    def to_table(
        self: KStream[K, VR | None], *, name: str | None = None, **materialized: Unpack[Materialized[K, VR]]
    ) -> KTable[K, VR]: ...
    def to_table(self, *, name: str | None = None, **materialized: Unpack[Materialized[K, Any]]) -> KTable[K, Any]:
        """Read the stream as a table: each record is the new row of its key (KIP-523).

        A record without a value deletes the row; one without a key is dropped, and counted as dropped.

        Args:
            name: name of the node, and of the repartition topic if one is needed.
            materialized: see `Materialized`.

        Example:
            >>> latest = lines.to_table(store="latest-lines")
        """
        from .ktable import KTable

        graph, named = self._graph, name is not None
        name = graph.name_or(name, "KSTREAM-TOTABLE-")
        storage = Storage.of(materialized, graph, "KSTREAM-TOTABLE-", self._key, self._value)
        parent, sources = self._node, self._sources
        if self._repartition:
            parent = RepartitionGraphNode(graph, name, storage.key, storage.value, named=named)
            graph.add(parent, self._node)
            sources = frozenset({parent.name})
        logic = SourceTable(storage)
        node = OperatorNode(name, logic.body, store=logic.store, table=True)
        node.output_versioned = storage.history_ms is not None
        graph.add(node, parent)
        return KTable(graph, name, node, storage.key, storage.value, sources, logic, storage)

    @overload
    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]: ...
    @overload
    def group_by_key(
        self: KStream[K, VR | None], *, key: Serde[K] | None = None, value: Serde[VR], name: str | None = None
    ) -> KGroupedStream[K, VR]: ...
    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[Any] | None = None, name: str | None = None
    ) -> KGroupedStream[K, Any]:
        """Group by the key of the records, to aggregate.

        Args:
            key: serde of the keys.
            value: serde of the values.
            name: name of the repartition topic, if one is needed.

        Example:
            >>> counts = lines.group_by_key().count(store="lines-by-key")
        """
        return KGroupedStream(
            self._graph,
            self._name,
            self._node,
            key or self._key,
            value or self._value,
            self._sources,
            repartition=self._repartition,
            topic_name=None if name is None else validate_name(name),
        )

    @overload
    def group_by(
        self,
        selector: Callable[[K, V], KR],
        *,
        key: Serde[KR] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]: ...
    @overload
    def group_by(
        self: KStream[K, VR | None],
        selector: Callable[[K, V], KR],
        *,
        key: Serde[KR] | None = None,
        value: Serde[VR],
        name: str | None = None,
    ) -> KGroupedStream[KR, VR]: ...
    def group_by(
        self,
        selector: Callable[[K, V], KR],
        *,
        key: Serde[KR] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, Any]:
        """Group by another key, to aggregate. The stream is repartitioned by it.

        Args:
            selector: f(key, value) -> the key to group by.
            key: serde of those keys.
            value: serde of the values.
            name: name of the node and of the repartition topic.

        Example:
            >>> by_length = lines.group_by(lambda key, line: len(line), key=mp.Long)
            >>> counts = by_length.count(store="lines-by-length")
        """
        check_function("group_by()", selector, "key", "value")
        node = OperatorNode(self._graph.name_or(name, "KSTREAM-KEY-SELECT-"), lambda: SelectKey(selector))
        node.key_changing = node.rekeys = True
        node.value = value or self._value
        self._graph.add(node, self._node)
        return KGroupedStream(
            self._graph,
            node.name,
            node,
            key,
            value or self._value,
            self._sources,
            repartition=True,
            topic_name=name,
        )

    # What the operators have in common

    def _next(  # noqa: PLR0913 - names, serdes and body of one operator
        self,
        body: Body,
        prefix: str,
        name: str | None,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        *,
        rekeyed: bool = False,
        changes_values: bool = True,
    ) -> KStream[Any, Any]:
        node = OperatorNode(self._graph.name_or(name, prefix), lambda: body)
        node.key_changing = node.rekeys = rekeyed
        node.value_changing = changes_values and not rekeyed
        node.value = value
        self._graph.add(node, self._node)
        return self._below(node, key, value, rekeyed=rekeyed)

    def _same(self, body: Body, prefix: str, name: str | None) -> KStream[K, V]:
        return self._next(body, prefix, name, self._key, self._value, changes_values=False)

    def _below(
        self, node: GraphNode, key: Serde[Any] | None, value: Serde[Any] | None, *, rekeyed: bool = False
    ) -> KStream[Any, Any]:
        repartition = self._repartition or rekeyed
        return KStream(self._graph, node.name, node, key, value, self._sources, repartition=repartition)

    def _process(  # noqa: PLR0913 - names, serdes and supplier of one processor
        self,
        supplier: Any,
        prefix: str,
        stores: Iterable[str],
        name: str | None,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        *,
        rekeyed: bool = False,
    ) -> KStream[Any, Any]:
        # As in Kafka Streams, a name of the user takes no index here, as it does elsewhere.
        name = self._graph.generate(prefix) if name is None else validate_name(name)
        node = ProcessorGraphNode(name, supplier, stores)
        node.rekeys = rekeyed
        node.value_changing = True  # and keys, but Kafka Streams does not move a repartition topic to below it
        self._graph.add(node, self._node)
        return self._below(node, key, value, rekeyed=rekeyed)

    def _repartition_for_join(self, name: str | None, key: Any, value: Any = None) -> KStream[K, V]:
        """Return this stream, sent through an internal topic if its keys may have changed."""
        if not self._repartition:
            return self
        prefix = name or self._name
        # As in Kafka Streams, each join takes indexes for a topic, even if it uses an earlier one's.
        node = RepartitionGraphNode(self._graph, prefix, key or self._key, value or self._value, named=name is not None)
        if self._repartitioned is None or prefix != self._name:
            self._repartitioned = node
            self._graph.add(node, self._node)
        used = self._repartitioned
        serdes, sources = (key or self._key, value or self._value), frozenset({used.name})
        return KStream(self._graph, node.name, used, *serdes, sources, repartition=False)
