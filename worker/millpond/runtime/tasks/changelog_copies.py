"""The changelogs that a worker reads: for active tasks that restore their stores, and for copies."""

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

#: Time between two requests for the end offsets of copies' changelogs. The age of an answer counts from its request.
_END_OFFSETS_INTERVAL_S = 0.25
#: Time between two requests for the committed offsets of those that are inputs.
_COMMITTED_OFFSETS_INTERVAL_S = 0.5


class ChangelogCopies:
    """The changelogs that are assigned to a consumer, to be restored or followed.

    Args:
        consumer: reads changelogs, and nothing else.
        reader: applies the records.
        ends: requests the end offsets of changelogs from brokers.
        committed: requests the committed offsets of those that are inputs, where copies end.
        held: the tasks of the worker.
    """

    def __init__(
        self,
        consumer: ReplaceableConsumer,
        reader: ChangelogReader,
        ends: EndOffsetSource,
        committed: EndOffsetSource,
        held: Mapping[TaskId, HeldTask],
    ) -> None:
        self._consumer = consumer
        self._reader = reader
        self._held = held
        self._assigned: set[Partition] = set()
        self._to_assign: list[Restoration] = []
        self._ends = EndOffsets(ends, _END_OFFSETS_INTERVAL_S)
        self._bounds = EndOffsets(committed, _COMMITTED_OFFSETS_INTERVAL_S)

    def read(self, restorations: Iterable[Restoration]) -> None:
        """Collect changelogs to read; `assign` starts to read them."""
        self._to_assign += restorations

    def assign(self) -> None:
        """Start to read the changelogs that were collected by `read`."""
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
        """Stop reading these changelogs."""
        sources = [each.source for each in restorations if each.source in self._assigned]
        if sources:
            self._assigned.difference_update(sources)
            self._consumer.incremental_unassign([TopicPartition(each.topic, each.partition) for each in sources])

    def renew(self) -> None:
        """Replace the consumer; each changelog continues at its position."""
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
        """Drop the changelogs that were collected by `read`."""
        self._to_assign.clear()

    def look_at_ends(self) -> None:
        """Request the end offsets of copies' changelogs when they are due, and the bounds of those that are inputs."""
        self._ends.poll(self._callbacks)
        self._bounds.poll(self._bound_callbacks)
        self.assign()

    def update_ends(self, held: HeldTask) -> None:
        """Update the end offsets of a copy's changelogs from the consumer's cache."""
        for each in held.changelogs:
            if not each.bounded:
                source = TopicPartition(each.source.topic, each.source.partition)
                _, high = self._consumer.get_watermark_offsets(source, cached=True)
                each.end = max(each.end, high)

    def _callbacks(self) -> dict[Partition, EndOffsetCallback]:
        def callback_of(copy: Restoration) -> EndOffsetCallback:
            def on_end(asked: Moment, end: int) -> None:
                copy.end = max(copy.end, end)
                copy.completeness.record_end(asked, end, copy.position)
                self._reader.stamp(copy)

            return on_end

        return {each.source: callback_of(each) for each in self._of_copies() if not each.bounded}

    def _bound_callbacks(self) -> dict[Partition, EndOffsetCallback]:
        """Return callbacks that let copies of input topics follow the commits of their active tasks."""

        def callback_of(copy: Restoration) -> EndOffsetCallback:
            def on_committed(asked: Moment, committed: int) -> None:
                at_bound = copy.position >= copy.end
                if committed > copy.end:
                    copy.end = committed
                    if at_bound:
                        # Records beyond the former bound were read and skipped, so they are read again.
                        self.unassign([copy])
                        self.read([copy])
                elif at_bound:
                    self.unassign([copy])
                copy.completeness.record_end(asked, committed, copy.position)
                self._reader.stamp(copy)

            return on_committed

        return {each.source: callback_of(each) for each in self._of_copies() if each.bounded}

    def _of_copies(self) -> Iterable[Restoration]:
        return (each for held in self._held.values() if held.role is not Role.ACTIVE for each in held.changelogs)
