"""A worker with a coordinator, as a world that can be explored completely: one task, and everything around it.

The life cycle, the assignment follower, and the ownership check are the real ones. The coordinator, Kafka, and another
worker are models that may do anything at any time. A state consists of the following, for these reasons:

- **Time** is only compared with deadlines. Each turn comes so late that all are past; between two turns no time passes.
- **Numbers** of lookups, **epochs** and **lapses** are only compared with each other: their order is kept.
- **Answers** are always the coordinator's newest: the client drops what is older.
- **Stores** open at once: what may happen to them is explored in `world.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

from millpond.protocol import Answer, Brokers, Epoch, Role, TakeOver, TaskState
from millpond.runtime.offsets.metadata import Claim
from millpond.runtime.tasks import instructions as ask
from millpond.runtime.tasks.assignment_follower import AssignmentFollower
from millpond.runtime.tasks.events import (
    AnswerReceived,
    BackAtCommit,
    CommitBegun,
    CommitCompleted,
    CommitFailed,
    CopyProgress,
    Drop,
    Event,
    Finding,
    HandedOver,
    LookedUp,
    NotOwned,
    Ownership,
    OwnersRead,
    OwnTasksFound,
    StoresOpened,
    StoresRestored,
    TakeOverEnded,
    Turn,
)
from millpond.runtime.tasks.lifecycle import InvalidTransition, TaskLifecycle, TaskRecord
from millpond.runtime.tasks.ownership_check import OwnershipCheck, SessionSeen
from millpond.runtime.tasks.story import Story
from millpond.topology import TaskId

__all__ = ("ASSIGNMENTS", "ME", "OTHER", "TASK", "Violation", "Worker")

ME, OTHER, NOBODY = "me", "other", None
TASK = TaskId(0, 0)
_NAME = str(TASK)
_TURN_S = 10.0

#: What the coordinator may want of this worker.
ASSIGNMENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "active": {"tasks": {_NAME: Role.ACTIVE}},
    "standby": {"tasks": {_NAME: Role.STANDBY}},
    "hand over": {"tasks": {_NAME: Role.ACTIVE}, "release": {_NAME: OTHER}},
    "take over from the other": {"take_over": (TakeOver(OTHER, {_NAME: ME}),)},
    "claim": {"take_over": (TakeOver(NOBODY, {_NAME: ME}),)},
}


class Violation(AssertionError):
    """A state that must not occur, or an instruction that cannot be carried out."""


class Request(NamedTuple):
    """One request to Kafka that is under way."""

    kind: str
    """`lookup`, `find`, or `take over`."""
    number: int
    previous: str | None = None
    read: bool = False
    owner: str | None = None
    epoch: int = 0


def _copied(item: Any) -> Any:
    """Return what `copy.copy` does for an object with attributes only, in a third of the time."""
    other = object.__new__(type(item))
    vars(other).update(vars(item))
    return other


_LATE = Request("lookup", -1, read=True, owner=ME)


class Worker:
    """The worker and its surroundings. Each step works on a copy, so two worlds share nothing.

    Args:
        assignments: the assignments that the coordinator may make, from `ASSIGNMENTS`.
        fenced_by_brokers: whether brokers fence a worker whose task was taken over (exactly_once).
        rejections: whether the coordinator may reject the worker.
        outages: whether brokers may go away.
        missing: whether some brokers may not answer, so that the task may be taken over although others do.
    """

    def __init__(
        self,
        assignments: Collection[str],
        *,
        fenced_by_brokers: bool,
        rejections: bool = False,
        outages: bool = False,
        missing: bool = False,
    ) -> None:
        self.assignments = assignments
        self.rejections, self.outages, self.missing = rejections, outages, missing
        self.now = 1_000.0
        self.lifecycle = TaskLifecycle()
        self.follower = AssignmentFollower(
            self.lifecycle, ME, [TASK],
            session_timeout=timedelta(seconds=6), cleanup_delay=timedelta(minutes=10),
            fenced_by_brokers=fenced_by_brokers, now=self.now,
        )  # fmt: skip
        self.check = None if fenced_by_brokers else OwnershipCheck(self.lifecycle, 0)
        self.requests: tuple[Request, ...] = ()
        self.committing = self.fenced = False
        self._goes_back = self._withdraws = False
        # The world
        self.owner: str | None = NOBODY
        self.epoch = 1
        self.heard = True
        self.rejected = False
        self.brokers = Brokers.ANSWERING
        self.doubtful = False
        self.lapses = 0

    def copied(self) -> Worker:
        """Return another world in the same state."""
        other = _copied(self)
        lifecycle = _copied(self.lifecycle)
        lifecycle.tasks = {task: replace(record) for task, record in self.lifecycle.tasks.items()}
        lifecycle.story = Story(20)
        other.lifecycle = lifecycle
        for name in ("follower", "check"):
            part = getattr(self, name)
            if part is not None:
                part = _copied(part)
                fields = vars(part)
                for field, value in fields.items():
                    if isinstance(value, (set, dict)):
                        fields[field] = value.copy()
                part._lifecycle = lifecycle
                setattr(other, name, part)
        return other

    @property
    def record(self) -> TaskRecord | None:
        """The record of the task; None if the worker does not hold it."""
        return self.lifecycle.tasks.get(TASK)

    def key(self) -> tuple[Any, ...]:
        """Return the values that distinguish this state from others."""
        record, follower, check = self.record, self.follower, self.check
        numbers = {0, follower._checking, follower._searching, *(each.number for each in self.requests)}
        epochs = {0, self.epoch, *(each.epoch for each in self.requests)}
        lapses = {self.lapses}
        if record is not None:
            numbers.add(record.lookup)
            epochs.add(record.epoch)
        if check is not None:
            numbers.add(check._number)
            lapses |= {check._checked_lapses, check._asked_lapses}
        number, epoch, lapse = (
            {each: rank for rank, each in enumerate(sorted(values))} for values in (numbers, epochs, lapses)
        )
        requests = tuple(
            sorted(
                (each.kind, number[each.number], each.previous or "", each.read, each.owner or "", epoch[each.epoch])
                for each in self.requests
            )
        )
        answer = follower.answer
        return (
            None if record is None else (
                record.role, record.state, number[record.lookup], record.opened, epoch[record.epoch], record.release_to,
                record.caught_up,
            ),
            requests, self.committing, self.fenced, self.owner, epoch[self.epoch], self.heard, self.rejected,
            self.brokers, self.doubtful,
            None if answer is None else (
                tuple(answer.tasks.items()), tuple(answer.release), tuple(each.previous for each in answer.take_over)
            ),
            number[follower._checking], number[follower._searching],
            frozenset(follower._unchecked), frozenset(follower._suspects), frozenset(follower._under_way),
            frozenset(follower._ordered),
            any(until > self.now for until in follower._foreign_until.values()),
            answer is not None
            and any(at == (answer.coordinator, answer.revision) for at in follower._handed_over.values()),
            bool(follower._retry_at), follower._changes == self.lifecycle.changes,
            None if check is None else (
                lapse[self.lapses], lapse[check._checked_lapses], lapse[check._asked_lapses], check._doubtful,
                check._stays_doubtful, number[check._number], frozenset(check._unchecked),
                check._owned_at is not None and self.now - check._owned_at < 1, check._owned_tasks,
                check._asked_at == self.now,
            ),
        )  # fmt: skip

    # Instructions of the state machines

    def perform(self, instructions: Iterable[ask.Instruction]) -> None:
        """Carry out instructions, or send their requests."""
        for each in instructions:
            self._perform(each)

    def tell(self, event: Event) -> None:
        """Let the follower handle an event."""
        self.perform(self.follower.handle(event))

    def live(self, event: Event) -> None:
        """Let the life cycle handle an event."""
        self.perform(self.lifecycle.handle(event))

    def _perform(self, each: ask.Instruction) -> None:
        record = self.record
        match each:
            case ask.LookUp(number, _, _):
                self.requests += (Request("lookup", number),)
            case ask.FindOwnTasks(number, _):
                self.requests += (Request("find", number),)
            case ask.TakeTasksOver(previous, _):
                _must(previous != ME, "a worker takes over from itself", self)
                under_way = [one for one in self.requests if one.kind == "take over" and one.previous == previous]
                _must(not under_way, "a worker fences its own take-over", self)
                self.requests += (Request("take over", 0, previous),)
            case ask.OpenStores(task) | ask.BecomeCopy(task):
                self.live(StoresOpened(task, restored=False))
            case ask.StartTasks():
                assert record is not None
                _must(record.opened, "a task starts without its stores", self)
            case ask.ReportNotOwned(task, claim, owner):
                self.tell(NotOwned(self.now, task, claim, owner))
            case ask.ReportHandedOver(task, owner):
                self.tell(HandedOver(task, owner))
            case ask.GoBack():
                self._goes_back = True
            case ask.Withdraw():
                self._withdraws = True

    def go_back(self) -> None:
        """Resume from the last commit."""
        self.committing = self.fenced = False
        self.live(CommitFailed())
        if self.check is not None:
            self.check.forget()
        self.tell(BackAtCommit(self.now, frozenset([TASK])))

    def may_write(self) -> bool:
        """Ask the ownership check."""
        if self.check is None:
            return True
        lapsed = not self.heard or self.doubtful
        allowed, instructions = self.check.may_write(SessionSeen(self.now, lapsed, self.lapses, self.brokers))
        self.perform(instructions)
        return allowed

    # Steps

    def steps(self) -> Iterator[tuple[str, bool, Worker]]:
        """Yield each possible next step: its description, whether the worker takes it by itself, and the next world.

        Raises:
            Violation: something that must not be.
        """
        for what, own, step in (*self._own_steps(), *self._others()):
            world = self.copied()
            step(world)
            world._loop()
            world._forget_late_answers()
            try:
                world.lifecycle.validate()
            except InvalidTransition as error:
                raise Violation(f"{what}: {error}") from error
            yield what, own, world

    def _loop(self) -> None:
        """Carry out the instructions for the loop."""
        if self._withdraws:
            self._withdraws = False
            if self.record is not None:
                self.live(Drop((TASK,)))
                self.go_back()
        if self._goes_back:
            self._goes_back = False
            self.go_back()

    def _forget_late_answers(self) -> None:
        """Keep only one of the answers that nothing waits for: all are ignored, whatever their content."""
        waited_for = {self.follower._checking, self.follower._searching}
        if self.record is not None:
            waited_for.add(self.record.lookup)
        if self.check is not None:
            waited_for.add(self.check._number)
        waited_for.discard(0)
        requests = tuple(each for each in self.requests if each.kind == "take over" or each.number in waited_for)
        if len(requests) < len(self.requests):
            self.requests = (*requests, _LATE)

    def _own_steps(self) -> Iterator[tuple[str, bool, Any]]:
        record = self.record
        yield "a turn", True, Worker._turn
        if self.heard and not self.rejected and self.follower.answer is not None:
            yield "the same answer", True, lambda world: world._answer(world.follower.answer)
        for number, request in enumerate(self.requests):
            reads = self.brokers is Brokers.ANSWERING and not self.committing
            if request.kind == "lookup" and not request.read:
                if reads:
                    yield f"Kafka reads for {request}", True, lambda world, number=number: world._read(number)
            elif reads or request.kind != "find":
                yield f"an answer to {request}", True, lambda world, number=number: world._deliver(number)
        if record is not None and record.state is TaskState.RESTORING:
            restored = StoresRestored((TASK,)) if record.active else CopyProgress(TASK, restored=True, caught_up=True)
            yield "restored", True, lambda world: world.live(restored)
        if self.committing:
            yield "a commit ends", True, Worker._end_commit
        elif record is not None and (record.running or self.lifecycle.to_release):
            yield "a commit begins", True, Worker._begin_commit

    def _turn(self) -> None:
        self.now += _TURN_S
        connected_at = self.now if self.heard else self.now - 1_000
        self.tell(Turn(self.now, connected_at, self.rejected, self.brokers, self.doubtful))
        self.may_write()

    def _answer(self, answer: Answer) -> None:
        self.tell(AnswerReceived(self.now, answer))

    def _read(self, number: int) -> None:
        self._replace(number, self.requests[number]._replace(read=True, owner=self.owner, epoch=self.epoch))

    def _replace(self, number: int, *request: Request) -> None:
        self.requests = (*self.requests[:number], *request, *self.requests[number + 1 :])

    def _deliver(self, number: int) -> None:
        request = self.requests[number]
        if request.kind == "take over" and self.owner == request.previous and self.brokers is Brokers.ANSWERING:
            self.owned_by(ME)
        if not request.read:
            request = request._replace(owner=self.owner, epoch=self.epoch)
        self._replace(number)
        owners = frozenset([request.owner] if request.owner else [])
        found = {TASK: Ownership(owners, request.epoch, request.owner == ME)}
        if request.kind == "take over":
            self.tell(TakeOverEnded(self.now, request.previous, {TASK: request.owner}))
        elif request.kind == "find":
            self.tell(OwnTasksFound(request.number, found if request.owner == ME else {}))
        elif self.check is not None and self.check.awaits(request.number):
            _, instructions = self.check.owners_read(OwnersRead(self.now, request.number, found))
            self.perform(instructions)
        elif self.follower.awaits(request.number):
            self.tell(OwnersRead(self.now, request.number, found))
        else:
            claim = Claim.RESUME if request.owner == ME else Claim.FOREIGN if request.owner else Claim.CLAIM
            resumable = self.follower.admitted(self.now) or not self.rejected
            self.live(LookedUp(request.number, (Finding(TASK, claim, request.owner, request.epoch, resumable),)))

    def _begin_commit(self) -> None:
        if not self.may_write():
            return
        if self.check is not None:
            # Nobody fences this worker: it writes only while Kafka names it.
            _must(self.owner == ME, "a worker without transactions writes for a task of another", self)
        self.committing = True
        if self.lifecycle.to_release:
            self.live(CommitBegun((TASK,)))
        if self.check is not None:
            self._end_commit()

    def _end_commit(self) -> None:
        record = self.record
        self.committing = False
        if self.fenced or record is None:
            self.go_back()
            return
        _must(self.owner == ME and record.epoch == self.epoch, "a commit without ownership", self)
        if record.state is TaskState.RELEASING:
            assert record.release_to is not None
            self.owned_by(record.release_to)
            self.live(CommitCompleted((TASK,)))

    def owned_by(self, owner: str | None) -> None:
        """Write another owner into Kafka."""
        self.owner = owner
        self.epoch += 1

    # What others do

    def _others(self) -> Iterator[tuple[str, bool, Any]]:
        if self.heard and not self.rejected:
            for name in self.assignments:
                yield f"the coordinator wants: {name}", False, lambda world, name=name: world._assign(ASSIGNMENTS[name])
        yield "the coordinator falls silent, or is back", False, Worker._toggle_heard
        if self.rejections:
            yield "the coordinator rejects the worker, or admits it", False, Worker._toggle_rejected
        if self.outages:
            yield "brokers go away, or are back", False, Worker._toggle_brokers
        if self.missing:
            yield "some brokers go missing, or are back", False, Worker._toggle_missing
        in_doubt = not self.heard or self.brokers is Brokers.LOST or self.doubtful
        if self.owner == ME and (self.check is None or in_doubt):
            yield "the other takes over", False, Worker._taken_over
        if self.owner == OTHER:
            yield "the other hands over", False, lambda world: world.owned_by(ME)
        if self.owner is NOBODY:
            yield "the other claims", False, lambda world: world.owned_by(OTHER)
        if self.check is None:
            yield "a commit fails", False, Worker.go_back

    def _assign(self, content: dict[str, Any]) -> None:
        before = self.follower.answer
        self._answer(Answer(Epoch(1, 1), "c", revision=1 if before is None else before.revision + 1, **content))

    def _toggle_heard(self) -> None:
        self.heard = not self.heard
        self.lapses += self.heard
        self._turn()

    def _toggle_rejected(self) -> None:
        self.rejected = not self.rejected
        self._turn()

    def _toggle_brokers(self) -> None:
        self.brokers = Brokers.ANSWERING if self.brokers is Brokers.LOST else Brokers.LOST
        self._turn()

    def _toggle_missing(self) -> None:
        self.doubtful = not self.doubtful
        self.lapses += not self.doubtful
        self._turn()

    def _taken_over(self) -> None:
        self.now += _TURN_S  # longer than one lookup is relied on
        self.owned_by(OTHER)
        self.fenced = self.check is None

    def settled(self) -> bool:
        """Return whether the worker has followed the coordinator's assignment, as far as Kafka allows."""
        record, own = self.record, self.owner == ME
        running = record is not None and record.running
        if not self.heard or self.brokers is not Brokers.ANSWERING:
            return True
        if self.rejected:
            return record is None
        answer = self.follower.answer
        if answer is None:
            return True
        if answer.take_over:
            # An order is carried out once; its result is reported, and another answer follows.
            previous = answer.take_over[0].previous
            return self.owner != previous or previous in self.follower._ordered
        if TASK in self.follower._handed_over:
            return True  # the coordinator has not heard of it yet
        if answer.release:
            return not own
        if answer.tasks.get(_NAME) is Role.ACTIVE:
            return running is own
        return own or not running


def _must(holds: bool, what: str, world: Worker) -> None:
    if not holds:
        raise Violation(f"{what}\n{world.lifecycle.story.text()}")
