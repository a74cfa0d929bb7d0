"""Does the I/O of the tasks' life cycle: stores, consumers, lookups. `lifecycle.py` decides what happens next.

Nothing here blocks: requests that wait for a broker run in separate threads (`ownership/lookups.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, singledispatchmethod
from typing import Any

from millpond.errors import StateCorrupted
from millpond.protocol import Mark, Role, TaskState
from millpond.runtime.all_steps import take_all
from millpond.runtime.commit.pipeline import Offsets
from millpond.runtime.offsets.metadata import (
    Claim,
    CommittedOffset,
    OffsetMetadata,
    Partition,
)
from millpond.runtime.ownership import lookups
from millpond.runtime.ownership.lookups import OwnershipLookups
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.runtime.topics.plan import Plan, summary
from millpond.topology import TaskId

from .active_tasks import ActiveTasks
from .changelog_copies import ChangelogCopies
from .events import (
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
    SnapshotReady,
    StoresExpired,
    StoresRestored,
)
from .held_tasks import HeldTask
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
from .lifecycle import TaskLifecycle
from .resources import TaskResources
from .start_positions import StartPositions
from .store_operations import StoreOperations
from .task_claims import TaskClaims
from .task_stores import TaskStores

__all__ = ("TaskExecutor",)

log: logging.Logger = logging.getLogger(__name__)

Outcomes = Iterable[Event]
_NOTHING: tuple[Event, ...] = ()


class TaskExecutor:
    """The tasks that a worker holds, with their stores, consumers and lookups.

    Attributes:
        lifecycle: the state machine that decides what happens to the tasks.
        held: all held tasks by id, whatever their role.
        active: the active tasks that process records.
        running, by_input: the attributes of `active`.
        reader: restores stores from changelogs.
        globals: the global stores.
        stores: the state of all tasks.
        bootstrap: restores stores from snapshots; None without a location of snapshots.
        registrar: looks up and changes owners in Kafka.
        topology: the hash of the worker's topology.
        claims: decides by the offset metadata what this worker may do with a task.
        on_not_owned: called with a task that this worker may not activate, the claim, and the owner in Kafka.
        on_handed_over: called with a task and its next owner when the commit that names that owner is complete.
    """

    def __init__(self, resources: TaskResources) -> None:
        plan, config, environment = resources.plan, resources.config, resources.environment
        self.lifecycle: TaskLifecycle = TaskLifecycle(self._restores_inputs)
        self.held: dict[TaskId, HeldTask] = {}
        self.reader: ChangelogReader = resources.reader
        self.globals: GlobalStores = resources.global_stores
        self.stores: TaskStores = resources.stores
        self.bootstrap: SnapshotRestorer | None = resources.snapshots
        self.topology: str = summary(plan).hash
        self.on_handed_over: Callable[[TaskId, str], None] = lambda *_: None
        self._plan = plan
        self._config = config
        self._marks = resources.offsets.marks
        self._environment = environment
        self._committed_ends = resources.committed_ends
        self._copies = ChangelogCopies(
            resources.copier, self.reader, resources.cluster, resources.committed_ends, self.held
        )
        self._dropped_at: dict[TaskId, float] = {}
        self.start_positions: StartPositions = StartPositions(plan, config, environment, self.topology)
        self._operations = StoreOperations(
            self.stores, self.reader, self._copies, environment, self.topology, self.start_positions
        )
        self.claims: TaskClaims = TaskClaims(config, self.topology, self.start_positions)
        self.on_not_owned: Callable[[TaskId, Claim, str | None], None] = self.claims.taken_over
        self.stores.position_of = self.start_positions.position
        self._consumer = resources.consumer
        self.active: ActiveTasks = ActiveTasks(resources, self.start_positions, self.topology)
        self.running: list[StreamTask] = self.active.running
        self.by_input: dict[Partition, StreamTask] = self.active.by_input
        self.registrar: OwnershipLookups = OwnershipLookups(
            resources.threads, resources.cluster, resources.offsets,
            lambda task: (self._plan.inputs_of(task), self._plan.changelogs_of(task)),
            resources.fencing if config.exactly_once else None,
            self.start_positions.start_of,
            self.start_positions.age_of,
            self.topology,
        )  # fmt: skip

    # The held tasks

    @property
    def tasks(self) -> dict[TaskId, StreamTask]:
        """The active tasks whose processors exist."""
        return {each.id: each.task for each in self.held.values() if each.task is not None}

    @property
    def settled(self) -> bool:
        """Whether every active task runs, or is being handed over."""
        return self.lifecycle.settled

    @property
    def active_tasks(self) -> list[TaskId]:
        """The tasks with the active role, in any state."""
        return [task for task, each in self.held.items() if each.role is Role.ACTIVE]

    def unsettled(self, longer_than_s: float) -> list[str]:
        """Return the reasons why active tasks do not run yet, for tasks that have waited for a number of seconds."""
        lines: list[str] = []
        now = time.monotonic()
        for held in self.held.values():
            if held.role is not Role.ACTIVE or now - held.looked_up_at < longer_than_s:
                continue
            if self.bootstrap is not None and self.bootstrap.pending(held.id):
                lines.append(f"task {held.id}: waiting for {self.bootstrap.described(held.id)}")
            elif held.state is TaskState.ACQUIRING:
                lines.append(f"task {held.id}: waiting for the ownership lookup")
            elif held.state is TaskState.RESTORING:
                lines += [
                    f"task {held.id}: restoring store {each.store.name}, at offset {each.position} of {each.end} in "
                    f"{each.source}; the broker reported the end at {each.seen_end}"
                    for each in held.changelogs
                    if not each.done
                ]
        return lines

    def inputs_to_come(self) -> list[Partition]:
        """Return the inputs of active tasks that do not run yet."""
        not_yet_running = (TaskState.ACQUIRING, TaskState.RESTORING)
        return [
            partition
            for each in self.held.values()
            if each.role is Role.ACTIVE and each.state in not_yet_running
            for partition in self._plan.inputs_of(each.id)
        ]

    def active_stores(self) -> Sequence[Any]:
        """Return the store instances of all active tasks."""
        return [store for each in self.held.values() if each.task is not None for store in each.task.stores.values()]

    def _restores_inputs(self, task: TaskId) -> bool:
        return bool(set(self._plan.inputs_of(task)) & set(self._plan.changelogs_of(task)))

    # Events

    def handle(self, event: Event) -> None:
        """Let the life cycle handle an event, and carry out its instructions.

        Raises:
            MillpondError: a task cannot run here.
        """
        self.perform(self.lifecycle.handle(event))

    def perform(self, instructions: Iterable[Instruction]) -> None:
        """Carry out instructions of the life cycle, all of them even if some fail; raise as `handle` does."""
        self._perform(instructions)
        self._copies.assign()

    def _perform(self, instructions: Iterable[Instruction]) -> None:
        # The life cycle counts on each of them: a task that it has dropped must not keep its stores open here.
        take_all(partial(self._carry_out, each) for each in instructions)

    def _carry_out(self, instruction: Instruction) -> None:
        for outcome in self._do(instruction):
            self._perform(self.lifecycle.handle(outcome))

    def hold(self, tasks: Collection[TaskId], role: Role) -> None:
        """Hold tasks in a role. An active role begins with a lookup in Kafka."""
        self.handle(Hold(tuple(tasks), role))

    def drop(self, tasks: Iterable[TaskId]) -> None:
        """Stop holding tasks. Their uncommitted changes are dropped; their rows on disk stay."""
        self.handle(Drop(tuple(tasks)))

    def release(self, task: TaskId, owner: str) -> None:
        """Hand a task over to another owner with the next commit."""
        self.handle(Release(task, owner))

    def keep_all(self) -> None:
        """Cancel all hand-overs whose commit has not begun."""
        for task in self.lifecycle.releases:
            self.handle(Keep(task))

    def looked_up(self, answer: lookups.LookupAnswer) -> None:
        """Handle the answer to a lookup in Kafka.

        Raises:
            OwnershipError: another worker owns a task, and no coordinator can have assigned it.
        """
        findings: list[Finding] = []
        for task, lookup in answer.tasks.items():
            held = self.held.get(task)
            if held is None or held.record.lookup != answer.number:
                continue
            held.last_lookup = lookup
            findings.append(self.claims.finding(held, lookup))
        self.handle(LookedUp(answer.number, tuple(findings)))

    # The loop

    def take_in_snapshots(self) -> None:
        """Ingest a small part of the fetched snapshots, and open the tasks that waited for them."""
        snapshots = self.bootstrap
        if snapshots is None:
            return
        snapshots.replay_rate(self.reader.rate)
        for task in snapshots.turn():
            if not self.globals.restored(task):
                self.handle(SnapshotReady(task))

    def start_restored(self) -> None:
        """Start the tasks whose stores are restored. Call it when global stores are complete and `settled` is False."""
        restored = [
            task
            for task, held in self.held.items()
            if held.role is Role.ACTIVE and held.state is TaskState.RESTORING and held.restored
        ]
        if restored:
            self.handle(StoresRestored(tuple(restored)))

    def balance(self) -> None:
        """Pause inputs that have too many records buffered, and resume those that have room again."""
        self.active.balance()

    def look_at_ends(self) -> None:
        """Request the end offsets of copies' changelogs and of global stores' topics when they are due."""
        self._copies.look_at_ends()
        self.globals.look_at_ends()

    def measure_lags(self) -> None:
        """Measure the lags of copies."""
        acceptable = self._config.acceptable_recovery_lag
        for held in list(self.held.values()):
            if held.role is Role.ACTIVE or not held.record.opened:
                continue
            if self.lifecycle.tasks.get(held.id) is not held.record:
                continue  # dropped in this turn: the instruction that closes its stores comes next
            self._copies.update_ends(held)
            lag = held.lag
            caught_up = lag is not None and lag <= acceptable
            reached = held.state is TaskState.RESTORING and held.restored
            if reached or caught_up != held.record.caught_up:
                self.handle(CopyProgress(held.id, held.restored, caught_up))

    def reopen_expired(self) -> None:
        """Reopen stores that need records their changelogs no longer have, and restore them from the beginning."""
        expired, self.reader.expired[:] = list(self.reader.expired), []
        for held in [each for each in self.held.values() if any(one in expired for one in each.changelogs)]:
            self.handle(StoresExpired(held.id))

    def reopen(self, source: Partition) -> bool:
        """Restore the copy of a changelog from the beginning, since the changelog no longer has its position.

        Returns:
            Whether the changelog belongs to a copy.
        """
        for held in self.held.values():
            if held.role is not Role.ACTIVE and any(each.source == source for each in held.changelogs):
                log.warning(
                    "task %s: changelog %s no longer contains the copy's position; restoring it from the beginning",
                    held.id, source,
                )  # fmt: skip
                self.handle(StoresExpired(held.id))
                return True
        return False

    def clean_up(self, delay_s: float) -> None:
        """Delete the state of tasks that were dropped more than `delay_s` seconds ago."""
        now = time.monotonic()
        for task in self.stores.on_disk(self.held):
            since = self._dropped_at.setdefault(task, now)
            if now - since >= delay_s:
                del self._dropped_at[task]
                self.stores.forget(task)

    # Commits

    def to_release(self) -> list[HeldTask]:
        """Return the tasks that the next commit hands over; a task with an unanswered lookup has to wait."""
        return [self.held[task] for task in self.lifecycle.to_release]

    def positions(self, held: HeldTask) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the offsets and metadata to commit for an active task, with its next owner if it is handed over."""
        owner, epoch = self._config.worker_id, held.epoch
        if held.release_to is not None and held.state is not TaskState.RELEASING:
            owner, epoch = held.release_to, held.epoch + 1
        if held.task is not None:
            return held.task.positions(owner, epoch, self.topology, held.digest, held.topics)
        assert held.activated_with is not None
        # It is handed over before it ran: only the owner and the epoch change.
        return self.start_positions.claimed(held.activated_with, owner, epoch)

    def releasing(self, tasks: Iterable[HeldTask]) -> None:
        """Stop these tasks, since the commit that hands them over has begun."""
        self.handle(CommitBegun(tuple(each.id for each in tasks)))

    def released(self, tasks: Iterable[TaskId]) -> None:
        """Demote these tasks, since the commit that hands them over is complete and its rows are on disk."""
        self.handle(CommitCompleted(tuple(tasks)))

    def committed(self, offsets: Offsets) -> None:
        """Remember the offsets of a completed commit."""
        tasks = {task.id: task for partition in offsets if (task := self.by_input.get(partition)) is not None}
        for task in tasks.values():
            held = self.held[task.id]
            held.committed = {
                Partition(topic, task.id.partition): CommittedOffset(*offsets[Partition(topic, task.id.partition)])
                for topic in task.inputs
            }
            held.confirmed = True

    def learn(self, marks: Mapping[TaskId, Mark]) -> None:
        """Record the commits of other workers, as lower bounds for committed offsets."""
        for task, mark in marks.items():
            self._marks.record(task, self._plan.inputs_of(task), mark)

    # Back to the last commit, and the end

    def go_back(self, *, renew: bool = False) -> None:
        """Take active tasks back to the last commit, after a commit that failed.

        Args:
            renew: whether to replace the consumers, which may have lost their connections for the same reason.
        """
        self.active.outbox.clear()
        self.active.stop_all(unassign=not renew)
        if renew:
            self.renew_consumers()
        for held in self.held.values():
            if held.mark is not None:
                offsets = {each: found.offset for each, found in held.committed.items() if found.offset is not None}
                self._marks.record(held.id, held.committed, held.mark, offsets)
        self.handle(CommitFailed())

    def renew_consumers(self) -> None:
        """Replace both consumers. Copies and global stores continue at their positions; active tasks go back."""
        self._consumer.renew()
        self.globals.resume()
        self._copies.renew()

    def renew_copier(self) -> None:
        """Replace the consumer of changelogs; each continues at its position."""
        self._copies.renew()

    def adopt(self, plan: Plan) -> None:
        """Use a plan with more inputs or tasks. Call `go_back` next, to create the tasks again with all inputs."""
        self._plan = plan
        self.stores.adopt(plan)
        self.start_positions.adopt(plan)
        self.active.adopt(plan)

    def rebuild_corrupted(self, error: StateCorrupted) -> None:
        """Close all tasks, delete the local rows of a corrupted store, and hold the same tasks again."""
        before = {task: held.role for task, held in self.held.items()}
        self.drop_all()
        self.stores.rebuild(error)
        if self.bootstrap is not None and error.store is not None:
            self.bootstrap.distrust(error.store)
        self.globals.create()
        for role in Role:
            self.hold([task for task, former in before.items() if former is role], role)

    def drop_all(self) -> None:
        """Drop all tasks and global stores, with their uncommitted changes."""
        self.active.outbox.clear()
        self._copies.forget()
        take_all((lambda: self.drop(list(self.held)), self._dropped_at.clear, self.globals.close))

    def close(self) -> None:
        """Close all tasks, stores and lookups, whichever of them fail."""
        snapshots = () if self.bootstrap is None else (self.bootstrap.close,)
        take_all((self.registrar.close, self._committed_ends.close, self.drop_all, *snapshots))

    # Instructions

    @singledispatchmethod
    def _do(self, instruction: Instruction) -> Outcomes:
        raise NotImplementedError(instruction)

    @_do.register
    def _(self, each: LookUp) -> Outcomes:
        for task in each.tasks:
            record, held = self.lifecycle.tasks[task], self.held.get(task)
            if held is None or held.record is not record:
                self.held[task] = held = HeldTask(record)
                self._dropped_at.pop(task, None)
            held.looked_up_at = time.monotonic()
        self.registrar.look_up(each.tasks, number=each.number, committed=each.committed)
        return _NOTHING

    @_do.register
    def _(self, each: OpenStores) -> Outcomes:
        return [self._operations.open(self.held[each.task], each, self.bootstrap)]

    @_do.register
    def _(self, each: BecomeActive) -> Outcomes:
        self._operations.become_active(self.held[each.task])
        return _NOTHING

    @_do.register
    def _(self, each: StartTasks) -> Outcomes:
        started = [self.held[task] for task in each.tasks]
        self.active.start(started, self.globals.by_name())
        self._operations.stop_restoring(started)
        for store in self.active_stores():
            store.cache_limit = None  # all share one, which is enforced after each commit
        return _NOTHING

    @_do.register
    def _(self, each: StopReading) -> Outcomes:
        self.active.stop(self.held[each.task])
        return _NOTHING

    @_do.register
    def _(self, each: BecomeCopy) -> Outcomes:
        return [self._operations.become_copy(self.held[each.task])]

    @_do.register
    def _(self, each: CloseStores) -> Outcomes:
        try:
            self._operations.close(self.held[each.task], for_good=each.for_good)
        finally:
            if each.for_good:
                self._dropped_at[each.task] = time.monotonic()
                del self.held[each.task]
        return _NOTHING

    @_do.register
    def _(self, each: CancelSnapshot) -> Outcomes:
        if self.bootstrap is not None:
            self.bootstrap.forget(each.task)
        return _NOTHING

    @_do.register
    def _(self, each: SkipSnapshot) -> Outcomes:
        if self.bootstrap is not None:
            self.bootstrap.skip(each.task)
        return _NOTHING

    @_do.register
    def _(self, each: ReportNotOwned) -> Outcomes:
        self.on_not_owned(each.task, each.claim, each.owner)
        return _NOTHING

    @_do.register
    def _(self, each: ReportHandedOver) -> Outcomes:
        log.info("task %s: handed over to %s", each.task, each.owner)
        self.on_handed_over(each.task, each.owner)
        return _NOTHING
