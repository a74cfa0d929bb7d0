"""GlobalKTable: a topic as a table that is complete on every worker."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

from millpond.calls import checked
from millpond.dsl.operators.lookup import Lookup, StoreLookup
from millpond.dsl.operators.table_source import MaterializedSource
from millpond.serdes import Serde
from millpond.topology import StoreBuilder, TimestampOf, Topology
from millpond.topology.processor_body import ProcessorBody

from .graph import Graph, GraphNode
from .materialized import Storage

__all__ = ("GlobalKTable", "GlobalStoreGraphNode", "GlobalTableGraphNode", "ReadOnlyStoreGraphNode")

K = TypeVar("K")
V = TypeVar("V")


@checked
class GlobalKTable(Generic[K, V]):
    """A table with keys of type K and values of type V, for `KStream.join(table, …, on=…)`.

    Every worker reads the whole topic before it starts, so streams need not be partitioned like it. It is
    not part of the transactions of exactly-once processing.
    """

    def __init__(self, store_name: str, graph: Graph) -> None:
        self._graph = graph
        self.store_name = store_name
        """The name of its store."""

    @property
    def lookup(self) -> Lookup:
        """The lookup of its rows, for joins."""
        return StoreLookup(self.store_name)


class GlobalTableGraphNode(GraphNode):
    """A topic that is read into a global store."""

    def __init__(
        self,
        source: str,
        processor: str,
        topic: str,
        storage: Storage,
        timestamp: TimestampOf[Any] | None,
    ) -> None:
        super().__init__(processor)
        self._source, self._topic, self._storage, self._timestamp = source, topic, storage, timestamp

    def write(self, topology: Topology) -> None:
        """Add the global store with its source and its processor."""
        storage = self._storage
        topology.add_global_store(
            storage.key_value(),
            self._topic,
            MaterializedSource(storage.name, send_old=False),
            source_name=self._source,
            processor_name=self.name,
            key=storage.key,
            value=storage.value,
            timestamp=self._timestamp,
        )


class GlobalStoreGraphNode(GraphNode):
    """A topic that is read into a global store through a user's processor."""

    generated_name: ClassVar[str] = "KTABLE-SOURCE-"
    """What the generated name of the processor begins with."""

    def __init__(  # noqa: PLR0913 - the arguments of add_global_store(), resolved
        self,
        source: str,
        processor: str,
        topic: str,
        builder: StoreBuilder,
        supplier: Any,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        timestamp: TimestampOf[Any] | None,
    ) -> None:
        super().__init__(processor)
        self._source, self._topic, self._builder, self._supplier = source, topic, builder, supplier
        self._key, self._value, self._timestamp = key, value, timestamp

    def write(self, topology: Topology) -> None:
        """Add the global store with its source and its processor."""
        topology.add_global_store(
            self._builder,
            self._topic,
            ProcessorBody(self._supplier),
            source_name=self._source,
            processor_name=self.name,
            key=self._key,
            value=self._value,
            timestamp=self._timestamp,
        )


class ReadOnlyStoreGraphNode(GlobalStoreGraphNode):
    """A topic that tasks read into a store through a user's processor, and that is the store's changelog."""

    generated_name: ClassVar[str] = "KSTREAM-PROCESSOR-"

    def write(self, topology: Topology) -> None:
        """Add the read-only store with its source and its processor."""
        topology.add_read_only_state_store(
            self._builder,
            self._topic,
            self._supplier,
            source_name=self._source,
            processor_name=self.name,
            key=self._key,
            value=self._value,
            timestamp=self._timestamp,
        )
