"""Keeps a worker without transactions from writing while its tasks may be another's.

Under exactly_once the broker fences a worker that lost its tasks. Under at_least_once nothing does: a process that was
frozen, or that the coordinator does not hear, would write beside the worker that took over. So once the coordinator may have
given its tasks away, a worker writes only for as long as Kafka has just named it as their owner.

How long the worker's own loop takes says nothing here: heartbeats go on beside a record that is processed for minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millpond.protocol import Brokers, TaskState
from millpond.topology import TaskId

from .events import OwnersRead
from .instructions import GoBack, Instruction, LookUp
from .lifecycle import TaskLifecycle

__all__ = ("OwnershipCheck", "SessionSeen")

#: How long the worker relies on one look-up while the coordinator is silent, in seconds.
_RELIED_ON_S = 1.0
_STARTED = (TaskState.RESTORING, TaskState.RUNNING)


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """What a worker knows of its session at the coordinator, and of the brokers, at one moment."""

    now: float
    """Seconds of a clock that does not stop while the machine sleeps."""
    lapsed: bool
    """Whether the session may have timed out by now."""
    lapses: int
    """How often it may have timed out before the coordinator answered again."""
    brokers: Brokers


class OwnershipCheck:
    """Decides whether the worker may write, and looks up its tasks in Kafka where that is in doubt. No I/O.

    Args:
        lifecycle: the tasks; it is only read.
        lapses: of the session at the start.
    """

    def __init__(self, lifecycle: TaskLifecycle, lapses: int) -> None:
        self._lifecycle = lifecycle
        self._checked_lapses = lapses
        self._doubtful = self._stays_doubtful = False
        self._number = 0
        self._unchecked: set[TaskId] = set()
        self._asked_lapses = 0
        self._asked_at = 0.0
        self._owned_at: float | None = None
        self._owned_tasks: frozenset[TaskId] = frozenset()

    def may_write(self, seen: SessionSeen) -> tuple[bool, list[Instruction]]:
        """Return whether the tasks that run are this worker's, and the look-up that finds out when that is not known."""
        if seen.brokers is Brokers.LOST:
            # A lookup that was sent before says nothing of what others did meanwhile.
            self._doubtful = self._stays_doubtful = True
        if not seen.lapsed and seen.lapses == self._checked_lapses and not self._doubtful:
            return True, []
        if self._number or seen.brokers is not Brokers.ANSWERING:
            return False, []
        started = self._started()
        relied_on = self._owned_at is not None and seen.now - self._owned_at < _RELIED_ON_S
        if relied_on and started <= self._owned_tasks:
            return True, []
        instructions = list(self._look_up(seen, started))
        return not self._number, instructions

    def _started(self) -> set[TaskId]:
        return {each.task for each in self._lifecycle.tasks.values() if each.active and each.state in _STARTED}

    def _look_up(self, seen: SessionSeen, started: set[TaskId]) -> Iterable[Instruction]:
        self._asked_at, self._asked_lapses, self._stays_doubtful = seen.now, seen.lapses, False
        self._owned_tasks = frozenset(started)
        if any(each.active and each.state is TaskState.ACQUIRING for each in self._lifecycle.tasks.values()):
            # A lookup that was sent before may still start a task.
            self._asked_lapses, self._stays_doubtful = self._checked_lapses, self._doubtful
        if started:
            self._unchecked = started
            self._number = self._lifecycle.next_number()
            yield LookUp(self._number, tuple(started), committed=True)
        else:
            self._owned()

    def awaits(self, number: int) -> bool:
        """Whether the look-up of this number is this check's."""
        return bool(self._number) and number == self._number

    def owners_read(self, event: OwnersRead) -> tuple[TaskId | None, list[Instruction]]:
        """Take in an answer that it awaits; returns a task that is not this worker's any more, None when all are."""
        for task, ownership in event.tasks.items():
            held = self._lifecycle.tasks.get(task)
            started = held is not None and held.active and held.state in _STARTED
            # Each change of owner raises the epoch, also one that leads back here. Offsets that brokers forgot name nobody.
            if held is not None and started and ownership.owners and held.epoch != ownership.epoch:
                return task, [GoBack()]
        self._unchecked.difference_update(event.tasks)
        if not self._unchecked:
            self._number = 0
            self._owned()
        return None, []

    def _owned(self) -> None:
        self._owned_at, self._checked_lapses = self._asked_at, self._asked_lapses
        self._doubtful = self._stays_doubtful

    def forget(self) -> None:
        """The worker goes back: what is being looked up says nothing of the tasks that it resumes."""
        self._number = 0
        self._unchecked.clear()
        self._owned_at = None
