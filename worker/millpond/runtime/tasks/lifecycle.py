"""The life cycle of a worker's tasks as a state machine: events in, instructions out, no I/O and no clock.

    active:  ACQUIRING ──looked up──> RESTORING ──restored──> RUNNING ──commit begun──> RELEASING ──completed──> copy
    copy:    ACQUIRING ──looked up──> RESTORING ──caught up─> RUNNING ──promoted──> ACQUIRING (its stores stay open)

Kafka's offset metadata is the only authority on ownership, so activation starts by reading it. Lookups have numbers,
and only the answer to the newest one counts: an earlier answer may be from before a commit or a change of owner.
"""
# ruff: noqa: SLF001 - the table of transitions names private methods of its own class

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millpond.protocol import Role, TaskState
from millpond.runtime.offsets.metadata import Claim
from millpond.topology import TaskId

from .events import (
    ChangelogReplaced,
    CommitBegun,
    CommitCompleted,
    CommitFailed,
    CopyProgress,
    Drop,
    Event,
    Finding,
    Hold,
    Keep,
    LookedUp,
    Release,
    SnapshotAwaited,
    SnapshotReady,
    StoresExpired,
    StoresOpened,
    StoresRestored,
    TakenAway,
)
from .instructions import (
    BecomeActive,
    BecomeCopy,
    CancelSnapshot,
    CloseStores,
    Instruction,
    LookUp,
    OpenStores,
    ReportHandedOver,
    ReportNotOwned,
    SkipSnapshot,
    StartTasks,
    StopReading,
)
from .story import Story

__all__ = ("InvalidTransition", "TaskLifecycle", "TaskRecord")


_NOT_YET_RUNNING = (TaskState.ACQUIRING, TaskState.RESTORING)


class InvalidTransition(AssertionError):
    """A task is in a state that must not occur; the message contains the story that led there."""


@dataclass(slots=True)
class TaskRecord:
    """The place of one held task in its life cycle."""

    task: TaskId
    role: Role
    state: TaskState = TaskState.ACQUIRING
    lookup: int = 0
    """The number of the lookup whose answer the task waits for; 0 for none."""
    opened: bool = False
    """Whether the stores are open."""
    awaits_snapshot: bool = False
    """Whether the stores are opened only after a snapshot is ingested."""
    epoch: int = 0
    """The owner's epoch in the offset metadata, for an active task."""
    release_to: str | None = None
    """The owner of an active task after the next commit; None if the task is not handed over."""
    caught_up: bool = False
    """Whether the lag of a copy was acceptable at its last measurement."""

    @property
    def active(self) -> bool:
        """Whether the role is active, in any state."""
        return self.role is Role.ACTIVE

    @property
    def running(self) -> bool:
        """Whether the task processes records."""
        return self.active and self.state is TaskState.RUNNING


class TaskLifecycle:
    """The life cycle of all tasks that a worker holds.

    Args:
        restores_inputs: whether an input of a task is also a changelog, which is restored up to the committed offset.

    Attributes:
        tasks: the held tasks by id, in any role.
        changes: a number that grows with each event that may have changed a task.
        story: the newest events and their instructions.
    """

    def __init__(self, restores_inputs: Callable[[TaskId], bool] = lambda _: False) -> None:
        self.tasks: dict[TaskId, TaskRecord] = {}
        self.changes: int = 1
        self.story: Story = Story()
        self._restores_inputs = restores_inputs
        self._number = 0
        self._settled = True
        self._to_release: list[TaskId] = []
        #: The value of `changes` at which these two were derived: events come by the thousand, reads once per turn.
        self._derived_at = 1

    @property
    def settled(self) -> bool:
        """Whether every active task runs or is being handed over."""
        self._derive()
        return self._settled

    @property
    def to_release(self) -> list[TaskId]:
        """The tasks that the next commit hands over; a task with an unanswered lookup has to wait."""
        self._derive()
        return self._to_release

    def _derive(self) -> None:
        if self._derived_at == self.changes:
            return
        self._derived_at = self.changes
        self._settled = not any(each.active and each.state in _NOT_YET_RUNNING for each in self.tasks.values())
        self._to_release = [
            each.task
            for each in self.tasks.values()
            if each.release_to is not None and each.state in (TaskState.RESTORING, TaskState.RUNNING)
        ]

    @property
    def releases(self) -> list[TaskId]:
        """The tasks that are to be handed over and whose commit has not begun."""
        return [
            each.task
            for each in self.tasks.values()
            if each.release_to is not None and each.state is not TaskState.RELEASING
        ]

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event; return the instructions to carry out, in this order."""
        instructions = self.apply(event)
        self.story.add(event, instructions)
        return instructions

    def apply(self, event: Event) -> list[Instruction]:
        """Handle an event that is part of another one, so that the story does not list it."""
        instructions = list(_TRANSITIONS[type(event)](self, event))
        self.changes += 1
        return instructions

    def next_number(self) -> int:
        """Return the number of a new lookup."""
        self._number += 1
        return self._number

    # Roles

    def _hold(self, event: Hold) -> Iterable[Instruction]:
        active = event.role is Role.ACTIVE
        asked: list[TaskId] = []
        for task in event.tasks:
            record = self.tasks.get(task)
            if record is None:
                self.tasks[task] = TaskRecord(task, event.role)
                asked.append(task)
            elif record.active:
                continue
            elif active:
                record.role, record.state = Role.ACTIVE, TaskState.ACQUIRING
                asked.append(task)
            else:
                record.role = event.role
        yield from self._look_up(asked, committed=active or any(map(self._restores_inputs, asked)))

    def _drop(self, event: Drop) -> Iterable[Instruction]:
        for task in event.tasks:
            del self.tasks[task]
            yield CancelSnapshot(task)
            yield StopReading(task)
            yield CloseStores(task, for_good=True)

    def _release(self, event: Release) -> Iterable[Instruction]:
        record = self.tasks.get(event.task)
        if record is None or not record.active or record.state is TaskState.RELEASING:
            return
        record.release_to = event.owner
        yield CancelSnapshot(event.task)
        if record.awaits_snapshot:
            # The next owner should not have to wait for a snapshot that this worker no longer needs.
            record.awaits_snapshot = False
            yield SkipSnapshot(event.task)
            yield from self._look_up([event.task], committed=True)

    def _keep(self, event: Keep) -> Iterable[Instruction]:
        record = self.tasks.get(event.task)
        if record is not None and record.state is not TaskState.RELEASING:
            record.release_to = None
        return ()

    # Lookups

    def _look_up(self, tasks: Iterable[TaskId], *, committed: bool) -> Iterable[Instruction]:
        if asked := tuple(tasks):
            number = self.next_number()
            for task in asked:
                self.tasks[task].lookup = number
            yield LookUp(number, asked, committed)

    def _looked_up(self, event: LookedUp) -> Iterable[Instruction]:
        for finding in event.findings:
            record = self.tasks.get(finding.task)
            if record is None or record.lookup != event.number:
                continue  # the task was dropped, or a newer lookup is under way: this answer may be out of date
            record.lookup = 0
            if not record.active:
                yield self._open(record, len(event.findings))
            elif finding.claim is not Claim.RESUME or not finding.resumable:
                yield from self._not_owned(record, finding)
            else:
                record.epoch = finding.epoch
                if record.opened:
                    record.state = TaskState.RESTORING
                    yield BecomeActive(record.task)
                else:
                    yield self._open(record, len(event.findings))

    def _open(self, record: TaskRecord, together: int) -> Instruction:
        return OpenStores(record.task, not record.active, record.release_to is None, together)

    def _not_owned(self, record: TaskRecord, finding: Finding) -> Iterable[Instruction]:
        yield ReportNotOwned(record.task, finding.claim, finding.owner)
        yield from self._taken_away(TakenAway(record.task))

    def _taken_away(self, event: TakenAway) -> Iterable[Instruction]:
        record = self.tasks[event.task]
        record.release_to = None
        if record.opened:
            yield from self._become_copy(record)
        else:
            yield from self._drop(Drop((event.task,)))

    # Stores

    def _opened(self, event: StoresOpened) -> Iterable[Instruction]:
        record = self.tasks[event.task]
        record.opened, record.awaits_snapshot = True, False
        caught_up = event.restored and not record.active
        record.state = TaskState.RUNNING if caught_up else TaskState.RESTORING
        return ()

    def _snapshot_awaited(self, event: SnapshotAwaited) -> Iterable[Instruction]:
        self.tasks[event.task].awaits_snapshot = True
        return ()

    def _snapshot_ready(self, event: SnapshotReady) -> Iterable[Instruction]:
        record = self.tasks.get(event.task)
        if record is None:
            return
        record.awaits_snapshot = False
        if not record.opened and not record.lookup:
            committed = record.active or self._restores_inputs(event.task)
            yield from self._look_up([event.task], committed=committed)

    def _changelog_replaced(self, event: ChangelogReplaced) -> Iterable[Instruction]:
        yield from self._look_up([event.task], committed=True)

    def _restored(self, event: StoresRestored) -> Iterable[Instruction]:
        for task in event.tasks:
            self.tasks[task].state = TaskState.RUNNING
        yield StartTasks(event.tasks)

    def _copy_progress(self, event: CopyProgress) -> Iterable[Instruction]:
        record = self.tasks[event.task]
        record.caught_up = event.caught_up
        if event.restored:
            record.state = TaskState.RUNNING
        return ()

    def _expired(self, event: StoresExpired) -> Iterable[Instruction]:
        record = self.tasks[event.task]
        if record.active:
            record.opened, record.state = False, TaskState.ACQUIRING
            yield StopReading(event.task)
            yield CloseStores(event.task, for_good=False)
            yield from self._look_up([event.task], committed=True)
        else:
            role = record.role
            yield from self._drop(Drop((event.task,)))
            yield from self._hold(Hold((event.task,), role))

    def _become_copy(self, record: TaskRecord) -> Iterable[Instruction]:
        record.role, record.state, record.epoch = Role.STANDBY, TaskState.RESTORING, 0
        yield StopReading(record.task)
        yield BecomeCopy(record.task)

    # Commits

    def _commit_begun(self, event: CommitBegun) -> Iterable[Instruction]:
        for task in event.tasks:
            self.tasks[task].state = TaskState.RELEASING
            yield StopReading(task)

    def _commit_completed(self, event: CommitCompleted) -> Iterable[Instruction]:
        for task in event.tasks:
            record = self.tasks[task]
            owner, record.release_to = record.release_to or "", None
            yield from self._become_copy(record)
            yield ReportHandedOver(task, owner)

    def _commit_failed(self, _: CommitFailed) -> Iterable[Instruction]:
        active = [each for each in self.tasks.values() if each.active]
        # If opening stores failed, nothing else looks these copies up again.
        stuck_copies = [
            each
            for each in self.tasks.values()
            if not each.active and each.state is TaskState.ACQUIRING and not each.lookup and not each.awaits_snapshot
        ]
        for record in active:
            if record.state is not TaskState.ACQUIRING:  # otherwise its stores are still those of a copy
                record.opened = False
                yield StopReading(record.task)
                yield CloseStores(record.task, for_good=False)
            record.state, record.release_to = TaskState.ACQUIRING, None
        yield from self._look_up([each.task for each in [*active, *stuck_copies]], committed=True)

    # Invariants

    def validate(self) -> None:
        """Check the invariants that hold between two events.

        Raises:
            InvalidTransition: a task violates one.
        """
        for record in self.tasks.values():
            for holds, what in _invariants(record):
                if not holds:
                    raise InvalidTransition(f"task {record.task}: {what}: {record}\n{self.story.text()}")


def _invariants(record: TaskRecord) -> Iterable[tuple[bool, str]]:
    acquiring = record.state is TaskState.ACQUIRING
    waits = bool(record.lookup) or record.awaits_snapshot
    yield waits or not acquiring, "an acquiring task waits for a lookup or a snapshot"
    yield acquiring or not record.lookup, "only an acquiring task waits for a lookup"
    yield acquiring or record.opened, "a task that restores or runs has its stores open"
    yield not (record.opened and record.awaits_snapshot), "a task with open stores does not wait for a snapshot"
    yield not record.opened or not acquiring or record.active, "a copy with open stores is not acquiring"
    yield record.active or record.state is not TaskState.RELEASING, "only an active task is handed over"
    yield record.active or record.release_to is None, "only an active task has a next owner"
    yield record.release_to is not None or record.state is not TaskState.RELEASING, "a releasing task has a next owner"


_TRANSITIONS: dict[type[Event], Callable[[TaskLifecycle, Any], Iterable[Instruction]]] = {
    Hold: TaskLifecycle._hold,
    Drop: TaskLifecycle._drop,
    Release: TaskLifecycle._release,
    Keep: TaskLifecycle._keep,
    LookedUp: TaskLifecycle._looked_up,
    TakenAway: TaskLifecycle._taken_away,
    StoresOpened: TaskLifecycle._opened,
    SnapshotAwaited: TaskLifecycle._snapshot_awaited,
    SnapshotReady: TaskLifecycle._snapshot_ready,
    ChangelogReplaced: TaskLifecycle._changelog_replaced,
    StoresRestored: TaskLifecycle._restored,
    CopyProgress: TaskLifecycle._copy_progress,
    StoresExpired: TaskLifecycle._expired,
    CommitBegun: TaskLifecycle._commit_begun,
    CommitCompleted: TaskLifecycle._commit_completed,
    CommitFailed: TaskLifecycle._commit_failed,
}
