"""Every state that a task's life cycle can reach, however orders, answers, commits and failures interleave."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from millpond.protocol import Role, TaskState
from millpond.runtime.tasks import lifecycle
from millpond.runtime.tasks.events import CommitFailed, Event, Hold, LookedUp
from millpond.runtime.tasks.instructions import CloseStores, Instruction, LookUp, StartTasks, StopReading
from millpond.runtime.tasks.lifecycle import TaskLifecycle
from tests.lifecycle.world import ME, OTHER, Place, Stage, Violation, World, start, steps


def _explored(tasks: int = 1) -> dict[World, tuple[str, World] | None]:
    """All reachable states, each with the step that led there first."""
    seen: dict[World, tuple[str, World] | None] = {start(tasks): None}
    todo = [start(tasks)]
    while todo:
        world = todo.pop()
        for what, after in _steps(world, seen):
            if after not in seen:
                seen[after] = (what, world)
                todo.append(after)
    return seen


def _steps(world: World, seen: dict[World, tuple[str, World] | None]) -> Iterable[tuple[str, World]]:
    try:
        yield from steps(world)
    except Violation as violation:
        path = []
        came: tuple[str, World] | None = seen[world]
        while came is not None:
            path.append(came[0])
            came = seen[came[1]]
        raise Violation("\n".join([str(violation), "after:", *reversed(path)])) from violation


def test_no_order_of_events_breaks_an_invariant() -> None:
    """No worker commits a task of another; stores, inputs and lookups are as the life cycle records them."""
    seen = _explored()
    places = Counter((world.places[0].role, world.places[0].state) for world in seen)
    print(f"{len(seen)} states")
    for role in Role:
        for state in (TaskState.ACQUIRING, TaskState.RESTORING, TaskState.RUNNING):
            assert places[role, state], f"{role} {state} was never reached"
    assert places[Role.ACTIVE, TaskState.RELEASING]


def test_every_task_that_waits_can_still_run() -> None:
    """From each state a task can reach RUNNING, or be dropped, without another order: none waits forever."""
    seen = _explored()
    forward = {world: [after for _, after in steps(world)] for world in seen}
    backward: dict[World, list[World]] = {world: [] for world in seen}
    for world, afters in forward.items():
        for after in afters:
            backward[after].append(world)
    good = [world for world in seen if world.places[0].role is None or world.places[0].state is TaskState.RUNNING]
    reached = set(good)
    while good:
        for before in backward[good.pop()]:
            if before not in reached:
                reached.add(before)
                good.append(before)
    stuck = seen.keys() - reached
    assert not stuck, f"{len(stuck)} states, for example {next(iter(stuck))}"


@pytest.mark.slow
@pytest.mark.share(1)
@pytest.mark.parametrize("seed", range(5))
def test_tasks_that_share_commits_break_no_invariant(seed: int) -> None:
    """Random steps of two tasks: one is handed over in a commit after which the other continues."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    alone = sorted((world for world in _explored() if not world.flying and not world.fenced), key=repr)
    running = [world for world in alone if world.places[0].reads]
    shared = 0
    for _ in range(150):
        one, two = chance.choice(running), chance.choice(running if chance.random() < 0.5 else alone)
        world = World((one.places[0], two.places[0]))
        for _ in range(12):
            _, world = chance.choice(list(steps(world)))
            shared += all(place.committing for place in world.places)
    assert shared


# Faults that the exploration finds


def _answers_of_any_age(self: Any, event: LookedUp) -> Iterable[Instruction]:
    for finding in event.findings:
        record = self.tasks.get(finding.task)
        if record is not None and record.lookup:
            record.lookup = event.number
    return TaskLifecycle._looked_up(self, event)


def _starts_when_told(self: Any, event: Hold) -> Iterable[Instruction]:
    for task in event.tasks:
        record = self.tasks.get(task)
        if record is not None and not record.active and event.role is Role.ACTIVE and record.opened:
            record.role, record.state, record.epoch = Role.ACTIVE, TaskState.RUNNING, 2
            return [StartTasks((task,))]
    return TaskLifecycle._hold(self, event)


def _goes_on_after_a_failure(_: Any, __: CommitFailed) -> Iterable[Instruction]:
    return ()


def _keeps_stores_after_a_failure(self: Any, event: CommitFailed) -> Iterable[Instruction]:
    return [each for each in TaskLifecycle._commit_failed(self, event) if not isinstance(each, CloseStores)]


def _reads_on_while_it_is_handed_over(self: Any, event: Any) -> Iterable[Instruction]:
    return [each for each in TaskLifecycle._commit_begun(self, event) if not isinstance(each, StopReading)]


def _asks_nobody(self: Any, event: Any) -> Iterable[Instruction]:
    return [each for each in TaskLifecycle._commit_failed(self, event) if not isinstance(each, LookUp)]


@pytest.mark.parametrize(
    ("event", "mutant"),
    [
        (LookedUp, _answers_of_any_age),
        (Hold, _starts_when_told),
        (CommitFailed, _goes_on_after_a_failure),
        (CommitFailed, _keeps_stores_after_a_failure),
        (CommitFailed, _asks_nobody),
        (lifecycle.CommitBegun, _reads_on_while_it_is_handed_over),
    ],
    ids=lambda each: each.__name__,
)
def test_exploration_finds_a_fault(
    event: type[Event], mutant: Callable[..., Iterable[Instruction]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The life cycle without one of these leads to a violation, and the message shows the steps to it."""
    monkeypatch.setitem(lifecycle._TRANSITIONS, event, mutant)
    with pytest.raises(Violation, match="after:"):
        _explored()


def test_instructions_after_a_failed_one_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, lookups that tasks wait for are never sent, and stores stay open."""
    monkeypatch.setattr(Stage, "carries_on", False)
    with pytest.raises(Violation, match="after:"):
        _explored()


def test_commit_without_ownership_is_a_violation() -> None:
    """The exploration finds a violation if there is one."""
    running = Place(
        OTHER, Role.ACTIVE, TaskState.RUNNING, opened=True, known=True, stores=True, reads=True, committing=True
    )
    with pytest.raises(Violation, match="a commit without ownership"):
        list(steps(World((running,), flying=True)))
    assert list(steps(World((running._replace(owner=ME, current=True),), flying=True)))
