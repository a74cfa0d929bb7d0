"""Does the I/O of a worker with a coordinator: connects its client, the assignment follower and the task executor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial, singledispatchmethod
from typing import TYPE_CHECKING

from millpond.errors import OwnershipError
from millpond.protocol import Brokers, Epoch, RefusalCode, Role, TaskReport, TaskState, clock, without_lags
from millpond.runtime.all_steps import take_all
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.offsets.metadata import Claim, belongs_to, claim_of, epoch_of
from millpond.runtime.ownership import lookups
from millpond.runtime.ownership.lookups import TaskLookup
from millpond.runtime.topics.plan import Plan, summary
from millpond.topology import TaskId

from .assignment_follower import AssignmentFollower
from .events import (
    AnswerReceived,
    BackAtCommit,
    Event,
    HandedOver,
    NotOwned,
    Ownership,
    OwnersRead,
    OwnTasksFound,
    TakeOverEnded,
    Turn,
)
from .executor import TaskExecutor
from .instructions import (
    CleanUp,
    FindNewPartitions,
    FindOwnTasks,
    GoBack,
    Instruction,
    LearnMarks,
    MeasureLags,
    ReadDisk,
    Report,
    TakeTasksOver,
    Withdraw,
)
from .ownership_check import OwnershipCheck, SessionSeen

if TYPE_CHECKING:
    from millpond.protocol.client import CoordinatorClient

__all__ = ("Coordination",)

log: logging.Logger = logging.getLogger(__name__)


class Coordination:
    """The connection of a worker to its coordinator. Only the worker's loop may use it.

    Args:
        executor: holds the tasks.
        client: exchanges heartbeats with the coordinator.
        config: the worker's configuration.
        tasks: all tasks of the application.
        contact: reports whether brokers answer. While they do not, no owner is looked up: that would end the worker.
        on_unknown: called when the coordinator names an unknown task: an input may have new partitions.
    """

    def __init__(  # noqa: PLR0913 - the parts it connects
        self,
        executor: TaskExecutor,
        client: CoordinatorClient,
        config: Config,
        tasks: Collection[TaskId],
        contact: BrokerContact,
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self._executor = executor
        self._client = client
        self._config = config
        self._contact = contact
        self._on_unknown = on_unknown
        self._on_disk: dict[str, int] = {}
        self._for_the_loop: list[Instruction] = []
        self._follower = AssignmentFollower(
            executor.lifecycle,
            config.worker_id,
            tasks,
            session_timeout=timedelta(milliseconds=config.coordinator_session_timeout_ms),
            cleanup_delay=timedelta(milliseconds=config.state_cleanup_delay_ms),
            fenced_by_brokers=config.exactly_once,
            now=time.monotonic(),
        )
        self._ownership_check = (
            None if config.exactly_once else OwnershipCheck(executor.lifecycle, client.session.lapses + contact.doubts)
        )
        executor.claims.admitted = lambda: self._follower.admitted(time.monotonic())
        executor.on_not_owned = self._not_owned
        executor.on_handed_over = lambda task, owner: self._handle(HandedOver(task, owner))

    # State

    @property
    def rejected(self) -> bool:
        """Whether the coordinator rejects this worker's topology."""
        return self._client.rejected

    @property
    def ever_admitted(self) -> bool:
        """Whether the coordinator has ever answered a heartbeat of this worker without a rejection."""
        return self._client.connected_at is not None

    @property
    def may_leave(self) -> bool:
        """Whether a leaving worker may end: its tasks are handed over, or no worker can take them over."""
        if not self._executor.active_tasks or self._client.refusal is not None:
            return True
        if not self._follower.connected(time.monotonic()):
            return True
        answer = self._follower.answer
        return answer is not None and answer.may_leave

    def may_write(self) -> bool:
        """Return whether this worker certainly owns its running tasks; False while their owners are being looked up."""
        if self._ownership_check is None:
            return True
        session = self._client.session
        # Before the counts: an answer, and the end of a doubt, increment them first.
        lapsed = session.lapsed or self._contact.doubtful
        seen = SessionSeen(clock.boottime(), lapsed, session.lapses + self._contact.doubts, self._brokers())
        allowed, instructions = self._ownership_check.may_write(seen)
        self._executor.perform(instructions)
        return allowed

    def _brokers(self) -> Brokers:
        if self._contact.lost:
            return Brokers.LOST
        return Brokers.SILENT if self._contact.silent_s else Brokers.ANSWERING

    # The loop

    def turn(self, now: float) -> None:
        """Handle the coordinator's newest answer, if any, and report changes.

        Raises:
            OwnershipError: a newer process runs under this worker's id.
        """
        answer, refusal = self._client.news(), self._client.refusal
        if refusal is not None and refusal.code is RefusalCode.REPLACED:
            raise OwnershipError(refusal.message)
        self._handle(Turn(now, self._client.connected_at, self.rejected, self._brokers(), self._contact.doubtful))
        if answer is not None:
            self._handle(AnswerReceived(now, answer))

    def for_the_loop(self) -> Iterator[Instruction]:
        """Yield the instructions for the loop: `Withdraw`, then `GoBack`. The next call yields the rest."""
        while self._for_the_loop:
            yield self._for_the_loop.pop(0)

    def looked_up(self, answer: lookups.LookupAnswer) -> bool:
        """Handle the answer to a lookup; return whether the follower or the ownership check requested it."""
        tasks = {task: self._ownership(lookup) for task, lookup in answer.tasks.items()}
        check = self._ownership_check
        if check is not None and check.awaits(answer.number):
            lost, instructions = check.owners_read(OwnersRead(time.monotonic(), answer.number, tasks))
            if lost is not None:
                log.warning(
                    "task %s: taken over by another worker while this one had no contact with the coordinator; "
                    "going back to the last commit",
                    lost,
                )
            self._perform(instructions)
            return True
        if self._follower.awaits(answer.number):
            self._handle(OwnersRead(time.monotonic(), answer.number, tasks))
            return True
        if self._follower.awaits_search(answer.number):
            self._handle(OwnTasksFound(answer.number, tasks))
            return True
        return False

    def taken_over(self, answer: lookups.TakeOverAnswer) -> None:
        """Handle the result of a take-over."""
        self._handle(TakeOverEnded(time.monotonic(), answer.previous, answer.owners))

    def _ownership(self, lookup: TaskLookup) -> Ownership:
        committed = lookup.committed
        owners = frozenset(owner for each in committed.values() if (owner := each.metadata.owner) is not None)
        own = claim_of(self._config.worker_id, committed)[0] is Claim.RESUME
        return Ownership(owners, epoch_of(committed), own and belongs_to(self._executor.topology, committed))

    def _not_owned(self, task: TaskId, claim: Claim, owner: str | None) -> None:
        self._handle(NotOwned(time.monotonic(), task, claim, owner))

    def went_back(self, plan: Plan) -> None:
        """Continue after the worker has gone back to its last commit.

        Args:
            plan: the plan to continue with. A changed number of tasks is reported to the coordinator.
        """
        if frozenset(plan.tasks) != self._follower.tasks:
            self._client.adopt(summary(plan))
        if self._ownership_check is not None:
            self._ownership_check.forget()
        self._handle(BackAtCommit(time.monotonic(), frozenset(plan.tasks)))

    # Start and end

    def begin(self, tasks: Collection[TaskId]) -> None:
        """Send the first report, with tasks whose owners are still being looked up."""
        self._read_disk()
        about_to = TaskReport(Role.ACTIVE, TaskState.ACQUIRING)
        leaving = self._follower.leaving
        self._client.report({str(task): about_to for task in tasks}, self._on_disk, {}, Epoch(), leaving=leaving)

    def learn_marks(self) -> None:
        """Use the marks in the answer to the first report; its other orders are handled by the first turn."""
        if (answer := self._client.latest) is not None and not self.rejected:
            self._perform(self._follower.marks_of(answer))

    def start(self) -> None:
        """Report the tasks that are held at the start."""
        self._read_disk()
        self._report(urgent=True)

    def leave(self) -> None:
        """Report that this worker is about to end, so that the coordinator finds next owners for its tasks."""
        self._follower.leaving = True
        self._report(urgent=True)

    # Instructions

    def _handle(self, event: Event) -> None:
        self._perform(self._follower.handle(event))

    def _perform(self, instructions: Iterable[Instruction]) -> None:
        take_all(partial(self._do, each) for each in instructions)

    @singledispatchmethod
    def _do(self, instruction: Instruction) -> None:
        self._executor.perform([instruction])

    @_do.register
    def _(self, each: TakeTasksOver) -> None:
        self._executor.registrar.take_over(each.previous, each.owners)

    @_do.register
    def _(self, each: FindOwnTasks) -> None:
        self._executor.registrar.look_up_named(self._config.worker_id, each.tasks, each.number)

    @_do.register
    def _(self, each: LearnMarks) -> None:
        self._executor.learn(each.marks)

    @_do.register
    def _(self, each: Report) -> None:
        self._report(urgent=each.urgent)

    @_do.register
    def _(self, each: Withdraw) -> None:
        if each not in self._for_the_loop:
            self._for_the_loop.insert(0, each)

    @_do.register
    def _(self, each: GoBack) -> None:
        if each not in self._for_the_loop:
            self._for_the_loop.append(each)

    @_do.register
    def _(self, _: FindNewPartitions) -> None:
        self._on_unknown()

    @_do.register
    def _(self, _: MeasureLags) -> None:
        self._executor.measure_lags()

    @_do.register
    def _(self, _: CleanUp) -> None:
        self._executor.clean_up(self._config.state_cleanup_delay_ms / 1000)

    @_do.register
    def _(self, _: ReadDisk) -> None:
        self._read_disk()

    def _read_disk(self) -> None:
        on_disk = self._executor.stores.on_disk(self._executor.held)
        self._on_disk = {str(task): offset for task, offset in on_disk.items()}

    def _report(self, *, urgent: bool) -> None:
        follower, held = self._follower, self._executor.held
        tasks: Mapping[str, TaskReport] = {str(each.id): each.report() for each in held.values()}
        if follower.lags_unknown(time.monotonic()):
            tasks = without_lags(tasks)
        found, follower.owners_found = follower.owners_found, {}
        epoch = follower.answer.epoch if follower.answer is not None else Epoch()
        committed = {
            str(each.id): mark
            for each in held.values()
            if each.state is not TaskState.ACQUIRING and (mark := each.mark) is not None
        }
        self._client.report(
            tasks, self._on_disk, found, epoch, leaving=follower.leaving, committed=committed, urgent=urgent
        )
