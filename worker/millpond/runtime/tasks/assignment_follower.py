"""Compares the tasks that the coordinator assigns with those the worker holds. A state machine without I/O.

The coordinator may be late or wrong, there may be two of them, or none. Kafka's offset metadata is the only authority
on ownership, so the owner of a running task that is no longer assigned is read there before the task stops. Without
answers a worker continues with the tasks that it owns.
"""
# ruff: noqa: SLF001 - the table of transitions names private methods of its own class

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from millpond.protocol import NOBODY, Answer, Brokers, Role, TakeOver, TaskState, parse_task
from millpond.runtime.offsets.metadata import Claim
from millpond.topology import TaskId

from .events import (
    AnswerReceived,
    BackAtCommit,
    Drop,
    Event,
    HandedOver,
    Hold,
    Keep,
    NotOwned,
    OwnersRead,
    OwnTasksFound,
    Release,
    TakeOverEnded,
    Turn,
)
from .instructions import (
    CleanUp,
    FindNewPartitions,
    FindOwnTasks,
    GoBack,
    Instruction,
    LearnMarks,
    LookUp,
    MeasureLags,
    ReadDisk,
    Report,
    TakeTasksOver,
    Withdraw,
)
from .lifecycle import TaskLifecycle

__all__ = ("AssignmentFollower",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Time between two reports of lags. Changes that the coordinator waits for are reported at once.
_REPORT_INTERVAL_S = 0.5
_LAG_INTERVAL_S = 0.05
_CLEAN_UP_INTERVAL_S = 30.0
_RETRY_S = 0.2
#: Time until a task that this worker does not know is compared again.
_UNKNOWN_TASK_RETRY_S = 5.0
#: After such a pause between two turns the process was frozen, and the lags of its copies are not known yet.
_FROZEN_S = 1.5
#: How long lags are not reported afterwards.
_LAGS_UNKNOWN_S = 1.0


class AssignmentFollower:
    """The state machine that turns the coordinator's answers into events of the tasks' life cycle.

    Args:
        lifecycle: the tasks; events of the follower are added to its story.
        worker: this worker's id.
        tasks: all tasks of the application.
        session_timeout: the coordinator's session timeout, until its first answer states it.
        cleanup_delay: the time for which the state of a task that is not held stays on disk, in seconds.
        fenced_by_brokers: whether brokers fence this worker when its tasks are taken over (exactly_once).
        now: the current time, in monotonic seconds.

    Attributes:
        answer: the newest answer; None before the first one, and while the worker is rejected.
        tasks: all tasks of the application.
        leaving: whether the worker is about to end.
        owners_found: the owners that were read or written in Kafka since the last report, by task id.
    """

    def __init__(  # noqa: PLR0913 - settings, each named at the call
        self,
        lifecycle: TaskLifecycle,
        worker: str,
        tasks: Iterable[TaskId],
        *,
        session_timeout: timedelta,
        cleanup_delay: timedelta,
        fenced_by_brokers: bool,
        now: float,
    ) -> None:
        self.answer: Answer | None = None
        self.leaving = False
        self.owners_found: dict[str, str] = {}
        self._lifecycle = lifecycle
        self._worker = worker
        self.tasks: frozenset[TaskId] = frozenset(tasks)
        self._session_s = session_timeout.total_seconds()
        self._clean_up_s = min(_CLEAN_UP_INTERVAL_S, cleanup_delay.total_seconds())
        self._fenced_by_brokers = fenced_by_brokers
        self._unknown: set[str] = set()
        self._unknown_assigned = False
        #: Take-overs that have begun and whose result the coordinator may not know yet, by previous owner.
        self._ordered: dict[str | None, Mapping[str, str]] = {}
        self._under_way: set[str | None] = set()
        #: Tasks that were handed over, each with the answer that still assigns it to this worker.
        self._handed_over: dict[TaskId, tuple[str, int]] = {}
        self._suspects: set[TaskId] = set()
        self._checking = 0
        self._unchecked: set[TaskId] = set()
        self._searching = 0
        self._foreign_until: dict[TaskId, float] = {}
        self._rejected = False
        self._brokers = Brokers.ANSWERING
        self._doubtful = False
        self._connected_at: float | None = None
        self._lags_unknown_until = 0.0
        self._retry_at = 0.0
        self._last_turn = now
        self._next_lags = self._next_report = self._next_clean_up = 0.0
        self._next_search = now + self._session_s
        self._changes = 0

    # State

    @property
    def session_s(self) -> float:
        """The session timeout in seconds: the one in the coordinator's answer, or the configured one before that."""
        return self._session_s if self.answer is None else self.answer.session_timeout_ms / 1000

    def connected(self, now: float) -> bool:
        """Return whether the coordinator has answered within the session timeout."""
        return self._connected_at is not None and now - self._connected_at < self.session_s

    def admitted(self, now: float) -> bool:
        """Return whether the coordinator is connected and has not rejected this worker's topology."""
        return not self._rejected and self.connected(now)

    def lags_unknown(self, now: float) -> bool:
        """Return whether lags of copies are unknown, since the process was frozen or has just gone back to a commit."""
        return now < self._lags_unknown_until

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event; return the instructions to carry out, in this order."""
        instructions: list[Instruction] = list(_TRANSITIONS[type(event)](self, event))
        if instructions or not isinstance(event, Turn):
            self._lifecycle.story.add(event, instructions)
        return instructions

    # Turns of the loop

    def _turn(self, event: Turn) -> Iterable[Instruction]:
        now = event.now
        self._connected_at, self._brokers = event.connected_at, event.brokers
        self._doubtful = event.doubtful or event.brokers is Brokers.LOST
        if event.rejected != self._rejected:
            self._rejected = event.rejected
            self.answer = None
            self._ordered.clear()
            if event.rejected:
                yield Withdraw()
                return
        if now - self._last_turn > _FROZEN_S:
            self._hide_lags(now)
        self._last_turn = now
        if now >= self._next_lags:
            self._next_lags = now + _LAG_INTERVAL_S
            yield MeasureLags()
        yield from self._follow_or_report(now)
        if self._lags_unknown_until and now >= self._lags_unknown_until:
            self._lags_unknown_until = 0.0
            yield from self._report(now, urgent=True)
        if now >= self._next_search:
            yield from self._find_own_tasks(now)
        if now >= self._next_clean_up:
            self._next_clean_up = now + self._clean_up_s
            if self.admitted(now):
                yield CleanUp()
                yield ReadDisk()

    def _follow_or_report(self, now: float) -> Iterable[Instruction]:
        if self._lifecycle.changes != self._changes:
            yield from self._follow(now)
            yield from self._report(now, urgent=True)
        elif self._retry_at and now >= self._retry_at:
            self._retry_at = 0.0
            yield from self._follow(now)
        elif now >= self._next_report:
            yield from self._report(now, urgent=False)

    def _report(self, now: float, *, urgent: bool) -> Iterable[Instruction]:
        self._next_report = now + _REPORT_INTERVAL_S
        yield Report(urgent)

    def _hide_lags(self, now: float) -> None:
        """Report no lags for a moment, so that no task moves here before the copies have read the missed records."""
        self._lags_unknown_until = now + _LAGS_UNKNOWN_S
        self._next_report = 0.0

    # Answers of the coordinator

    def _answered(self, event: AnswerReceived) -> Iterable[Instruction]:
        answer, before = event.answer, self.answer
        if self._rejected:
            return
        yield from self.marks_of(answer)
        self.answer = answer
        if before is None or (answer.revision, answer.coordinator) != (before.revision, before.coordinator):
            yield from self._follow(event.now)
            yield from self._report(event.now, urgent=False)

    def marks_of(self, answer: Answer) -> Iterable[Instruction]:
        """Yield the instruction to remember the commits that an answer reports."""
        if answer.committed:
            yield LearnMarks(self._known(answer.committed))

    def _follow(self, now: float) -> Iterable[Instruction]:
        """Compare the held tasks with the assigned ones, and act on each difference."""
        answer = self.answer
        if answer is None:
            self._changes = self._lifecycle.changes
            return
        wanted, release = self._known(answer.tasks), self._known(answer.release)
        orders = [(each, self._known(each.owners)) for each in answer.take_over]
        if self._unknown_assigned:
            self._unknown_assigned = False
            self._retry_at = self._retry_at or now + _UNKNOWN_TASK_RETRY_S
            yield FindNewPartitions()
        yield from self._hold(answer, wanted, release, now)
        yield from self._drop_unassigned(wanted)
        for task in self._lifecycle.releases:
            if task not in release:
                yield from self._lifecycle.apply(Keep(task))
        for task, owner in release.items():
            yield from self._lifecycle.apply(Release(task, owner))
        yield from self._carry_out(orders)
        yield from self._check_suspects(now)
        self._changes = self._lifecycle.changes

    def _hold(
        self, answer: Answer, wanted: Mapping[TaskId, Role], release: Mapping[TaskId, str], now: float
    ) -> Iterable[Instruction]:
        current = (answer.coordinator, answer.revision)
        self._handed_over = {task: under for task, under in self._handed_over.items() if under == current}
        self._foreign_until = {task: until for task, until in self._foreign_until.items() if until > now}
        by_role: dict[Role, list[TaskId]] = {role: [] for role in Role}
        for task, role in wanted.items():
            held = self._lifecycle.tasks.get(task)
            if role is Role.ACTIVE and task in self._handed_over:
                continue  # the coordinator does not know yet that it was handed over
            if held is not None and held.role is role:
                continue
            if held is not None and held.active:
                if task not in release:
                    self._suspects.add(task)
            elif role is Role.ACTIVE and task in self._foreign_until:
                # Another worker owned it a moment ago. That was reported; or that worker is just handing it over.
                self._retry_at = max(self._retry_at, self._foreign_until[task])
            else:
                by_role[role].append(task)
        for role, tasks in by_role.items():
            if tasks:
                yield from self._lifecycle.apply(Hold(tuple(tasks), role))

    def _drop_unassigned(self, wanted: Mapping[TaskId, Role]) -> Iterable[Instruction]:
        dropped: list[TaskId] = []
        for task, held in self._lifecycle.tasks.items():
            if task in wanted:
                continue
            if not held.active:
                dropped.append(task)
            elif held.state is not TaskState.RELEASING:
                self._suspects.add(task)
                if not self._fenced_by_brokers and held.running and self._doubtful:
                    # Records that the producer has not sent must not mix with the output of the next owner.
                    yield GoBack()
        if dropped:
            yield from self._lifecycle.apply(Drop(tuple(dropped)))
            yield ReadDisk()

    def _known(self, by_task: Mapping[str, T]) -> dict[TaskId, T]:
        """Return the entries whose tasks this worker knows, by parsed task id."""
        found: dict[TaskId, T] = {}
        for text, value in by_task.items():
            try:
                task = parse_task(text)
            except ValueError:
                continue
            if task in self.tasks:
                found[task] = value
                continue
            self._unknown_assigned = True
            if text not in self._unknown:
                self._unknown.add(text)
                log.warning(
                    "task %s: assigned by the coordinator, but unknown to this worker; "
                    "looking for new input partitions",
                    text,
                )
        return found

    def _carry_out(self, orders: Iterable[tuple[TakeOver, Mapping[TaskId, str]]]) -> Iterable[Instruction]:
        """Begin the ordered take-overs.

        The coordinator repeats an order until it has the result. It is carried out once, and again only if it failed.
        """
        self._ordered = {each: owners for each, owners in self._ordered.items() if each in self._under_way} | {
            order.previous: order.owners for order, _ in orders if self._ordered.get(order.previous) == order.owners
        }
        for order, tasks in orders:
            previous = order.previous
            # One at a time for each previous owner, since each take-over fences the one before it.
            if previous == self._worker or previous in self._under_way or self._ordered.get(previous) == order.owners:
                continue
            if tasks:
                if previous is None:
                    log.info("tasks without an owner: claiming %d", len(tasks))
                else:
                    log.info("tasks of worker %s: taking %d over", previous, len(tasks))
                self._ordered[previous] = order.owners
                self._under_way.add(previous)
                yield TakeTasksOver(previous, tasks)

    def _take_over_ended(self, event: TakeOverEnded) -> Iterable[Instruction]:
        self._under_way.discard(event.previous)
        self.owners_found |= {str(task): owner or NOBODY for task, owner in event.owners.items()}
        if event.previous in event.owners.values():
            # The broker rejected the take-over, or the previous owner started again meanwhile.
            self._ordered.pop(event.previous, None)
            self._retry_at = event.now + _RETRY_S
        own = tuple(task for task, owner in event.owners.items() if owner == self._worker)
        if own and not self._rejected:
            yield from self._lifecycle.apply(Hold(own, Role.ACTIVE))
        self._changes = 0  # another order for the same previous owner may be waiting
        yield from self._report(event.now, urgent=True)

    # Owners in Kafka

    def _not_owned(self, event: NotOwned) -> Iterable[Instruction]:
        if event.claim is Claim.RESUME:
            log.info(
                "task %s: last committed by another topology; waiting until the coordinator admits this one", event.task
            )
        elif event.owner is None:
            log.info("task %s: not activated here, since it has no owner", event.task)
        else:
            log.info("task %s: not activated here, since worker %s owns it", event.task, event.owner)
        self.owners_found[str(event.task)] = event.owner or NOBODY
        self._foreign_until[event.task] = event.now + _RETRY_S
        return ()

    def _handed(self, event: HandedOver) -> Iterable[Instruction]:
        self.owners_found[str(event.task)] = event.owner
        if self.answer is not None:
            self._handed_over[event.task] = (self.answer.coordinator, self.answer.revision)
        return ()

    def _check_suspects(self, now: float) -> Iterable[Instruction]:
        """Look up the owners of tasks that run here and that the coordinator assigns to other workers."""
        tasks = self._lifecycle.tasks
        running = {task for task in self._suspects if (held := tasks.get(task)) is not None and held.running}
        self._suspects.clear()
        if running and self._brokers is not Brokers.ANSWERING:
            self._retry_at = now + _RETRY_S
        elif running and not self._checking:
            self._unchecked, self._checking = running, self._lifecycle.next_number()
            yield LookUp(self._checking, tuple(running), committed=True)

    def awaits(self, number: int) -> bool:
        """Return whether the lookup of this number is the follower's check of owners."""
        return bool(self._checking) and number == self._checking

    def awaits_search(self, number: int) -> bool:
        """Return whether the lookup of this number is the follower's search for own tasks."""
        return bool(self._searching) and number == self._searching

    def _owners_read(self, event: OwnersRead) -> Iterable[Instruction]:
        if not self.awaits(event.number):
            return
        self._unchecked.difference_update(event.tasks)
        if not self._unchecked:
            self._checking = 0
        lost = False
        for task, ownership in event.tasks.items():
            held = self._lifecycle.tasks.get(task)
            if held is not None and held.running and ownership.owners and self._worker not in ownership.owners:
                log.warning(
                    "task %s: taken over by worker %s; going back to the last commit", task, min(ownership.owners)
                )
                lost = True
        if lost:
            yield GoBack()

    def _find_own_tasks(self, now: float) -> Iterable[Instruction]:
        """Search Kafka for tasks that were handed over to this worker while the coordinator is silent."""
        self._next_search = now + self.session_s
        silent = not self.connected(now) and not self._rejected and not self.leaving
        if silent and self._brokers is Brokers.ANSWERING and not self._searching:
            others = self.tasks - {task for task, held in self._lifecycle.tasks.items() if held.active}
            if others:
                self._searching = self._lifecycle.next_number()
                yield FindOwnTasks(self._searching, others)

    def _own_tasks_found(self, event: OwnTasksFound) -> Iterable[Instruction]:
        if not self.awaits_search(event.number):
            return
        self._searching = 0
        found = tuple(task for task, ownership in event.tasks.items() if ownership.resumable)
        if found and not self._rejected:
            log.info("tasks handed over to this worker: activating %d", len(found))
            yield from self._lifecycle.apply(Hold(found, Role.ACTIVE))

    def _back_at_commit(self, event: BackAtCommit) -> Iterable[Instruction]:
        """Cancel the check of owners and the search for own tasks, until they are needed again."""
        if event.tasks != self.tasks:
            self.tasks = event.tasks
            self._unknown.clear()
            self._ordered.clear()  # orders may name tasks that were unknown until now
            self._changes = 0
        self._checking = self._searching = 0
        self._unchecked.clear()
        self._hide_lags(event.now)
        return ()


_TRANSITIONS: Mapping[type[Event], Callable[[AssignmentFollower, Any], Iterable[Instruction]]] = {
    Turn: AssignmentFollower._turn,
    AnswerReceived: AssignmentFollower._answered,
    TakeOverEnded: AssignmentFollower._take_over_ended,
    NotOwned: AssignmentFollower._not_owned,
    HandedOver: AssignmentFollower._handed,
    OwnersRead: AssignmentFollower._owners_read,
    OwnTasksFound: AssignmentFollower._own_tasks_found,
    BackAtCommit: AssignmentFollower._back_at_commit,
}
