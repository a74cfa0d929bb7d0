"""The changelogs that a worker reads: for active tasks that restore their stores, and for copies that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import TopicPartition

from millpond.protocol import Role
from millpond.runtime.kafka.end_offsets import EndOffsetCallback, EndOffsets, EndOffsetSource
from millpond.runtime.kafka.replaceable_consumer import ReplaceableConsumer
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.changelog_reader import ChangelogReader, Restoration
from millpond.topology import TaskId

from .held_tasks import HeldTask

__all__ = ("ChangelogCopies",)

#: Seconds between two questions where the changelogs of copies end. The age of an answer counts from the question.
_ASK_ENDS_S = 0.25


class ChangelogCopies:
    """Keeps the consumer of changelogs at what is being restored or followed.

    Args:
        consumer: reads changelogs, and nothing else.
        reader: applies what it reads.
        asker: asks brokers where changelogs end.
        held: the tasks of the worker.
    """

    def __init__(
        self,
        consumer: ReplaceableConsumer,
        reader: ChangelogReader,
        asker: EndOffsetSource,
        held: Mapping[TaskId, HeldTask],
    ) -> None:
        self._consumer = consumer
        self._reader = reader
        self._held = held
        self._assigned: set[Partition] = set()
        self._to_assign: list[Restoration] = []
        self._ends = EndOffsets(asker, _ASK_ENDS_S)

    def read(self, restorations: Iterable[Restoration]) -> None:
        """Read these from the next `assign` on."""
        self._to_assign += restorations

    def assign(self) -> None:
        """Begin to read what was collected for it."""
        if not self._to_assign:
            return
        restorations = self._reader.restorations
        wanted = {
            each.source: each.position
            for each in self._to_assign
            if each.source not in self._assigned and restorations.get(each.source) is each
        }
        if wanted:
            self._consumer.incremental_assign(
                [TopicPartition(source.topic, source.partition, position) for source, position in wanted.items()]
            )
            self._assigned.update(wanted)
        self._to_assign.clear()

    def unassign(self, restorations: Iterable[Restoration]) -> None:
        """Read these no more."""
        sources = [each.source for each in restorations if each.source in self._assigned]
        if sources:
            self._assigned.difference_update(sources)
            self._consumer.incremental_unassign([TopicPartition(each.topic, each.partition) for each in sources])

    def renew(self) -> None:
        """Read with a new client, each changelog on from where it was."""
        self._consumer.renew()
        self._assigned.clear()
        self._to_assign = [
            each
            for held in self._held.values()
            for each in held.changelogs
            if self._reader.restorations.get(each.source) is each and (each.following or not each.done)
        ]
        self.assign()

    def forget(self) -> None:
        """Do not begin to read what was collected for it."""
        self._to_assign.clear()

    def look_at_ends(self) -> None:
        """Ask, now and then, where the changelogs of copies end. Cheap when it is not time."""
        self._ends.poll(self._listeners)

    def ends_seen(self, held: HeldTask) -> None:
        """Take the ends of a copy's changelogs that the consumer knows."""
        for each in held.changelogs:
            if not each.bounded:
                source = TopicPartition(each.source.topic, each.source.partition)
                _, high = self._consumer.get_watermark_offsets(source, cached=True)
                each.end = max(each.end, high)

    def _listeners(self) -> dict[Partition, EndOffsetCallback]:
        def hears(copy: Restoration) -> EndOffsetCallback:
            def heard(asked: Moment, end: int) -> None:
                copy.end = max(copy.end, end)
                copy.completeness.record_end(asked, end, copy.position)
                self._reader.stamp(copy)

            return heard

        return {
            each.source: hears(each)
            for held in self._held.values()
            if held.role is not Role.ACTIVE
            for each in held.changelogs
            if not each.bounded
        }
