"""A member: the coordinator's knowledge of one worker, updated by its heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.protocol import (
    BrokerReach,
    Brokers,
    Heartbeat,
    Mark,
    Member,
    Role,
    TakeOver,
    TaskReport,
    TaskState,
    Trouble,
)
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, Copy, Instructions

from .load_history import LoadHistory

__all__ = ("HeartbeatChanges", "Membership", "Orders", "usable_members", "without_brokers")

#: An active task in one of these states belongs to its worker: the worker has read so from Kafka.
_OWNED = frozenset({TaskState.RESTORING, TaskState.RUNNING, TaskState.RELEASING})
#: Earlier incarnations that are remembered: more than a crash-looping worker starts while a zombie lives.
_MAX_REPLACED = 256
_NOTHING: Mapping[str, TaskReport] = {}


@dataclass(frozen=True, slots=True)
class Orders:
    """The part of an answer that comes from the assignment, in the protocol's types."""

    tasks: dict[str, Role] = field(default_factory=dict)
    release: dict[str, str] = field(default_factory=dict)
    take_over: tuple[TakeOver, ...] = ()

    @classmethod
    def of(cls, instructions: Instructions, names: Mapping[TaskId, str]) -> Orders:
        """Convert instructions: task ids become names."""
        return cls(
            {names[task]: role for task, role in instructions.tasks.items()},
            {names[task]: worker for task, worker in instructions.release.items()},
            instructions.take_over,
        )


@dataclass(frozen=True, slots=True)
class HeartbeatChanges:
    """The changes in a heartbeat that concern the assignment."""

    claimed: frozenset[str]
    """Tasks that the worker reports as its own now, and did not before."""
    found_owners: Mapping[str, str]
    """Owners that the worker found in Kafka or made by a take-over, and did not report before."""
    placement: bool
    """Whether something changed on which the placement of tasks depends: tags, rack, leaving, another process."""
    copies: bool
    """Whether a copy was added or removed, changed its role or state, or passed the acceptable lag."""
    details: bool = False
    """Whether something changed that is only displayed: revision, trouble, address."""
    dropped_marks: Mapping[str, Mark] = field(default_factory=dict)
    """The last marks of tasks that the worker reports no longer."""


@dataclass(slots=True)
class Membership:
    """One worker. Mutable; changed by the engine alone."""

    id: str
    incarnation: str
    heard_ms: int
    """When its last heartbeat arrived, on the engine's clock."""
    sequence: int = 0
    alive: bool = True
    confirmed: bool = False
    """Whether this incarnation has sent a heartbeat to this coordinator."""
    draining: bool = False
    leaving: bool = False
    may_leave: bool = False
    replaced: tuple[str, ...] = ()
    reconnect_by_ms: int | None = None
    """When it counts as dead unless it sends a heartbeat before: its connection broke. None otherwise."""
    ignored_until_ms: int = 0
    """Heartbeats are ignored until then: it was reported dead, and earlier ones may still arrive."""

    address: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    rack: str | None = None
    clock_skew_ms: int = 0
    pod_revision: str = ""
    """The revision of its pod template, as the worker reports it."""
    trouble: Trouble | None = None
    brokers: Brokers = Brokers.ANSWERING
    credentials_changed: bool = False
    excluded: bool = False
    """Whether it lost its brokers while other workers reach them, or is cut off and cannot hand its tasks over. Other
    workers take its tasks over."""
    left: bool = False
    """Whether its last session ended in order, by its own report."""
    reach: BrokerReach | None = None
    reported_ms: int = 0
    """When `reach` arrived; unlike `heard_ms`, no pause of the coordinator extends it."""
    cut_off: bool = False
    """Whether brokers do not answer it that another worker reaches (`CutOffWorkers`). It hands its tasks over."""
    tasks: Mapping[str, TaskReport] = field(default_factory=dict)
    on_disk: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, Mark] = field(default_factory=dict)
    """The committed marks of its active tasks, as it reported them."""
    loads: LoadHistory = field(default_factory=LoadHistory)
    claims: frozenset[str] = frozenset()
    _found: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Owners that it found, each with the sequence of the first heartbeat that reported it."""

    revision: int = 0
    instructions: Instructions | None = None
    """Its part of the published assignment. None if it joined after that: it keeps the tasks that it holds."""
    orders: Orders = field(default_factory=Orders)

    _copies: dict[TaskId, Copy] | None = None
    _on_disk: dict[TaskId, int] | None = None

    def apply(self, heartbeat: Heartbeat, now_ms: int, wall_ms: int, acceptable_lag: int) -> HeartbeatChanges:
        """Update the member from a heartbeat.

        Args:
            heartbeat: the message.
            now_ms: a monotonic clock.
            wall_ms: the time of day.
            acceptable_lag: records; a copy that passes it counts as changed.

        Returns:
            The changes since its previous heartbeat.
        """
        again = heartbeat.incarnation == self.incarnation and self.confirmed
        if heartbeat.incarnation != self.incarnation:
            self.replaced = (*self.replaced, self.incarnation)[-_MAX_REPLACED:]
            self.incarnation = heartbeat.incarnation
            self.may_leave = False
            self.loads.clear()
        self.loads.add(heartbeat.load, now_ms)
        before: Mapping[str, TaskReport] = self.tasks if again else _NOTHING
        changed = not again or before != heartbeat.tasks
        claims = self.claims if again else frozenset[str]()

        placement = (
            not again
            or not self.alive
            or self.leaving != heartbeat.leaving
            or self.tags != heartbeat.tags
            or self.rack != heartbeat.rack
        )
        details = (self.pod_revision, self.trouble, self.address, self.brokers, self.credentials_changed) != (
            heartbeat.revision, heartbeat.trouble, heartbeat.address, heartbeat.brokers, heartbeat.credentials_changed,
        )  # fmt: skip
        copies = changed and _copies_changed(before, heartbeat.tasks, acceptable_lag)
        if changed:
            self.tasks = heartbeat.tasks
            self._copies = None
            self.claims = frozenset(
                task
                for task, report in heartbeat.tasks.items()
                if report.role is Role.ACTIVE and report.state in _OWNED
            )
        if self.on_disk != heartbeat.on_disk:
            copies = copies or self.on_disk.keys() != heartbeat.on_disk.keys()
            self.on_disk = heartbeat.on_disk
            self._on_disk = None
        committed, self.committed = self.committed, heartbeat.committed
        changes = HeartbeatChanges(
            claimed=self.claims - claims if changed else frozenset(),
            found_owners=self._new_findings(heartbeat, again=again) if heartbeat.taken_over or self._found else {},
            placement=placement,
            copies=copies,
            details=details,
            dropped_marks={
                task: mark for task, mark in committed.items() if not again or task not in heartbeat.committed
            },
        )
        self.sequence = heartbeat.sequence
        self.heard_ms = now_ms
        self.reconnect_by_ms = None
        self.clock_skew_ms = heartbeat.clock_ms - wall_ms if heartbeat.clock_ms else 0
        self.address, self.tags, self.rack = heartbeat.address, heartbeat.tags, heartbeat.rack
        self.pod_revision, self.trouble, self.brokers = heartbeat.revision, heartbeat.trouble, heartbeat.brokers
        self.reach, self.reported_ms = heartbeat.reach, now_ms
        self.credentials_changed = heartbeat.credentials_changed
        self.leaving = heartbeat.leaving
        self.alive = self.confirmed = True
        return changes

    def _new_findings(self, heartbeat: Heartbeat, *, again: bool) -> dict[str, str]:
        """Return the owners that the worker found since its last heartbeat; repeated ones may be out of date."""
        before, self._found = self._found if again else {}, {}
        news = {}
        for task, owner in heartbeat.taken_over.items():
            earlier = before.get(task)
            if earlier is not None and earlier[0] == owner and earlier[1] > heartbeat.acknowledged:
                self._found[task] = earlier
            else:
                self._found[task] = (owner, heartbeat.sequence)
                news[task] = owner
        return news

    def all_changes(self) -> HeartbeatChanges:
        """Return the content of the worker's last heartbeat as changes, as if it were its first."""
        self.invalidate_copies()
        return HeartbeatChanges(
            claimed=self.claims,
            found_owners={task: owner for task, (owner, _) in self._found.items()},
            placement=True,
            copies=True,
        )

    def invalidate_copies(self) -> None:
        """Forget the computed copies of the worker: tasks were added, and it may have copies of them."""
        self._copies = self._on_disk = None

    def forget_tasks(self) -> None:
        """Forget the worker's tasks, which are those of another topology."""
        self.tasks, self.on_disk, self.committed, self.claims = {}, {}, {}, frozenset()
        self._copies = self._on_disk = None
        self._found = {}
        self.instructions = None

    def assignable(self) -> AssignableWorker:
        """Return the worker as an input of the assignment."""
        return AssignableWorker(
            self.id,
            tags=self.tags,
            rack=self.rack,
            placeable=not (self.draining or self.leaving or self.cut_off),
            leaving=self.leaving,
        )

    def copies(self, tasks: Mapping[str, TaskId]) -> Mapping[TaskId, Copy]:
        """Return the worker's copies of the known tasks."""
        if self._copies is None:
            self._copies = {
                tasks[text]: Copy(report.role, report.state, report.lag, report.offset)
                for text, report in self.tasks.items()
                if text in tasks
            }
        return self._copies

    def disk(self, tasks: Mapping[str, TaskId]) -> Mapping[TaskId, int]:
        """Return the known tasks that the worker has only on disk, with their offsets."""
        if self._on_disk is None:
            self._on_disk = {tasks[text]: offset for text, offset in self.on_disk.items() if text in tasks}
        return self._on_disk

    def info(self, now_ms: int | None) -> Member:
        """Return the worker for display; with None as the time, only the part that is stored."""
        return Member(
            worker=self.id,
            address=self.address,
            incarnation=self.incarnation,
            alive=self.alive,
            draining=self.draining,
            silent_ms=max(now_ms - self.heard_ms, 0) if now_ms is not None else 0,
            clock_skew_ms=self.clock_skew_ms if now_ms is not None else 0,
            tags=self.tags,
            rack=self.rack,
            tasks=dict(self.tasks) if now_ms is not None else {},
            replaced=self.replaced,
            revision=self.pod_revision if now_ms is not None else "",
            brokers=self.brokers if now_ms is not None else Brokers.ANSWERING,
            cut_off=self.cut_off and now_ms is not None,
            trouble=self.trouble if now_ms is not None else None,
            credentials_changed=self.credentials_changed and now_ms is not None,
            load=self.loads.load(self.heard_ms) if now_ms is not None and self.alive else None,
            rates=self.loads.rates(self.heard_ms) if now_ms is not None and self.alive else None,
        )


def _copies_changed(before: Mapping[str, TaskReport], after: Mapping[str, TaskReport], acceptable_lag: int) -> bool:
    """Return whether reports differ in more than a lag that stays on its side of the acceptable lag."""
    if before.keys() != after.keys():
        return True
    for task, new in after.items():
        old = before[task]
        if old is new or old == new:
            continue
        if old.role is not new.role or old.state is not new.state:
            return True
        if (old.lag is None) != (new.lag is None):
            return True
        if old.lag is not None and new.lag is not None and (old.lag <= acceptable_lag) != (new.lag <= acceptable_lag):
            return True
    return False


def without_brokers(members: Mapping[str, Membership]) -> frozenset[str]:
    """Return the live workers that lost their brokers while another one reaches them.

    When all brokers are down, no worker reaches them, and tasks stay. Every worker notices the outage within seconds,
    long before a worker counts as having lost its brokers.
    """
    alive = [each for each in members.values() if each.alive]
    if all(each.brokers is not Brokers.ANSWERING for each in alive):
        return frozenset()
    return frozenset(each.id for each in alive if each.brokers is Brokers.LOST)


def usable_members(members: Mapping[str, Membership]) -> dict[str, Membership]:
    """Return the members that can be assigned tasks, by id."""
    return {each.id: each for each in members.values() if each.alive and not each.excluded}
