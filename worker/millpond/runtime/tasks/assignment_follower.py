"""Compares what the coordinator assigns with what the worker holds, and asks for each difference. A state machine without I/O.

The coordinator may be late, wrong, doubled or gone. Kafka's offset metadata is the only authority on ownership, so what runs
here and is not assigned is checked there before it stops. Without an answer a worker goes on with what it owns.
"""

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
    Disowned,
    Drop,
    Event,
    HandedOver,
    Hold,
    Keep,
    OwnersRead,
    OwnNamed,
    Release,
    TakeOverEnded,
    Turn,
)
from .instructions import (
    CleanUp,
    ExpectTasks,
    FindOwn,
    GoBack,
    Instruction,
    LearnMarks,
    LookAtCopies,
    LookUp,
    ReadDisk,
    Report,
    TakeTasksOver,
    Withdraw,
)
from .lifecycle import TaskLifecycle

__all__ = ("AssignmentFollower",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Lags go with the next heartbeat; what the coordinator waits for goes at once.
_REPORT_S = 0.5
_LOOK_S = 0.05
_CLEAN_UP_S = 30.0
_RETRY_S = 0.2
#: A task that the topology does not have is looked for again this much later.
_UNKNOWN_S = 5.0
#: A turn of the loop that comes so late means that the process was frozen: what its copies lack is not known yet.
_FROZEN_S = 1.5
_UNSURE_S = 1.0


class AssignmentFollower:
    """Between the coordinator's answers and the life cycle of tasks.

    Args:
        lifecycle: the tasks; its story tells of the follower, too.
        worker: this worker's id.
        tasks: all tasks of the application.
        session_timeout: of the coordinator, until its first answer.
        cleanup_delay: how long the state of a task that is not held stays on disk.
        fenced_by_brokers: whether brokers fence this worker when its tasks are taken over (exactly_once).
        now: the time of its start, in monotonic seconds.

    Attributes:
        answer: the newest answer that is followed.
        tasks: all tasks of the application.
        leaving: whether the worker ends.
        owners_found: owners found or made in Kafka since the last report, by task id.
    """

    def __init__(
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
        self._clean_up_s = min(_CLEAN_UP_S, cleanup_delay.total_seconds())
        self._fenced_by_brokers = fenced_by_brokers
        self._unknown: set[str] = set()
        self._names_unknown = False
        #: Take-overs that were begun and whose result the coordinator may not know yet, by previous owner.
        self._ordered: dict[str | None, Mapping[str, str]] = {}
        self._under_way: set[str | None] = set()
        #: Tasks that were handed over, and the answer that still assigns them to this worker.
        self._handed_over: dict[TaskId, tuple[str, int]] = {}
        self._suspects: set[TaskId] = set()
        self._checking = 0
        self._unchecked: set[TaskId] = set()
        self._adopting = 0
        self._foreign_until: dict[TaskId, float] = {}
        self._rejected = False
        self._brokers = Brokers.ANSWERING
        self._connected_at: float | None = None
        self._unsure_until = 0.0
        self._retry_at = 0.0
        self._last_turn = now
        self._next_look = self._next_report = self._next_clean_up = 0.0
        self._next_adoption = now + self._session_s
        self._changes = 0

    # The state ----------------------------------------------------------------------------------------------------

    @property
    def session_s(self) -> float:
        """After how long a silence the coordinator takes this worker for dead, in seconds: its word, else the setting."""
        return self._session_s if self.answer is None else self.answer.session_timeout_ms / 1000

    def connected(self, now: float) -> bool:
        """Whether the coordinator answered within a session."""
        return self._connected_at is not None and now - self._connected_at < self.session_s

    def admitted(self, now: float) -> bool:
        """Whether the coordinator admits this worker's topology, as far as is known."""
        return not self._rejected and self.connected(now)

    def unsure(self, now: float) -> bool:
        """Whether the lags of copies are not known, since the process was frozen or has just gone back to a commit."""
        return now < self._unsure_until

    def handle(self, event: Event) -> list[Instruction]:
        """Take in what happened; return what is to be done about it, in this order."""
        instructions: list[Instruction] = list(_TRANSITIONS[type(event)](self, event))
        if instructions or not isinstance(event, Turn):
            self._lifecycle.story.add(event, instructions)
        return instructions

    # Every turn ---------------------------------------------------------------------------------------------------

    def _turn(self, event: Turn) -> Iterable[Instruction]:
        now = event.now
        self._connected_at, self._brokers = event.connected_at, event.brokers
        if event.rejected != self._rejected:
            self._rejected = event.rejected
            self.answer = None
            self._ordered.clear()
            if event.rejected:
                yield Withdraw()
                return
        if now - self._last_turn > _FROZEN_S:
            self._doubt_copies(now)
        self._last_turn = now
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            yield LookAtCopies()
        yield from self._follow_or_report(now)
        if self._unsure_until and now >= self._unsure_until:
            self._unsure_until = 0.0
            yield from self._report(now, urgent=True)
        if now >= self._next_adoption:
            yield from self._adopt(now)
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
        self._next_report = now + _REPORT_S
        yield Report(urgent)

    def _doubt_copies(self, now: float) -> None:
        """Report no lags for a moment: copies first read what they missed, and no task should move here before that."""
        self._unsure_until = now + _UNSURE_S
        self._next_report = 0.0

    # Answers of the coordinator -----------------------------------------------------------------------------------

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
        """What an answer says of commits."""
        if answer.committed:
            yield LearnMarks(self._known(answer.committed))

    def _follow(self, now: float) -> Iterable[Instruction]:
        """Compare what is held with what is assigned, and act on each difference."""
        answer = self.answer
        if answer is None:
            self._changes = self._lifecycle.changes
            return
        wanted, release = self._known(answer.tasks), self._known(answer.release)
        orders = [(each, self._known(each.owners)) for each in answer.take_over]
        if self._names_unknown:
            self._names_unknown = False
            self._retry_at = self._retry_at or now + _UNKNOWN_S
            yield ExpectTasks()
        yield from self._hold(answer, wanted, release, now)
        yield from self._let_go(wanted)
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
                continue  # the coordinator has not heard of it yet
            if held is not None and held.role is role:
                continue
            if held is not None and held.active:
                if task not in release:
                    self._suspects.add(task)
            elif role is Role.ACTIVE and task in self._foreign_until:
                # Another owned it a moment ago: the coordinator learns of that, or the owner lets go.
                self._retry_at = max(self._retry_at, self._foreign_until[task])
            else:
                by_role[role].append(task)
        for role, tasks in by_role.items():
            if tasks:
                yield from self._lifecycle.apply(Hold(tuple(tasks), role))

    def _let_go(self, wanted: Mapping[TaskId, Role]) -> Iterable[Instruction]:
        gone: list[TaskId] = []
        for task, held in self._lifecycle.tasks.items():
            if task in wanted:
                continue
            if not held.active:
                gone.append(task)
            elif held.state is not TaskState.RELEASING:
                self._suspects.add(task)
                if not self._fenced_by_brokers and held.running and self._brokers is Brokers.LOST:
                    # What the producer still has must not arrive beside the output of who takes over.
                    yield GoBack()
        if gone:
            yield from self._lifecycle.apply(Drop(tuple(gone)))
            yield ReadDisk()

    def _known(self, by_task: Mapping[str, T]) -> dict[TaskId, T]:
        """What is said of tasks that this worker's topology has."""
        found: dict[TaskId, T] = {}
        for text, value in by_task.items():
            try:
                task = parse_task(text)
            except ValueError:
                continue
            if task in self.tasks:
                found[task] = value
                continue
            self._names_unknown = True
            if text not in self._unknown:
                self._unknown.add(text)
                log.warning(
                    "task %s: the coordinator names it, and the topology has no such task yet; looking for new input partitions",
                    text,
                )
        return found

    def _carry_out(self, orders: Iterable[tuple[TakeOver, Mapping[TaskId, str]]]) -> Iterable[Instruction]:
        """Begin take-overs. An order stands until the coordinator has the result, and is carried out once, unless it failed."""
        self._ordered = {each: owners for each, owners in self._ordered.items() if each in self._under_way} | {
            order.previous: order.owners for order, _ in orders if self._ordered.get(order.previous) == order.owners
        }
        for order, tasks in orders:
            previous = order.previous
            # One at a time from each owner, since each fences the one before.
            if previous == self._worker or previous in self._under_way or self._ordered.get(previous) == order.owners:
                continue
            if tasks:
                log.info("taking %d tasks over from %s", len(tasks), previous or "nobody")
                self._ordered[previous] = order.owners
                self._under_way.add(previous)
                yield TakeTasksOver(previous, tasks)

    def _take_over_ended(self, event: TakeOverEnded) -> Iterable[Instruction]:
        self._under_way.discard(event.previous)
        self.owners_found |= {str(task): owner or NOBODY for task, owner in event.owners.items()}
        if event.previous in event.owners.values():
            # The broker rejected it, or the previous owner came back meanwhile.
            self._ordered.pop(event.previous, None)
            self._retry_at = event.now + _RETRY_S
        mine = tuple(task for task, owner in event.owners.items() if owner == self._worker)
        if mine and not self._rejected:
            yield from self._lifecycle.apply(Hold(mine, Role.ACTIVE))
        self._changes = 0  # another order for the same owner may wait
        yield from self._report(event.now, urgent=True)

    # What Kafka says ----------------------------------------------------------------------------------------------

    def _disowned(self, event: Disowned) -> Iterable[Instruction]:
        if event.claim is Claim.RESUME:
            log.info("task %s: another topology's; waiting until the coordinator admits this one", event.task)
        else:
            log.info("task %s: owned by %s, so it does not become active here", event.task, event.owner or "nobody")
        self.owners_found[str(event.task)] = event.owner or NOBODY
        self._foreign_until[event.task] = event.now + _RETRY_S
        return ()

    def _handed(self, event: HandedOver) -> Iterable[Instruction]:
        self.owners_found[str(event.task)] = event.owner
        if self.answer is not None:
            self._handed_over[event.task] = (self.answer.coordinator, self.answer.revision)
        return ()

    def _check_suspects(self, now: float) -> Iterable[Instruction]:
        """Read who owns tasks that run here, and that the coordinator assigns to others."""
        tasks = self._lifecycle.tasks
        running = {task for task in self._suspects if (held := tasks.get(task)) is not None and held.running}
        self._suspects.clear()
        if running and self._brokers is not Brokers.ANSWERING:
            self._retry_at = now + _RETRY_S
        elif running and not self._checking:
            self._unchecked, self._checking = running, self._lifecycle.next_number()
            yield LookUp(self._checking, tuple(running), committed=True)

    def awaits(self, number: int) -> bool:
        """Whether the look-up of this number checks owners for the follower."""
        return bool(self._checking) and number == self._checking

    def finds(self, number: int) -> bool:
        """Whether the search of this number is for tasks that were handed over to this worker."""
        return bool(self._adopting) and number == self._adopting

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
                    "task %s: worker %s took it over; going back to the last commit", task, min(ownership.owners)
                )
                lost = True
        if lost:
            yield GoBack()

    def _adopt(self, now: float) -> Iterable[Instruction]:
        """Look for tasks that were handed over to this worker while the coordinator is silent."""
        self._next_adoption = now + self.session_s
        silent = not self.connected(now) and not self._rejected and not self.leaving
        if silent and self._brokers is Brokers.ANSWERING and not self._adopting:
            others = self.tasks - {task for task, held in self._lifecycle.tasks.items() if held.active}
            if others:
                self._adopting = self._lifecycle.next_number()
                yield FindOwn(self._adopting, others)

    def _own_named(self, event: OwnNamed) -> Iterable[Instruction]:
        if not self.finds(event.number):
            return
        self._adopting = 0
        found = tuple(task for task, ownership in event.tasks.items() if ownership.resumable)
        if found and not self._rejected:
            log.info("%d tasks were handed over to this worker; activating them", len(found))
            yield from self._lifecycle.apply(Hold(found, Role.ACTIVE))

    def _back_at_commit(self, event: BackAtCommit) -> Iterable[Instruction]:
        """What was being looked up beside the tasks is looked up again when there is reason to."""
        if event.tasks != self.tasks:
            self.tasks = event.tasks
            self._unknown.clear()
            self._ordered.clear()  # of an order, only the tasks that were known are taken over
            self._changes = 0
        self._checking = self._adopting = 0
        self._unchecked.clear()
        self._doubt_copies(event.now)
        return ()


_TRANSITIONS: Mapping[type[Event], Callable[[AssignmentFollower, Any], Iterable[Instruction]]] = {
    Turn: AssignmentFollower._turn,
    AnswerReceived: AssignmentFollower._answered,
    TakeOverEnded: AssignmentFollower._take_over_ended,
    Disowned: AssignmentFollower._disowned,
    HandedOver: AssignmentFollower._handed,
    OwnersRead: AssignmentFollower._owners_read,
    OwnNamed: AssignmentFollower._own_named,
    BackAtCommit: AssignmentFollower._back_at_commit,
}
