"""The coordinator of one application as a state machine: no clock, no threads, no I/O.

Heartbeats, deaths of workers and the passing of time go in; an answer for each worker comes out. An assignment is made
in steps, so that the slow one can run in another thread and the result is stored before workers see it:

    job = engine.job(now)            # the computation that is due, if any
    plan = job.run()                 # slow; any thread
    view = engine.adopt(plan)        # the state to store first, if it changed
    changed = engine.publish()       # workers with new instructions

When tasks change owners in Kafka, `regrant` derives new instructions from the published assignment. It makes no new
plan, so it need not wait for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import timedelta

from millpond.protocol import Answer, Epoch, Heartbeat, Refusal, TopologySummary, View
from millpond.topology import TaskId
from millpond_operator.assignment import Placement

from . import rejections
from .admission import Admission, RejectedMember, Starting
from .group import WorkerGroup
from .heartbeat_interval import CoordinatorLoad, interval_ms
from .instructions import instruct, interim_orders
from .members import Membership, usable_members
from .options import EngineOptions, KafkaClaim
from .plan_lifecycle import PlanLifecycle
from .planning import AssignmentJob, AssignmentPlan, only
from .saved_state import members_of, placement_of, view_of
from .sessions import TICK_MS, Sessions
from .startup_barrier import StartupBarrier

__all__ = ("TICK_MS", "Engine")

#: A pause of the coordinator is logged when it is longer.
_LOGGED_STALL_MS = 1_000
#: How long a dead worker without tasks stays listed.
_DEAD_MEMBER_RETENTION_MS = 3_600_000


class Engine:
    """The decisions for one application.

    Args:
        application: its id.
        term: a number greater than the terms of all earlier coordinators.
        coordinator: the id of this coordinator, new at each start.
        options: settings.

    Attributes:
        epoch: the term, and the number of the last change of instructions.
        superseded_by: term and id of a later coordinator that a worker knows; None while this one leads.
        members: all known workers, dead ones included. Read only.
        events: log lines, oldest first; the reader removes them.
        deaths: the number of sessions that timed out so far.
        load: the heartbeats of all applications of the coordinator, for their interval. May be set.
    """

    def __init__(self, application: str, term: int, coordinator: str, options: EngineOptions | None = None) -> None:
        self.application = application
        self.coordinator = coordinator
        self.epoch = Epoch(term, 0)
        self.superseded_by: tuple[int, str] | None = None
        self.events: deque[str] = deque(maxlen=10_000)
        self.deaths = 0
        self.load = CoordinatorLoad()

        options = options or EngineOptions()
        self._sessions = Sessions(options)
        self._admission = Admission(pinned=options.pinned, most_tasks=options.most_tasks, claim=options.claim)
        self._latest_term = options.latest_term
        self._barrier = StartupBarrier(options.gathering // timedelta(milliseconds=1))
        self._plans = PlanLifecycle(options.assignment)
        self._group = WorkerGroup(self._plans, self._barrier, self.events)
        self.members: Mapping[str, Membership] = self._group.members

    @property
    def topology(self) -> TopologySummary | None:
        """The application's topology; None until a worker sent it."""
        return self._group.topology

    @property
    def owners(self) -> Mapping[TaskId, str]:
        """The known owner of each task in Kafka."""
        return self._group.ownership.owners

    @property
    def rejected(self) -> Mapping[str, RejectedMember]:
        """Workers that are rejected until they run another image or configuration, by id."""
        return self._admission.rejected

    @property
    def interval_ms(self) -> int:
        """The longest time between two heartbeats of a worker."""
        return interval_ms(self._sessions.timeout_ms, self.load)

    @property
    def live(self) -> int:
        """The number of workers that count as alive."""
        return sum(member.alive for member in self.members.values())

    @property
    def reached_clusters(self) -> Mapping[str, str]:
        """The Kafka cluster id of each worker that is rejected because of it (`EngineOptions.claim`)."""
        return self._admission.reached_clusters

    @property
    def starting(self) -> Mapping[str, Starting]:
        """Workers that do not know their topology yet, by id."""
        return self._admission.starting

    @property
    def changes(self) -> int:
        """A number that grows with each visible change; progress alone does not count."""
        return self._group.changes + self._admission.changes

    # Input

    def heartbeat(self, heartbeat: Heartbeat, now_ms: int, wall_ms: int = 0) -> Refusal | None:
        """Process a heartbeat.

        Args:
            heartbeat: the worker's message.
            now_ms: a monotonic clock, in milliseconds.
            wall_ms: the time of day, in milliseconds; only for display.

        Returns:
            Why it is rejected; None when `answer_for` has the answer.
        """
        refusal = self._sender_refusal(heartbeat) or self._admission.claim_refusal(heartbeat, now_ms)
        if refusal is not None:
            self._admission.remember(heartbeat, refusal, self.topology, now_ms)
            return refusal
        member = self.members.get(heartbeat.worker)
        known = member is not None and heartbeat.incarnation == member.incarnation
        if member is not None and known and (heartbeat.sequence <= member.sequence or now_ms < member.ignored_until_ms):
            return None
        if heartbeat.ended:
            self._admission.forget(heartbeat.worker)
            if member is not None and known:
                self._group.leave(member, heartbeat, now_ms, wall_ms)
            return None
        if not heartbeat.topology_hash:
            if not known:
                self._admission.note_starting(heartbeat, now_ms)
            return None
        refusal = self._admission.topology_refusal(heartbeat, self.topology, self.members)
        if refusal is not None:
            self._admission.remember(heartbeat, refusal, self.topology, now_ms)
            return refusal
        self._admission.forget(heartbeat.worker)
        self._group.adopt_topology(self._admission.agreed(heartbeat, self.topology, self.members))
        self._group.take_in(heartbeat, member, now_ms, wall_ms)
        self._pass_barrier(now_ms)
        return None

    def declare_dead(self, worker: str, now_ms: int) -> bool:
        """Let other workers take over a dead worker's tasks without waiting for its session timeout.

        Returns:
            Whether there is such a worker.
        """
        self._admission.forget(worker)
        member = self.members.get(worker)
        if member is None:
            return False
        # A heartbeat that it sent before its death may still arrive. If it is alive after all, a later one counts.
        self._sessions.ignore_for_now(member, now_ms)
        self._group.end(member, "was reported dead", now_ms)
        return True

    def note_rejected(self, worker: str, rejected: RejectedMember) -> None:
        """Remember a worker whose heartbeat could not be decoded."""
        self._admission.note_rejected(worker, rejected)

    def connection_lost(self, worker: str, incarnation: str, now_ms: int) -> None:
        """Expect a heartbeat soon: a long poll's connection broke, by the death of the process or by the network."""
        member = self.members.get(worker)
        if member is not None and member.alive and member.incarnation == incarnation:
            self._sessions.expect_reconnect(member, now_ms)

    def drain(self, worker: str, *, draining: bool = True) -> bool:
        """Move all tasks off a worker and assign it none, until `draining=False`.

        Returns:
            Whether there is such a worker.
        """
        member = self.members.get(worker)
        if member is None:
            return False
        if member.draining != draining:
            member.draining = draining
            self.events.append(f"worker {worker}: {'draining' if draining else 'no longer draining'}")
            self._group.membership_changed()
        return True

    def tick(self, now_ms: int) -> None:
        """Process the current time: end sessions that timed out. Call it every `TICK_MS`."""
        stalled_ms = self._sessions.stalled_ms(now_ms)
        if not self.members and not self._admission.has_outsiders:
            return
        if stalled_ms > _LOGGED_STALL_MS:
            self.events.append(
                f"coordinator: paused for {stalled_ms / 1000:.1f} s; extending all sessions by that time"
            )
        if stalled_ms:
            self._barrier.extend(stalled_ms)
        self._admission.tick(now_ms, stalled_ms)
        for member in list(self.members.values()):
            if stalled_ms:
                self._sessions.extend(member, stalled_ms, now_ms)
            if member.alive:
                how = self._sessions.end_of(member, now_ms)
                if how is not None:
                    self.deaths += 1
                    self._group.end(member, how, now_ms)
            elif now_ms - member.heard_ms > _DEAD_MEMBER_RETENTION_MS and member.id not in self.owners.values():
                del self._group.members[member.id]
        self._group.exclude(now_ms)
        self._pass_barrier(now_ms)

    # Settings

    def pin(self, pinned: str) -> None:
        """Admit only the topology with this hash; "" for any (`EngineOptions.pinned`)."""
        self._admission.pinned = pinned

    def claim(self, claim: KafkaClaim | None) -> None:
        """Admit only workers on this Kafka cluster (`EngineOptions.claim`)."""
        before, self._admission.claim = self._admission.claim, claim
        if before is not None and claim is not None and before.cluster not in {"", claim.cluster}:
            self._group.forget_tasks()
            self._group.membership_changed()

    def reconfigure(self, options: EngineOptions, now_ms: int) -> bool:
        """Continue with other settings. `EngineOptions.gathering` has no effect any more.

        Returns:
            Whether all workers need an answer now.
        """
        self.pin(options.pinned)
        self.claim(options.claim)
        self._admission.most_tasks, self._latest_term = options.most_tasks, options.latest_term
        if options.assignment != self._plans.options:
            self._plans.options = options.assignment
            self._plans.request_goal()
        return self._sessions.reconfigure(options, self.members.values(), now_ms)

    # Assignment

    @property
    def plan_due(self) -> bool:
        """Whether a new assignment has to be computed."""
        return not self._barrier.waiting and bool(self._group.tasks.all) and self._plans.due

    def job(self, now_ms: int) -> AssignmentJob | None:
        """Return the computation that is due; None when nothing relevant changed since the last one."""
        self._pass_barrier(now_ms)
        if self.superseded_by is not None or not self.plan_due:
            return None
        return self._plans.job(self._group.situation())

    def adopt(self, plan: AssignmentPlan) -> View | None:
        """Make a plan the next one to publish, unless workers joined or left since its job was made.

        Returns:
            The state to store before `publish`; None when it is stored already.
        """
        staged = self._plans.stage(plan, usable_members(self.members).keys())
        if staged is None:
            return None
        members = {each.id: (each.incarnation, each.alive, each.draining) for each in self.members.values()}
        stored = self._plans.must_store((staged.refined, dict(self.owners), members, self.topology))
        return self._view(staged.refined) if stored else None

    def discard_plan(self) -> None:
        """Request another plan: computing or storing the last one failed."""
        self._plans.discard()

    def publish(self) -> set[str]:
        """Publish the adopted plan.

        Returns:
            The workers whose instructions changed.
        """
        if not self._plans.publish():
            return set()
        self._group.changes += 1
        self._group.regrant_requested = True
        return self.regrant()

    @property
    def regrant_due(self) -> bool:
        """Whether tasks changed owners, so that `regrant` may change instructions before the next plan."""
        return self._group.regrant_requested and self._plans.published and not self._barrier.waiting

    def regrant(self) -> set[str]:
        """Update the instructions of workers from the published assignment and the present owners.

        Returns:
            The workers whose instructions changed.
        """
        if not self.regrant_due:
            return set()
        self._group.regrant_requested = False
        situation = self._group.situation()
        if not situation.workers:
            return set()
        placement, current = self._plans.placement, self._plans.current
        if not current:  # a plan for the present workers is due
            placement = only(placement, situation.workers.keys())
        changed = instruct(self.members, placement, situation, self._group.tasks.names, current=current)
        if changed:
            self.epoch = Epoch(self.epoch.term, self.epoch.number + 1)
            self._group.changes += 1
        return changed

    # Output

    def refusal_for(self, worker: str, incarnation: str, *, joining: bool = False) -> Refusal | None:
        """Return why a process gets no answer: another coordinator leads, or another process has its id.

        Args:
            worker: the id of the process.
            incarnation: the process.
            joining: whether a process that is not known yet may replace the known one.
        """
        if self.superseded_by is not None:
            return rejections.not_leading(self.application, self.coordinator, self.epoch, self.superseded_by)
        member = self.members.get(worker)
        if member is None or member.incarnation == incarnation:
            return None
        if incarnation in member.replaced or not joining:
            return rejections.replaced(self.application, worker, incarnation)
        return None

    def answer_for(self, worker: str) -> Answer:
        """Return the present answer to a worker; an empty one for a worker that is not a member."""
        member = self.members.get(worker)
        if member is None:
            return Answer(
                epoch=self.epoch, coordinator=self.coordinator,
                session_timeout_ms=self._sessions.timeout_ms, interval_ms=self.interval_ms,
            )  # fmt: skip
        if member.instructions is not None:
            orders = member.orders
        else:
            orders = interim_orders(member, self._group.tasks.ids, self.owners)
        return Answer(
            epoch=self.epoch,
            coordinator=self.coordinator,
            sequence=member.sequence,
            revision=member.revision,
            tasks=orders.tasks,
            release=orders.release,
            take_over=orders.take_over,
            committed=self._group.marks.for_orders(member, orders, self.members),
            send_topology=self.topology is None,
            send_graph=self._group.graph is None,
            may_leave=member.may_leave,
            session_timeout_ms=self._sessions.timeout_ms,
            interval_ms=interval_ms(self._sessions.timeout_ms, self.load, member.reach),
        )

    def has_news_for(self, heartbeat: Heartbeat) -> bool:
        """Return whether the answer differs from the last one that the sender received."""
        member = self.members.get(heartbeat.worker)
        if member is None or member.incarnation != heartbeat.incarnation or self.topology is None:
            return True
        known = (
            heartbeat.coordinator == self.coordinator
            if heartbeat.coordinator
            else heartbeat.epoch.term == self.epoch.term
        )
        return not known or heartbeat.known_revision != member.revision

    def view(self, now_ms: int | None) -> View:
        """Return the state for people and tools; with None as the time, the state to store."""
        return self._view(self._plans.placement, now_ms)

    def task_counts(self) -> dict[str, int]:
        """Return the numbers of tasks: all, those without a live owner, and those not on the worker of their goal."""
        alive = {member.id for member in self.members.values() if member.alive}
        goal = self._plans.goal.active
        return {
            "all": len(self._group.tasks.all),
            "unowned": sum(self.owners.get(task) not in alive for task in self._group.tasks.all),
            "moving": sum(goal.get(task) != worker for task, worker in self._plans.placement.active.items()),
        }

    # Restart

    def restore(self, view: View, now_ms: int) -> None:
        """Start from the stored state of an earlier coordinator.

        Its workers count as alive and keep their tasks until each has reported or the time to return is over
        (`Sessions.return_ms`); `start_sessions` starts that time again.
        """
        self.epoch = Epoch(max(self.epoch.term, view.epoch.term + 1), 0)
        if view.topology is not None:
            self._group.use(view.topology)
        self._group.members.update(members_of(view, now_ms))
        ids = self._group.tasks.ids
        self._group.ownership.owners = {ids[task]: owner for task, owner in view.owners.items() if task in ids}
        if any(each.alive for each in view.members):
            self._group.marks.keep({task: mark for task, mark in view.committed.items() if task in ids})
        self._plans.restore(placement_of(view, ids))
        self._group.membership_changed()
        if any(each.alive for each in view.members):
            self.start_sessions(now_ms)
        else:
            self._barrier.await_workers((), now_ms)
            self._barrier.expect(view.owners.values())

    def start_sessions(self, now_ms: int) -> None:
        """Give restored workers all of their time to return: they can reach this coordinator from now on."""
        awaited = [each for each in self.members.values() if each.alive and not each.confirmed]
        for member in awaited:
            self._sessions.await_return(member, now_ms)
        if awaited:
            self._barrier.await_workers({each.id for each in awaited}, now_ms + self._sessions.return_ms)

    # Private

    def _sender_refusal(self, heartbeat: Heartbeat) -> Refusal | None:
        """Return why the sender is rejected, its Kafka cluster and its topology aside."""
        refusal = rejections.malformed(heartbeat, self.application)
        if refusal is not None:
            return refusal
        leader = (heartbeat.epoch.term, heartbeat.coordinator)
        if self.superseded_by is None and leader > (self.epoch.term, self.coordinator):
            if self._latest_term is not None and leader[0] >= self._latest_term:
                return rejections.impossible_term(heartbeat.worker, leader[0], self.epoch.term)
            self.superseded_by = leader
            self.events.append(f"worker {heartbeat.worker}: knows a later coordinator; this one stops leading")
        return self.refusal_for(heartbeat.worker, heartbeat.incarnation, joining=True)

    def _pass_barrier(self, now_ms: int) -> None:
        """Request a plan when the startup barrier ends."""
        if self._barrier.over(now_ms):
            self._plans.request_goal()

    def _view(self, placement: Placement, now_ms: int | None = None) -> View:
        return view_of(
            application=self.application,
            epoch=self.epoch,
            topology=self.topology,
            members=self.members,
            starting=self.starting,
            names=self._group.tasks.names,
            owners=self.owners,
            placement=placement,
            goal=self._plans.goal,
            committed=self._group.marks.known(self.members.values()) if now_ms is None else {},
            graph=self._group.graph,
            now_ms=now_ms,
        )
