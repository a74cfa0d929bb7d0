"""KStream: an unbounded sequence of records, each independent of those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TextIO, TypeVar, Unpack, overload

from millpond.calls import checked
from millpond.checks import check_function, kind_of
from millpond.dsl.operators.conversion import PassThrough
from millpond.dsl.operators.effects import Peek, Print
from millpond.dsl.operators.filtering import FilterStream
from millpond.dsl.operators.flattening import FlatMapRecords, FlatMapValues
from millpond.dsl.operators.mapping import MapRecords, MapValues, SelectKey
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import (
    Body,
    FixedKeyProcessorSupplier,
    Processor,
    ProcessorSupplier,
    StreamPartitioner,
    TopicNameExtractor,
)
from millpond.topology.naming import validate_name
from millpond.topology.processor_body import ProcessorBody
from millpond.topology.suppliers import check_supplier, check_supply

from .branching import BranchedKStream
from .functions import (
    check_partitioner,
    check_same_builder,
    check_stores,
    check_target,
    check_value_function,
)
from .graph import Graph, GraphNode, OperatorNode, RepartitionGraphNode, SinkGraphNode
from .grouped_stream import KGroupedStream
from .materialized import Materialized, Storage
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
class KStream(TableJoins[K, V], Generic[K, V]):
    """A stream of records with keys of type K and values of type V. Made by `StreamsBuilder.stream()`.

    Functions over values take the value alone, or key and value with `with_key=True`; all others take key and value.
    Operators that change a type take `key=` and `value=`, the serdes of what they produce; without them,
    a later step that needs bytes falls back to `default.key.serde` and `default.value.serde`.
    Operators that may change keys make the next grouping, join or table repartition the stream first.
    """

    def __init__(
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

    # One record in, at most one out

    def filter(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which `predicate(key, value)` is true."""
        check_function("filter()", predicate, "key", "value")
        return self._same(FilterStream(predicate), "KSTREAM-FILTER-", name)

    def filter_not(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Drop the records for which `predicate(key, value)` is true."""
        check_function("filter_not()", predicate, "key", "value")
        return self._same(FilterStream(predicate, negate=True), "KSTREAM-FILTER-", name)

    def select_key(
        self, selector: Callable[[K, V], KR], *, key: Serde[KR] | None = None, name: str | None = None
    ) -> KStream[KR, V]:
        """Give each record the key `selector(key, value)`."""
        check_function("select_key()", selector, "key", "value")
        return self._next(SelectKey(selector), "KSTREAM-KEY-SELECT-", name, key, self._value, rekeyed=True)

    def map(
        self,
        mapper: Callable[[K, V], tuple[KR, VR]],
        *,
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by the pair `mapper(key, value)`."""
        check_function("map()", mapper, "key", "value")
        return self._next(MapRecords(mapper), "KSTREAM-MAP-", name, key, value, rekeyed=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR],
        *,
        with_key: Literal[False] = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR],
        *,
        with_key: Literal[True],
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def map_values(
        self,
        mapper: Callable[..., VR],
        *,
        with_key: bool = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Replace each value by `mapper(value)`, or by `mapper(key, value)` with `with_key=True`."""
        check_value_function("map_values()", mapper, "value", with_key=with_key)
        return self._next(MapValues(mapper, with_key), "KSTREAM-MAPVALUES-", name, self._key, value)

    # One record in, any number out

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[KR, VR]]],
        *,
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Replace each record by the pairs of `mapper(key, value)`."""
        check_function("flat_map()", mapper, "key", "value", iterated=True)
        return self._next(FlatMapRecords(mapper), "KSTREAM-FLATMAP-", name, key, value, rekeyed=True)

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[VR]],
        *,
        with_key: Literal[False] = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[VR]],
        *,
        with_key: Literal[True],
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[VR]],
        *,
        with_key: bool = False,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Replace each record by one per item of `mapper(value)`, or of `mapper(key, value)` with `with_key=True`."""
        check_value_function("flat_map_values()", mapper, "value", with_key=with_key, iterated=True)
        return self._next(FlatMapValues(mapper, with_key), "KSTREAM-FLATMAPVALUES-", name, self._key, value)

    # Side effects

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for each record and pass the record on."""
        check_function("peek()", action, "key", "value")
        return self._same(Peek(action), "KSTREAM-PEEK-", name)

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for each record, and end here."""
        check_function("foreach()", action, "key", "value")
        self._same(Peek(action), "KSTREAM-FOREACH-", name)

    def print(
        self,
        describe: Callable[[K, V], str] | None = None,
        *,
        label: str | None = None,
        file: TextIO | None = None,
        name: str | None = None,
    ) -> None:
        """Write a line `[label]: key, value` for each record, and end here.

        Args:
            describe: what to write in place of `key, value`.
            label: without one, the name of the node above.
            file: where to; standard output without.
            name: name of the node.
        """
        if describe is not None:
            check_function("print()", describe, "key", "value")
        self._same(Print(label or self._name, describe, file), "KSTREAM-PRINTER-", name)

    # Dividing and joining flows

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Divide the stream: `.split().branch(predicate).branch(…).default_branch()`."""
        return BranchedKStream(self, name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no particular order between the two."""
        if not isinstance(other, KStream):
            raise TopologyError(f"merge() needs a KStream, not {kind_of(other)}; to_stream() makes one of a table.")
        check_same_builder("The streams that merge() is given", self, other)
        node = OperatorNode(self._graph.name_or(name, "KSTREAM-MERGE-"), PassThrough)
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

    # Processor API

    def process(
        self,
        supplier: ProcessorSupplier[K, V, KR, VR],
        *,
        stores: Iterable[str] = (),
        key: Serde[KR] | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[KR, VR]:
        """Run a Processor, which may forward records under any key.

        Args:
            supplier: makes a Processor per task; often the class itself. Its `stores` are connected.
            stores: names of further stores it uses.
            key: serde of the keys it forwards.
            value: serde of the values it forwards.
            name: name of the node.
        """
        check_supplier("process()", supplier)
        check_stores("process()", stores)
        return self._process(supplier, "KSTREAM-PROCESSOR-", stores, name, key, value, rekeyed=True)

    def process_values(
        self,
        supplier: FixedKeyProcessorSupplier[K, V, VR],
        *,
        stores: Iterable[str] = (),
        value: Serde[VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Run a FixedKeyProcessor, which keeps keys and so needs no repartitioning after it.

        Args:
            supplier: makes a FixedKeyProcessor per task; often the class itself. Its `stores` are connected.
            stores: names of further stores it uses.
            value: serde of the values it forwards.
            name: name of the node.
        """
        if not isinstance(supplier, type) or not issubclass(supplier, Processor):
            check_supplier("process_values()", supplier)
        check_supply(name or "process_values()", supplier, fixed_key=True)
        check_stores("process_values()", stores)
        return self._process(supplier, "KSTREAM-PROCESSVALUES-", stores, name, self._key, value)

    # Topics

    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write to a topic.

        Args:
            topic: the topic, or a function (key, value, context) that names it per record.
            key: serde of the keys.
            value: serde of the values.
            partitioner: (topic, key, value, partitions) -> None for the default (murmur2 of the key), else the
                partitions to write to: several are a multicast, none drops the record.
            name: name of the node.
        """
        check_target(topic)
        check_partitioner("to()", partitioner)
        node = SinkGraphNode(
            self._graph.name_or(name, "KSTREAM-SINK-"), topic, key or self._key, value or self._value, partitioner
        )
        self._graph.add(node, self._node)

    def repartition(
        self,
        *,
        partitions: int | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Send the stream through an internal topic, so that equal keys meet in one task.

        Args:
            partitions: how many partitions the topic has; as many as upstream without.
            key: serde of the keys.
            value: serde of the values.
            partitioner: see `to`.
            name: the topic is called `<application.id>-<name>-repartition`.
        """
        check_partitioner("repartition()", partitioner)
        prefix = self._graph.generate("KSTREAM-REPARTITION-") if name is None else validate_name(name)
        key, value = key or self._key, value or self._value
        node = RepartitionGraphNode(self._graph, prefix, key, value, partitioner, partitions)
        self._graph.add(node, self._node)
        return KStream(self._graph, node.name, node, key, value, frozenset({node.name}), repartition=False)

    # Tables and aggregations

    def to_table(self, *, name: str | None = None, **materialized: Unpack[Materialized[K, V]]) -> KTable[K, V]:
        """Take each record as the new row of its key, a record without a value as a deletion."""
        from .ktable import KTable

        graph = self._graph
        name = graph.name_or(name, "KSTREAM-TOTABLE-")
        storage = Storage.of(materialized, graph, "KSTREAM-TOTABLE-", self._key, self._value)
        parent, sources = self._node, self._sources
        if self._repartition:
            parent = RepartitionGraphNode(graph, name, storage.key, storage.value)
            graph.add(parent, self._node)
            sources = frozenset({parent.name})
        logic = SourceTable(storage)
        node = OperatorNode(name, logic.body, store=logic.store, table=True)
        graph.add(node, parent)
        return KTable(graph, name, node, storage.key, storage.value, sources, logic, storage)

    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """Group by the key the records have, to aggregate.

        Args:
            key: serde of the keys.
            value: serde of the values.
            name: of the repartition topic, if one is needed.
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

    def group_by(
        self,
        selector: Callable[[K, V], KR],
        *,
        key: Serde[KR] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[KR, V]:
        """Group by `selector(key, value)`, to aggregate; the stream is repartitioned for it.

        Args:
            selector: gives the key to group by.
            key: serde of those keys.
            value: serde of the values.
            name: of the node and of the repartition topic.
        """
        check_function("group_by()", selector, "key", "value")
        node = OperatorNode(self._graph.name_or(name, "KSTREAM-KEY-SELECT-"), lambda: SelectKey(selector))
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

    # Building blocks

    def _next(
        self,
        body: Body,
        prefix: str,
        name: str | None,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        *,
        rekeyed: bool = False,
    ) -> KStream[Any, Any]:
        node = OperatorNode(self._graph.name_or(name, prefix), lambda: body)
        self._graph.add(node, self._node)
        return self._below(node, key, value, rekeyed=rekeyed)

    def _same(self, body: Body, prefix: str, name: str | None) -> KStream[K, V]:
        return self._next(body, prefix, name, self._key, self._value)

    def _below(
        self, node: GraphNode, key: Serde[Any] | None, value: Serde[Any] | None, *, rekeyed: bool = False
    ) -> KStream[Any, Any]:
        repartition = self._repartition or rekeyed
        return KStream(self._graph, node.name, node, key, value, self._sources, repartition=repartition)

    def _process(
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
        # Other than elsewhere the index stays where it is when the user names the node.
        name = self._graph.generate(prefix) if name is None else validate_name(name)
        node = ProcessorGraphNode(name, supplier, stores)
        self._graph.add(node, self._node)
        return self._below(node, key, value, rekeyed=rekeyed)

    def _repartition_for_join(self, name: str | None, key: Serde[K] | None) -> KStream[K, V]:
        """This stream, sent through an internal topic when its keys may have changed."""
        if not self._repartition:
            return self
        prefix = name or self._name
        # Made even when the one of an earlier join is used again, because it moves the index on.
        node = RepartitionGraphNode(self._graph, prefix, key or self._key, self._value)
        if self._repartitioned is None or prefix != self._name:
            self._repartitioned = node
            self._graph.add(node, self._node)
        used = self._repartitioned
        return KStream(
            self._graph, node.name, used, key or self._key, self._value, frozenset({used.name}), repartition=False
        )


class ProcessorGraphNode(OperatorNode):
    """A user's processor, with the stores it brings along."""

    def __init__(self, name: str, supplier: Callable[[], Any], stores: Iterable[str]) -> None:
        super().__init__(name, lambda: ProcessorBody(supplier), uses=stores)
        self._supplier = supplier

    def write(self, topology: Any) -> None:
        """Add the processor and its stores."""
        topology.add_processor(self.name, self._supplier, *self.parent_names, stores=self.uses)
