"""Global stores: every worker fills them from all partitions of their topic, before it starts and ever after.

They are outside the transactions: what is committed in the topic is applied as it arrives, and written to the state
file together with the position reached (semantics.md 3.6).

Their topics are inputs, so a topic that was deleted and made again is the truth from then on, and every worker begins with
it: rows of the former one are dropped, lest workers disagree.

A plain table that is far behind may wait for a snapshot: its topic is not read until the worker's loop has ingested that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.end_offsets import EndOffsetCallback, EndOffsets
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.environment import Environment
from millpond.topology import GlobalStore, TaskId

from .global_updater import GlobalStateUpdater
from .snapshot_restorer import SnapshotRestorer

__all__ = ("GlobalStores",)

log = logging.getLogger(__name__)

#: How often the ends of their topics are asked for, in seconds: rows on disk are as old as the last answer.
_ASK_S = 10.0


class GlobalStores:
    """The global stores of a worker.

    Attributes:
        bootstrap: restores from snapshots; None where there are none.
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
        cluster: KafkaAdmin,
        bootstrap: SnapshotRestorer | None = None,
    ) -> None:
        """Define them; `create` makes them.

        Args:
            definitions: from the topology.
            partitions: partition count of each topic.
            environment: of the worker.
            backend_of: where a store builder's rows are.
            consumer: reads their topics.
            cluster: tells where those begin and end.
            bootstrap: restores from snapshots; None where there are none.
        """
        self.bootstrap = bootstrap
        self._waiting: dict[TaskId, GlobalStateUpdater] = {}
        self._definitions = definitions
        self._partitions = partitions
        self._environment = environment
        self._backend_of = backend_of
        self._consumer = consumer
        self._cluster = cluster
        self._ends = EndOffsets(cluster, _ASK_S)
        self.updaters: list[GlobalStateUpdater] = []
        self.behind: set[Partition] = set()

    def create(self) -> None:
        """Build the stores and begin to read their topics where the state on disk ends."""
        wanted: list[TopicPartition] = []
        for definition in self._definitions:
            builder = self._environment.complete(definition.store)
            backend = self._backend_of(builder)
            updater = GlobalStateUpdater(definition, builder, backend, self._environment)
            self.updaters.append(updater)
            wanted += self._begin(updater)
        if wanted:
            self._consumer.incremental_assign(wanted)

    def _begin(self, updater: GlobalStateUpdater) -> list[TopicPartition]:
        """Find out what a store has to read, which is nothing as long as it waits for a snapshot."""
        asked = Moment.now()
        ranges = self._cluster.ranges(
            [Partition(updater.topic, number) for number in range(self._partitions[updater.topic])]
        )
        facts = self._cluster.facts([updater.topic])[updater.topic]
        updater.begin(ranges, facts, asked, self._environment.now_ms())
        self.behind |= ranges.keys()
        if self.bootstrap is not None and self.bootstrap.awaits(updater.id, lambda: updater.wanted(ranges)):
            self._waiting[updater.id] = updater
            return []
        return [TopicPartition(updater.topic, number, offset) for number, offset in updater.positions.items()]

    def restored(self, id: TaskId) -> bool:
        """Read the topic of a store that waited for a snapshot, from where its rows end; False when none has that number.

        Raises:
            BrokerError: the brokers do not tell where the topic begins.
        """
        updater = self._waiting.pop(id, None)
        if updater is None:
            return False
        updater.store.revert()
        wanted = self._begin(updater)
        if wanted:
            self._consumer.incremental_assign(wanted)
        return True

    @property
    def _reading(self) -> list[GlobalStateUpdater]:
        """Those that do not wait for a snapshot."""
        return [each for each in self.updaters if each.id not in self._waiting]

    def apply(self, partition: Partition, messages: Sequence[Message]) -> bool:
        """Process records of a global store's topic; False when it is none.

        Raises:
            CommitFailed: the store is being filled anew, and tasks have to wait for that.
        """
        updater = self.of_topic(partition.topic)
        if updater is None:
            return False
        if updater.id in self._waiting:
            return True  # polled before it began to wait
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
            CommitFailed: so that tasks go back, and run again when the store is complete; always, unless that has begun.
            BrokerError: the brokers do not tell where the topic begins.
        """
        if updater.id in self._waiting:
            return
        name, topic = updater.store.name, updater.topic
        log.warning("global store %s: topic %s %s; filling the store anew from its beginning", name, topic, why)
        # Records of other topics may have come with what brought this up, and are read again.
        self._unassign()
        updater.drop()
        self._begin(updater)
        self.resume()
        raise CommitFailed(f"global store {name} is filled anew: topic {topic} {why}")

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Nothing is in the partition after `offset`."""
        updater = self.of_topic(partition.topic)
        if updater is not None and updater.id not in self._waiting:
            updater.reached_end(partition.partition, offset)
            self.behind.discard(partition)

    def look_at_ends(self) -> None:
        """Ask, now and then, where the topics end. Cheap when it is not time."""
        if self.updaters:
            self._ends.poll(self._told)

    def _told(self) -> dict[Partition, EndOffsetCallback]:
        def hears(updater: GlobalStateUpdater, number: int) -> EndOffsetCallback:
            def heard(asked: Moment, end: int) -> None:
                updater.completeness[number].record_end(asked, end, updater.positions[number])
                updater.stamp()

            return heard

        return {
            Partition(each.topic, number): hears(each, number) for each in self._reading for number in each.positions
        }

    def resume(self) -> None:
        """Read on where it was, with a consumer that has nothing assigned."""
        positions = [
            TopicPartition(updater.topic, number, offset)
            for updater in self._reading
            for number, offset in updater.positions.items()
        ]
        if positions:
            self._consumer.incremental_assign(positions)

    def reread(self) -> None:
        """Read on where the stores are: records that were polled since, while a commit was waited for, went to nobody."""
        self._unassign()
        self.resume()

    def _unassign(self) -> None:
        reading = [TopicPartition(each.topic, number) for each in self._reading for number in each.positions]
        if reading:
            self._consumer.incremental_unassign(reading)

    def by_name(self) -> dict[str, Any]:
        """The stores by name."""
        return {updater.store.name: updater.store for updater in self.updaters}

    def of_topic(self, topic: str) -> GlobalStateUpdater | None:
        """What is filled from a topic."""
        return next((updater for updater in self.updaters if updater.topic == topic), None)

    def close(self) -> None:
        """Stop reading and waiting, and forget the stores."""
        self._unassign()
        for id in self._waiting:
            assert self.bootstrap is not None
            self.bootstrap.forget(id)
        self._waiting.clear()
        for updater in self.updaters:
            updater.close()
            updater.store.close()
        self.updaters.clear()
        self.behind.clear()
