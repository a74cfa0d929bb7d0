"""What the coordinator knows of one worker, and what is new in a heartbeat of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.protocol import Brokers, Heartbeat, Mark, Member, Role, TakeOver, TaskReport, TaskState, Trouble
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, Copy, Instructions

__all__ = ("Membership", "News", "Orders", "usable_members", "without_brokers")

#: States in which an active task is its worker's own in Kafka: it has seen so there.
_OWNED = frozenset({TaskState.RESTORING, TaskState.RUNNING, TaskState.RELEASING})
#: Earlier incarnations that are remembered: more than a worker that cannot start makes in the life of a zombie.
_MOST_REPLACED = 256
_NOTHING: Mapping[str, TaskReport] = {}


@dataclass(frozen=True, slots=True)
class Orders:
    """The parts of an answer that come from the assignment, in the protocol's own types."""

    tasks: dict[str, Role] = field(default_factory=dict)
    release: dict[str, str] = field(default_factory=dict)
    take_over: tuple[TakeOver, ...] = ()

    @classmethod
    def of(cls, instructions: Instructions, names: Mapping[TaskId, str]) -> Orders:
        """Instructions, with task ids as text."""
        return cls(
            {names[task]: role for task, role in instructions.tasks.items()},
            {names[task]: worker for task, worker in instructions.release.items()},
            instructions.take_over,
        )


@dataclass(frozen=True, slots=True)
class News:
    """What a heartbeat changes, as far as the assignment is concerned."""

    claimed: frozenset[str]
    """Tasks that it now says it owns and did not before."""
    found: Mapping[str, str]
    """Owners that it now says it found or made in Kafka, and did not before."""
    placement: bool
    """Something that decides where tasks go: tags, rack, leaving, another process."""
    copies: bool
    """Copies came, went, changed their role or became hot or cold."""
    shown: bool = False
    """Something that only people and tools care about: what it runs, its trouble, its address."""
    left: Mapping[str, Mark] = field(default_factory=dict)
    """How far tasks were committed that it told of before and does not any more."""


@dataclass(slots=True)
class Membership:
    """One worker. Mutable; changed by the engine alone."""

    id: str
    incarnation: str
    heard_ms: int
    """When its last heartbeat came, on the engine's clock."""
    sequence: int = 0
    alive: bool = True
    confirmed: bool = False
    """Whether this coordinator has heard of this incarnation."""
    draining: bool = False
    leaving: bool = False
    may_leave: bool = False
    replaced: tuple[str, ...] = ()
    doubted_ms: int | None = None
    """When it counts as gone unless it is heard of before."""
    deaf_until_ms: int = 0
    """It was reported gone: what of it is still on its way here does not make it a member again."""

    address: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    rack: str | None = None
    clock_skew_ms: int = 0
    runs: str = ""
    """What it runs, as whoever started it calls that."""
    trouble: Trouble | None = None
    brokers: Brokers = Brokers.ANSWERING
    credentials_changed: bool = False
    left_out: bool = False
    """It lost its brokers, and others have them: its tasks are theirs to take over."""
    tasks: Mapping[str, TaskReport] = field(default_factory=dict)
    on_disk: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, Mark] = field(default_factory=dict)
    """How far it said that it committed its active tasks."""
    claims: frozenset[str] = frozenset()
    _found: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Owners it found, with the sequence of the heartbeat that said so first."""

    revision: int = 0
    instructions: Instructions | None = None
    """None while no assignment has been made that reckons with it: then it goes on with what it has."""
    orders: Orders = field(default_factory=Orders)

    _copies: dict[TaskId, Copy] | None = None
    _on_disk: dict[TaskId, int] | None = None

    def take(self, heartbeat: Heartbeat, now_ms: int, wall_ms: int, acceptable_lag: int) -> News:
        """Take in what a heartbeat says, and tell what of it is news."""
        again = heartbeat.incarnation == self.incarnation and self.confirmed
        if heartbeat.incarnation != self.incarnation:
            self.replaced = (*self.replaced, self.incarnation)[-_MOST_REPLACED:]
            self.incarnation = heartbeat.incarnation
            self.may_leave = False
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
        shown = (self.runs, self.trouble, self.address, self.brokers, self.credentials_changed) != (
            heartbeat.revision, heartbeat.trouble, heartbeat.address, heartbeat.brokers, heartbeat.credentials_changed,
        )  # fmt: skip
        copies = changed and _moved(before, heartbeat.tasks, acceptable_lag)
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
        news = News(
            claimed=self.claims - claims if changed else frozenset(),
            found=self._newly_found(heartbeat, again=again) if heartbeat.taken_over or self._found else {},
            placement=placement,
            copies=copies,
            shown=shown,
            left={task: mark for task, mark in committed.items() if not again or task not in heartbeat.committed},
        )
        self.sequence = heartbeat.sequence
        self.heard_ms = now_ms
        self.doubted_ms = None
        self.clock_skew_ms = heartbeat.clock_ms - wall_ms if heartbeat.clock_ms else 0
        self.address, self.tags, self.rack = heartbeat.address, heartbeat.tags, heartbeat.rack
        self.runs, self.trouble, self.brokers = heartbeat.revision, heartbeat.trouble, heartbeat.brokers
        self.credentials_changed = heartbeat.credentials_changed
        self.leaving = heartbeat.leaving
        self.alive = self.confirmed = True
        return news

    def _newly_found(self, heartbeat: Heartbeat, *, again: bool) -> dict[str, str]:
        """What it found, or found again, since its last heartbeat: what it only repeats may be long past."""
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

    def all_news(self) -> News:
        """What its last heartbeat said, as if nothing had been known before."""
        self.look_again()
        return News(
            claimed=self.claims,
            found={task: owner for task, (owner, _) in self._found.items()},
            placement=True,
            copies=True,
        )

    def look_again(self) -> None:
        """There are more tasks than before: it may have copies of them."""
        self._copies = self._on_disk = None

    def forget_tasks(self) -> None:
        """Its tasks were those of another topology."""
        self.tasks, self.on_disk, self.committed, self.claims = {}, {}, {}, frozenset()
        self._copies = self._on_disk = None
        self._found = {}
        self.instructions = None

    def worker(self) -> AssignableWorker:
        """As the assignment sees it."""
        return AssignableWorker(
            self.id,
            tags=self.tags,
            rack=self.rack,
            placeable=not (self.draining or self.leaving),
            leaving=self.leaving,
        )

    def copies(self, tasks: Mapping[str, TaskId]) -> Mapping[TaskId, Copy]:
        """What it holds of the tasks that there are."""
        if self._copies is None:
            self._copies = {
                tasks[text]: Copy(report.role, report.state, report.lag, report.offset)
                for text, report in self.tasks.items()
                if text in tasks
            }
        return self._copies

    def disk(self, tasks: Mapping[str, TaskId]) -> Mapping[TaskId, int]:
        """What it has state of without holding it."""
        if self._on_disk is None:
            self._on_disk = {tasks[text]: offset for text, offset in self.on_disk.items() if text in tasks}
        return self._on_disk

    def shown(self, now_ms: int | None) -> Member:
        """As people see it; without a time, what has to outlive the coordinator."""
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
            revision=self.runs if now_ms is not None else "",
            brokers=self.brokers if now_ms is not None else Brokers.ANSWERING,
            trouble=self.trouble if now_ms is not None else None,
            credentials_changed=self.credentials_changed and now_ms is not None,
        )


def _moved(before: Mapping[str, TaskReport], after: Mapping[str, TaskReport], acceptable_lag: int) -> bool:
    """Whether reports differ in more than how far behind a copy is on its side of the line."""
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
    """The live workers that lost their brokers while another one has them at this moment.

    When the brokers themselves are away, nobody has them, and tasks stay where they are: every worker notices within seconds, long
    before any counts as having lost them.
    """
    alive = [each for each in members.values() if each.alive]
    if all(each.brokers is not Brokers.ANSWERING for each in alive):
        return frozenset()
    return frozenset(each.id for each in alive if each.brokers is Brokers.LOST)


def usable_members(members: Mapping[str, Membership]) -> dict[str, Membership]:
    """The workers that an assignment reckons with, by id."""
    return {each.id: each for each in members.values() if each.alive and not each.left_out}
