"""The tasks of a worker: takes them up, makes them run, hands them over, keeps copies, and lets go of them.

    active:  ACQUIRING ──looked up──> RESTORING ──at the ends──> RUNNING ──release──> RELEASING ──committed──> copy, or gone
    copy:    ACQUIRING ──looked up──> RESTORING ──at the ends──> RUNNING ──promoted──> ACQUIRING (its stores stay open)

Whose a task is only Kafka says, so an active task begins with a look at its metadata. Nothing here blocks: what has to
wait for a broker is the registrar's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Producer, TopicPartition

from millpond.errors import OwnershipError, StateCorrupted, TopicError
from millpond.protocol import Mark, Role, TaskState
from millpond.topology import SourceNode, TaskId

from .backpressure import BackPressure
from .bootstrap import Bootstrap
from .claims import OffsetStore, claimed
from .cluster import Cluster
from .commit import Offsets
from .completeness import Completeness, Moment
from .config import Config
from .context import Outgoing
from .ends import Ends, Heard
from .environment import Environment
from .errands import Errands
from .global_state import GlobalStores
from .holdings import Held
from .ownership import (
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
from .plan import Plan, summary
from .registrar import LookedUp, Registrar, Whereabouts
from .renewable import RenewableConsumer
from .restore import ChangelogReader, Restoration
from .task import StreamTask
from .task_stores import TaskStores

__all__ = ("TaskManager",)

log = logging.getLogger(__name__)

#: Seconds between two questions where the changelogs of copies end. The age of an answer counts from the question.
_ASK_ENDS_S = 0.25

OnForeign = Callable[[TaskId, Claim, str | None], None]


class TaskManager:
    """The tasks a worker holds.

    Attributes:
        held: by id, whatever the role.
        running: the active tasks that process, in the order in which they were made to.
        by_input: the running task of each input partition.
        reader: fills stores from changelogs.
        globals: the global stores.
        stores: the state of all tasks.
        registrar: asks Kafka whose tasks are.
        topology: the hash of the worker's.
        admitted: whether tasks may be taken up that were another topology's. Without a coordinator they always may.
        changed: something happened to a task since somebody looked.
    """

    def __init__(
        self,
        plan: Plan,
        config: Config,
        environment: Environment,
        stores: TaskStores,
        global_stores: GlobalStores,
        consumer: RenewableConsumer,
        copier: RenewableConsumer,
        cluster: Cluster,
        offsets: OffsetStore,
        errands: Errands,
        reader: ChangelogReader,
        fencing: Callable[[str], Producer],
        bootstrap: Bootstrap | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._subtopologies = {each.id: each for each in plan.subtopologies}
        self._plan = plan
        self._config = config
        self._marks = offsets.marks
        self._environment = environment
        self._consumer = consumer
        self._copier = copier
        self._back_pressure = BackPressure(consumer, config.buffered_records_per_partition)
        self.stores = stores
        stores.position_of = self._position
        self.globals = global_stores
        self.reader = reader
        self.held: dict[TaskId, Held] = {}
        self.running: list[StreamTask] = []
        self.by_input: dict[Partition, StreamTask] = {}
        self.changed = True
        self.outbox: list[Outgoing] = []
        self.topology = summary(plan).hash
        self.admitted: Callable[[], bool] = lambda: True
        self.on_foreign: OnForeign = self._refuse
        self.on_released: Callable[[Mapping[TaskId, str]], None] = lambda _: None
        self._unsettled = 0
        self._opened_together = 1
        self._to_release: set[TaskId] = set()
        self._copied: set[Partition] = set()
        self._to_copy: list[Restoration] = []
        self._unassigned_since: dict[TaskId, float] = {}
        self._ends = Ends(cluster, _ASK_ENDS_S)
        self.registrar = Registrar(
            errands, cluster, offsets,
            lambda task: (self._plan.inputs_of(task), self._plan.changelogs_of(task)),
            fencing if config.exactly_once else None,
            self.start_of,
            self.topology,
        )  # fmt: skip

    # What there is --------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> dict[TaskId, StreamTask]:
        """The active tasks that exist, whether they run yet or not."""
        return {each.id: each.task for each in self.held.values() if each.task is not None}

    @property
    def settled(self) -> bool:
        """Whether every active task runs."""
        return not self._unsettled

    def unsettled(self, longer_than_s: float) -> list[str]:
        """Why active tasks do not run yet that began so long ago, a sentence each."""
        lines: list[str] = []
        now = time.monotonic()
        for held in self.held.values():
            if held.role is not Role.ACTIVE or now - held.since < longer_than_s:
                continue
            if self.bootstrap is not None and self.bootstrap.pending(held.id):
                lines.append(f"task {held.id} waits for {self.bootstrap.described(held.id)}")
            elif held.state is TaskState.ACQUIRING:
                lines.append(f"task {held.id} waits for Kafka to say whose it is")
            elif held.state is TaskState.RESTORING:
                lines += [
                    f"task {held.id} waits for store {each.store.name}: at {each.position} of {each.end} in {each.source}, "
                    f"where nothing more was said to be after {each.seen_end}"
                    for each in held.changelogs
                    if not each.done
                ]
        return lines

    def inputs_to_come(self) -> list[Partition]:
        """The inputs of active tasks that do not run yet."""
        coming = (TaskState.ACQUIRING, TaskState.RESTORING)
        return [
            partition
            for each in self.held.values()
            if each.role is Role.ACTIVE and each.state in coming
            for partition in self._plan.inputs_of(each.id)
        ]

    def active_stores(self) -> Sequence[Any]:
        """The store instances of all active tasks."""
        return [store for each in self.held.values() if each.task is not None for store in each.task.stores.values()]

    def _count(self) -> None:
        self.changed = True
        waiting = (TaskState.ACQUIRING, TaskState.RESTORING)
        self._unsettled = sum(each.role is Role.ACTIVE and each.state in waiting for each in self.held.values())

    # Taking up ------------------------------------------------------------------------------------------------

    def hold(self, tasks: Collection[TaskId], role: Role) -> None:
        """Take up tasks, or take up other roles in them. An active role is looked up in Kafka first."""
        active = role is Role.ACTIVE
        asked: list[TaskId] = []
        for task in tasks:
            self._unassigned_since.pop(task, None)
            held = self.held.get(task)
            if held is None:
                self.held[task] = Held(task, role, TaskState.ACQUIRING)
                asked.append(task)
            elif active and held.role is not Role.ACTIVE:
                held.role, held.state, held.since = role, TaskState.ACQUIRING, time.monotonic()
                self.keep(task)
                asked.append(task)
            elif not active and held.role is not Role.ACTIVE:
                held.role = role
        self._look_up(asked, committed=active or self._any_bounded(asked))
        self._count()

    def _look_up(self, tasks: Collection[TaskId], *, committed: bool) -> None:
        if tasks:
            number = self.registrar.look_up(tasks, committed=committed)
            for task in tasks:
                self.held[task].asked = number

    def _any_bounded(self, tasks: Iterable[TaskId]) -> bool:
        return any(set(self._plan.inputs_of(task)) & set(self._plan.changelogs_of(task)) for task in tasks)

    def looked_up(self, answer: LookedUp) -> None:
        """The registrar found out where tasks stand."""
        self._opened_together = len(answer.tasks)
        for task, where in answer.tasks.items():
            held = self.held.get(task)
            if held is None or held.asked != answer.number:
                continue  # it was let go of meanwhile, or a later look-up is under way: this answer may be out of date
            held.asked = 0
            if held.role is Role.ACTIVE:
                self._acquired(held, where)
            else:
                self._open_copy(held, where)
        self._copy()
        self._count()

    def _acquired(self, held: Held, where: Whereabouts) -> None:
        if not self._may_resume(where):
            self.on_foreign(held.id, *claim_of(self._config.worker_id, where.committed))
            return
        if self._config.coordinator_url is None:
            self.check_mine(held, where)
        if self._awaits_snapshot(held, where):
            return
        held.epoch = epoch_of(where.committed)
        held.digest = self.stores.digest(where, held.id)
        held.committed = where.committed
        if held.opened:
            for each in held.changelogs:
                self.reader.become_active(each, self.stores.end_of(each.source, where))
                if each.bounded and not each.done:
                    # What lay beyond the bound was read and left out: come back to it.
                    self._unassign([each])
                    self._to_copy.append(each)
        else:
            self._open(held, where, following=False)
        held.where = where
        held.state = TaskState.RESTORING
        self._unassign(each for each in held.changelogs if each.done)

    def _may_resume(self, where: Whereabouts) -> bool:
        if claim_of(self._config.worker_id, where.committed)[0] is not Claim.RESUME:
            return False
        return belongs_to(self.topology, where.committed) or self.admitted()

    def check_mine(self, held: Held, where: Whereabouts) -> None:
        """Without a coordinator nobody but another process can have taken a task.

        Raises:
            OwnershipError: another worker, or another process with this worker's id, has it now.
        """
        worker = self._config.worker_id
        claim, owner = claim_of(worker, where.committed)
        if claim is not Claim.RESUME:
            self._refuse(held.id, claim, owner)
        epoch = epoch_of(where.committed)
        if held.epoch and held.epoch != epoch:
            raise OwnershipError(
                f"another process runs as worker '{worker}' of '{self._config.application_id}' (it has task {held.id} "
                f"since epoch {epoch}, this one is at {held.epoch}). Give each worker its own 'worker.id'."
            )

    def _position(self, partition: Partition, where: Whereabouts) -> int:
        """The committed offset of an input; for one that was never committed, the offset that its reset policy names."""
        offset = where.committed[partition].offset
        return self.start_of(partition, where.ranges[partition]) if offset is None else offset

    def _open_copy(self, held: Held, where: Whereabouts) -> None:
        if not where.committed and self.stores.doubtful(held.id, where):
            self._look_up([held.id], committed=True)
            return
        if self._awaits_snapshot(held, where):
            return
        self._open(held, where, following=True)
        held.state = TaskState.RUNNING if held.restored else TaskState.RESTORING

    def _awaits_snapshot(self, held: Held, where: Whereabouts) -> bool:
        """Whether a task is not to be opened yet: it is looked up again once its stores are restored from a snapshot."""
        bootstrap = self.bootstrap
        if bootstrap is None or held.opened or held.id in self._to_release:
            return False
        return bootstrap.awaits(held.id, lambda: self.stores.wanted(held.id, where), self._opened_together)

    def take_in_snapshots(self) -> None:
        """Ingest a little of the snapshots that were fetched, and open what waited for them. Quick."""
        bootstrap = self.bootstrap
        if bootstrap is None:
            return
        bootstrap.replay_rate(self.reader.rate)
        for task in bootstrap.turn():
            if self.globals.restored(task):
                continue
            held = self.held.get(task)
            if held is not None and not held.opened and not held.asked:
                self._look_up([task], committed=held.role is Role.ACTIVE or self._any_bounded([task]))

    def _open(self, held: Held, where: Whereabouts, *, following: bool) -> None:
        """Make a task's stores and begin to restore them."""
        self.stores.open(held, where, topology=self.topology, following=following)
        for each in held.changelogs:
            self.reader.add(each)
            if following or not each.done:
                self._to_copy.append(each)

    def _copy(self) -> None:
        """Begin to read the changelogs that were collected for it."""
        restorations = self.reader.restorations
        wanted = {
            each.source: each.position
            for each in self._to_copy
            if each.source not in self._copied and restorations.get(each.source) is each
        }
        if wanted:
            self._copier.incremental_assign(
                [TopicPartition(source.topic, source.partition, position) for source, position in wanted.items()]
            )
            self._copied.update(wanted)
        self._to_copy.clear()

    def _make_task(self, held: Held, where: Whereabouts) -> StreamTask:
        remembered: dict[str, int] = {}
        for each in where.committed.values():
            for name, value in each.metadata.processors.items():
                remembered[name] = max(value, remembered.get(name, value))
        task = StreamTask(
            self._subtopologies[held.id.subtopology], held.id.partition, held.stores, self.globals.by_name(),
            self._environment, self.outbox, remembered, self._plan.tasks[held.id],
        )  # fmt: skip
        check_metadata(task.id, task.remembered_names, self.topology)
        task.resume_at(
            {
                partition.topic: (
                    within_range(partition, self._position(partition, where), where.ranges[partition]),
                    each.metadata,
                )
                for partition, each in where.committed.items()
            }
        )
        return task

    def _share_cache(self) -> None:
        stores = self.active_stores()
        for store in stores:
            store.cache_limit = self._environment.row_cache_bytes // len(stores)

    # Running --------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Let those tasks run whose stores are complete. Call it while `settled` is False, once global stores are."""
        started = [
            held
            for held in self.held.values()
            if held.role is Role.ACTIVE and held.state is TaskState.RESTORING and held.restored
        ]
        if not started:
            return
        for held in started:
            assert held.where is not None
            # Its processors' init() may read the stores: they are complete only now.
            held.task = self._make_task(held, held.where)
            held.state = TaskState.RUNNING
            if any(
                each.offset is None or each.metadata.topology != self.topology or each.metadata.former_changelogs
                for each in held.committed.values()
            ):
                # Nobody is to take it for another topology's any more, and an input that is new to it starts only once.
                held.task.commit_needed = True
        positions: list[TopicPartition] = []
        for held in started:
            assert held.task is not None
            for each in held.changelogs:
                self.reader.remove(each)
            self._unassign(held.changelogs)
            for partition in held.committed:
                self.by_input[partition] = held.task
                position = held.task.inputs[partition.topic].position
                positions.append(TopicPartition(partition.topic, partition.partition, position))
            self.running.append(held.task)
            log.info("task %s runs", held.id)
        self._consumer.incremental_assign(positions)
        self._share_cache()
        self._count()

    def balance(self) -> None:
        """Leave inputs that are too far ahead, come back to those with room."""
        self._back_pressure.balance(self.running)

    def _unassign(self, restorations: Iterable[Restoration]) -> None:
        sources = [each.source for each in restorations if each.source in self._copied]
        if sources:
            self._copied.difference_update(sources)
            self._copier.incremental_unassign([TopicPartition(each.topic, each.partition) for each in sources])

    # Committing -----------------------------------------------------------------------------------------------

    def positions(self, held: Held) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """What to commit for an active task; when it is handed over, with its next owner."""
        owner, epoch = self._config.worker_id, held.epoch
        if held.release_to is not None and held.id in self._to_release:
            owner, epoch = held.release_to, held.epoch + 1
        if held.task is not None:
            return held.task.positions(owner, epoch, self.topology, held.digest)
        assert held.where is not None
        # It is handed over before it ran: nothing of it changes but the owner.
        return self._claimed(held.where, owner, epoch)

    def learn(self, marks: Mapping[TaskId, Mark]) -> None:
        """Others committed these tasks so far."""
        for task, mark in marks.items():
            self._marks.tell(task, self._plan.inputs_of(task), mark)

    def committed(self, offsets: Offsets) -> None:
        """A commit of these offsets is through."""
        tasks = {task.id: task for partition in offsets if (task := self.by_input.get(partition)) is not None}
        for task in tasks.values():
            self.held[task.id].committed = {
                Partition(topic, task.id.partition): CommittedOffset(*offsets[Partition(topic, task.id.partition)])
                for topic in task.inputs
            }

    # Handing over ---------------------------------------------------------------------------------------------

    def release(self, task: TaskId, owner: str) -> None:
        """Let the next commit name another owner for a task."""
        held = self.held.get(task)
        if held is not None and held.role is Role.ACTIVE and held.state is not TaskState.RELEASING:
            held.release_to = owner
            self._to_release.add(task)
            if self.bootstrap is not None and self.bootstrap.forget(task):
                # The next owner is not to wait for what this worker does not need any more.
                self.bootstrap.skip(task)
                self._look_up([task], committed=True)

    def keep(self, task: TaskId) -> None:
        """The task is not to be released, unless that has begun."""
        if task in self._to_release:
            self._to_release.discard(task)
            self.held[task].release_to = None

    @property
    def releases(self) -> Collection[TaskId]:
        """The tasks that are to be released and are not yet."""
        return self._to_release

    def to_release(self) -> list[Held]:
        """The tasks that the next commit hands over; those that are not looked up yet have to wait."""
        if not self._to_release:
            return []
        return [held for task in self._to_release if (held := self.held[task]).state is not TaskState.ACQUIRING]

    def releasing(self, tasks: Iterable[Held]) -> None:
        """The commit that hands these tasks over has begun: they process nothing more."""
        for held in tasks:
            held.state = TaskState.RELEASING
            self._to_release.discard(held.id)
            self._stop_reading(held)
        self._count()

    def _stop_reading(self, held: Held) -> None:
        task = held.task
        if task is None:
            return
        inputs = [partition for partition in held.committed if self.by_input.get(partition) is task]
        for partition in inputs:
            del self.by_input[partition]
        attached = self._back_pressure.forget(inputs)
        if attached:
            self._consumer.incremental_unassign([TopicPartition(each.topic, each.partition) for each in attached])
        if task in self.running:
            self.running.remove(task)

    def released(self, tasks: Iterable[TaskId]) -> None:
        """The commit that hands these tasks over is through, and its rows are on disk: what is left is a copy."""
        owners: dict[TaskId, str] = {}
        for task in tasks:
            held = self.held[task]
            owners[task], held.release_to = held.release_to or "", None
            log.info("handed task %s over to %s", task, owners[task])
            self._become_copy(held)
        self.on_released(owners)
        self._count()

    def _become_copy(self, held: Held) -> None:
        """The active task ends; its stores stay open and follow their changelogs from where they are."""
        ran = held.task is not None
        if held.task is not None:
            held.task.close()
            held.task = None
        held.role, held.epoch, held.committed, held.where = Role.STANDBY, 0, {}, None
        for each in held.changelogs:
            store = each.store
            store.revert()
            offset = each.backend.offset(store.name, store.partition)
            if offset is not None:
                each.position = max(offset, 0)
            if ran:
                known = each.backend.provenance(store.name, store.partition)
                each.completeness = Completeness(self._environment.now_ms() if known is None else known.as_of_ms)
                each.whole = False
            each.end = max(each.end, each.position)
            each.seen_end = -1
            self.reader.follow(each)
        self._unassign(held.changelogs)
        self._to_copy += held.changelogs
        self._copy()
        held.state = TaskState.RUNNING if held.restored else TaskState.RESTORING

    def look_at_ends(self) -> None:
        """Ask, now and then, where the changelogs of copies and the topics of global stores end. Cheap when it is not time."""
        self._ends.look(self._told)
        self.globals.look_at_ends()

    def _told(self) -> dict[Partition, Heard]:
        def hears(copy: Restoration) -> Heard:
            def heard(asked: Moment, end: int) -> None:
                copy.end = max(copy.end, end)
                copy.completeness.heard(asked, end, copy.position)
                self.reader.stamp(copy)

            return heard

        return {
            each.source: hears(each)
            for held in self.held.values()
            if held.role is not Role.ACTIVE
            for each in held.changelogs
            if not each.bounded
        }

    def reopen_expired(self) -> None:
        """Open stores again that fell so far behind that they have to be restored from the beginning."""
        expired, self.reader.expired[:] = list(self.reader.expired), []
        for held in [each for each in self.held.values() if any(one in expired for one in each.changelogs)]:
            if held.role is Role.ACTIVE:
                self._let_go(held, for_good=False)
                held.where = None
                held.state, held.since = TaskState.ACQUIRING, time.monotonic()
                self._look_up([held.id], committed=True)
            else:
                role = held.role
                self.drop([held.id])
                self.hold([held.id], role)
        self._count()

    def look_at_copies(self) -> None:
        """See how far behind copies are; `changed` is set when one caught up, or fell behind."""
        acceptable = self._config.acceptable_recovery_lag
        for held in self.held.values():
            if held.role is Role.ACTIVE or not held.opened:
                continue
            for each in held.changelogs:
                if not each.bounded:
                    source = TopicPartition(each.source.topic, each.source.partition)
                    _, high = self._copier.get_watermark_offsets(source, cached=True)
                    each.end = max(each.end, high)
            lag = held.lag
            caught_up = lag is not None and lag <= acceptable
            if held.state is TaskState.RESTORING and held.restored:
                held.state, self.changed = TaskState.RUNNING, True
            if caught_up != held.caught_up:
                held.caught_up, self.changed = caught_up, True

    # Letting go -----------------------------------------------------------------------------------------------

    def drop(self, tasks: Iterable[TaskId]) -> None:
        """Let go of tasks; what they did not commit is forgotten, their rows on disk stay."""
        for task in tasks:
            held = self.held.pop(task)
            self._to_release.discard(task)
            if self.bootstrap is not None:
                self.bootstrap.forget(task)
            self._stop_reading(held)
            self._let_go(held, for_good=True)
            self._unassigned_since[task] = time.monotonic()
        self._count()

    def reopen(self, source: Partition) -> bool:
        """A copy's position is not in its changelog any more: begin it anew. Returns whether it was a copy's."""
        for held in self.held.values():
            if held.role is not Role.ACTIVE and any(each.source == source for each in held.changelogs):
                log.warning(
                    "the changelog %s begins after what the copy of task %s has: taken up again", source, held.id
                )
                role = held.role
                self.drop([held.id])
                self.hold([held.id], role)
                return True
        return False

    def lost(self, task: TaskId) -> None:
        """An active task is another worker's: what is left of it is a copy, where its stores are open."""
        self.keep(task)
        held = self.held[task]
        if held.opened:
            self._become_copy(held)
            self._count()
        else:
            self.drop([task])

    def _let_go(self, held: Held, *, for_good: bool) -> None:
        for each in held.changelogs:
            self.reader.remove(each)
        self._unassign(held.changelogs)
        # Stores are closed rather than reverted: the one may have to read a file that is broken, the other not.
        self.stores.close(held, for_good=for_good)
        if held.task is not None:
            held.task.close()
            held.task = None

    def renew_consumers(self) -> None:
        """Read with new clients: what was read is read on where it was, active tasks aside, which go back."""
        self._consumer.renew()
        self.globals.resume()
        self.renew_copier()

    def renew_copier(self) -> None:
        """Read changelogs with a new client, each on where it was."""
        self._copier.renew()
        self._copied.clear()
        self._to_copy = [
            each
            for held in self.held.values()
            for each in held.changelogs
            if self.reader.restorations.get(each.source) is each and (each.following or not each.done)
        ]
        self._copy()

    def go_back(self, *, renew: bool = False) -> None:
        """A transaction failed: active tasks are forgotten back to what is committed, and looked up again.

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
        self._to_release.clear()
        again = [held for held in self.held.values() if held.role is Role.ACTIVE]
        for held in again:
            if held.mark is not None:
                self._marks.tell(held.id, held.committed, held.mark)
            if held.state is not TaskState.ACQUIRING:  # else its stores are a copy's, and as good as before
                self._let_go(held, for_good=False)
            held.where = None
            held.state, held.release_to, held.since = TaskState.ACQUIRING, None, time.monotonic()
        self._look_up([held.id for held in again], committed=True)
        self._count()

    def adopt(self, plan: Plan) -> None:
        """Take a plan with more inputs, or with more tasks. Go back then: tasks are made anew, with all their inputs."""
        self._plan = plan
        self._subtopologies = {each.id: each for each in plan.subtopologies}
        self.stores.adopt(plan)

    def rebuild_corrupted(self, error: StateCorrupted) -> None:
        """Close everything, forget the local rows of a corrupted store, and take up again what was held."""
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
        self._to_copy.clear()
        self.drop(list(self.held))
        self._unassigned_since.clear()
        self.globals.close()

    def clean_up(self, delay_s: float) -> None:
        """Delete from the disk what was let go of longer ago than `delay_s`."""
        now = time.monotonic()
        for task in self.stores.on_disk(self.held):
            since = self._unassigned_since.setdefault(task, now)
            if now - since >= delay_s:
                del self._unassigned_since[task]
                self.stores.forget(task)

    def close(self) -> None:
        """Let go of everything."""
        self.registrar.close()
        self.drop_all()
        if self.bootstrap is not None:
            self.bootstrap.close()

    def _refuse(self, task: TaskId, claim: Claim, owner: str | None) -> None:
        raise OwnershipError(
            f"task {task} was taken over by worker '{owner}' while this worker '{self._config.worker_id}' was silent. "
            f"Nothing is lost: what it had not committed, '{owner}' processes again."
        )

    # Claims ---------------------------------------------------------------------------------------------------

    def announcement(self, answer: LookedUp) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """The offsets of tasks that are this worker's, as they are, with the epochs of a new incarnation."""
        offsets: dict[Partition, tuple[int, OffsetMetadata]] = {}
        for where in answer.tasks.values():
            if self._may_resume(where):
                offsets |= self._claimed(where, self._config.worker_id, next_epoch(where.committed))
        return offsets

    def _claimed(self, where: Whereabouts, owner: str, epoch: int) -> dict[Partition, tuple[int, OffsetMetadata]]:
        return claimed(
            where.committed, lambda each: self.start_of(each, where.ranges[each]), owner, epoch, self.topology
        )

    def start_of(self, partition: Partition, found: tuple[int, int]) -> int:
        """Where a partition that was never committed begins.

        Raises:
            TopicError: the reset policy is none.
        """
        first, end = found
        reset = self._reset_of(partition.topic)
        if reset == "none":
            raise TopicError(
                f"{partition} has no committed offset and 'auto.offset.reset' is none: set it to earliest or latest."
            )
        return end if reset == "latest" else first

    def _reset_of(self, topic: str) -> str:
        for subtopology in self._subtopologies.values():
            for source in subtopology.sources:
                if topic in map(self._environment.real_topic, source.topics):
                    return source.reset or self._default_reset(source, topic)
        return self._config.auto_offset_reset

    def _default_reset(self, source: SourceNode, topic: str) -> str:
        # Internal topics are read from their beginning whatever the policy: their records are this application's.
        return "earliest" if topic in self._plan.repartition else self._config.auto_offset_reset


def within_range(partition: Partition, offset: int, found: tuple[int, int]) -> int:
    """The offset to go on at: the committed one, unless retention was faster.

    Raises:
        TopicError: the topic ends before the offset.
    """
    first, end = found
    if offset > end:
        raise TopicError(
            f"the committed offset of {partition} is {offset}, but the topic ends at {end}: it was deleted and made "
            f"anew. Run 'millpond reset' to begin with the new topic, or restore the old one."
        )
    if offset < first:
        log.error(
            "%s: records %d to %d were deleted by the topic's retention before this application processed them; "
            "going on at %d", partition, offset, first - 1, first,
        )  # fmt: skip
    return max(offset, first)
