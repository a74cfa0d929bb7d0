"""Global stores: every worker fills them from all partitions of their topic, before it starts and ever after.

They are outside the transactions: what is committed in the topic is applied as it arrives, and written to the state
file together with the position reached (semantics.md 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from millpond.topology import GlobalStore, TaskId

from .cluster import Cluster
from .compile import compile_graph
from .context import TaskContext
from .environment import Environment
from .ownership import Partition
from .sources import make_decoder

__all__ = ("GlobalStateUpdater", "GlobalStores")


class GlobalStateUpdater:
    """Applies the records of one global store's topic to the store.

    Attributes:
        store: the store instance.
        topic: the real topic.
        context: what its nodes share.
        positions: next offset per partition.
    """

    def __init__(self, definition: GlobalStore, store: Any, backend: Any, environment: Environment) -> None:
        self.store = store
        self.backend = backend
        self.topic = definition.source.topics[0]
        self.positions: dict[int, int] = {}
        self.context = TaskContext(
            TaskId(definition.id, 0), environment.application_id, environment.settings, [], environment.now_ms
        )
        store.attach(self.context)
        entries, self._hooks = compile_graph(
            (definition.source,), (definition.processor,), (), {store.name: store}, {}, self.context, environment, {},
            (definition.source.name, definition.processor.name),
        )  # fmt: skip
        self._entry = entries[definition.source.name]
        self._decoder = make_decoder(definition.source, self.topic, self.context, environment)

    def start_of(self, partition: int) -> int | None:
        """The position the state file knows, None when it has none."""
        offset = self.backend.offset(self.store.name, partition)
        return None if offset is None else int(offset)

    def apply(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Process the records and write them with their position."""
        context = self.context
        chunk = self._decoder.decode(messages, context.stream_time)
        for _, bad in chunk.bad or ():
            self._decoder.on_bad_record(bad)
        # There is no transaction to send dead letters in.
        context.outbox.clear()
        entry = self._entry
        for message, key, value, timestamp in zip(
            chunk.messages, chunk.keys, chunk.values, chunk.timestamps, strict=True
        ):
            context.message = message
            context.timestamp = timestamp
            context.stream_time = max(context.stream_time, timestamp)
            context.headers = message.headers()  # type: ignore[assignment]
            entry(key, value, timestamp)
        context.message = None
        context.headers = None
        self.positions[partition.partition] = chunk.next_offset
        self.write()

    def write(self) -> None:
        """Write what is staged with the positions reached."""
        store = self.store
        store.flush([])
        rows = store.seal()
        self.backend.write(
            [(store.name, store.partition, rows)],
            {(store.name, partition): (offset, store.metadata()) for partition, offset in self.positions.items()},
        )
        store.committed()

    def close(self) -> None:
        """Call the processor's `close()`."""
        for closer in self._hooks.closers:
            closer()


class GlobalStores:
    """The global stores of a worker.

    Attributes:
        updaters: one per store.
        behind: partitions of their topics whose end was not seen yet.
    """

    def __init__(
        self,
        definitions: Sequence[GlobalStore],
        partitions: Mapping[str, int],
        environment: Environment,
        backend_of: Callable[[Any], Any],
        consumer: Consumer,
        cluster: Cluster,
    ) -> None:
        """Define them; `create` makes them.

        Args:
            definitions: from the topology.
            partitions: partition count of each topic.
            environment: of the worker.
            backend_of: where a store builder's rows are.
            consumer: reads their topics.
            cluster: tells where those begin and end.
        """
        self._definitions = definitions
        self._partitions = partitions
        self._environment = environment
        self._backend_of = backend_of
        self._consumer = consumer
        self._cluster = cluster
        self.updaters: list[GlobalStateUpdater] = []
        self.behind: set[Partition] = set()

    def create(self) -> None:
        """Build the stores and begin to read their topics where the state on disk ends."""
        wanted: list[TopicPartition] = []
        for definition in self._definitions:
            builder = self._environment.complete(definition.store)
            backend = self._backend_of(builder)
            updater = GlobalStateUpdater(definition, builder.build(0, backend, None), backend, self._environment)
            self.updaters.append(updater)
            numbers = range(self._partitions[updater.topic])
            ranges = self._cluster.ranges([Partition(updater.topic, number) for number in numbers])
            for number in numbers:
                first, end = ranges[Partition(updater.topic, number)]
                known = updater.start_of(number)
                start = first if known is None or known > end else max(known, first)
                updater.positions[number] = start
                wanted.append(TopicPartition(updater.topic, number, start))
        if wanted:
            self._consumer.incremental_assign(wanted)
        self.behind = {Partition(each.topic, each.partition) for each in wanted}

    def resume(self) -> None:
        """Read on where it was, with a consumer that has nothing assigned."""
        positions = [
            TopicPartition(updater.topic, number, offset)
            for updater in self.updaters
            for number, offset in updater.positions.items()
        ]
        if positions:
            self._consumer.incremental_assign(positions)

    def by_name(self) -> dict[str, Any]:
        """The stores by name."""
        return {updater.store.name: updater.store for updater in self.updaters}

    def of_topic(self, topic: str) -> GlobalStateUpdater | None:
        """What is filled from a topic."""
        return next((updater for updater in self.updaters if updater.topic == topic), None)

    def close(self) -> None:
        """Stop reading and forget the stores."""
        reading = [TopicPartition(updater.topic, number) for updater in self.updaters for number in updater.positions]
        if reading:
            self._consumer.incremental_unassign(reading)
        for updater in self.updaters:
            updater.close()
            updater.store.close()
        self.updaters.clear()
        self.behind.clear()
