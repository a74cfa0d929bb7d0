"""Does the I/O of the tasks' life cycle: stores, consumers, look-ups. What happens next is decided in `lifecycle.py`.

Nothing here blocks: what has to wait for a broker is done by threads of its own (`ownership/lookups.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import singledispatchmethod
from typing import Any

from confluent_kafka import Producer, TopicPartition

from millpond.errors import OwnershipError, StateCorrupted
from millpond.protocol import Mark, Role, TaskState
from millpond.runtime.commit.pipeline import Offsets
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.replaceable_consumer import ReplaceableConsumer
from millpond.runtime.offsets.completeness import Completeness
from millpond.runtime.offsets.metadata import (
    Claim,
    CommittedOffset,
    OffsetMetadata,
    Partition,
    belongs_to,
    check_metadata,
    claim_of,
    epoch_of,
    next_epoch,
)
from millpond.runtime.ownership import lookups
from millpond.runtime.ownership.lookups import OwnershipLookups, TaskLookup
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.processing.context import Outgoing
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.runtime.topics.plan import Plan, summary
from millpond.topology import TaskId

from .backpressure import BackPressure
from .changelog_copies import ChangelogCopies
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
from .start_positions import StartPositions, within_range
from .task_stores import TaskStores

__all__ = ("TaskExecutor",)

log = logging.getLogger(__name__)

Outcomes = Iterable[Event]
_NOTHING: tuple[Event, ...] = ()


class TaskExecutor:
    """The tasks that a worker holds, with everything behind them.

    Attributes:
        lifecycle: decides what happens to them.
        held: by id, whatever the role.
        running: the active tasks that process, in the order in which they were started.
        by_input: the running task of each input partition.
        reader: fills stores from changelogs.
        globals: the global stores.
        stores: the state of all tasks.
        registrar: looks up and changes owners in Kafka.
        topology: the hash of the worker's.
        admitted: whether tasks of another topology may be activated. Without a coordinator they always may.
        on_disowned: told of a task that was to be active, and is not this worker's by Kafka.
        on_handed_over: told of a task, and its next owner, once the commit that names that one is through.
    """

    def __init__(
        self,
        plan: Plan,
        config: Config,
        environment: Environment,
        stores: TaskStores,
        global_stores: GlobalStores,
        consumer: ReplaceableConsumer,
        copier: ReplaceableConsumer,
        cluster: KafkaAdmin,
        offsets: OffsetStore,
        errands: ConsumerThreads,
        reader: ChangelogReader,
        fencing: Callable[[str], Producer],
        bootstrap: SnapshotRestorer | None = None,
    ) -> None:
        self.lifecycle = TaskLifecycle(self._restores_inputs)
        self.held: dict[TaskId, HeldTask] = {}
        self.running: list[StreamTask] = []
        self.by_input: dict[Partition, StreamTask] = {}
        self.reader = reader
        self.globals = global_stores
        self.stores = stores
        self.bootstrap = bootstrap
        self.outbox: list[Outgoing] = []
        self.topology = summary(plan).hash
        self.admitted: Callable[[], bool] = lambda: True
        self.on_disowned: Callable[[TaskId, Claim, str | None], None] = self._refuse
        self.on_handed_over: Callable[[TaskId, str], None] = lambda *_: None
        self._plan = plan
        self._subtopologies = {each.id: each for each in plan.subtopologies}
        self._config = config
        self._marks = offsets.marks
        self._environment = environment
        self._consumer = consumer
        self._back_pressure = BackPressure(consumer, config.buffered_records_per_partition)
        self._copies = ChangelogCopies(copier, reader, cluster, self.held)
        self._dropped_at: dict[TaskId, float] = {}
        self.positions_of_start = StartPositions(plan, config, environment, self.topology)
        stores.position_of = self.positions_of_start.position
        self.registrar = OwnershipLookups(
            errands, cluster, offsets,
            lambda task: (self._plan.inputs_of(task), self._plan.changelogs_of(task)),
            fencing if config.exactly_once else None,
            self.positions_of_start.start_of,
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
        """Take in where tasks stand in Kafka."""
        findings: list[Finding] = []
        for task, where in answer.tasks.items():
            held = self.held.get(task)
            if held is None or held.record.lookup != answer.number:
                continue
            held.found = where
            if held.role is not Role.ACTIVE:
                findings.append(Finding(task))
                continue
            claim, owner = claim_of(self._config.worker_id, where.committed)
            if self._config.coordinator_url is None and claim is Claim.RESUME:
                self.check_mine(held, where)
            findings.append(Finding(task, claim, owner, epoch_of(where.committed), self._resumable(where)))
        self.handle(LookedUp(answer.number, tuple(findings)))

    def _resumable(self, where: TaskLookup) -> bool:
        return belongs_to(self.topology, where.committed) or self.admitted()

    def check_mine(self, held: HeldTask, where: TaskLookup) -> None:
        """Check that no other process has taken a task, which without a coordinator nobody else can.

        Raises:
            OwnershipError: another worker, or another process with this worker's id, owns it.
        """
        worker = self._config.worker_id
        claim, owner = claim_of(worker, where.committed)
        if claim is not Claim.RESUME:
            self._refuse(held.id, claim, owner)
        epoch = epoch_of(where.committed)
        if held.epoch and held.epoch != epoch:
            raise OwnershipError(
                f"another process runs as worker '{worker}' of '{self._config.application_id}' (it owns task {held.id} "
                f"since epoch {epoch}, this one is at {held.epoch}). Give each worker its own 'worker.id'."
            )

    def _refuse(self, task: TaskId, claim: Claim, owner: str | None) -> None:
        raise OwnershipError(
            f"task {task} was taken over by worker '{owner}' while this worker '{self._config.worker_id}' was silent. "
            f"Nothing is lost: what it had not committed, '{owner}' processes again."
        )

    # The loop -----------------------------------------------------------------------------------------------------

    def take_in_snapshots(self) -> None:
        """Ingest a little of the snapshots that were fetched, and open what waited for them. Quick."""
        bootstrap = self.bootstrap
        if bootstrap is None:
            return
        bootstrap.replay_rate(self.reader.rate)
        for task in bootstrap.turn():
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
        self._back_pressure.balance(self.running)

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
        return self.positions_of_start.claimed(held.where, owner, epoch)

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
            self._marks.tell(task, self._plan.inputs_of(task), mark)

    def announcement(self, answer: lookups.LookupAnswer) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the offsets of tasks that are this worker's, as they are, with the epochs of a new incarnation."""
        offsets: dict[Partition, tuple[int, OffsetMetadata]] = {}
        for where in answer.tasks.values():
            mine = claim_of(self._config.worker_id, where.committed)[0] is Claim.RESUME
            if mine and self._resumable(where):
                epoch = next_epoch(where.committed)
                offsets |= self.positions_of_start.claimed(where, self._config.worker_id, epoch)
        return offsets

    # Back to a commit, and the end --------------------------------------------------------------------------------

    def go_back(self, *, renew: bool = False) -> None:
        """Take active tasks back to what is committed, after a failed commit.

        With `renew`, the consumers are replaced: whatever made the commit fail may have left them deaf.
        """
        self.outbox.clear()
        reading = self._back_pressure.forget(list(self.by_input))
        if renew:
            self.renew_consumers()
        elif reading:
            self._consumer.incremental_unassign([TopicPartition(each.topic, each.partition) for each in reading])
        self._back_pressure.clear()
        self.running.clear()
        self.by_input.clear()
        for held in self.held.values():
            if held.mark is not None:
                self._marks.tell(held.id, held.committed, held.mark)
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
        self._subtopologies = {each.id: each for each in plan.subtopologies}
        self.stores.adopt(plan)
        self.positions_of_start.adopt(plan)

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
        self.outbox.clear()
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
        held, bootstrap = self.held[each.task], self.bootstrap
        where = held.found
        assert where is not None
        if each.following and not where.committed and self.stores.doubtful(held.id, where):
            return [ChangelogReplaced(each.task)]
        if bootstrap is not None and each.snapshot:
            wanted = self.stores.wanted
            if bootstrap.awaits(held.id, lambda: wanted(held.id, where), each.together):
                return [SnapshotAwaited(each.task)]
        if not each.following:
            self._adopt_position(held, where)
        try:
            self.stores.open(held, where, topology=self.topology, following=each.following)
        except BaseException:
            self.stores.close(held, for_good=False)
            raise
        for changelog in held.changelogs:
            self.reader.add(changelog)
        self._copies.read(changelog for changelog in held.changelogs if each.following or not changelog.done)
        return [StoresOpened(each.task, held.restored)]

    def _adopt_position(self, held: HeldTask, where: TaskLookup) -> None:
        held.digest = self.stores.digest(where, held.id)
        held.committed, held.where = where.committed, where

    @_do.register
    def _(self, each: BecomeActive) -> Outcomes:
        held = self.held[each.task]
        where = held.found
        assert where is not None
        self._adopt_position(held, where)
        for changelog in held.changelogs:
            self.reader.become_active(changelog, self.stores.end_of(changelog.source, where))
            if changelog.bounded and not changelog.done:
                # What lay beyond the bound was read and left out: read it again.
                self._copies.unassign([changelog])
                self._copies.read([changelog])
        self._copies.unassign(changelog for changelog in held.changelogs if changelog.done)
        return _NOTHING

    @_do.register
    def _(self, each: StartTasks) -> Outcomes:
        positions: list[TopicPartition] = []
        for held in map(self.held.__getitem__, each.tasks):
            # Its processors' init() may read the stores: they are complete only now.
            held.task = task = self._make_task(held)
            for changelog in held.changelogs:
                self.reader.remove(changelog)
            self._copies.unassign(held.changelogs)
            for partition in held.committed:
                self.by_input[partition] = task
                position = task.inputs[partition.topic].position
                positions.append(TopicPartition(partition.topic, partition.partition, position))
            self.running.append(task)
            log.info("task %s: running", held.id)
        self._consumer.incremental_assign(positions)
        stores = self.active_stores()
        for store in stores:
            store.cache_limit = self._environment.row_cache_bytes // len(stores)
        return _NOTHING

    def _make_task(self, held: HeldTask) -> StreamTask:
        where = held.where
        assert where is not None
        remembered: dict[str, int] = {}
        for each in where.committed.values():
            for name, value in each.metadata.processors.items():
                remembered[name] = max(value, remembered.get(name, value))
        task = StreamTask(
            self._subtopologies[held.id.subtopology], held.id.partition, held.stores, self.globals.by_name(),
            self._environment, self.outbox, remembered, self._plan.tasks[held.id],
        )  # fmt: skip
        check_metadata(task.id, task.remembered_names, self.topology)
        position = self.positions_of_start.position
        task.resume_at(
            {
                partition.topic: (
                    within_range(partition, position(partition, where), where.ranges[partition]),
                    each.metadata,
                )
                for partition, each in where.committed.items()
            }
        )
        if any(
            each.offset is None or each.metadata.topology != self.topology or each.metadata.former_changelogs
            for each in held.committed.values()
        ):
            # Nobody is to take it for another topology's any more, and an input that is new to it starts only once.
            task.commit_needed = True
        return task

    @_do.register
    def _(self, each: StopReading) -> Outcomes:
        held = self.held[each.task]
        task = held.task
        if task is None:
            return _NOTHING
        inputs = [partition for partition in held.committed if self.by_input.get(partition) is task]
        for partition in inputs:
            del self.by_input[partition]
        attached = self._back_pressure.forget(inputs)
        if attached:
            self._consumer.incremental_unassign([TopicPartition(one.topic, one.partition) for one in attached])
        if task in self.running:
            self.running.remove(task)
        return _NOTHING

    @_do.register
    def _(self, each: BecomeCopy) -> Outcomes:
        held = self.held[each.task]
        ran = held.task is not None
        held.end_task()
        held.committed, held.where = {}, None
        for changelog in held.changelogs:
            store = changelog.store
            store.revert()
            offset = changelog.backend.offset(store.name, store.partition)
            if offset is not None:
                changelog.position = max(offset, 0)
            if ran:
                known = changelog.backend.provenance(store.name, store.partition)
                changelog.completeness = Completeness(self._environment.now_ms() if known is None else known.as_of_ms)
                changelog.whole = False
            changelog.end = max(changelog.end, changelog.position)
            changelog.seen_end = -1
            self.reader.follow(changelog)
        self._copies.unassign(held.changelogs)
        self._copies.read(held.changelogs)
        return [StoresOpened(each.task, held.restored)]

    @_do.register
    def _(self, each: CloseStores) -> Outcomes:
        held = self.held[each.task]
        for changelog in held.changelogs:
            self.reader.remove(changelog)
        self._copies.unassign(held.changelogs)
        # Stores are closed rather than reverted: the one may have to read a file that is broken, the other not.
        self.stores.close(held, for_good=each.for_good)
        held.end_task()
        held.where = None
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
