"""The workers of one application and their tasks: updated from heartbeats, deaths and topologies."""

from __future__ import annotations

from collections import deque

from millpond.protocol import Heartbeat, TopologySummary
from millpond.protocol.overview import TopologyOverview
from millpond_operator.assignment import Instructions, Situation

from .committed_marks import CommittedMarks
from .cut_off import CutOffWorkers
from .members import HeartbeatChanges, Membership, Orders, usable_members, without_brokers
from .ownership import KnownOwners
from .plan_lifecycle import PlanLifecycle
from .startup_barrier import StartupBarrier
from .tasks import KnownTasks
from .topologies import change, united

__all__ = ("WorkerGroup",)


class WorkerGroup:
    """The members of one application.

    Args:
        plans: receives the requests for new plans.
        barrier: receives the workers that join and end.
        events: receives the log lines.

    Attributes:
        members: all known workers by id, dead ones included.
        topology: the application's topology; None until a worker sent it.
        graph: the drawing of the topology; None until a worker sent it.
        tasks: the tasks of the topology.
        ownership: the known owners of the tasks.
        marks: the committed marks of the tasks.
        changes: a number that grows with each visible change.
        regrant_requested: whether tasks changed owners since the last update of instructions.
    """

    def __init__(self, plans: PlanLifecycle, barrier: StartupBarrier, events: deque[str]) -> None:
        self.members: dict[str, Membership] = {}
        self.topology: TopologySummary | None = None
        self.graph: TopologyOverview | None = None
        self.tasks = KnownTasks()
        self.ownership = KnownOwners(self.members)
        self.marks = CommittedMarks()
        self.changes = 0
        self.regrant_requested = False
        self._plans = plans
        self._barrier = barrier
        self._events = events
        self._cut_off = CutOffWorkers()

    def take_in(self, heartbeat: Heartbeat, member: Membership | None, now_ms: int, wall_ms: int) -> None:
        """Update the membership from the heartbeat of an admitted worker."""
        self.graph = heartbeat.graph or self.graph
        heartbeat, event = self.tasks.without_unknown(heartbeat)
        if event is not None:
            self._events.append(event)
        if member is None:
            member = self.members[heartbeat.worker] = Membership(heartbeat.worker, heartbeat.incarnation, now_ms)
            self._events.append(f"worker {member.id}: joined")
        elif heartbeat.incarnation != member.incarnation:
            self._events.append(f"worker {member.id}: restarted")
        elif not member.alive:
            self._events.append(f"worker {member.id}: alive again")
        member.left = False
        first = not member.confirmed or member.incarnation != heartbeat.incarnation
        returned = not first and not member.alive
        reached = None if first else (member.alive, member.brokers, member.reach)
        changes = member.apply(heartbeat, now_ms, wall_ms, self._plans.options.acceptable_lag)
        self._learn(member, changes, first=first, returned=returned)
        if changes.placement:
            self.membership_changed()
            self._barrier.joined(member.id, now_ms)
        if changes.copies:
            self._plans.request_plan()
        self.changes += changes.copies or changes.details
        if reached != (member.alive, member.brokers, member.reach):  # too long for every heartbeat
            self.exclude(now_ms)

    def leave(self, member: Membership, heartbeat: Heartbeat, now_ms: int, wall_ms: int) -> None:
        """End a session by the worker's last heartbeat."""
        # Its last hand-overs first, or its tasks would count as left behind.
        changes = member.apply(heartbeat, now_ms, wall_ms, self._plans.options.acceptable_lag)
        self._learn(member, changes, first=False, returned=not member.alive)
        self.end(member, "left", now_ms)
        member.left = True
        if not any(each.alive for each in self.members.values()):
            ended = {each.id for each in self.members.values() if not each.left}
            self.marks.keep_only({str(task) for task, owner in self.ownership.owners.items() if owner in ended})

    def adopt_topology(self, topology: TopologySummary | None) -> None:
        """Use the topology of an admitted worker if it differs."""
        ours = self.topology
        if topology is None or topology == ours:
            return
        if ours is not None:
            self._events.append(change(ours, topology))
        self.use(topology)

    def use(self, topology: TopologySummary) -> None:
        """Replace the application's topology and its tasks."""
        ours, self.topology = self.topology, topology
        if ours is not None and ours.hash != topology.hash:
            self.graph = None
        self.tasks.use(topology)
        self.ownership.tasks = self.tasks.ids
        if ours is None:  # workers reported before the topology was known
            for member in self.members.values():
                self._learn(member, member.all_changes(), first=True, returned=False)
        elif united(ours, topology) == topology:  # only tasks were added
            for member in self.members.values():
                member.invalidate_copies()
        else:
            self.forget_tasks()
        self.membership_changed()

    def forget_tasks(self) -> None:
        """Forget owners and placements: task ids of another topology or Kafka cluster mean nothing."""
        self.ownership.owners.clear()
        self.marks.clear()
        self._plans.clear()
        self.tasks.forget_unknown()
        for member in self.members.values():
            member.forget_tasks()

    def _learn(self, member: Membership, changes: HeartbeatChanges, *, first: bool, returned: bool) -> None:
        """Update owners and committed marks from a heartbeat."""
        ids = self.tasks.ids
        self.marks.keep({task: mark for task, mark in changes.dropped_marks.items() if task in ids})
        for task in (*changes.found_owners, *changes.claimed):
            # The previous owner may be cut off from Kafka, and reports what it last committed.
            former = self.members.get(self.ownership.owners.get(ids[task], "")) if task in ids else None
            if former is not None and former is not member and task in former.committed:
                self.marks.keep({task: former.committed[task]})
        if not (first or returned):  # or it may have begun with the offsets of a former owner, and know no mark
            self.marks.replace({task: member.committed[task] for task in changes.claimed & member.committed.keys()})
        if self.ownership.learn(member, changes, first=first, returned=returned):
            self.regrant_requested = True
            self._plans.request_plan()
            self.changes += 1

    def end(self, member: Membership, how: str, now_ms: int) -> None:
        """Count a worker as dead.

        Args:
            member: the worker.
            now_ms: a monotonic clock.
            how: how the session ended, for the log line "worker …: ".
        """
        self._barrier.ended(member.id)
        if not member.alive:
            return
        member.alive = False
        member.instructions = None
        member.orders = Orders()
        member.may_leave = False
        member.revision += 1
        self.marks.keep(member.committed)
        member.committed = {}
        self._events.append(f"worker {member.id}: {how}")
        self.membership_changed()
        self.exclude(now_ms)

    def membership_changed(self) -> None:
        """Invalidate plans: workers joined or left, or may have other tasks than before."""
        self._plans.membership_changed()
        self.changes += 1

    def exclude(self, now_ms: int) -> None:
        """Decide which workers get no tasks because of brokers that do not answer them. Call it with each tick."""
        changed = self._cut_off.update(self.members, now_ms)
        for member in changed:
            self._events.append(_cut_off_event(member))
            self.membership_changed()
        lost = without_brokers(self.members)
        for member in self.members.values():
            excluded = member.id in lost or member.id in self._cut_off.unable
            if member.excluded == excluded:
                continue
            member.excluded = excluded
            if member.excluded:
                why = (
                    "lost its brokers, which other workers reach" if member.id in lost else "cannot hand its tasks over"
                )
                self._events.append(f"worker {member.id}: {why}; they are taken over")
                member.instructions, member.orders = Instructions(), Orders()
                member.revision += 1
            elif member.alive and not any(each is member for each in changed):
                self._events.append(f"worker {member.id}: reaches its brokers again; it can get tasks")
            self.membership_changed()

    def situation(self) -> Situation:
        """Return the input of the assignment."""
        usable = usable_members(self.members)
        ids = self.tasks.ids
        return Situation(
            tasks=self.tasks.all,
            workers={id: each.assignable() for id, each in usable.items()},
            copies={id: each.copies(ids) for id, each in usable.items() if each.confirmed},
            on_disk={id: each.disk(ids) for id, each in usable.items() if each.confirmed},
            owners=dict(self.ownership.owners),
        )


def _cut_off_event(member: Membership) -> str:
    if not member.cut_off:
        return f"worker {member.id}: no longer cut off from brokers; it can get tasks"
    missing = ", ".join(map(str, member.reach.missing)) if member.reach is not None else ""
    return f"worker {member.id}: cut off from brokers that another worker reaches ({missing}); it hands its tasks over"
