"""StreamsBuilder: the start of a topology that is written in the DSL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from millpond.calls import checked
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import ProcessorSupplier, ProcessorWrapper, StoreBuilder, TimestampOf, Topology
from millpond.topology.settings.resets import check_reset
from millpond.topology.settings.topic_names import check_topic_names
from millpond.topology.settings.unnamed import check_names
from millpond.topology.suppliers import check_supplier
from millpond.topology.timestamps import timestamp_extractor
from millpond.topology.wrapping import check_wrapper

from .functions import check_builder, check_source_topics
from .global_table import GlobalKTable, GlobalStoreGraphNode, GlobalTableGraphNode, ReadOnlyStoreGraphNode
from .graph import Graph, SourceGraphNode, StoreGraphNode
from .kstream import KStream
from .ktable import KTable
from .materialized import Materialized, Storage
from .optimizing.rules import rules_of
from .tables import SourceTable, TableSourceGraphNode

__all__ = ("StreamsBuilder",)

K = TypeVar("K")
V = TypeVar("V")


@checked
class StreamsBuilder:
    """The start of a topology: topics as streams and tables, from which all others are derived.

    `name=` names the node of an operator, and its internal topics (KIP-307). Without it a name is generated, which
    changes when operators are added before this one.

    Args:
        processor_wrapper: wraps every processor and operator of the topology (KIP-1112); None for none.
    """

    def __init__(self, *, processor_wrapper: ProcessorWrapper | None = None) -> None:
        self._graph = Graph(check_wrapper("StreamsBuilder()", processor_wrapper))

    def stream(
        self,
        *topics: str | re.Pattern[str],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        timestamp: TimestampOf[V] | None = None,
        reset: str | timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Read topics as a stream of records.

        Args:
            topics: one or more topic names, or one compiled pattern for all topics whose whole name matches.
            key: serde of the keys; default: `default.key.serde` (then annotate the result: `s: KStream[str, int] = …`).
            value: serde of the values; default: `default.value.serde`.
            timestamp: a TimestampExtractor, or a function of the value that returns epoch ms or an aware datetime;
                default: `default.timestamp.extractor`.
            reset: where to start without committed offsets: `earliest`, `latest`, `none` to raise, or a timedelta for
                records that are at most so old (KIP-1106); default: `auto.offset.reset`.
            name: name of the node.

        Raises:
            TopologyError: an argument is not one of these.

        Example:
            >>> orders = builder.stream("orders", key=mp.String, value=mp.Json(dict), reset="latest")
            >>> orders.filter(lambda customer, order: order["amount"] > 100).to("large-orders")
        """
        check_source_topics("stream()", topics)
        patterns = [topic for topic in topics if isinstance(topic, re.Pattern)]
        names = tuple(dict.fromkeys(topic for topic in topics if isinstance(topic, str)))
        if not topics or (patterns and len(topics) > 1):
            raise TopologyError("stream() takes one or more topic names, or one compiled pattern.")
        timestamp_extractor(timestamp)
        check_reset("stream()", reset)
        node = SourceGraphNode(
            self._graph.name_or(name, "KSTREAM-SOURCE-"),
            patterns[0] if patterns else names,
            key,
            value,
            timestamp,
            reset,
        )
        self._graph.add(node, self._graph.root)
        return KStream(self._graph, node.name, node, key, value, frozenset({node.name}), repartition=False)

    def table(
        self,
        topic: str,
        *,
        timestamp: TimestampOf[V] | None = None,
        reset: str | timedelta | None = None,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, V]],
    ) -> KTable[K, V]:
        """Read a topic as a table: each record is the new row of its key; a record without a value deletes the row.

        The table gets a store if `store=` names one, or if an operator looks up its rows.

        Args:
            topic: the topic's name.
            timestamp: see `stream`.
            reset: see `stream`.
            name: name of the node; the source is called `<name>-source`.
            materialized: see `Materialized`; `key=` and `value=` are the topic's serdes.

        Example:
            >>> prices = builder.table("prices", key=mp.String, value=mp.Double, store="prices")
            >>> prices.filter(lambda product, price: price > 0).to_stream().to("known-prices")
        """
        check_source_topics("table()", (topic,))
        timestamp_extractor(timestamp)
        check_reset("table()", reset)
        graph = self._graph
        storage = Storage.of(materialized, graph, f"{topic}-")
        source = graph.name_or(name, "KSTREAM-SOURCE-", "-source")
        name = graph.name_or(name, "KTABLE-SOURCE-")
        logic = SourceTable(storage)
        node = TableSourceGraphNode(name, source, topic, storage.key, storage.value, logic, timestamp, reset)
        node.output_versioned = storage.history_ms is not None
        graph.add(node, graph.root)
        return KTable(graph, name, node, storage.key, storage.value, frozenset({source}), logic, storage)

    def global_table(
        self,
        topic: str,
        *,
        timestamp: TimestampOf[V] | None = None,
        name: str | None = None,
        **materialized: Unpack[Materialized[K, V]],
    ) -> GlobalKTable[K, V]:
        """Read a topic as a table that is complete on every worker.

        Args:
            topic: the topic's name.
            timestamp: see `stream`.
            name: name of the node; the source is called `<name>-source`.
            materialized: see `Materialized`; `key=` and `value=` are the topic's serdes. The topic is the changelog,
                so `logging=` and `caching=` are not allowed.

        Raises:
            TopologyError: an argument is not one of these.

        Example:
            >>> rates = builder.global_table("rates", key=mp.String, value=mp.Double, store="rates")
            >>> in_euro = amounts.join(rates, lambda amount, rate: int(amount * rate), on=lambda key, amount: "EUR")
        """
        check_source_topics("global_table()", (topic,))
        timestamp_extractor(timestamp)
        for option in ("logging", "caching"):
            if materialized.get(option):
                raise TopologyError(
                    f"global_table() takes no {option}=: its topic is the changelog, and its rows are written at once; "
                    "leave it out."
                )
        if "history_retention" in materialized:
            raise TopologyError(
                "global_table() takes no history_retention=: global tables are not versioned; use table(), or leave it "
                "out."
            )
        graph = self._graph
        # No changelog, since the topic is one; no cache, since no commit would flush it.
        storage = Storage.of({**materialized, "logging": False, "caching": False}, graph, f"{topic}-")
        source = graph.name_or(name, "KSTREAM-SOURCE-", "-source")
        name = graph.name_or(name, "KTABLE-SOURCE-")
        graph.add(GlobalTableGraphNode(source, name, topic, storage, timestamp), graph.root)
        return GlobalKTable(storage.name, graph)

    def add_state_store(self, builder: StoreBuilder) -> StreamsBuilder:
        """Add a store for the processors that name it in `stores=`.

        Example:
            >>> class Numbered(mp.FixedKeyProcessor[str, str, str]):
            ...     def process(self, record):
            ...         seen = self.context.get_state_store("seen", mp.KeyValueStore)
            ...         number = (seen.get(record.key) or 0) + 1
            ...         seen.put(record.key, number)
            ...         self.context.forward(record.with_value(f"{number}: {record.value}"))
            >>> builder = builder.add_state_store(mp.KeyValueStoreBuilder(name="seen", key=mp.String, value=mp.Long))
            >>> lines.process_values(Numbered, stores=["seen"], value=mp.String).to("numbered")
        """
        check_builder("add_state_store()", builder)
        self._graph.add(StoreGraphNode(builder), self._graph.root)
        return self

    def add_global_store(  # noqa: PLR0913 - options are keywords
        self,
        builder: StoreBuilder,
        topic: str,
        supplier: ProcessorSupplier[K, V, Any, Any],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        timestamp: TimestampOf[V] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that every worker fills from all partitions of `topic`, with a processor of your own.

        Args:
            builder: has logging=False, because the topic is the changelog.
            topic: the topic's name.
            supplier: makes the Processor that puts records into the store; it must not change keys.
            key: serde of the topic's keys.
            value: serde of the topic's values.
            timestamp: see `stream`.
            name: name of the processor's node; the source is called `<name>-source`.

        Example:
            >>> class Rates(mp.Processor[str, float, None, None]):
            ...     def process(self, record):
            ...         self.context.get_state_store("rates").put(record.key, record.value)
            >>> rates = mp.KeyValueStoreBuilder(name="rates", key=mp.String, value=mp.Double, logging=False)
            >>> builder = builder.add_global_store(rates, "rates", Rates, key=mp.String, value=mp.Double)
        """
        return self._add_filled_store(
            "add_global_store()", GlobalStoreGraphNode, name, topic, builder, supplier, key, value, timestamp
        )

    def add_read_only_state_store(  # noqa: PLR0913 - options are keywords
        self,
        builder: StoreBuilder,
        topic: str,
        supplier: ProcessorSupplier[K, V, Any, Any],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        timestamp: TimestampOf[V] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Add a store that tasks fill from `topic`, its changelog, with a processor of your own (KIP-813).

        Processors that name the store in `stores=` read the rows of their task's partition; only yours may write. The
        store is restored with the topic's own bytes, so the processor has to put each record as it is.

        Args:
            builder: the store; its changelog is the topic, whatever its `logging` says.
            topic: the topic's name, which no other stream or table reads. It is read from its beginning, and should be
                compacted; streams whose processors read the store need the same keys and as many partitions.
            supplier: makes the Processor that puts records into the store.
            key: serde of the topic's keys, and of the store's.
            value: serde of the topic's values, and of the store's.
            timestamp: see `stream`.
            name: name of the processor's node; the source is called `<name>-source`.

        Raises:
            TopologyError: an argument is not one of these.

        Example:
            >>> class Limits(mp.Processor[str, float, None, None]):
            ...     def process(self, record):
            ...         self.context.get_state_store("limits").put(record.key, record.value)
            >>> limits = mp.KeyValueStoreBuilder(name="limits", key=mp.String, value=mp.Double)
            >>> builder = builder.add_read_only_state_store(
            ...     limits, "spending-limits", Limits, key=mp.String, value=mp.Double
            ... )
        """
        return self._add_filled_store(
            "add_read_only_state_store()", ReadOnlyStoreGraphNode, name, topic, builder, supplier, key, value, timestamp
        )

    def _add_filled_store(  # noqa: PLR0913 - the arguments of both methods
        self,
        what: str,
        kind: type[GlobalStoreGraphNode],
        name: str | None,
        topic: str,
        builder: StoreBuilder,
        supplier: Any,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        timestamp: TimestampOf[Any] | None,
    ) -> StreamsBuilder:
        """Add a store that a processor of the user's fills from a topic."""
        check_builder(what, builder)
        check_source_topics(what, (topic,))
        check_supplier(what, supplier)
        timestamp_extractor(timestamp)
        graph = self._graph
        source = graph.name_or(name, "KSTREAM-SOURCE-", "-source")
        processor = graph.name_or(name, kind.generated_name)
        graph.add(kind(source, processor, topic, builder, supplier, key, value, timestamp), graph.root)
        return self

    def build(self, *, optimization: str | Iterable[str] | None = None, explicit_names: bool = False) -> Topology:
        """Return the topology of all streams and tables made so far.

        Args:
            explicit_names: whether to raise if stores or internal topics have generated names, which change when
                operators are added before them, as `ensure.explicit.internal.resource.naming` does for the
                applications that millpond runs (KIP-1111). Otherwise a worker logs such names as a warning.
            optimization: the rewrites of the topology, as in `topology.optimization`: `none`, `all`, or names of
                `reuse.ktable.source.topics` (KIP-295), `merge.repartition.topics` (KIP-295) and
                `single.store.self.join` (KIP-862). Default: the setting, if millpond loads the application, else none.
                With the first one, compact the topics of tables: rows that their retention deletes are missing after a
                restore, and a worker warns of it at its start. Rewrites change internal topics and names, so an
                application that has run needs a reset when they change.

        Raises:
            TopologyError: the operators contradict each other; the message names them and the cure. Or names are
                generated, and `explicit_names` is true.

        Example:
            >>> lines.map_values(str.upper, value=mp.String).to("loud")
            >>> topology = builder.build()
            >>> print(str(topology.describe()).splitlines()[0])
            Topologies:
        """
        topology = self._graph.build(rules_of(optimization))
        check_names(topology.unnamed, explicit=explicit_names)
        check_topic_names(topology)
        return topology
