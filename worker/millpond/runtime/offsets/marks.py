"""Marks: known commits of tasks, to detect outdated committed offsets (docs/decisions/0039-offsets-of-the-past.md).

A broker that becomes a group's coordinator loads the group's offsets from its log, and rejects requests until it is
done. If it becomes the coordinator twice in a row, for example after a crash, Kafka 4.1 may stop rejecting too early,
and return offsets and owners from a minute ago. A worker that continued there would process all records since then
again. So the worker remembers the known commits, and asks again when an answer is older than they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from millpond.protocol import Mark
from millpond.topology import TaskId

from .metadata import CommittedOffset, Partition, epoch_of

__all__ = ("Marks", "mark_of")

log: logging.Logger = logging.getLogger(__name__)

#: The time after which an outdated answer is accepted: a person reset the offsets, or the broker lost them.
_ACCEPTED_AFTER_S = 30.0
#: After a pause of so long between two requests, an outdated answer is rejected for the full time again.
_FORGOTTEN_AFTER_S = 60.0


def mark_of(committed: Mapping[Partition, CommittedOffset]) -> Mark:
    """Return a task's mark: its owner's epoch, and the sum of the committed offsets of all its inputs."""
    return Mark(epoch_of(committed), sum(each.offset or 0 for each in committed.values()))


class _Rejection(NamedTuple):
    """An outdated answer that is being rejected, with times in monotonic seconds."""

    since: float
    last: float
    """Time of the last outdated answer."""


class Marks:
    """The newest known commits of tasks. The worker's loop records them; `outdated` may be called from any thread.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[TaskId, tuple[frozenset[Partition], Mark]] = {}
        self._rejected: dict[TaskId, _Rejection] = {}
        self._discarded: dict[TaskId, Mark] = {}

    def record(self, task: TaskId, inputs: Collection[Partition], mark: Mark) -> None:
        """Record a known commit of a task.

        Args:
            task: the task.
            inputs: all of its input partitions.
            mark: the commit.
        """
        if mark == self._discarded.get(task):
            return  # the coordinator keeps sending it
        known = self._known.get(task)
        if known is None or known[1] < mark:
            self._known[task] = (frozenset(inputs), mark)

    def outdated(self, found: Mapping[Partition, CommittedOffset]) -> bool:
        """Return whether committed offsets from Kafka are outdated: for a task, for 30 s at most."""
        outdated = False
        for task, (inputs, mark) in list(self._known.items()):
            if not inputs <= found.keys():
                continue
            if mark_of({each: found[each] for each in inputs}) >= mark:
                self._rejected.pop(task, None)
            elif self._rejects(task, mark):
                outdated = True
        return outdated

    def _rejects(self, task: TaskId, mark: Mark) -> bool:
        """Return whether to reject offsets of `task` that are older than `mark`; after 30 s they are accepted."""
        now = self._now()
        rejection = self._rejected.get(task)
        if rejection is None or now - rejection.last > _FORGOTTEN_AFTER_S:
            self._rejected[task] = _Rejection(now, now)
            log.warning(
                "task %s: Kafka returned committed offsets that are older than the last known commit (epoch %d, sum of "
                "offsets %d). Either a restarted broker has not loaded all offsets yet, or a person reset them. "
                "Reading them again for up to %g s.",
                task, mark.epoch, mark.offset, _ACCEPTED_AFTER_S,
            )  # fmt: skip
            return True
        if now - rejection.since < _ACCEPTED_AFTER_S:
            self._rejected[task] = rejection._replace(last=now)
            return True
        log.warning("task %s: Kafka still returns the older offsets, so they were reset; continuing from them", task)
        self._discarded[task] = mark
        self._known.pop(task, None)
        self._rejected.pop(task, None)
        return False
