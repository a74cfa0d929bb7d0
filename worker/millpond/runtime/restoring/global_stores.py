"""Global stores: every worker restores them from all partitions of their topic at its start, and keeps them updated.

They are outside of transactions: committed records of the topic are applied as they arrive, and written to the state
file together with their offsets.

Their topics are inputs. If such a topic is deleted and created again, every worker drops the rows of the old topic and
starts with the new one, so that workers do not differ.

A plain table that is far behind may wait for a snapshot: its topic is not read until the worker has ingested it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from millpond.runtime.all_steps import take_all
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

log: logging.Logger = logging.getLogger(__name__)

#: How often the end offsets of their topics are requested, in seconds: rows on disk are as old as the last answer.
_END_REQUEST_INTERVAL_S = 10.0


class GlobalStores:
    """The global stores of a worker.

    Attributes:
        bootstrap: restores from snapshots; None without a location for snapshots.
        updaters: the updater of each store.
        behind: partitions of their topics that are not read to the end yet.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        definitions: Sequence[GlobalStore],
        partitions: Mapping[str, int],
        environment: Environment,
        backend_of: Callable[[Any], Any],
        consumer: Consumer,
        cluster: KafkaAdmin,
        bootstrap: SnapshotRestorer | None = None,
    ) -> None:
        """Prepare the stores; `create` builds them.

        Args:
            definitions: the global stores of the topology.
            partitions: partition count of each topic.
            environment: the environment of the worker.
            backend_of: returns the backend for a store builder.
            consumer: reads the topics.
            cluster: reads the offset ranges of the topics.
            bootstrap: restores from snapshots; None without a location for snapshots.
        """
        self.bootstrap = bootstrap
        self._waiting: dict[TaskId, GlobalStateUpdater] = {}
        self._definitions = definitions
        self._partitions = partitions
        self._environment = environment
        self._backend_of = backend_of
        self._consumer = consumer
        self._cluster = cluster
        self._ends = EndOffsets(cluster, _END_REQUEST_INTERVAL_S)
        self.updaters: list[GlobalStateUpdater] = []
        self.behind: set[Partition] = set()

    def create(self) -> None:
        """Build the stores and start to read their topics from the offsets on disk."""
        wanted: list[TopicPartition] = []
        for definition in self._definitions:
            builder = self._environment.complete_global(definition)
            backend = self._backend_of(builder)
            updater = GlobalStateUpdater(definition, builder, backend, self._environment)
            self.updaters.append(updater)
            wanted += self._begin(updater)
        if wanted:
            self._consumer.incremental_assign(wanted)

    def _begin(self, updater: GlobalStateUpdater) -> list[TopicPartition]:
        """Return the partitions and offsets that a store has to read; none while it waits for a snapshot."""
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
        """Start to read the topic of a store that waited for a snapshot; return False if no store with that id waited.

        Raises:
            BrokerError: the brokers did not return the offsets of the topic in time.
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
        """The updaters of stores that do not wait for a snapshot."""
        return [each for each in self.updaters if each.id not in self._waiting]

    def apply(self, partition: Partition, messages: Sequence[Message]) -> bool:
        """Process records of a global store's topic; return False if the topic belongs to no global store.

        Raises:
            CommitFailed: the store is being rebuilt, and tasks must wait for the end of that.
        """
        updater = self.of_topic(partition.topic)
        if updater is None:
            return False
        if updater.id in self._waiting:
            return True  # polled before the store began to wait
        if updater.too_old(partition.partition, self._environment.now_ms()):
            self.rebuild(updater, "was not read for so long that deletions may be missing from it")
        updater.apply(partition, messages)
        return True

    def rebuild(self, updater: GlobalStateUpdater, why: str) -> None:
        """Rebuild a store from the beginning of its topic. The store object stays, because tasks hold it.

        Args:
            updater: the updater of the store.
            why: the reason, as a clause after the subject "topic".

        Raises:
            CommitFailed: always, unless the store waits for a snapshot: tasks return to their last commit, and run
                again when the store is complete.
            BrokerError: the brokers did not return the offsets of the topic in time.
        """
        if updater.id in self._waiting:
            return
        name, topic = updater.store.name, updater.topic
        log.warning("global store %s: topic %s %s; rebuilding the store from its beginning", name, topic, why)
        # Records of other topics may have come with the same poll, and are read again.
        self._unassign()
        updater.drop()
        self._begin(updater)
        self.resume()
        raise CommitFailed(f"global store {name} is being rebuilt: topic {topic} {why}")

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Record that a partition is read to its end, as the broker reports."""
        updater = self.of_topic(partition.topic)
        if updater is not None and updater.id not in self._waiting:
            updater.reached_end(partition.partition, offset)
            self.behind.discard(partition)

    def look_at_ends(self) -> None:
        """Handle end offsets of the topics, and request them when they are due. Cheap otherwise."""
        if self.updaters:
            self._ends.poll(self._end_offset_callbacks)

    def _end_offset_callbacks(self) -> dict[Partition, EndOffsetCallback]:
        def callback(updater: GlobalStateUpdater, number: int) -> EndOffsetCallback:
            def record(requested_at: Moment, end: int) -> None:
                updater.completeness[number].record_end(requested_at, end, updater.positions[number])
                updater.stamp()

            return record

        return {
            Partition(each.topic, number): callback(each, number) for each in self._reading for number in each.positions
        }

    def resume(self) -> None:
        """Continue to read, with a consumer that has no partitions assigned."""
        positions = [
            TopicPartition(updater.topic, number, offset)
            for updater in self._reading
            for number, offset in updater.positions.items()
        ]
        if positions:
            self._consumer.incremental_assign(positions)

    def reread(self) -> None:
        """Read again from the stores' positions, since records polled during the wait for a commit were not applied."""
        self._unassign()
        self.resume()

    def _unassign(self) -> None:
        reading = [TopicPartition(each.topic, number) for each in self._reading for number in each.positions]
        if reading:
            self._consumer.incremental_unassign(reading)

    def by_name(self) -> dict[str, Any]:
        """Return the stores by name."""
        return {updater.store.name: updater.store for updater in self.updaters}

    def of_topic(self, topic: str) -> GlobalStateUpdater | None:
        """Return the updater of a topic; None if the topic belongs to no global store."""
        return next((updater for updater in self.updaters if updater.topic == topic), None)

    def close(self) -> None:
        """Stop reading and waiting, and close the stores, whichever of them fail."""
        steps: list[Callable[[], object]] = [self._unassign]
        for id in self._waiting:
            assert self.bootstrap is not None
            steps.append(partial(self.bootstrap.forget, id))
        for updater in self.updaters:
            steps += [updater.close, updater.store.close]
        take_all((*steps, self._waiting.clear, self.updaters.clear, self.behind.clear))
