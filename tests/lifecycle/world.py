"""One worker's tasks, and everything around them, as a world that can be explored completely.

The life cycle is the real one (`millpond.runtime.tasks.lifecycle`); the effects of its instructions are modelled
here, and so is Kafka. Other workers do not occur: all that they can do to this one is to become the owner of a
task, which fences it, or to make it the owner. The protocol in Kafka, with its transactions, markers and late
requests, has a model of its own (`tests/ownership/model.py`), so a take-over and the decision about a commit are
one step each. A state consists of the following, for these reasons:

- **Numbers** of lookups are only compared: an answer is the one that a task waits for, or an earlier one.
- **Epochs** are only compared with what is committed: what the worker knows is of the present owner, or stale.
- **The coordinator** does not occur: every order is possible at any time.
- **Time** does not occur: everything may take forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from millpond.protocol import Role, TaskState
from millpond.runtime.offsets.metadata import Claim
from millpond.runtime.tasks import instructions as ask
from millpond.runtime.tasks.events import (
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
from millpond.runtime.tasks.lifecycle import InvalidTransition, TaskLifecycle, TaskRecord
from millpond.topology import TaskId

__all__ = ("ME", "NOBODY", "OTHER", "Place", "Violation", "World", "start", "steps")

ME, OTHER, NOBODY = "me", "other", None
_OLD, _NEW = 1, 2


class Violation(AssertionError):
    """A state that must not occur, or an instruction that cannot be carried out."""


class Look(NamedTuple):
    """A lookup that is under way: the request, or its answer."""

    newest: bool
    """Whether the task waits for it."""
    read: bool = False
    owner: str | None = NOBODY
    current: bool = False
    """Whether the owner has not changed since it was read."""


#: All answers to earlier lookups are ignored, whatever their content, so one stands for all.
_EARLIER = Look(False, read=True, owner="me", current=False)


class Place(NamedTuple):
    """One task: its record, its stores and inputs, and its owner in Kafka."""

    owner: str | None = NOBODY
    role: Role | None = None
    """None while the worker does not hold it."""
    state: TaskState = TaskState.ACQUIRING
    waits: bool = False
    opened: bool = False
    awaits_snapshot: bool = False
    current: bool = False
    """Whether the worker's epoch of it is the committed one."""
    known: bool = False
    """Whether the worker has an epoch of it."""
    release_to: str | None = None
    looks: tuple[Look, ...] = ()
    stores: bool = False
    """Whether the stores are open."""
    reads: bool = False
    """Whether the task exists and reads its inputs."""
    fetches: bool = False
    """Whether a snapshot is being fetched for it."""
    skips: bool = False
    """Whether it is opened without a snapshot the next time."""
    committing: bool = False
    """Whether it is in the commit in flight."""


class World(NamedTuple):
    """All tasks, and the worker's producer."""

    places: tuple[Place, ...]
    fenced: bool = False
    flying: bool = False
    """Whether a commit is in flight."""
    decided: bool = False
    """Whether the broker has completed the commit, which the worker does not know yet."""


def start(tasks: int) -> World:
    """Return the first world: the worker holds nothing, and no task has an owner."""
    return World((Place(),) * tasks)


def task_of(number: int) -> TaskId:
    """Return the task id of a place."""
    return TaskId(0, number)


#: The worker can go back to its last commit after one of these failed; after others it ends.
_RECOVERABLE = (
    ask.OpenStores, ask.BecomeActive, ask.BecomeCopy, ask.StartTasks, ask.StopReading, ask.CloseStores,
)  # fmt: skip
#: What lets go of something has done so when it raises, as by an error of a processor's `close()`.
_LETS_GO = (ask.CancelSnapshot, ask.StopReading, ask.CloseStores)


class Stage:
    """A mutable copy of a world, with the real life cycle.

    Attributes:
        carries_on: whether the instructions after one that fails are carried out, too.
        performed: the number of instructions so far.
        fails_at: the number of the instruction that fails; -1 for none.
        failed: that instruction.
    """

    carries_on: ClassVar[bool] = True

    def __init__(self, world: World) -> None:
        self.fenced, self.flying, self.decided = world.fenced, world.flying, world.decided
        self.places = [place._asdict() for place in world.places]
        self.lifecycle = TaskLifecycle()
        self.lifecycle._number = _NEW
        self.performed = 0
        self.fails_at = -1
        self.failed: ask.Instruction | None = None
        for number, place in enumerate(world.places):
            if place.role is not None:
                record = TaskRecord(task_of(number), place.role, place.state)
                record.lookup = _NEW if place.waits else 0
                record.opened, record.awaits_snapshot = place.opened, place.awaits_snapshot
                record.epoch = 0 if not place.known else _NEW if place.current else _OLD
                record.release_to = place.release_to
                self.lifecycle.tasks[record.task] = record

    def frozen(self) -> World:
        """Return the world of this stage.

        Raises:
            Violation: it must not occur.
        """
        try:
            self.lifecycle.validate()
        except InvalidTransition as error:
            raise Violation(str(error)) from error
        places = []
        for number, place in enumerate(self.places):
            record = self.lifecycle.tasks.get(task_of(number))
            if record is None:
                place |= Place(place["owner"])._asdict() | {key: place[key] for key in ("stores", "reads", "fetches")}
            else:
                looks = tuple(look for look in place["looks"] if look.newest)
                if len(looks) < len(place["looks"]):
                    looks += (_EARLIER,)
                place |= {
                    "role": record.role, "state": record.state, "waits": bool(record.lookup), "opened": record.opened,
                    "awaits_snapshot": record.awaits_snapshot, "known": bool(record.epoch),
                    "current": record.epoch == _NEW, "release_to": record.release_to,
                    "looks": looks,
                }  # fmt: skip
            places.append(Place(**place))
            _check(places[-1])
        return World(tuple(places), self.fenced, self.flying, self.decided)

    # Instructions

    def handle(self, event: Event, **choices: bool) -> None:
        """Let the life cycle handle an event, and carry out its instructions with the results in `choices`."""
        for each in self.lifecycle.handle(event):
            if self.failed is not None and not self.carries_on:
                return
            self.performed += 1
            if self.performed - 1 == self.fails_at:
                self.failed = each
                if not isinstance(each, _LETS_GO):
                    continue
            self._do(each, choices)

    def _do(self, each: ask.Instruction, choices: dict[str, bool]) -> None:
        match each:
            case ask.LookUp(number, tasks, _):
                for task in tasks:
                    place = self.places[task.partition]
                    place["looks"] = (*(look._replace(newest=False) for look in place["looks"]), Look(True))
                    self.lifecycle.tasks[task].lookup = _NEW
                assert number > _NEW
            case ask.OpenStores(task, following, snapshot, _):
                place = self.places[task.partition]
                _must(not place["stores"], "stores are opened that are open", self)
                if following and choices.get("replaced"):
                    self.handle(ChangelogReplaced(task), **choices | {"replaced": False})
                elif snapshot and not place["skips"] and (place["fetches"] or choices.get("snapshot")):
                    place["fetches"] = True
                    self.handle(SnapshotAwaited(task))
                else:
                    place["stores"], place["skips"] = True, False
                    self.handle(StoresOpened(task, choices.get("restored", False)))
            case ask.BecomeActive(task):
                _must(self.places[task.partition]["stores"], "a copy without stores is promoted", self)
            case ask.StartTasks(tasks):
                for task in tasks:
                    _must(self.places[task.partition]["stores"], "a task starts without its stores", self)
                    self.places[task.partition]["reads"] = True
            case ask.StopReading(task):
                self.places[task.partition]["reads"] = False
            case ask.BecomeCopy(task):
                _must(self.places[task.partition]["stores"], "a copy has no stores", self)
                self.handle(StoresOpened(task, choices.get("restored", False)))
            case ask.CloseStores(task):
                self.places[task.partition] |= {"stores": False, "reads": False}
            case ask.CancelSnapshot(task):
                self.places[task.partition] |= {"fetches": False, "skips": False}
            case ask.SkipSnapshot(task):
                self.places[task.partition]["skips"] = True
            case ask.ReportNotOwned() | ask.ReportHandedOver():
                pass
            case _:
                raise Violation(f"an unknown instruction: {each}")

    def close(self) -> None:
        """Close everything, as at the end of the worker."""
        self.failed = None
        self.fails_at = -1
        self.handle(Drop(tuple(self.lifecycle.tasks)))
        for place in self.places:
            left = [each for each in ("stores", "reads", "fetches") if place[each]]
            _must(not left, f"the end leaves {left} behind", self)

    def owned_by(self, number: int, owner: str | None) -> None:
        """Change the owner of a task, or the epoch of the same owner."""
        place = self.places[number]
        place["owner"] = owner
        place["looks"] = tuple(look._replace(current=False) for look in place["looks"])
        record = self.lifecycle.tasks.get(task_of(number))
        if record is not None and record.epoch:
            record.epoch = _OLD


def _must(holds: bool, what: str, stage: Stage) -> None:
    if not holds:
        raise Violation(f"{what}\n{stage.lifecycle.story.text()}")


def _check(place: Place) -> None:
    """Check the invariants of every state, besides those that the life cycle checks itself.

    Raises:
        Violation: the state violates one.
    """
    running = place.role is Role.ACTIVE and place.state is TaskState.RUNNING
    for holds, what in (
        (place.opened == place.stores, "the life cycle knows whether stores are open"),
        (place.reads == running, "a task reads its inputs while it runs, and at no other time"),
        (
            not place.waits or any(look.newest for look in place.looks),
            "the lookup that a task waits for is under way",
        ),
        (not place.awaits_snapshot or place.fetches or place.waits, "a task waits only for a snapshot that is fetched"),
        (place.known or not running, "a task runs only after its owner was looked up"),
        (
            place.role is not None or not (place.stores or place.reads or place.fetches),
            "a dropped task leaves nothing behind",
        ),
    ):
        if not holds:
            raise Violation(f"not so: {what}: {place}")


# Steps


def steps(world: World) -> Iterator[tuple[str, World]]:
    """Yield each possible next step with its result.

    Raises:
        Violation: a state that must not occur.
    """
    for number, place in enumerate(world.places):
        yield from _orders(world, number, place)
        yield from _lookups(world, number, place)
        yield from _stores(world, number, place)
        yield from _owners(world, number, place)
    yield from _commits(world)


def _orders(world: World, number: int, place: Place) -> Iterator[tuple[str, World]]:
    task = task_of(number)
    for role in Role:
        if place.role is not role and place.role is not Role.ACTIVE:
            yield from _after(world, f"hold {task} as {role}", Hold((task,), role))
    if place.role is not None and place.role is not Role.ACTIVE:
        yield from _after(world, f"drop {task}", Drop((task,)))
    if place.role is Role.ACTIVE:
        yield from _after(world, f"release {task}", Release(task, OTHER))
        yield from _after(world, f"keep {task}", Keep(task))


def _lookups(world: World, number: int, place: Place) -> Iterator[tuple[str, World]]:
    task = task_of(number)
    for index, look in enumerate(place.looks):
        rest = place.looks[:index] + place.looks[index + 1 :]
        if not look.read:
            # Offsets that a commit has pending are waited for.
            if not (place.committing and world.flying):
                read = look._replace(read=True, owner=place.owner, current=True)
                yield f"Kafka reads for {task}", _with(world, number, place._replace(looks=(*rest, read)))
            continue
        for resumable in (True, False) if look.owner == ME else (True,):
            for choices in ({}, {"restored": True}, {"snapshot": True}, {"replaced": True}):
                before = _with(world, number, place._replace(looks=rest))
                claim = Claim.RESUME if look.owner == ME else Claim.CLAIM if look.owner is NOBODY else Claim.FOREIGN
                epoch = _NEW if look.current else _OLD
                finding = Finding(task, claim, look.owner, epoch, resumable)
                event = LookedUp(_NEW if look.newest else _OLD, (finding,))
                yield from _after(before, f"{task} is looked up: {finding} {choices}", event, **choices)


def _stores(world: World, number: int, place: Place) -> Iterator[tuple[str, World]]:
    task = task_of(number)
    if place.role is Role.ACTIVE and place.state is TaskState.RESTORING:
        yield from _after(world, f"{task} is restored", StoresRestored((task,)))
    if place.role is not None and place.stores and not place.reads and place.state is not TaskState.RELEASING:
        yield from _after(world, f"{task} expires", StoresExpired(task))
    if place.role not in (None, Role.ACTIVE) and place.stores:
        for restored in {place.state is TaskState.RUNNING, True}:
            yield from _after(world, f"{task} catches up", CopyProgress(task, restored, restored))
    if place.fetches:
        ready = _with(world, number, place._replace(fetches=False, skips=True))
        yield from _after(ready, f"the snapshot for {task} is through", SnapshotReady(task))


def _owners(world: World, number: int, place: Place) -> Iterator[tuple[str, World]]:
    """Yield the steps of other workers: they take over from this worker, which fences it, or name it as the owner."""
    task = task_of(number)
    for owner in (ME, OTHER, NOBODY):
        if owner == place.owner and owner is not OTHER:
            continue
        stage = Stage(world)
        if place.owner == ME:
            # Its producer is fenced first, and what it has in flight is decided, or aborted.
            if world.decided:
                continue
            stage.fenced = True
        stage.owned_by(number, owner)
        yield f"others make {owner} the owner of {task}", stage.frozen()


def _commits(world: World) -> Iterator[tuple[str, World]]:
    if not world.flying:
        stage = Stage(world)
        stage.lifecycle.apply(Keep(TaskId(9, 9)))  # counts what is to be released
        released = tuple(stage.lifecycle.to_release)
        running = [each["reads"] for each in stage.places]
        if any(running) or released:
            for number, reads in enumerate(running):
                stage.places[number]["committing"] = bool(reads) or task_of(number) in released
            stage.flying = True
            if released:
                yield from _after(stage.frozen(), "a commit begins", CommitBegun(released))
            else:
                yield "a commit begins", stage.frozen()
    elif not world.decided and not world.fenced:
        stage = Stage(world)
        for number, place in enumerate(world.places):
            if place.committing:
                # The main invariant: only the owner commits, and it has read everything that was committed before.
                _must(place.owner == ME and place.current, f"a commit without ownership: {place}", stage)
                if place.state is TaskState.RELEASING:
                    stage.owned_by(number, place.release_to)
        stage.decided = True
        yield "the broker decides for the commit", stage.frozen()
    if world.flying and world.decided:
        for restored in (True, False):
            stage = _landed(Stage(world))
            released = tuple(
                task_of(number)
                for number, place in enumerate(world.places)
                if place.committing and place.state is TaskState.RELEASING
            )
            what = "the worker hears of its commit"
            if released:
                yield from _after(stage.frozen(), what, CommitCompleted(released), restored=restored)
            else:
                yield what, stage.frozen()
    stage = _back_at_commit(Stage(world))
    yield "the worker goes back", stage.frozen()
    for number in range(stage.performed):
        stage = Stage(world)
        stage.fails_at = number
        _back_at_commit(stage).close()


def _landed(stage: Stage) -> Stage:
    stage.flying = stage.decided = False
    for place in stage.places:
        place["committing"] = False
    return stage


def _back_at_commit(stage: Stage) -> Stage:
    _landed(stage)
    stage.fenced = False  # a new producer takes the id, which aborts what is not decided
    stage.handle(CommitFailed())
    return stage


def _after(world: World, what: str, event: Event, **choices: bool) -> Iterator[tuple[str, World]]:
    """Yield the result of an event, and what follows if one of its instructions fails.

    The worker then ends, or goes back to its last commit.
    """
    stage = Stage(world)
    stage.handle(event, **choices)
    yield what, stage.frozen()
    for number in range(stage.performed):
        stage = _failing(world, number, event, choices)
        if isinstance(stage.failed, _RECOVERABLE):
            yield f"{what}; {stage.failed} fails, and the worker goes back", _back_at_commit(stage).frozen()
        _failing(world, number, event, choices).close()


def _failing(world: World, number: int, event: Event, choices: dict[str, bool]) -> Stage:
    stage = Stage(world)
    stage.fails_at = number
    stage.handle(event, **choices)
    return stage


def _with(world: World, number: int, place: Place) -> World:
    return world._replace(places=(*world.places[:number], place, *world.places[number + 1 :]))
