"""Workers that the annotation `millpond.dev/drain` names: their tasks move away, and come back when it is removed."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from millpond_operator.controllers.rollout.conditions import ConditionInputs, conditions
from millpond_operator.controllers.rollout.model import Decision, WantedWorkers
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus
from millpond_operator.resources import parse
from tests.rollout.world import World

WANTED = WantedWorkers("r1", 3, min_ready=timedelta(seconds=2), progress_deadline=timedelta(seconds=60))


@pytest.fixture(params=range(3))
def world(request) -> World:
    made = World(random.Random(request.param), WANTED)
    _until_running(made)
    return made


def _until_running(world: World) -> None:
    world.until(
        lambda decision: (
            decision.phase is AppPhase.RUNNING
            and len(world.pods) == world.wanted.replicas
            and all(owner is not None for owner in world.owners.values())
        )
    )


def _ask(world: World, *names: str) -> None:
    world.wanted = replace(world.wanted, drain=frozenset(names))


def _held(world: World, ordinal: int) -> int:
    return sum(owner == ordinal for owner in world.owners.values())


def _until_drained(world: World) -> None:
    world.until(lambda _: world.status.draining is not None and world.status.draining.finished)


def _progressing(world: World, decision: Decision) -> tuple[str, str, str]:
    inputs = ConditionInputs("app", decision, world.observed(), decision.replicas)
    found = conditions(inputs, AppStatus(), 1, world.now)[1]
    return found.status, found.reason, found.message


def _reasons(world: World, turns: int = 5) -> list[str]:
    return [event[1] for _ in range(turns) for event in world.turn().events]


def test_tasks_of_a_requested_worker_move_away(world):
    """Its pod stays; the status, the condition and events report the drain and its end."""
    _ask(world, "app-1")
    first = world.turn()
    assert "app-1" in first.drain
    assert [event[1] for event in first.events] == ["Draining"]
    assert _progressing(world, first)[:2] == ("True", "Draining")
    _until_drained(world)
    assert _held(world, 1) == 0
    assert len(world.pods) == 3
    decision = world.turn()
    assert _progressing(world, decision)[:2] == ("False", "Drained")
    assert "app-1" in _progressing(world, decision)[2]
    assert _reasons(world) == [], "events are not repeated"
    assert not decision.delete


def test_worker_gets_tasks_again_when_the_request_is_removed(world):
    """A removed annotation ends the drain."""
    _ask(world, "app-1")
    _until_drained(world)
    _ask(world)
    decision = world.turn()
    assert decision.drain == frozenset()
    assert [event[1] for event in decision.events] == ["DrainEnded"]
    assert world.status.draining is None
    assert _progressing(world, world.turn())[1] == "Settled"


def test_drain_of_all_workers_is_refused_with_a_sentence(world):
    """Nobody could run the tasks, so none of them is drained."""
    _ask(world, "app-0", "app-1", "app-2")
    decision = world.turn()
    assert decision.drain == frozenset()
    (event,) = decision.events
    assert event[:2] == ("Warning", "DrainRefused")
    assert "names all workers (app-0, app-1, app-2), so none is drained: leave out at least one" in event[2]
    status, reason, message = _progressing(world, decision)
    assert (status, reason, message) == ("False", "DrainRefused", event[2])
    assert _reasons(world) == []
    _ask(world)
    assert _reasons(world) == [], "nothing was drained, so nothing ends"


def test_scaling_in_to_the_drained_worker_ends_its_drain(world):
    """The only worker that stays has to run the tasks."""
    _ask(world, "app-0")
    _until_drained(world)
    world.wanted = replace(world.wanted, replicas=1)
    world.until(lambda _: len(world.pods) == 1 and _held(world, 0) == world.task_count)
    assert world.deleted_full == []


def test_rollout_with_a_drained_worker_stops_no_task(world):
    """While the only other worker restarts, the drained one takes its tasks; afterwards it is drained again."""
    world.wanted = replace(world.wanted, replicas=2)
    _until_running(world)
    _ask(world, "app-1")
    _until_drained(world)
    world.wanted = replace(world.wanted, revision="r2")
    world.until(lambda _: world.status.current_revision == "r2")
    assert world.deleted_full == []
    _until_drained(world)
    assert _held(world, 1) == 0


def test_drain_waits_while_no_other_worker_lives(world):
    """Tasks that run matter more than the request."""
    _ask(world, "app-1")
    _until_drained(world)
    for ordinal in (0, 2):
        world.pods[ordinal].ready_at = None
    decision = world.turn(0.1)
    assert decision.drain == frozenset()
    assert "waits: no other worker can take tasks now" in world.status.draining.message
    assert decision.requeue_after is None


def test_names_of_the_annotation_are_those_of_workers() -> None:
    """Spaces do not matter; names of other objects have no effect."""
    made = parse(
        {
            "metadata": {
                "name": "delays",
                "namespace": "shop",
                "annotations": {"millpond.dev/drain": " delays-1, delays-7,delays, other-0,delays-0"},
            },
            "spec": {"image": "i", "topology": "a:b", "replicas": 3, "kafka": {"bootstrapServers": "k:1"}},
        }
    )
    assert made.workers_to_drain == {"delays-0", "delays-1"}
