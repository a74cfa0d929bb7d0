"""Marks: known commits of tasks, to detect outdated committed offsets (docs/decisions/0039-offsets-of-the-past.md).

A broker that becomes a group's coordinator loads the group's offsets from its log, and rejects requests until it is
done. If it becomes the coordinator twice in a row, for example after a crash, Kafka 4.1 may stop rejecting too early,
and return offsets and owners from a minute ago. A worker that continued there would process all records since then
again. So the worker remembers the known commits, and asks again when an answer is older than they are.

If the answer stays older, brokers have lost commits, as in an unclean leader election of `__consumer_offsets`, or a
person has reset the offsets. Only millpond's own commits name an owner, so metadata without one tells the second case.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from millpond.errors import OffsetsLost
from millpond.protocol import Mark
from millpond.topology import TaskId

from .metadata import CommittedOffset, Partition, epoch_of

__all__ = ("Marks", "mark_of")

log: logging.Logger = logging.getLogger(__name__)

#: The time after which an outdated answer is believed: a broker loads its offsets in less.
_ACCEPTED_AFTER_S = 30.0
#: After a pause of more than this between two answers, an outdated one is rejected for the full time again: the broker
#: may have crashed once more meanwhile, and load its log anew. Requests are repeated after 20 s at most.
_FORGOTTEN_AFTER_S = 30.0


def mark_of(committed: Mapping[Partition, CommittedOffset]) -> Mark:
    """Return a task's mark: its owner's epoch, and the sum of the committed offsets of all its inputs."""
    return Mark(epoch_of(committed), sum(each.offset or 0 for each in committed.values()))


class _Known(NamedTuple):
    """The last known commit of a task."""

    inputs: frozenset[Partition]
    mark: Mark
    offsets: Mapping[Partition, int]
    """The offset of each input; of a commit that the coordinator told, only a single input's is known."""


class _Rejection(NamedTuple):
    """An outdated answer that is being rejected, with times in monotonic seconds."""

    since: float
    last: float
    """Time of the last outdated answer."""
    found: Mapping[Partition, CommittedOffset]
    """That answer."""


class Marks:
    """The newest known commits of tasks. The worker's loop records them; `outdated` may be called from any thread.

    Args:
        now: monotonic seconds.
        group: the consumer group of an application with exactly_once; empty with at_least_once, where records may be
            processed twice, and where nothing keeps a worker that was paused from committing older offsets.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, group: str = "") -> None:
        self._now = now
        self._group = group
        self._known: dict[TaskId, _Known] = {}
        self._rejected: dict[TaskId, _Rejection] = {}
        self._discarded: dict[TaskId, Mark] = {}

    def record(
        self, task: TaskId, inputs: Collection[Partition], mark: Mark, offsets: Mapping[Partition, int] | None = None
    ) -> None:
        """Record a known commit of a task.

        Args:
            task: the task.
            inputs: all of its input partitions.
            mark: the commit.
            offsets: its offsets, if they are known one by one.
        """
        if mark == self._discarded.get(task):
            return  # the coordinator keeps sending it
        known = self._known.get(task)
        if known is None or known.mark < mark:
            if offsets is None:
                offsets = dict.fromkeys(inputs, mark.offset) if len(inputs) == 1 else {}
            self._known[task] = _Known(frozenset(inputs), mark, offsets)

    def behind(self, found: Mapping[Partition, CommittedOffset]) -> bool:
        """Return whether committed offsets are older than a known commit of a task; nothing is concluded from it."""
        return any(
            known.inputs <= found.keys() and mark_of({each: found[each] for each in known.inputs}) < known.mark
            for known in list(self._known.values())
        )

    @property
    def rejecting(self) -> bool:
        """Whether an outdated answer is being rejected that may turn out to be all that is left of lost commits."""
        now = self._now()
        return bool(self._group) and any(
            now - each.last <= _FORGOTTEN_AFTER_S for each in list(self._rejected.values())
        )

    def outdated(self, found: Mapping[Partition, CommittedOffset]) -> bool:
        """Return whether committed offsets from Kafka are outdated: for a task, for 30 s at most.

        Raises:
            OffsetsLost: they still are, and are those of an earlier commit: brokers have lost the later ones.
        """
        outdated = False
        for task, known in list(self._known.items()):
            if not known.inputs <= found.keys():
                continue
            of_task = {each: found[each] for each in known.inputs}
            if mark_of(of_task) >= known.mark:
                self._rejected.pop(task, None)
            elif self._rejects(task, known, of_task):
                outdated = True
        return outdated

    def _rejects(self, task: TaskId, known: _Known, found: Mapping[Partition, CommittedOffset]) -> bool:
        """Return whether to reject offsets of `task` that are older than the known ones; after 30 s they are accepted.

        Raises:
            OffsetsLost: brokers have lost commits.
        """
        mark = known.mark
        now = self._now()
        rejection = self._rejected.get(task)
        if rejection is None or now - rejection.last > _FORGOTTEN_AFTER_S:
            self._rejected[task] = _Rejection(now, now, found)
            log.warning(
                "task %s: Kafka returned committed offsets that are older than the last known commit (epoch %d, sum of "
                "offsets %d). Either a restarted broker has not loaded all offsets yet, or a person reset them. "
                "Reading them again for up to %g s.",
                task, mark.epoch, mark.offset, _ACCEPTED_AFTER_S,
            )  # fmt: skip
            return True
        if now - rejection.since < _ACCEPTED_AFTER_S:
            self._rejected[task] = rejection._replace(last=now, found=found)
            return True
        if self._group and not _reset(known, found):
            raise OffsetsLost(_lost(self._group, {**self._gone_back(now), task: (known, found)}))
        log.warning("task %s: Kafka still returns the older offsets, so they were reset; continuing from them", task)
        self._discarded[task] = mark
        self._known.pop(task, None)
        self._rejected.pop(task, None)
        return False

    def _gone_back(self, now: float) -> dict[TaskId, tuple[_Known, Mapping[Partition, CommittedOffset]]]:
        """Return what is known and what was found of tasks whose offsets are too old and were not reset."""
        return {
            task: (known, each.found)
            for task, each in sorted(self._rejected.items())
            if now - each.last <= _FORGOTTEN_AFTER_S
            and (known := self._known.get(task)) is not None
            and not _reset(known, each.found)
        }


def _reset(known: _Known, found: Mapping[Partition, CommittedOffset]) -> bool:
    """Return whether a person has reset or deleted committed offsets of a task, be it those of one input only.

    An input without an offset may have been added; it was deleted if it was known.
    """
    return any(
        each.metadata.owner is None and (each.offset is not None or partition in known.offsets)
        for partition, each in found.items()
    ) or all(each.metadata.owner is None for each in found.values())


def _lost(group: str, tasks: Mapping[TaskId, tuple[_Known, Mapping[Partition, CommittedOffset]]]) -> str:
    """Return the text about commits of tasks that brokers have lost, with the choices that a person has."""
    told: list[str] = []
    after: list[str] = []
    command = f"kafka-consumer-groups.sh --group {group} --reset-offsets"
    own = f"'{command}' with the offsets of your own records"
    for task, (known, found) in sorted(tasks.items()):
        behind = {
            each: (found[each].offset or 0, offset)
            for each, offset in sorted(known.offsets.items())
            if (found[each].offset or 0) < offset
        }
        told.extend(f"{each} at {read} instead of {offset}" for each, (read, offset) in behind.items())
        after.extend(
            f"'{command} --topic {each.topic}:{each.partition} --to-offset {offset} --execute'"
            for each, (_, offset) in behind.items()
        )
        if not behind:
            read = mark_of(found)
            of_task = f"task {task} with " if len(tasks) > 1 else ""
            told.append(
                f"{of_task}an owner of epoch {read.epoch} and offsets whose sum is {read.offset}, instead of epoch "
                f"{known.mark.epoch} and {known.mark.offset}"
            )
            after += [] if own in after else [own]
    names = ", ".join(map(str, sorted(tasks)))
    return (
        f"task{'s' if len(tasks) > 1 else ''} {names}: the committed offsets of group '{group}' have gone back: "
        f"{', '.join(told)}. Brokers have lost the commits in between, as in an unclean leader election of "
        f"__consumer_offsets. The results of these records are there, so none of them is processed a second time "
        f"before you choose. Stop all workers, and run one of: {' and '.join(after)} continues behind the last known "
        f"commit; '{command} --all-topics --to-current --execute' processes the records in between again; 'millpond "
        f"reset' begins anew with empty state."
    )
