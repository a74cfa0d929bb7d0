"""A worker dies at each step of its start, its commits and its restore, one after the other."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from tests.exactly_once.crashing import CRASHED
from tests.exactly_once.processes import Application
from tests.exactly_once.truth import (
    Generator,
    Truth,
    await_caught_up,
    drain,
    replays,
    verify_at_least_once,
    verify_exactly_once,
)

RATE = 400
"""Input records per second."""

Point = tuple[str, int]
"""A step, and the time at which it crashes."""

#: Steps of a first start in order: after each the tasks have no owner, except after the last.
CLAIMING: list[Point] = [
    ("before claims.take_over", 1),
    ("before producer.init_transactions", 2),
    ("after producer.init_transactions", 2),
    ("before producer.send_offsets_to_transaction", 1),
    ("after producer.send_offsets_to_transaction", 1),
    ("before producer.commit_transaction", 1),
    ("after producer.commit_transaction", 1),
]
#: Steps of a worker that owns its tasks: its first transaction announces it, the following ones are commits.
COMMITTING: list[Point] = [
    ("before producer.init_transactions", 1),
    ("after producer.init_transactions", 1),
    ("before start.announce", 1),
    ("before producer.commit_transaction", 1),
    ("after producer.commit_transaction", 1),
    ("after worker.start", 1),
    ("after tasks.start_restored", 1),
    ("after producer.begin_transaction", 2),
    ("before producer.produce", 1),
    ("after producer.produce", 100),
    ("after producer.produce", 1_000),
    ("before committer.begin", 2),
    ("after committer.begin", 1),
    ("before producer.flush", 1),
    ("after producer.flush", 3),
    ("before producer.send_offsets_to_transaction", 3),
    ("after producer.send_offsets_to_transaction", 2),
    ("before producer.commit_transaction", 2),
    ("before producer.commit_transaction", 4),
    ("after producer.commit_transaction", 2),
    ("after producer.commit_transaction", 3),
    ("before committer.completed", 2),
]
#: Right before and after the rows of a commit are written into the state file; "before" leaves rows to restore.
WRITING: list[Point] = [("before state.write", 8), ("before state.write", 10), ("after state.write", 9)]
RESTORING: list[Point] = [("before restore.write", 1), ("after restore.write", 1), ("after restore.write", 2)]

#: At least once has no transactions; the consumer commits offsets.
COMMITTING_OFFSETS: list[Point] = [
    ("before producer.produce", 300),
    ("after committer.begin", 2),
    ("before producer.flush", 2),
    ("after producer.flush", 2),
    ("before consumer.commit", 1),
    ("after consumer.commit", 1),
    ("before consumer.commit", 3),
    ("after consumer.commit", 3),
    ("before committer.completed", 1),
    ("before committer.completed", 3),
]


#: The number of steps of each kind in a normal test run; `make nightly` crashes at all steps.
SHARE = 3


def _generated(pick: random.Random, steps: list[Point], *, all_: bool) -> list[Point]:
    """Return points in random order; points of a restore come after one that leaves something to restore."""
    after_commit = ("before committer.completed_with_rows", 1)
    if all_:
        groups = [[point] for point in (*steps, *WRITING)] + [[after_commit, point] for point in RESTORING]
    else:
        groups = [[point] for point in (*pick.sample(steps, SHARE), pick.choice(WRITING))]
        groups.append([after_commit, pick.choice(RESTORING)])
    pick.shuffle(groups)
    return [point for group in groups for point in group]


def _crash_at(application: Application, points: Iterable[Point], guarantee: str) -> None:
    for step, occurrence in points:
        run = application.start(guarantee, crash={"step": step, "occurrence": occurrence})
        code = run.await_end()
        assert code == CRASHED, f"the worker never reached '{step}' number {occurrence} ({code})\n{run.tail()}"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_crash_at_any_transaction_step_counts_each_record_once(application: Application, seed: int, soak: bool) -> None:
    """A worker that dies at each step of claims, commits, state writes and restores still counts exactly once."""
    pick = random.Random(seed)
    # Steps of a claim crash in their order: only a first start claims.
    claiming = CLAIMING if soak else [*sorted(pick.sample(CLAIMING[:-1], 2), key=CLAIMING.index), CLAIMING[-1]]
    points = claiming + _generated(pick, COMMITTING, all_=soak)
    with Generator(application, seed, RATE) as generator:
        _crash_at(application, points, "exactly_once")
        run = application.start()
        run.await_running()
    truth = Truth(generator.sent)
    drain(application, truth)
    run.stop()
    verify_exactly_once(application, truth, application.state_directory())
    for replay in (replay for of_run in replays(application) for replay in of_run):
        assert replay.transactions <= 1, f"replayed more than the last commit: {replay}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_crash_at_any_at_least_once_step_loses_nothing(application: Application, seed: int, soak: bool) -> None:
    """A worker that dies at each step of an at-least-once commit may count twice, but never too little."""
    points = _generated(random.Random(seed), COMMITTING_OFFSETS, all_=soak)
    with Generator(application, seed, RATE) as generator:
        _crash_at(application, points, "at_least_once")
        run = application.start("at_least_once")
        run.await_running()
    truth = Truth(generator.sent)
    await_caught_up(application)
    run.stop()
    verify_at_least_once(application, truth, application.state_directory())
