"""The positions at which tasks start to read: committed offsets, or those of the reset policy."""

from __future__ import annotations

import logging
from datetime import timedelta

from millpond.errors import TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.ownership.lookups import TaskLookup
from millpond.runtime.ownership.takeover import claimed
from millpond.runtime.processing.environment import Environment
from millpond.runtime.topics.plan import Plan
from millpond.runtime.topics.recreated import choices_of, recreated, recreated_while_running, shorter
from millpond.topology.settings.resets import age_of

__all__ = ("StartPositions",)

log: logging.Logger = logging.getLogger(__name__)


class StartPositions:
    """The start positions of an application's inputs.

    Args:
        plan: the tasks and their inputs.
        config: the worker's configuration.
        environment: maps topics of the topology to their names in Kafka.
        topology: the hash of the worker's topology.
    """

    def __init__(self, plan: Plan, config: Config, environment: Environment, topology: str) -> None:
        self._plan = plan
        self._config = config
        self._environment = environment
        self._topology = topology

    def adopt(self, plan: Plan) -> None:
        """Use a plan with more inputs or tasks."""
        self._plan = plan

    def check(self, lookup: TaskLookup) -> None:
        """Check that the committed offsets of a task are in the present topics of its inputs.

        Raises:
            TopicError: an input was deleted and created again, or has lost records.
        """
        for partition, committed in lookup.committed.items():
            digest, offset, end = lookup.inputs[partition.topic], committed.offset, lookup.ranges[partition][1]
            if offset is None:
                continue
            if committed.of_other_topic(digest):
                raise recreated(partition, offset, self._choices())
            if offset > end:
                if committed.of_same_topic(digest):
                    raise shorter(partition, offset, end, self._choices())
                raise TopicError(
                    f"the committed offset of {partition} is {offset}, but the topic ends at {end}: it was deleted and "
                    f"created again. {self._choices()}"
                )

    def recreated(self, topic: str) -> TopicError:
        """Return the error for a topic that was deleted and created again while the worker ran."""
        return recreated_while_running(topic, self._plan, self._choices())

    def _choices(self) -> str:
        return choices_of(self._config, self._plan.partitions.keys() - set(self._plan.repartition))

    def resume(self, partition: Partition, lookup: TaskLookup) -> int:
        """Return the offset at which to continue: the committed one, unless retention has deleted its record."""
        offset, first = self.position(partition, lookup), lookup.ranges[partition][0]
        if offset < first:
            log.error(
                "%s: records %d to %d were deleted by the topic's retention before this application processed them; "
                "continuing at offset %d", partition, offset, first - 1, first,
            )  # fmt: skip
        return max(offset, first)

    def position(self, partition: Partition, lookup: TaskLookup) -> int:
        """Return the committed offset of an input, or else the offset of its reset policy."""
        offset = lookup.committed[partition].offset
        return self._start_of(partition, lookup) if offset is None else offset

    def start_of(self, partition: Partition, offsets: tuple[int, int], by_age: int | None = None) -> int:
        """Return the start position of a partition without a committed offset.

        Args:
            partition: an input.
            offsets: its first offset and its end.
            by_age: the offset of the first record that is not older than `age_of` says; None without an age.

        Raises:
            TopicError: the reset policy is none.
        """
        first, end = offsets
        own, reset = self._reset_of(partition.topic)
        if reset == "none":
            where, cure = ("reset= of its source", "write") if own else ("'auto.offset.reset'", "set it to")
            raise TopicError(f"{partition} has no committed offset and {where} is none: {cure} earliest or latest.")
        if by_age is not None:
            return by_age
        return end if reset == "latest" else first

    def from_beginning(self, topic: str) -> bool:
        """Return whether a topic without committed offsets is read from its first record, whatever its age.

        Raises:
            TopicError: the reset policy is none.
        """
        partition = Partition(topic, 0)
        return self.age_of(partition) is None and self.start_of(partition, (0, 1)) == 0

    def age_of(self, partition: Partition) -> timedelta | None:
        """Return how old the first record may be that is read without a committed offset; None for any age."""
        return age_of(self._reset_of(partition.topic)[1])

    def _start_of(self, partition: Partition, lookup: TaskLookup) -> int:
        return self.start_of(partition, lookup.ranges[partition], lookup.by_age.get(partition))

    def claimed(self, lookup: TaskLookup, owner: str, epoch: int) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the unchanged offsets of a task, with a new owner or epoch in their metadata."""
        return claimed(lookup.committed, lambda each: self._start_of(each, lookup), owner, epoch, self._topology)

    def _reset_of(self, topic: str) -> tuple[bool, str | timedelta]:
        """Return whether a topic's source has a reset policy of its own, and the policy."""
        for subtopology in self._plan.subtopologies:
            for source in subtopology.sources:
                if topic in map(self._environment.real_topic, source.topics):
                    own = source.reset is not None
                    return own, source.reset if source.reset is not None else self._default_reset(topic)
        return False, self._config.auto_offset_reset

    def _default_reset(self, topic: str) -> str:
        # Internal topics are always read from the beginning: all their records belong to this application.
        return "earliest" if topic in self._plan.repartition else self._config.auto_offset_reset
