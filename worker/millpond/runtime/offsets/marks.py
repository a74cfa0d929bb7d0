"""What Kafka must not fall behind when it tells committed offsets (docs/decisions/0039-offsets-of-the-past.md).

A broker that takes a group over reads the group's offsets from its log, and refuses questions meanwhile. When it takes the
group over twice in a row, as after its own crash, Kafka 4.1 may end the refusals too early, and answer with offsets and
owners of a minute before. Who goes on from there processes everything since a second time. So what is known to be committed
is remembered, and an answer below it is asked for again.
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

log = logging.getLogger(__name__)

#: After so long the answer is believed: somebody set the offsets back by hand, or the broker forgot them.
_DOUBTED_S = 30.0
#: Who has not asked for so long has given up: the next one who asks waits the whole time.
_GIVEN_UP_S = 60.0


def mark_of(committed: Mapping[Partition, CommittedOffset]) -> Mark:
    """How far a task is committed, from all of its inputs."""
    return Mark(epoch_of(committed), sum(each.offset or 0 for each in committed.values()))


class _Doubt(NamedTuple):
    """An answer that is asked for again, in monotonic seconds."""

    since: float
    last: float
    """When the same was answered last."""


class Marks:
    """The latest known commits of tasks. The worker's loop tells them; any thread may ask.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[TaskId, tuple[frozenset[Partition], Mark]] = {}
        self._doubted: dict[TaskId, _Doubt] = {}
        self._disbelieved: dict[TaskId, Mark] = {}

    def tell(self, task: TaskId, inputs: Collection[Partition], mark: Mark) -> None:
        """A task was committed so far.

        Args:
            task: the task.
            inputs: all that it has.
            mark: how far.
        """
        if mark == self._disbelieved.get(task):
            return  # the coordinator goes on to tell it
        known = self._known.get(task)
        if known is None or known[1] < mark:
            self._known[task] = (frozenset(inputs), mark)

    def outdated(self, found: Mapping[Partition, CommittedOffset]) -> bool:
        """Whether an answer of Kafka's is out of date. The same one is not doubted for longer than half a minute."""
        doubted = False
        for task, (inputs, mark) in list(self._known.items()):
            if not inputs <= found.keys():
                continue
            if mark_of({each: found[each] for each in inputs}) >= mark:
                self._doubted.pop(task, None)
            elif self._doubts(task, mark):
                doubted = True
        return doubted

    def _doubts(self, task: TaskId, mark: Mark) -> bool:
        now = self._now()
        doubt = self._doubted.get(task)
        if doubt is None or now - doubt.last > _GIVEN_UP_S:
            self._doubted[task] = _Doubt(now, now)
            log.warning(
                "Kafka tells offsets of task %s that are older than what was committed before (epoch %d, %d in all): a broker "
                "that was restarted has not read them all yet, or somebody set them back. Asking again for %g s.",
                task, mark.epoch, mark.offset, _DOUBTED_S,
            )  # fmt: skip
            return True
        if now - doubt.since < _DOUBTED_S:
            self._doubted[task] = doubt._replace(last=now)
            return True
        log.warning("Kafka still tells older offsets of task %s: they were set back, and count from now on.", task)
        self._disbelieved[task] = mark
        self._known.pop(task, None)
        self._doubted.pop(task, None)
        return False
