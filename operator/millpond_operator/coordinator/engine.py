"""The coordinator of one application as a state machine: no clock, no threads, no I/O.

Heartbeats, ends of workers and the passing of time go in; what each worker should be told comes out. In between an
assignment is made in three steps, so that the slow one can run elsewhere and the result is stored before it counts:

    job = engine.job(now)            # cut out what has to be computed, if anything
    plan = job.run()                 # slow, in any thread
    view = engine.adopt(plan)        # what to write down first, if it changed
    changed = engine.publish()       # from now on workers are told; these have news

When tasks changed owners in Kafka, as the assignment asked or otherwise, `regrant` tells what follows for it within the
same assignment: nothing new is decided then, so it need not wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import timedelta

from millpond.protocol import (
    PROTOCOL_VERSION,
    Answer,
    Epoch,
    Heartbeat,
    Mark,
    Refusal,
    Role,
    TopologySummary,
    View,
)
from millpond.topology import TaskId
from millpond_operator.assignment import Instructions, Placement, Situation, Task, grant

from . import rejections
from .admission import Admission, RejectedMember, Starting
from .marks import CommittedMarks
from .members import Membership, News, Orders, usable_members, without_brokers
from .options import EngineOptions, KafkaClaim
from .ownership import KnownOwners
from .planning import AssignmentJob, AssignmentPlan, Leaving, only
from .saved_state import members_of, placement_of, view_of
from .sessions import TICK_MS, Sessions
from .startup_barrier import StartupBarrier
from .topologies import change, only_known, tasks_of, united

__all__ = ("TICK_MS", "Engine")

#: The coordinator's own standstill is worth a word when it is longer.
_STALL_TOLD_MS = 1_000
#: A worker that died and owns nothing is shown for so long.
_REMEMBERED_MS = 3_600_000
#: Tasks that workers hold and the topology has not: so many are named in the log.
_MOST_UNKNOWN = 1_000
#: So often a plan is made anew because workers came or went while it was made; then it counts with those who are left.
_MOST_DISCARDS = 2


class Engine:
    """Decides for one application.

    Args:
        application: its id.
        term: greater than that of any coordinator before.
        coordinator: the id of this start of a coordinator.
        options: settings.

    Attributes:
        epoch: the term, and the number of the last change of anybody's orders.
        superseded_by: the leader that a worker knows and this engine is older than; None while it leads.
        topology: what the application's workers run; None until one has said so.
        members: all workers that are remembered, dead ones too. To be read only.
        events: sentences about what happened, oldest first, for a log; whoever logs them takes them out.
        deaths: workers whose session timed out, so far.
    """

    def __init__(self, application: str, term: int, coordinator: str, options: EngineOptions | None = None) -> None:
        self.application = application
        self.coordinator = coordinator
        self.epoch = Epoch(term, 0)
        self.superseded_by: tuple[int, str] | None = None
        self.topology: TopologySummary | None = None
        self.members: dict[str, Membership] = {}
        self.events: deque[str] = deque(maxlen=10_000)
        self.deaths = 0

        options = options or EngineOptions()
        self._options = options.assignment
        self._sessions = Sessions(options)
        self._admission = Admission(pinned=options.pinned, most_tasks=options.most_tasks, claim=options.claim)
        self._latest_term = options.latest_term
        self._tasks: dict[TaskId, Task] = {}
        self._ids: dict[str, TaskId] = {}
        self._names: dict[TaskId, str] = {}
        self._unknown: set[tuple[str, str]] = set()
        self._ownership = KnownOwners(self.members)

        self._marks = CommittedMarks()
        self._gathering = StartupBarrier(options.gathering // timedelta(milliseconds=1))
        self._changes = 0
        self._generation = 0  # of the membership: who lives, and who may have tasks
        self._goal_due = False
        self._plan_due = False
        self._grant_due = False
        self._discards = 0
        self._goal = Placement()
        self._placement = Placement()
        self._placed_generation = -1  # of the membership that `_placement` reckons with
        self._staged: AssignmentPlan | None = None
        self._written: tuple[object, ...] | None = None

    @property
    def owners(self) -> Mapping[TaskId, str]:
        """Who owns each task in Kafka, as far as is known."""
        return self._ownership.owners

    @property
    def refused(self) -> Mapping[str, RejectedMember]:
        """Workers that are not taken in because of what they run."""
        return self._admission.refused

    @property
    def reached(self) -> Mapping[str, str]:
        """The id of the Kafka cluster of each worker that is not let in because of it (`EngineOptions.claim`)."""
        return self._admission.reached

    @property
    def starting(self) -> Mapping[str, Starting]:
        """Workers that do not know their tasks yet, and what they wait for."""
        return self._admission.starting

    @property
    def changes(self) -> int:
        """Grows with everything of interest to whoever watches, but not with mere progress."""
        return self._changes + self._admission.changes

    # What comes in.

    def heartbeat(self, heartbeat: Heartbeat, now_ms: int, wall_ms: int = 0) -> Refusal | None:
        """Take in a heartbeat.

        Args:
            heartbeat: what the worker says.
            now_ms: a clock that only goes forward.
            wall_ms: the time of day, for people.

        Returns:
            Why it is refused; None when `answer_for` has the answer.
        """
        refusal = self._refusal(heartbeat) or self._admission.claim_refusal(heartbeat, now_ms)
        if refusal is not None:
            self._admission.refuses(heartbeat, refusal, self.topology, now_ms)
            return refusal
        member = self.members.get(heartbeat.worker)
        known = member is not None and heartbeat.incarnation == member.incarnation
        if member is not None and known and (heartbeat.sequence <= member.sequence or now_ms < member.deaf_until_ms):
            return None
        if heartbeat.ended:
            self._admission.left(heartbeat.worker)
            if member is not None and known:
                # Its last hand-overs first: else they would look like tasks that it left behind.
                news = member.take(heartbeat, now_ms, wall_ms, self._options.acceptable_lag)
                self._learn(member, news, first=False, back=not member.alive)
                self._ended(member, "has ended")
                if not any(each.alive for each in self.members.values()):
                    self._marks.forget()
            return None
        if not heartbeat.topology_hash:
            if not known:
                self._admission.starts(heartbeat, now_ms)
            return None
        refusal = self._admission.topology_refusal(heartbeat, self.topology, self.members)
        if refusal is not None:
            self._admission.refuses(heartbeat, refusal, self.topology, now_ms)
            return refusal
        self._admission.left(heartbeat.worker)
        self._adopt_topology(self._admission.agreed(heartbeat, self.topology, self.members))
        heartbeat = self._without_unknown(heartbeat)
        if member is None:
            member = self.members[heartbeat.worker] = Membership(heartbeat.worker, heartbeat.incarnation, now_ms)
            self.events.append(f"Worker {member.id} joined.")
        elif heartbeat.incarnation != member.incarnation:
            self.events.append(f"Worker {member.id} started anew.")
        elif not member.alive:
            self.events.append(f"Worker {member.id} is back.")
        first = not member.confirmed or member.incarnation != heartbeat.incarnation
        back = not first and not member.alive
        news = member.take(heartbeat, now_ms, wall_ms, self._options.acceptable_lag)
        self._learn(member, news, first=first, back=back)
        if news.placement:
            self._membership_changed()
            self._gathering.joined(member.id, now_ms)
        if news.copies:
            self._plan_due = True
        self._changes += news.copies or news.shown
        self._leave_out()
        self._gathered(now_ms)
        return None

    def gone(self, worker: str, now_ms: int) -> bool:
        """A worker is known to be gone: its tasks need not wait for the session to time out.

        Returns:
            Whether there is such a worker.
        """
        self._admission.left(worker)
        member = self.members.get(worker)
        if member is None:
            return False
        # A heartbeat that it sent before its end may still be on the way. If it lives after all, it is heard again.
        self._sessions.deafen(member, now_ms)
        self._ended(member, "is gone")
        return True

    def refuse(self, worker: str, refused: RejectedMember) -> None:
        """A worker was refused before its heartbeat could be read."""
        self._admission.note(worker, refused)

    def lost(self, worker: str, incarnation: str, now_ms: int) -> None:
        """The connection broke on which a worker waited. Processes that are killed do that, and so do networks: unless
        the worker is heard of soon, it counts as gone.
        """
        member = self.members.get(worker)
        if member is not None and member.alive and member.incarnation == incarnation:
            self._sessions.doubt(member, now_ms)

    def drain(self, worker: str, *, draining: bool = True) -> bool:
        """Move everything off a worker, and place nothing new there until this is taken back.

        Returns:
            Whether there is such a worker.
        """
        member = self.members.get(worker)
        if member is None:
            return False
        if member.draining != draining:
            member.draining = draining
            self.events.append(f"Worker {worker} {'drains' if draining else 'takes tasks again'}.")
            self._membership_changed()
        return True

    def tick(self, now_ms: int) -> None:
        """Let time pass: sessions time out. Call it every `TICK_MS`."""
        stalled_ms = self._sessions.stood_still(now_ms)
        if not self.members and not self._admission.outside:
            return
        if stalled_ms > _STALL_TOLD_MS:
            self.events.append(
                f"This coordinator stood still for {stalled_ms / 1000:.1f} s; no worker is blamed for it."
            )
        if stalled_ms:
            self._gathering.stalled(stalled_ms)
        self._admission.tick(now_ms, stalled_ms)
        for member in list(self.members.values()):
            if stalled_ms:
                self._sessions.excuse(member, stalled_ms, now_ms)
            if member.alive:
                how = self._sessions.end_of(member, now_ms)
                if how is not None:
                    self.deaths += 1
                    self._ended(member, how)
            elif now_ms - member.heard_ms > _REMEMBERED_MS and member.id not in self.owners.values():
                del self.members[member.id]
        self._gathered(now_ms)

    # What changes by itself.

    def pin(self, pinned: str) -> None:
        """Let in this topology only, by its hash, or with "" none in particular (`EngineOptions.pinned`)."""
        self._admission.pinned = pinned

    def claim(self, claim: KafkaClaim | None) -> None:
        """Let in workers on this Kafka cluster only (`EngineOptions.claim`)."""
        before, self._admission.claim = self._admission.claim, claim
        if before is not None and claim is not None and before.cluster not in {"", claim.cluster}:
            self._forget_tasks()
            self._membership_changed()

    def reconfigure(self, options: EngineOptions, now_ms: int) -> bool:
        """Go on with other settings; how long a new application gathers is no matter any more.

        Returns:
            Whether all workers have to be told.
        """
        self.pin(options.pinned)
        self.claim(options.claim)
        self._admission.most_tasks, self._latest_term = options.most_tasks, options.latest_term
        if options.assignment != self._options:
            self._options = options.assignment
            self._goal_due = self._plan_due = True
        return self._sessions.reconfigure(options, self.members.values(), now_ms)

    # The assignment.

    @property
    def plan_due(self) -> bool:
        """Whether `job` has something to compute."""
        return not self._gathering.waiting and bool(self._tasks) and (self._plan_due or self._goal_due)

    def job(self, now_ms: int) -> AssignmentJob | None:
        """The computation that is due; None when nothing relevant has changed since the last one."""
        self._gathered(now_ms)
        if self.superseded_by is not None or not self.plan_due:
            return None
        situation = self._situation()
        job = AssignmentJob(
            self._generation,
            situation,
            self._options,
            None if self._goal_due else self._goal,
            self._goal,
            self._placement,
        )
        self._plan_due = self._goal_due = False
        return job

    def adopt(self, plan: AssignmentPlan) -> View | None:
        """Make a plan the next one to publish, unless workers came or went since its job was cut out.

        Returns:
            What has to be written down before `publish`; None when that is written already.
        """
        if plan.generation != self._generation:
            if self._discards < _MOST_DISCARDS:
                self._discards += 1
                self._goal_due = self._plan_due = True
                return None
            usable = usable_members(self.members).keys()
            plan = AssignmentPlan(self._generation, only(plan.goal, usable), only(plan.refined, usable))
            self._goal_due = self._plan_due = True
        self._discards = 0
        self._staged = plan
        people = {each.id: (each.incarnation, each.alive, each.draining) for each in self.members.values()}
        written = (plan.refined, dict(self.owners), people, self.topology)
        if written == self._written:
            return None
        self._written = written
        return self._view(plan.refined)

    def failed(self) -> None:
        """What `job` or `adopt` gave came to nothing, or could not be written: it has to be made again."""
        self._staged = self._written = None
        self._goal_due = self._plan_due = True

    def publish(self) -> set[str]:
        """Let what was adopted count.

        Returns:
            The workers whose orders changed.
        """
        staged, self._staged = self._staged, None
        if staged is None:
            return set()
        self._changes += 1
        self._goal, self._placement, self._placed_generation = staged.goal, staged.refined, staged.generation
        self._grant_due = True
        return self.regrant()

    @property
    def regrant_due(self) -> bool:
        """Whether tasks changed owners, so that `regrant` may have news before the next plan is made."""
        return self._grant_due and self._placed_generation >= 0 and not self._gathering.waiting

    def regrant(self) -> set[str]:
        """Tell workers what follows from new owners of tasks, within the assignment that was published last.

        Returns:
            The workers whose orders changed.
        """
        if not self.regrant_due:
            return set()
        self._grant_due = False
        situation = self._situation()
        if not situation.workers:
            return set()
        placement = self._placement
        current = self._placed_generation == self._generation
        if not current:  # the next plan is due, and will reckon with those who came and went
            placement = only(placement, situation.workers.keys())
        changed = set()
        leaving = Leaving(situation, self.owners)
        for worker, instructions in grant(placement, situation).items():
            member = self.members[worker]
            if member.instructions is None and not current:
                continue
            may_leave = member.leaving and leaving.may_leave(member, instructions)
            if instructions != member.instructions or may_leave != member.may_leave:
                member.instructions = instructions
                member.orders = Orders.of(instructions, self._names)
                member.may_leave = may_leave
                member.revision += 1
                changed.add(worker)
        if changed:
            self.epoch = Epoch(self.epoch.term, self.epoch.number + 1)
            self._changes += 1
        return changed

    # What goes out.

    def refusal_for(self, worker: str, incarnation: str, *, joining: bool = False) -> Refusal | None:
        """Why a process gets no answer any more, unless it is just joining as one that was not seen before."""
        if self.superseded_by is not None:
            return rejections.not_leading(self.application, self.coordinator, self.epoch, self.superseded_by)
        member = self.members.get(worker)
        if member is None or member.incarnation == incarnation:
            return None
        if incarnation in member.replaced or not joining:
            return rejections.replaced(self.application, worker, incarnation)
        return None

    def answer_for(self, worker: str) -> Answer:
        """What a worker should be told now: nothing, if no heartbeat of it was taken in."""
        member = self.members.get(worker)
        if member is None:
            return Answer(epoch=self.epoch, coordinator=self.coordinator, session_timeout_ms=self._sessions.timeout_ms)
        orders = member.orders if member.instructions is not None else self._as_it_is(member)
        return Answer(
            epoch=self.epoch,
            coordinator=self.coordinator,
            sequence=member.sequence,
            revision=member.revision,
            tasks=orders.tasks,
            release=orders.release,
            take_over=orders.take_over,
            committed=self._marks_for(member, orders),
            send_topology=self.topology is None,
            may_leave=member.may_leave,
            session_timeout_ms=self._sessions.timeout_ms,
        )

    def has_news_for(self, heartbeat: Heartbeat) -> bool:
        """Whether its sender does not know yet what it would be told."""
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
        """The whole picture, for people and tools; without a time, only what has to outlive the coordinator."""
        return self._view(self._placement, now_ms)

    def task_counts(self) -> dict[str, int]:
        """Tasks: all of them, those that no live worker owns, and those away from where they should be in the end."""
        alive = {member.id for member in self.members.values() if member.alive}
        return {
            "all": len(self._tasks),
            "unowned": sum(self.owners.get(task) not in alive for task in self._tasks),
            "moving": sum(self._goal.active.get(task) != worker for task, worker in self._placement.active.items()),
        }

    # Restart.

    def restore(self, view: View, now_ms: int) -> None:
        """Start from what an earlier coordinator wrote down last.

        Its workers count as alive, and go on with what they have, until each has reported or the time is over that they
        have to come back (`Sessions.return_ms`); `served` begins that anew.
        """
        self.epoch = Epoch(max(self.epoch.term, view.epoch.term + 1), 0)
        if view.topology is not None:
            self._use(view.topology)
        self.members.update(members_of(view, now_ms))
        known = self._ids
        self._ownership.owners = {known[task]: owner for task, owner in view.owners.items() if task in known}
        if any(each.alive for each in view.members):
            self._marks.left({task: mark for task, mark in view.committed.items() if task in known})
        self._placement = placement_of(view, known)
        self._goal = Placement(self._placement.active, self._placement.standby)
        self._membership_changed()
        if any(each.alive for each in view.members):
            self.served(now_ms)
        else:
            self._gathering.await_workers((), now_ms)
            self._gathering.expect(view.owners.values())

    def served(self, now_ms: int) -> None:
        """From now on workers can be heard: those that were restored have all of their time from here on."""
        awaited = [each for each in self.members.values() if each.alive and not each.confirmed]
        for member in awaited:
            self._sessions.expect(member, now_ms)
        if awaited:
            self._gathering.await_workers({each.id for each in awaited}, now_ms + self._sessions.return_ms)

    # How it does it.

    def _refusal(self, heartbeat: Heartbeat) -> Refusal | None:
        """Why this heartbeat cannot be taken in, its topology aside."""
        if heartbeat.application != self.application:
            return rejections.other_application(heartbeat, self.application)
        if heartbeat.version != PROTOCOL_VERSION:
            return rejections.unsupported(heartbeat.worker, heartbeat.version)
        name = heartbeat.worker
        if not name.isprintable() or not 0 < len(name) <= rejections.LONGEST_NAME or name == "unowned":
            return rejections.bad_name(name)
        leader = (heartbeat.epoch.term, heartbeat.coordinator)
        if self.superseded_by is None and leader > (self.epoch.term, self.coordinator):
            if self._latest_term is not None and leader[0] >= self._latest_term:
                return rejections.unbelievable(name, leader[0], self.epoch.term)
            self.superseded_by = leader
            self.events.append(f"Worker {heartbeat.worker} knows a later coordinator: this one stands down.")
        return self.refusal_for(heartbeat.worker, heartbeat.incarnation, joining=True)

    def _adopt_topology(self, topology: TopologySummary | None) -> None:
        """Take on a topology that was let in, if it is another one."""
        ours = self.topology
        if topology is None or topology == ours:
            return
        if ours is not None:
            self.events.append(change(ours, topology))
        self._use(topology)

    def _use(self, topology: TopologySummary) -> None:
        """From now on, these are the tasks."""
        ours, self.topology = self.topology, topology
        self._tasks = tasks_of(topology)
        self._names = {task: str(task) for task in self._tasks}
        self._ids = self._ownership.tasks = {text: task for task, text in self._names.items()}
        if ours is None:  # workers were heard of before, but not what they run
            for member in self.members.values():
                self._learn(member, member.all_news(), first=True, back=False)
        elif united(ours, topology) == topology:  # the same with more tasks
            for member in self.members.values():
                member.look_again()
        else:
            self._forget_tasks()
        self._membership_changed()

    def _forget_tasks(self) -> None:
        """A task id means nothing in another topology or on another Kafka: who owns what has to be found out again."""
        self._ownership.owners.clear()
        self._marks.forget()
        self._goal = self._placement = Placement()
        self._placed_generation = -1
        self._staged = None
        self._unknown.clear()
        for member in self.members.values():
            member.forget_tasks()

    def _learn(self, member: Membership, news: News, *, first: bool, back: bool) -> None:
        """Take in who owns what, and how far it was committed."""
        self._marks.left({task: mark for task, mark in news.left.items() if task in self._ids})
        for task in (*news.found, *news.claimed):
            # Its owner so far, who may be cut off from Kafka, goes on to say how far it was.
            former = self.members.get(self.owners.get(self._ids[task], "")) if task in self._ids else None
            if former is not None and former is not member and task in former.committed:
                self._marks.left({task: former.committed[task]})
        if self._ownership.learn(member, news, first=first, back=back):
            self._grant_due = self._plan_due = True
            self._changes += 1

    def _without_unknown(self, heartbeat: Heartbeat) -> Heartbeat:
        """A heartbeat without the tasks that the topology does not have: nobody keeps them, whatever a worker invents."""
        worker, ids = heartbeat.worker, self._ids
        unknown = [text for text in heartbeat.tasks if text not in ids and (worker, text) not in self._unknown]
        if ids and unknown and len(self._unknown) < _MOST_UNKNOWN:
            self._unknown.update((worker, text) for text in unknown[:_MOST_UNKNOWN])
            self.events.append(
                f"Worker {worker} holds {rejections.some(unknown)}, which the topology does not have; it is told to drop them."
            )
        return only_known(heartbeat, ids) if ids else heartbeat

    def _ended(self, member: Membership, how: str) -> None:
        self._gathering.ended(member.id)
        if not member.alive:
            return
        member.alive = False
        member.instructions = None
        member.orders = Orders()
        member.may_leave = False
        member.revision += 1
        self._marks.left(member.committed)
        member.committed = {}
        self.events.append(f"Worker {member.id} {how}.")
        self._membership_changed()
        self._leave_out()

    def _membership_changed(self) -> None:
        self._generation += 1
        self._changes += 1
        self._goal_due = self._plan_due = True

    def _gathered(self, now_ms: int) -> None:
        """End the gathering when it is time."""
        if self._gathering.over(now_ms):
            self._goal_due = self._plan_due = True

    def _leave_out(self) -> None:
        """Assign nothing to workers that lost their brokers while others have them, and all as usual once they are back."""
        lost = without_brokers(self.members)
        for member in self.members.values():
            if member.left_out == (member.id in lost):
                continue
            member.left_out = not member.left_out
            if member.left_out:
                self.events.append(f"Worker {member.id} lost its brokers, which others have: they take its tasks over.")
                member.instructions, member.orders = Instructions(), Orders()
                member.revision += 1
            elif member.alive:
                self.events.append(f"Worker {member.id} is assigned tasks again.")
            self._membership_changed()

    def _situation(self) -> Situation:
        usable = usable_members(self.members)
        ids = self._ids
        return Situation(
            tasks=self._tasks,
            workers={id: each.worker() for id, each in usable.items()},
            copies={id: each.copies(ids) for id, each in usable.items() if each.confirmed},
            on_disk={id: each.disk(ids) for id, each in usable.items() if each.confirmed},
            owners=dict(self.owners),
        )

    def _marks_for(self, member: Membership, orders: Orders) -> dict[str, Mark]:
        """How far the tasks were committed that a worker has or gets."""
        tasks = [task for task, role in orders.tasks.items() if role is Role.ACTIVE]
        tasks += [task for task, report in member.tasks.items() if report.role is Role.ACTIVE]
        previous = {task: order.previous for order in orders.take_over for task in order.owners}
        owners = {task: each for task, owner in previous.items() if (each := self.members.get(owner or "")) is not None}
        return self._marks.for_worker(member, (*tasks, *previous), owners)

    def _as_it_is(self, member: Membership) -> Orders:
        """For a worker that no assignment reckons with yet: what it has, but for what is known to be another's."""
        tasks = {}
        for text, report in member.tasks.items():
            task = self._ids.get(text)
            if self._ids and task is None:
                continue
            if report.role is Role.ACTIVE and task is not None and self.owners.get(task, member.id) != member.id:
                continue
            tasks[text] = report.role
        return Orders(tasks)

    def _view(self, placement: Placement, now_ms: int | None = None) -> View:
        return view_of(
            self.application,
            self.epoch,
            self.topology,
            self.members,
            self.starting,
            self._names,
            self.owners,
            placement,
            self._marks.known(self.members.values()) if now_ms is None else {},
            now_ms,
        )
