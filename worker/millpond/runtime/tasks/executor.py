"""Does the I/O of the tasks' life cycle: stores, consumers, look-ups. What happens next is decided in `lifecycle.py`.

Nothing here blocks: what has to wait for a broker is done by threads of its own (`ownership/lookups.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

from millpond.errors import StateCorrupted
from millpond.protocol import Mark, Role, TaskState
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
    ReportDisowned,
    ReportHandedOver,
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
    """The tasks that a worker holds, with everything behind them.

    Attributes:
        lifecycle: decides what happens to them.
        held: by id, whatever the role.
        active: the active tasks that process.
        running, by_input: of `active`.
        reader: fills stores from changelogs.
        globals: the global stores.
        stores: the state of all tasks.
        bootstrap: restores stores from snapshots; None where the application has none.
        registrar: looks up and changes owners in Kafka.
        topology: the hash of the worker's.
        claims: decides what this worker may do with a task by its offset metadata.
        on_disowned: called with a task that was to be active and is not this worker's by Kafka.
        on_handed_over: called with a task and its next owner, once the commit that names that one is complete.
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
        self._copies = ChangelogCopies(resources.copier, self.reader, resources.cluster, self.held)
        self._operations = StoreOperations(self.stores, self.reader, self._copies, environment, self.topology)
        self._dropped_at: dict[TaskId, float] = {}
        self.start_positions: StartPositions = StartPositions(plan, config, environment, self.topology)
        self.claims: TaskClaims = TaskClaims(config, self.topology, self.start_positions)
        self.on_disowned: Callable[[TaskId, Claim, str | None], None] = self.claims.taken_over
        self.stores.position_of = self.start_positions.position
        self._consumer = resources.consumer
        self.active: ActiveTasks = ActiveTasks(
            plan,
            environment,
            resources.consumer,
            config.buffered_records_per_partition,
            self.start_positions,
            self.topology,
        )
        self.running: list[StreamTask] = self.active.running
        self.by_input: dict[Partition, StreamTask] = self.active.by_input
        self.registrar: OwnershipLookups = OwnershipLookups(
            resources.threads, resources.cluster, resources.offsets,
            lambda task: (self._plan.inputs_of(task), self._plan.changelogs_of(task)),
            resources.fencing if config.exactly_once else None,
            self.start_positions.start_of,
            self.topology,
        )  # fmt: skip

    # What there is ------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> dict[TaskId, StreamTask]:
        """The active tasks that exist, whether they run yet or not."""
        return {each.id: each.task for each in self.held.values() if each.task is not None}

    @property
    def settled(self) -> bool:
        """Whether every active task runs, or is being handed over."""
        return self.lifecycle.settled

    @property
    def active_tasks(self) -> list[TaskId]:
        """The tasks that are active here, or are to be."""
        return [task for task, each in self.held.items() if each.role is Role.ACTIVE]

    def unsettled(self, longer_than_s: float) -> list[str]:
        """Return why active tasks do not run yet that were assigned so long ago, a sentence each."""
        lines: list[str] = []
        now = time.monotonic()
        for held in self.held.values():
            if held.role is not Role.ACTIVE or now - held.since < longer_than_s:
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
        coming = (TaskState.ACQUIRING, TaskState.RESTORING)
        return [
            partition
            for each in self.held.values()
            if each.role is Role.ACTIVE and each.state in coming
            for partition in self._plan.inputs_of(each.id)
        ]

    def active_stores(self) -> Sequence[Any]:
        """Return the store instances of all active tasks."""
        return [store for each in self.held.values() if each.task is not None for store in each.task.stores.values()]

    def _restores_inputs(self, task: TaskId) -> bool:
        return bool(set(self._plan.inputs_of(task)) & set(self._plan.changelogs_of(task)))

    # Events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Let the life cycle handle an event, and do what it asks for.

        Raises:
            MillpondError: a task cannot be run here.
        """
        self.perform(self.lifecycle.handle(event))

    def perform(self, instructions: Iterable[Instruction]) -> None:
        """Do what the life cycle asks for; raises as `handle`."""
        self._perform(instructions)
        self._copies.assign()

    def _perform(self, instructions: Iterable[Instruction]) -> None:
        for each in instructions:
            for outcome in self._do(each):
                self._perform(self.lifecycle.handle(outcome))

    def hold(self, tasks: Collection[TaskId], role: Role) -> None:
        """Hold tasks in a role. An active role begins with a look-up in Kafka."""
        self.handle(Hold(tuple(tasks), role))

    def drop(self, tasks: Iterable[TaskId]) -> None:
        """Hold tasks no more; what they did not commit is forgotten, their rows on disk stay."""
        self.handle(Drop(tuple(tasks)))

    def release(self, task: TaskId, owner: str) -> None:
        """Let the next commit name another owner for a task."""
        self.handle(Release(task, owner))

    def keep_all(self) -> None:
        """Release no task whose commit has not begun."""
        for task in self.lifecycle.releases:
            self.handle(Keep(task))

    def looked_up(self, answer: lookups.LookupAnswer) -> None:
        """Take in what a lookup found in Kafka.

        Raises:
            OwnershipError: another worker owns a task, and there is no coordinator that could have assigned it there.
        """
        findings: list[Finding] = []
        for task, where in answer.tasks.items():
            held = self.held.get(task)
            if held is None or held.record.lookup != answer.number:
                continue
            held.found = where
            findings.append(self.claims.finding(held, where))
        self.handle(LookedUp(answer.number, tuple(findings)))

    # The loop -----------------------------------------------------------------------------------------------------

    def take_in_snapshots(self) -> None:
        """Ingest a little of the snapshots that were fetched, and open what waited for them. Quick."""
        snapshots = self.bootstrap
        if snapshots is None:
            return
        snapshots.replay_rate(self.reader.rate)
        for task in snapshots.turn():
            if not self.globals.restored(task):
                self.handle(SnapshotReady(task))

    def start_restored(self) -> None:
        """Start those tasks whose stores are restored. Call it while `settled` is False, once global stores are."""
        restored = [
            task
            for task, held in self.held.items()
            if held.role is Role.ACTIVE and held.state is TaskState.RESTORING and held.restored
        ]
        if restored:
            self.handle(StoresRestored(tuple(restored)))

    def balance(self) -> None:
        """Leave inputs that are too far ahead, come back to those with room."""
        self.active.balance()

    def look_at_ends(self) -> None:
        """Ask, now and then, where the changelogs of copies and the topics of global stores end. Cheap when it is not time."""
        self._copies.look_at_ends()
        self.globals.look_at_ends()

    def look_at_copies(self) -> None:
        """See how far behind copies are."""
        acceptable = self._config.acceptable_recovery_lag
        for held in list(self.held.values()):
            if held.role is Role.ACTIVE or not held.record.opened:
                continue
            self._copies.ends_seen(held)
            lag = held.lag
            caught_up = lag is not None and lag <= acceptable
            reached = held.state is TaskState.RESTORING and held.restored
            if reached or caught_up != held.record.caught_up:
                self.handle(CopyProgress(held.id, held.restored, caught_up))

    def reopen_expired(self) -> None:
        """Open stores again that fell so far behind that they have to be restored from the beginning."""
        expired, self.reader.expired[:] = list(self.reader.expired), []
        for held in [each for each in self.held.values() if any(one in expired for one in each.changelogs)]:
            self.handle(StoresExpired(held.id))

    def reopen(self, source: Partition) -> bool:
        """Begin a copy anew whose position is not in its changelog any more. Returns whether it was a copy's."""
        for held in self.held.values():
            if held.role is not Role.ACTIVE and any(each.source == source for each in held.changelogs):
                log.warning("task %s: changelog %s begins after what the copy has; restoring it anew", held.id, source)
                self.handle(StoresExpired(held.id))
                return True
        return False

    def clean_up(self, delay_s: float) -> None:
        """Delete from the disk what was dropped longer ago than `delay_s`."""
        now = time.monotonic()
        for task in self.stores.on_disk(self.held):
            since = self._dropped_at.setdefault(task, now)
            if now - since >= delay_s:
                del self._dropped_at[task]
                self.stores.forget(task)

    # Commits ------------------------------------------------------------------------------------------------------

    def to_release(self) -> list[HeldTask]:
        """Return the tasks that the next commit hands over; those whose look-up is under way have to wait."""
        return [self.held[task] for task in self.lifecycle.to_release]

    def positions(self, held: HeldTask) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return what to commit for an active task; when it is handed over, with its next owner."""
        owner, epoch = self._config.worker_id, held.epoch
        if held.release_to is not None and held.state is not TaskState.RELEASING:
            owner, epoch = held.release_to, held.epoch + 1
        if held.task is not None:
            return held.task.positions(owner, epoch, self.topology, held.digest)
        assert held.where is not None
        # It is handed over before it ran: nothing of it changes but the owner.
        return self.start_positions.claimed(held.where, owner, epoch)

    def releasing(self, tasks: Iterable[HeldTask]) -> None:
        """The commit that hands these tasks over has begun: they process nothing more."""
        self.handle(CommitBegun(tuple(each.id for each in tasks)))

    def released(self, tasks: Iterable[TaskId]) -> None:
        """The commit that hands these tasks over is through, and its rows are on disk."""
        self.handle(CommitCompleted(tuple(tasks)))

    def committed(self, offsets: Offsets) -> None:
        """A commit of these offsets is through."""
        tasks = {task.id: task for partition in offsets if (task := self.by_input.get(partition)) is not None}
        for task in tasks.values():
            self.held[task.id].committed = {
                Partition(topic, task.id.partition): CommittedOffset(*offsets[Partition(topic, task.id.partition)])
                for topic in task.inputs
            }

    def learn(self, marks: Mapping[TaskId, Mark]) -> None:
        """Remember how far others committed tasks."""
        for task, mark in marks.items():
            self._marks.record(task, self._plan.inputs_of(task), mark)

    # Back to a commit, and the end --------------------------------------------------------------------------------

    def go_back(self, *, renew: bool = False) -> None:
        """Take active tasks back to what is committed, after a failed commit.

        With `renew`, the consumers are replaced: whatever made the commit fail may have left them deaf.
        """
        self.active.outbox.clear()
        self.active.stop_all(unassign=not renew)
        if renew:
            self.renew_consumers()
        for held in self.held.values():
            if held.mark is not None:
                self._marks.record(held.id, held.committed, held.mark)
        self.handle(CommitFailed())

    def renew_consumers(self) -> None:
        """Read with new clients: what was read is read on where it was, active tasks aside, which go back."""
        self._consumer.renew()
        self.globals.resume()
        self._copies.renew()

    def renew_copier(self) -> None:
        """Read changelogs with a new client, each on where it was."""
        self._copies.renew()

    def adopt(self, plan: Plan) -> None:
        """Take a plan with more inputs, or with more tasks. Go back then: tasks are made anew, with all their inputs."""
        self._plan = plan
        self.stores.adopt(plan)
        self.start_positions.adopt(plan)
        self.active.adopt(plan)

    def rebuild_corrupted(self, error: StateCorrupted) -> None:
        """Close everything, forget the local rows of a corrupted store, and hold again what was held."""
        before = {task: held.role for task, held in self.held.items()}
        self.drop_all()
        self.stores.rebuild(error)
        if self.bootstrap is not None and error.store is not None:
            self.bootstrap.distrust(error.store)
        self.globals.create()
        for role in Role:
            self.hold([task for task, its in before.items() if its is role], role)

    def drop_all(self) -> None:
        """Forget all tasks and global stores, and what they did not commit."""
        self.active.outbox.clear()
        self._copies.forget()
        self.drop(list(self.held))
        self._dropped_at.clear()
        self.globals.close()

    def close(self) -> None:
        """Let go of everything."""
        self.registrar.close()
        self.drop_all()
        if self.bootstrap is not None:
            self.bootstrap.close()

    # Instructions -------------------------------------------------------------------------------------------------

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
            held.since = time.monotonic()
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
        stores = self.active_stores()
        for store in stores:
            store.cache_limit = self._environment.row_cache_bytes // len(stores)
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
        self._operations.close(self.held[each.task], for_good=each.for_good)
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
    def _(self, each: ReportDisowned) -> Outcomes:
        self.on_disowned(each.task, each.claim, each.owner)
        return _NOTHING

    @_do.register
    def _(self, each: ReportHandedOver) -> Outcomes:
        log.info("task %s: handed over to %s", each.task, each.owner)
        self.on_handed_over(each.task, each.owner)
        return _NOTHING
