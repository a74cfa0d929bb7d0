"""Where tasks begin to read: at their committed offsets, or where the reset policy says."""

from __future__ import annotations

import logging

from millpond.errors import TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.ownership.lookups import TaskLookup
from millpond.runtime.ownership.takeover import claimed
from millpond.runtime.processing.environment import Environment
from millpond.runtime.topics.plan import Plan

__all__ = ("StartPositions", "within_range")

log: logging.Logger = logging.getLogger(__name__)


class StartPositions:
    """The positions of an application's tasks.

    Args:
        plan: the tasks and their inputs.
        config: the worker's.
        environment: knows the real names of topics.
        topology: the hash of the worker's topology.
    """

    def __init__(self, plan: Plan, config: Config, environment: Environment, topology: str) -> None:
        self._plan = plan
        self._config = config
        self._environment = environment
        self._topology = topology

    def adopt(self, plan: Plan) -> None:
        """Use a plan with more inputs, or with more tasks."""
        self._plan = plan

    def position(self, partition: Partition, where: TaskLookup) -> int:
        """Return the committed offset of an input; for one that was never committed, the offset of its reset policy."""
        offset = where.committed[partition].offset
        return self.start_of(partition, where.ranges[partition]) if offset is None else offset

    def start_of(self, partition: Partition, found: tuple[int, int]) -> int:
        """Return where a partition that was never committed begins.

        Raises:
            TopicError: the reset policy is none.
        """
        first, end = found
        reset = self._reset_of(partition.topic)
        if reset == "none":
            raise TopicError(
                f"{partition} has no committed offset and 'auto.offset.reset' is none: set it to earliest or latest."
            )
        return end if reset == "latest" else first

    def claimed(self, where: TaskLookup, owner: str, epoch: int) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the offsets of a task as they are, with another owner or epoch in their metadata."""
        return claimed(
            where.committed, lambda each: self.start_of(each, where.ranges[each]), owner, epoch, self._topology
        )

    def _reset_of(self, topic: str) -> str:
        for subtopology in self._plan.subtopologies:
            for source in subtopology.sources:
                if topic in map(self._environment.real_topic, source.topics):
                    return source.reset or self._default_reset(topic)
        return self._config.auto_offset_reset

    def _default_reset(self, topic: str) -> str:
        # Internal topics are read from their beginning whatever the policy: their records are this application's.
        return "earliest" if topic in self._plan.repartition else self._config.auto_offset_reset


def within_range(partition: Partition, offset: int, found: tuple[int, int]) -> int:
    """Return the offset to go on at: the committed one, unless retention was faster.

    Raises:
        TopicError: the topic ends before the offset.
    """
    first, end = found
    if offset > end:
        raise TopicError(
            f"the committed offset of {partition} is {offset}, but the topic ends at {end}: it was deleted and made "
            f"anew. Run 'millpond reset' to begin with the new topic, or restore the old one."
        )
    if offset < first:
        log.error(
            "%s: records %d to %d were deleted by the topic's retention before this application processed them; "
            "going on at %d", partition, offset, first - 1, first,
        )  # fmt: skip
    return max(offset, first)
