"""The story of a worker's tasks: what happened, replayed on new state machines, leads to the same instructions."""

from __future__ import annotations

import random

import pytest

from millpond.protocol import Role
from millpond.runtime.tasks import assignment_follower
from millpond.runtime.tasks.events import Event, Hold
from millpond.runtime.tasks.instructions import Instruction
from millpond.runtime.tasks.story import Story, replay
from tests.lifecycle.coordinated import ASSIGNMENTS, TASK, Worker

STEPS = 300


def _worker() -> Worker:
    worker = Worker(list(ASSIGNMENTS), fenced_by_brokers=True, rejections=True)
    worker.lifecycle.story = Story(100 * STEPS)
    return worker


@pytest.mark.parametrize("seed", range(5))
def test_story_leads_to_the_same_instructions_when_it_is_replayed(seed: int) -> None:
    """A fault that a worker met can be looked at again without Kafka."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    worker = _worker()
    for _ in range(STEPS):
        _, _, step = chance.choice([*worker._own_steps(), *worker._others()])
        step(worker)
        worker._loop()
    again = _worker()

    def handle(event: Event) -> list[Instruction]:
        followed = type(event) in assignment_follower._TRANSITIONS
        return again.follower.handle(event) if followed else again.lifecycle.handle(event)

    replay(worker.lifecycle.story, handle)
    assert again.lifecycle.tasks == worker.lifecycle.tasks
    assert len(worker.lifecycle.story) > STEPS / 2


def test_story_that_differs_names_the_step() -> None:
    worker = _worker()
    worker.live(Hold((TASK,), Role.ACTIVE))
    with pytest.raises(AssertionError, match="step 0"):
        replay(worker.lifecycle.story, lambda _: [])
