"""Carries out what the coordinator says, and tells it how things stand (design.md, "The coordinator").

The coordinator may be late, wrong, doubled or gone: whose a task is only Kafka says, and everything here is checked
against that. Without an answer a worker goes on with what it owns, if that is its topology's. A worker that is refused
for what it runs holds nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from millpond.errors import OwnershipError
from millpond.protocol import (
    NOBODY,
    Answer,
    Epoch,
    RefusalCode,
    Role,
    TakeOver,
    TaskReport,
    TaskState,
    parse_task,
    without_lags,
)
from millpond.topology import TaskId

from .broker_contact import BrokerContact
from .config import Config
from .ownership import Claim, belongs_to, claim_of
from .ownership_check import OwnershipCheck
from .plan import Plan, summary
from .registrar import LookedUp, TakenOver
from .task_manager import TaskManager

if TYPE_CHECKING:
    from millpond.protocol.client import CoordinatorClient

__all__ = ("Follower",)

log = logging.getLogger(__name__)

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


class Follower:
    """Between the coordinator's client and the worker's tasks. Belongs to the worker's loop.

    Args:
        manager: has the tasks.
        client: talks to the coordinator.
        config: the worker's.
        tasks: all tasks of the application.
        contact: knows whether brokers answer. While they do not, no owner is looked up: that would end the worker.
        on_unknown: called when the coordinator names a task that is not among them: an input may have more partitions.
    """

    def __init__(
        self,
        manager: TaskManager,
        client: CoordinatorClient,
        config: Config,
        tasks: Collection[TaskId],
        contact: BrokerContact,
        on_unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self._manager = manager
        self._client = client
        self._config = config
        self._all = frozenset(tasks)
        self._on_unknown = on_unknown
        self._unknown: set[str] = set()
        self._answer: Answer | None = None
        #: Take-overs that were begun and whose result the coordinator may not know yet, by previous owner.
        self._ordered: dict[str | None, Mapping[str, str]] = {}
        self._under_way: set[str | None] = set()
        #: Tasks that were handed over, and the answer that still gives them to this worker.
        self._handed_over: dict[TaskId, tuple[str, int]] = {}
        self._found: dict[str, str] = {}
        self._on_disk: dict[str, int] = {}
        self._suspects: set[TaskId] = set()
        self._checking = 0
        self._unchecked: set[TaskId] = set()
        # The broker fences a worker with transactions.
        self._ownership_check = None if config.exactly_once else OwnershipCheck(manager, client.session, contact)
        self._contact = contact
        self._adopting = 0
        self._retry_at = 0.0
        self._foreign_until: dict[TaskId, float] = {}
        self._next_look = 0.0
        self._last_turn = time.monotonic()
        self._unsure_until = 0.0
        self._next_report = 0.0
        self._next_clean_up = 0.0
        self._next_adoption = time.monotonic() + config.coordinator_session_timeout_ms / 1000
        self.leaving = False
        #: Set when Kafka names another owner for a task that runs here: the worker is fenced and has to go back.
        self.fenced = False
        #: Set when the coordinator refuses this worker for what it runs: everything has to be let go of.
        self.withdraws = False
        self._out = False
        manager.admitted = self._admitted
        manager.on_foreign = self._foreign
        manager.on_released = self._released

    # Every turn -----------------------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Take in news, and report when there is something to tell. Cheap when there is nothing.

        Raises:
            OwnershipError: a newer process has this worker's name.
        """
        answer = self._client.news()
        refusal = self._client.refusal
        if refusal is not None and refusal.code is RefusalCode.REPLACED:
            raise OwnershipError(refusal.message)
        if self.shut_out != self._out:
            self._out = not self._out
            self.withdraws = self._out
            self._answer = None
            self._ordered.clear()
        if answer is not None and not self._out:
            self._take(answer)
        if self.withdraws:
            return
        if now - self._last_turn > _FROZEN_S:
            self._doubt_copies(now)
        self._last_turn = now
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._manager.look_at_copies()
        if self._manager.changed:
            self._manager.changed = False
            self._follow()
            self._report(urgent=True)
        elif self._retry_at and now >= self._retry_at:
            self._retry_at = 0.0
            self._follow()
        elif now >= self._next_report:
            self._report(urgent=False)
        if self._unsure_until and now >= self._unsure_until:
            self._unsure_until = 0.0
            self._report(urgent=True)
        if now >= self._next_adoption:
            self._adopt(now)
        if now >= self._next_clean_up:
            self._next_clean_up = now + min(_CLEAN_UP_S, self._config.state_cleanup_delay_ms / 1000)
            if self._admitted():
                self._manager.clean_up(self._config.state_cleanup_delay_ms / 1000)
                self._look_at_disk()

    @property
    def shut_out(self) -> bool:
        """Whether the coordinator refuses this worker for what it runs."""
        return self._client.shut_out

    @property
    def let_in(self) -> bool:
        """Whether the coordinator ever answered this worker."""
        return self._client.connected_at is not None

    def _admitted(self) -> bool:
        return not self.shut_out and self._connected(time.monotonic())

    @property
    def may_leave(self) -> bool:
        """Whether a leaving worker has nothing to wait for: its tasks are others', or nobody can take them."""
        held = any(each.role is Role.ACTIVE for each in self._manager.held.values())
        if not held or self._client.refusal is not None or not self._connected(time.monotonic()):
            return True
        return self._answer is not None and self._answer.may_leave

    @property
    def session_s(self) -> float:
        """After how long a silence the coordinator takes this worker for dead, in seconds: its word, else the setting."""
        if self._answer is not None:
            return self._answer.session_timeout_ms / 1000
        return self._config.coordinator_session_timeout_ms / 1000

    def may_write(self) -> bool:
        """Whether the tasks that run are this worker's; False while Kafka is asked, in the silence of the coordinator."""
        return self._ownership_check is None or self._ownership_check.may_write()

    def leave(self) -> None:
        """Ask for successors; at the end, say how things were left."""
        self.leaving = True
        self._report(urgent=True)

    def _connected(self, now: float) -> bool:
        at = self._client.connected_at
        return at is not None and now - at < self.session_s

    # What is to be done ---------------------------------------------------------------------------------------

    def _take(self, answer: Answer) -> None:
        self._learn(answer)
        before, self._answer = self._answer, answer
        if before is None or (answer.revision, answer.coordinator) != (before.revision, before.coordinator):
            self._follow()
            self._report(urgent=False)

    def _follow(self) -> None:
        """Compare what is held with what the answer says, and do something about each difference."""
        answer = self._answer
        if answer is None:
            return
        wanted = self._known(answer.tasks)
        release = self._known(answer.release)
        manager = self._manager
        by_role: dict[Role, list[TaskId]] = {role: [] for role in Role}
        current = (answer.coordinator, answer.revision)
        self._handed_over = {task: under for task, under in self._handed_over.items() if under == current}
        for task, role in wanted.items():
            if role is Role.ACTIVE and task in self._handed_over:
                continue  # the coordinator has not heard of it yet
            held = manager.held.get(task)
            if held is None or held.role is not role:
                if held is None or held.role is not Role.ACTIVE:
                    by_role[role].append(task)
                elif task not in release:
                    self._suspects.add(task)
        if self._foreign_until:
            self._wait_for_owners(by_role[Role.ACTIVE])
        for role, tasks in by_role.items():
            if tasks:
                manager.hold(tasks, role)
        gone: list[TaskId] = []
        for task, held in manager.held.items():
            if task in wanted:
                continue
            if held.role is not Role.ACTIVE:
                gone.append(task)
            elif held.state is not TaskState.RELEASING:
                self._suspects.add(task)
                # What the producer still has must not arrive beside the output of who takes over; the broker fences
                # a producer with transactions.
                if self._ownership_check is not None and held.task is not None and self._contact.lost:
                    self.fenced = True
        if gone:
            manager.drop(gone)
            self._look_at_disk()
        for task in [task for task in manager.releases if task not in release]:
            manager.keep(task)
        for task, owner in release.items():
            manager.release(task, owner)
        self._carry_out(answer.take_over)
        self._check_suspects()
        manager.changed = False

    def _wait_for_owners(self, wanted: list[TaskId]) -> None:
        """Leave out tasks that another owned a moment ago: the coordinator learns of that, or the owner lets go."""
        now = time.monotonic()
        self._foreign_until = {task: until for task, until in self._foreign_until.items() if until > now}
        waiting = [task for task in wanted if task in self._foreign_until]
        for task in waiting:
            wanted.remove(task)
            self._retry_at = max(self._retry_at, self._foreign_until[task])

    def _known(self, by_task: Mapping[str, T]) -> dict[TaskId, T]:
        found: dict[TaskId, T] = {}
        for text, value in by_task.items():
            try:
                task = parse_task(text)
            except ValueError:
                continue
            if task in self._all:
                found[task] = value
            else:
                if text not in self._unknown:
                    self._unknown.add(text)
                    log.warning("task %s is not in this worker's topology, and the coordinator names it: looking", text)
                self._on_unknown()
                self._retry_at = self._retry_at or time.monotonic() + _UNKNOWN_S
        return found

    def _carry_out(self, orders: tuple[TakeOver, ...]) -> None:
        self._ordered = {each: owners for each, owners in self._ordered.items() if each in self._under_way} | {
            each.previous: each.owners for each in orders if self._ordered.get(each.previous) == each.owners
        }
        for order in orders:
            previous = order.previous
            # An order stands until the coordinator has the result. It is carried out once, unless it failed; and one at
            # a time from each owner, since each fences the one before.
            if previous == self._config.worker_id or previous in self._under_way:
                continue
            if self._ordered.get(previous) == order.owners:
                continue
            tasks = self._known(order.owners)
            if tasks:
                log.info("taking %d tasks over from %s", len(tasks), previous or "nobody")
                self._ordered[previous] = order.owners
                self._under_way.add(previous)
                self._manager.registrar.take_over(previous, tasks)

    def taken_over(self, answer: TakenOver) -> None:
        """The registrar carried out an order: tell, and begin with what is this worker's now."""
        mine = []
        self._under_way.discard(answer.previous)
        for task, owner in answer.owners.items():
            self._found[str(task)] = owner or NOBODY
            if owner == self._config.worker_id:
                mine.append(task)
        if answer.previous in answer.owners.values():
            # The broker refused, or the previous owner came back meanwhile.
            self._ordered.pop(answer.previous, None)
            self._retry_at = time.monotonic() + _RETRY_S
        if not self._out:
            self._manager.hold(mine, Role.ACTIVE)
        self._manager.changed = True  # another order for the same owner may wait
        self._report(urgent=True)

    # What Kafka says ------------------------------------------------------------------------------------------

    def _foreign(self, task: TaskId, claim: Claim, owner: str | None) -> None:
        """A task was to be active here, but it is another's, or nobody's, or another topology's."""
        if claim is Claim.RESUME:
            log.info("task %s was another topology's: it waits for the coordinator to let this one in", task)
        else:
            log.info("task %s is %s", task, f"worker {owner}'s" if owner else "nobody's")
        self._found[str(task)] = owner or NOBODY
        self._foreign_until[task] = time.monotonic() + _RETRY_S
        self._manager.lost(task)

    def _released(self, tasks: Mapping[TaskId, str]) -> None:
        """A commit handed these over to their new owners."""
        self._found |= {str(task): owner for task, owner in tasks.items()}
        if self._answer is not None:
            under = (self._answer.coordinator, self._answer.revision)
            self._handed_over |= dict.fromkeys(tasks, under)

    def went_back(self, plan: Plan) -> None:
        """What was being looked into beside the tasks is looked into again when there is reason to.

        Args:
            plan: what the worker goes on with; the coordinator is told when it has more tasks than before.
        """
        if plan.tasks.keys() != self._all:
            self._all = frozenset(plan.tasks)
            self._unknown.clear()
            self._ordered.clear()  # of an order, only the tasks that were known are taken over
            self._client.adopt(summary(plan))
            self._manager.changed = True
        self._checking = self._adopting = 0
        self._unchecked.clear()
        if self._ownership_check is not None:
            self._ownership_check.forget()
        self._doubt_copies(time.monotonic())

    def _doubt_copies(self, now: float) -> None:
        """Nothing should move here for a moment: the worker finds its feet first, and its copies what they missed."""
        self._unsure_until = now + _UNSURE_S
        self._next_report = 0.0

    def _check_suspects(self) -> None:
        """Tasks run here that the coordinator thinks another's: look whose they are."""
        running = {
            task
            for task in self._suspects
            if (held := self._manager.held.get(task)) is not None
            and held.role is Role.ACTIVE
            and held.state is TaskState.RUNNING
        }
        self._suspects.clear()
        if running and self._contact.silent_s:
            self._retry_at = time.monotonic() + _RETRY_S
        elif running and not self._checking:
            self._unchecked = set(running)
            self._checking = self._manager.registrar.look_up(running, committed=True)

    def looked_up(self, answer: LookedUp) -> bool:
        """Whether the answer was for this; when it shows that this worker was fenced, `fenced` is set."""
        if self._adopting and answer.number == self._adopting:
            self._adopting = 0
            found = [
                task
                for task, where in answer.tasks.items()
                if claim_of(self._config.worker_id, where.committed)[0] is Claim.RESUME
                and belongs_to(self._manager.topology, where.committed)
            ]
            if found and not self._out:
                log.info("adopting %d tasks that were handed over to this worker", len(found))
                self._manager.hold(found, Role.ACTIVE)
            return True
        if self._ownership_check is not None and self._ownership_check.awaits(answer.number):
            lost = self._ownership_check.looked_up(answer)
            if lost is not None:
                log.warning("task %s: another worker took it over while the coordinator did not hear this one", lost)
                self.fenced = True
            return True
        if not self._checking or answer.number != self._checking:
            return False
        self._unchecked.difference_update(answer.tasks)
        if not self._unchecked:
            self._checking = 0
        for task, where in answer.tasks.items():
            owners = {each.metadata.owner for each in where.committed.values()} - {None}
            held = self._manager.held.get(task)
            running = held is not None and held.role is Role.ACTIVE and held.state is TaskState.RUNNING
            if running and owners and self._config.worker_id not in owners:
                log.warning("task %s was taken over by worker %s", task, min(map(str, owners)))
                self.fenced = True
        return True

    def _adopt(self, now: float) -> None:
        """Nobody answers: see whether a task was handed over to this worker that it was not told of."""
        self._next_adoption = now + self.session_s
        if not self._connected(now) and not self._out and not self.leaving and not self._contact.silent_s:
            active = {task for task, held in self._manager.held.items() if held.role is Role.ACTIVE}
            if self._all - active and not self._adopting:
                self._adopting = self._manager.registrar.find(self._config.worker_id, self._all - active)

    # Reports --------------------------------------------------------------------------------------------------

    def _look_at_disk(self) -> None:
        self._on_disk = {str(task): offset for task, offset in self._manager.stores.on_disk(self._manager.held).items()}

    def begin(self, tasks: Collection[TaskId]) -> None:
        """The first report, while it is being looked up whether these tasks are this worker's."""
        self._look_at_disk()
        about_to = TaskReport(Role.ACTIVE, TaskState.ACQUIRING)
        self._client.report({str(task): about_to for task in tasks}, self._on_disk, {}, Epoch(), self.leaving)

    def heed(self) -> None:
        """Take in of the answer to the first report what Kafka may not fall behind; its orders come with the first turn."""
        if (answer := self._client.latest) is not None and not self.shut_out:
            self._learn(answer)

    def _learn(self, answer: Answer) -> None:
        if answer.committed:
            self._manager.learn(self._known(answer.committed))

    def start(self) -> None:
        """The first report of what is held."""
        self._look_at_disk()
        self._report(urgent=True)

    def _report(self, *, urgent: bool) -> None:
        self._next_report = time.monotonic() + _REPORT_S
        tasks: dict[str, TaskReport] = {str(held.id): held.report() for held in self._manager.held.values()}
        if time.monotonic() < self._unsure_until:
            tasks = without_lags(tasks)
        found, self._found = self._found, {}
        epoch = self._answer.epoch if self._answer is not None else Epoch()
        committed = {
            str(held.id): mark
            for held in self._manager.held.values()
            if held.state is not TaskState.ACQUIRING and (mark := held.mark) is not None
        }
        self._client.report(tasks, self._on_disk, found, epoch, self.leaving, committed=committed, urgent=urgent)
