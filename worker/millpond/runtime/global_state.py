"""Global stores: every worker fills them from all partitions of their topic, before it starts and ever after.

They are outside the transactions: what is committed in the topic is applied as it arrives, and written to the state
file together with the position reached (semantics.md 3.6).

Their topics are inputs, so a topic that was deleted and made again is the truth from then on, and every worker begins with
it: rows of the former one are dropped, lest workers disagree.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from millpond.state.provenance import Provenance
from millpond.topology import GlobalStore, TaskId

from .cluster import Cluster
from .commit import CommitFailed
from .compile import compile_graph
from .completeness import Completeness, Moment
from .context import TaskContext
from .ends import Ends, Heard
from .environment import Environment
from .ownership import Partition
from .sources import make_decoder
from .topic_facts import TopicFacts
from .trust import LocalRows, Log, Trust, judge, longest_unwritten_ms, oldest_ms

__all__ = ("GlobalStateUpdater", "GlobalStores")

log = logging.getLogger(__name__)

#: How often the ends of their topics are asked for, in seconds: rows on disk are as old as the last answer.
_ASK_S = 10.0


class GlobalStateUpdater:
    """Applies the records of one global store's topic to the store.

    Attributes:
        store: the store instance.
        topic: the real topic.
        context: what its nodes share.
        positions: next offset per partition.
        completeness: until when the store has everything, per partition.
        facts: what the topic is.
    """

    def __init__(self, definition: GlobalStore, store: Any, backend: Any, environment: Environment) -> None:
        self.store = store
        self.backend = backend
        self.topic = definition.source.topics[0]
        self.positions: dict[int, int] = {}
        self.completeness: dict[int, Completeness] = {}
        self.facts = TopicFacts("", None)
        self._stamped_ms = 0
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

    def begin(self, ranges: Mapping[Partition, tuple[int, int]], facts: TopicFacts, asked: Moment, now_ms: int) -> None:
        """Find the positions to read from, as far as the state file's rows are of this topic and new enough.

        Args:
            ranges: where the partitions begin and end.
            facts: what the topic is.
            asked: when brokers were asked for that.
            now_ms: the wall clock, in epoch milliseconds.
        """
        self.facts = facts
        name, backend = self.store.name, self.backend
        logs = {partition.partition: Log(first, end, facts) for partition, (first, end) in ranges.items()}
        for number, each in logs.items():
            offset = backend.offset(name, number)
            if offset is not None:
                known = backend.provenance(name, number) or Provenance("", backend.last_used_ms or 0)
                verdict = judge(LocalRows(offset, known), each, now_ms)
                if verdict.trust is not Trust.KEEP:
                    log.warning(
                        "global store %s: the local rows of partition %d %s; reading %s from the beginning",
                        name, number, verdict.reason, self.topic,
                    )  # fmt: skip
                    self.drop()
                    break
        for number, each in logs.items():
            offset = backend.offset(name, number)
            known = backend.provenance(name, number) or Provenance("", backend.last_used_ms or 0)
            self.positions[number] = each.first if offset is None else offset
            completeness = Completeness(asked.wall_ms if offset is None else known.as_of_ms)
            completeness.heard(asked, each.end, self.positions[number])
            self.completeness[number] = completeness

        self._stamped_ms = self.as_of_ms

    @property
    def as_of_ms(self) -> int:
        """Until when the store has everything, in epoch milliseconds."""
        return min(each.as_of_ms for each in self.completeness.values())

    def stamp(self) -> None:
        """Write anew until when the rows on disk have everything, where that is long ago and nothing has changed."""
        if self.as_of_ms - self._stamped_ms > longest_unwritten_ms(self.facts):
            self.write()

    def drop(self) -> None:
        """Forget all rows, which are of all partitions together."""
        for number in {0, *self.backend.partitions(self.store.name)}:
            self.backend.drop(self.store.name, number)
        self.store.revert()

    def too_old(self, partition: int, now_ms: int) -> bool:
        """Whether deletions may be missing from what is read of a partition now: it was not read for too long."""
        completeness = self.completeness[partition]
        return completeness.at is not None and now_ms >= oldest_ms(completeness.as_of_ms, self.facts)

    def reached_end(self, partition: int, offset: int) -> None:
        """Nothing is in the partition after `offset`."""
        self.positions[partition] = max(offset, self.positions[partition])
        self.completeness[partition].moved(self.positions[partition])

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
        self.completeness[partition.partition].moved(chunk.next_offset)
        self.write()

    def write(self) -> None:
        """Write what is staged with the positions reached."""
        self._stamped_ms = self.as_of_ms
        store = self.store
        store.flush([])
        rows = store.seal()
        self.backend.write(
            [(store.name, store.partition, rows)],
            {(store.name, partition): (offset, store.metadata()) for partition, offset in self.positions.items()},
            {
                (store.name, partition): Provenance(self.facts.id, each.as_of_ms)
                for partition, each in self.completeness.items()
            },
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
        self._ends = Ends(cluster, _ASK_S)
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
            wanted += self._begin(updater)
        if wanted:
            self._consumer.incremental_assign(wanted)
        self.behind = {Partition(each.topic, each.partition) for each in wanted}

    def _begin(self, updater: GlobalStateUpdater) -> list[TopicPartition]:
        asked = Moment.now()
        ranges = self._cluster.ranges(
            [Partition(updater.topic, number) for number in range(self._partitions[updater.topic])]
        )
        facts = self._cluster.facts([updater.topic])[updater.topic]
        updater.begin(ranges, facts, asked, self._environment.now_ms())
        return [TopicPartition(updater.topic, number, offset) for number, offset in updater.positions.items()]

    def apply(self, partition: Partition, messages: Sequence[Message]) -> bool:
        """Process records of a global store's topic; False when it is none.

        Raises:
            CommitFailed: the store is being filled anew, and tasks have to wait for that.
        """
        updater = self.of_topic(partition.topic)
        if updater is None:
            return False
        if updater.too_old(partition.partition, self._environment.now_ms()):
            self.rebuild(updater, "was not read for so long that deletions may have left it")
        updater.apply(partition, messages)
        return True

    def rebuild(self, updater: GlobalStateUpdater, why: str) -> None:
        """Fill a store anew from the beginning of its topic. The store object stays: tasks hold it.

        Args:
            updater: of the store.
            why: a clause whose subject is the topic.

        Raises:
            CommitFailed: always, so that tasks go back, and run again when the store is complete.
            BrokerError: the brokers do not tell where the topic begins.
        """
        name, topic = updater.store.name, updater.topic
        log.warning("global store %s: topic %s %s; filling the store anew from its beginning", name, topic, why)
        # Records of other topics may have come with what brought this up, and are read again.
        self._unassign()
        updater.drop()
        wanted = self._begin(updater)
        self.resume()
        self.behind |= {Partition(each.topic, each.partition) for each in wanted}
        raise CommitFailed(f"global store {name} is filled anew: topic {topic} {why}")

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Nothing is in the partition after `offset`."""
        updater = self.of_topic(partition.topic)
        if updater is not None:
            updater.reached_end(partition.partition, offset)
            self.behind.discard(partition)

    def look_at_ends(self) -> None:
        """Ask, now and then, where the topics end. Cheap when it is not time."""
        if self.updaters:
            self._ends.look(self._told)

    def _told(self) -> dict[Partition, Heard]:
        def hears(updater: GlobalStateUpdater, number: int) -> Heard:
            def heard(asked: Moment, end: int) -> None:
                updater.completeness[number].heard(asked, end, updater.positions[number])
                updater.stamp()

            return heard

        return {
            Partition(each.topic, number): hears(each, number) for each in self.updaters for number in each.positions
        }

    def resume(self) -> None:
        """Read on where it was, with a consumer that has nothing assigned."""
        positions = [
            TopicPartition(updater.topic, number, offset)
            for updater in self.updaters
            for number, offset in updater.positions.items()
        ]
        if positions:
            self._consumer.incremental_assign(positions)

    def reread(self) -> None:
        """Read on where the stores are: records that were polled since, while a commit was waited for, went to nobody."""
        self._unassign()
        self.resume()

    def _unassign(self) -> None:
        reading = [TopicPartition(each.topic, number) for each in self.updaters for number in each.positions]
        if reading:
            self._consumer.incremental_unassign(reading)

    def by_name(self) -> dict[str, Any]:
        """The stores by name."""
        return {updater.store.name: updater.store for updater in self.updaters}

    def of_topic(self, topic: str) -> GlobalStateUpdater | None:
        """What is filled from a topic."""
        return next((updater for updater in self.updaters if updater.topic == topic), None)

    def close(self) -> None:
        """Stop reading and forget the stores."""
        self._unassign()
        for updater in self.updaters:
            updater.close()
            updater.store.close()
        self.updaters.clear()
        self.behind.clear()
