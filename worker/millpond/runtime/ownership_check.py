"""Keeps a worker without transactions from writing while its tasks may be another's.

Under exactly_once the broker fences a worker that lost its tasks. Under at_least_once nothing does: a process that was
frozen, or that the coordinator does not hear, would write beside the worker that took over. So once the coordinator may have
given its tasks away, a worker writes only for as long as Kafka has just named it as their owner.

How long the worker's own loop takes says nothing here: heartbeats go on beside a record that is processed for minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.protocol import Role, TaskState, clock
from millpond.topology import TaskId

from .broker_contact import BrokerContact
from .ownership import epoch_of
from .registrar import LookedUp, Whereabouts
from .task_manager import TaskManager

if TYPE_CHECKING:
    from millpond.protocol.session import Session

__all__ = ("OwnershipCheck",)

#: How long the worker relies on one look-up while the coordinator is silent, in seconds.
_RELIED_ON_S = 1.0
_STARTED = (TaskState.RESTORING, TaskState.RUNNING)


class OwnershipCheck:
    """Looks up the worker's tasks in Kafka when its session may have timed out. Belongs to the worker's loop.

    Args:
        manager: has the tasks.
        session: of this worker at the coordinator.
        contact: knows whether brokers answer; a worker that lost them may have lost its tasks with them.
    """

    def __init__(self, manager: TaskManager, session: Session, contact: BrokerContact) -> None:
        self._manager = manager
        self._session = session
        self._checked_lapses = session.lapses
        self._contact = contact
        self._doubtful = self._stays_doubtful = False
        self._number = 0
        self._unchecked: set[TaskId] = set()
        self._asked_lapses = 0
        self._asked_at = 0.0
        self._owned_at: float | None = None

    def may_write(self) -> bool:
        """Whether the tasks that run are this worker's; False while that is being looked up in Kafka."""
        session = self._session
        self._doubtful = self._doubtful or self._contact.lost
        # In this order: an answer counts the lapse before it ends it.
        if not session.lapsed and session.lapses == self._checked_lapses and not self._doubtful:
            return True
        if self._number or self._contact.silent_s:
            return False
        if self._owned_at is not None and clock.boottime() - self._owned_at < _RELIED_ON_S:
            return True
        self._look_up()
        return not self._number

    def _look_up(self) -> None:
        held = self._manager.held.values()
        active = [each for each in held if each.role is Role.ACTIVE]
        started = {each.id for each in active if each.state in _STARTED}
        self._asked_at, self._asked_lapses, self._stays_doubtful = clock.boottime(), self._session.lapses, False
        if any(each.state is TaskState.ACQUIRING for each in active):
            # A look-up that began before may yet start a task.
            self._asked_lapses, self._stays_doubtful = self._checked_lapses, self._doubtful
        if started:
            self._unchecked = started
            self._number = self._manager.registrar.look_up(started, committed=True)
        else:
            self._owned()

    def awaits(self, number: int) -> bool:
        """Whether the look-up of this number is this check's."""
        return bool(self._number) and number == self._number

    def looked_up(self, answer: LookedUp) -> TaskId | None:
        """Take in an answer that it awaits; returns a task that is not this worker's any more, None when all are."""
        for task, where in answer.tasks.items():
            if self._lost(task, where):
                return task
        self._unchecked.difference_update(answer.tasks)
        if not self._unchecked:
            self._number = 0
            self._owned()
        return None

    def _lost(self, task: TaskId, where: Whereabouts) -> bool:
        held = self._manager.held.get(task)
        if held is None or held.role is not Role.ACTIVE or held.state not in _STARTED:
            return False
        # Each change of owner raises the epoch, also one that leads back here. Offsets that brokers forgot name nobody.
        named = any(each.metadata.owner is not None for each in where.committed.values())
        return named and held.epoch != epoch_of(where.committed)

    def _owned(self) -> None:
        self._owned_at, self._checked_lapses = self._asked_at, self._asked_lapses
        self._doubtful = self._stays_doubtful

    def forget(self) -> None:
        """The worker goes back: what is being looked up says nothing of the tasks that it resumes."""
        self._number = 0
        self._unchecked.clear()
        self._owned_at = None
