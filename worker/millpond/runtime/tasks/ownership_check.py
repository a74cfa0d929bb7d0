"""Stops a worker without transactions from writing while another worker may own its tasks.

Under exactly_once the broker fences a worker whose tasks were taken over. Under at_least_once nothing does: a process
that was frozen, or that cannot reach the coordinator, would write at the same time as the next owner. So once the
coordinator may have assigned its tasks to others, a worker writes only while Kafka has just confirmed that it owns
them.

The duration of a turn of the loop does not matter here: heartbeats continue while one record is processed for minutes.
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

#: How long one lookup is valid while the coordinator is silent, in seconds.
_LOOKUP_VALID_S = 1.0
_STARTED = (TaskState.RESTORING, TaskState.RUNNING)


@dataclass(frozen=True, slots=True)
class SessionSeen:
    """The state of a worker's session at the coordinator, and of its brokers, at one moment."""

    now: float
    """The time in seconds, of a clock that continues while the machine sleeps."""
    lapsed: bool
    """Whether the session may have timed out by now, or the worker may be cut off from some brokers."""
    lapses: int
    """How often that was so and has ended."""
    brokers: Brokers
    """Whether brokers answer this worker."""


class OwnershipCheck:
    """The decision whether the worker may write, with a request for a lookup of its tasks in case of doubt. No I/O.

    Args:
        lifecycle: the tasks; it is not changed.
        lapses: the number of lapses of the session so far.
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
        """Return whether this worker certainly owns its running tasks, and the lookup to send if that is not known."""
        if seen.brokers is Brokers.LOST:
            # A lookup that was sent before this may miss a take-over that happened since.
            self._doubtful = self._stays_doubtful = True
        if not seen.lapsed and seen.lapses == self._checked_lapses and not self._doubtful:
            return True, []
        if self._number or seen.brokers is not Brokers.ANSWERING:
            return False, []
        started = self._started()
        valid = self._owned_at is not None and seen.now - self._owned_at < _LOOKUP_VALID_S
        if valid and started <= self._owned_tasks:
            return True, []
        instructions = list(self._look_up(seen, started))
        return not self._number, instructions

    def _started(self) -> set[TaskId]:
        return {each.task for each in self._lifecycle.tasks.values() if each.active and each.state in _STARTED}

    def _look_up(self, seen: SessionSeen, started: set[TaskId]) -> Iterable[Instruction]:
        self._asked_at, self._asked_lapses, self._stays_doubtful = seen.now, seen.lapses, False
        self._owned_tasks = frozenset(started)
        if any(each.active and each.state is TaskState.ACQUIRING for each in self._lifecycle.tasks.values()):
            # The answer to an earlier lookup may still start this task, so the doubt stays.
            self._asked_lapses, self._stays_doubtful = self._checked_lapses, self._doubtful
        if started:
            self._unchecked = started
            self._number = self._lifecycle.next_number()
            yield LookUp(self._number, tuple(started), committed=True)
        else:
            self._owned()

    def awaits(self, number: int) -> bool:
        """Return whether the lookup of this number belongs to this check."""
        return bool(self._number) and number == self._number

    def owners_read(self, event: OwnersRead) -> tuple[TaskId | None, list[Instruction]]:
        """Handle the answer to the check's lookup.

        Returns:
            A task that was taken over, or None if this worker still owns all tasks; and the instructions to carry out.
        """
        for task, ownership in event.tasks.items():
            held = self._lifecycle.tasks.get(task)
            started = held is not None and held.active and held.state in _STARTED
            # Each change of owner raises the epoch, also one that leads back here. Offsets that expired name no owner.
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
        """Drop the lookup in flight, since the worker goes back and resumes its tasks from a newer lookup."""
        self._number = 0
        self._unchecked.clear()
        self._owned_at = None
