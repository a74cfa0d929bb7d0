"""Repeated kill -9 while input flows."""

from __future__ import annotations

import random
import time
from statistics import median

import pytest

from tests.exactly_once.processes import Application, Run
from tests.exactly_once.truth import (
    Generator,
    Truth,
    await_changelogs,
    drain,
    replays,
    show,
    verify_exactly_once,
)

KILLS, ALL_KILLS = 5, 30
"""The number of kills in a normal test run, and in `make nightly`."""
RATE = 3_000
"""Input records per second."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kills_lose_nothing_and_double_nothing(application: Application, seed: int, soak: bool) -> None:
    """Killed at random moments, a windowed count ends with exact results everywhere, and replays at most one commit."""
    kills = ALL_KILLS if soak else KILLS
    pick = random.Random(seed)
    with Generator(application, seed, RATE) as generator:
        run = application.start()
        run.await_commits()
        await_changelogs(application)
        run.await_commits()  # the state equals the changelogs only after the worker has handled the commit
        run.kill()
        for _ in range(kills - 1):
            run = application.start()
            _await_moment(run, pick)
            run.kill()
        run = application.start()
        run.await_running()
    truth = Truth(generator.sent)
    drain(application, truth)
    run.stop()
    verify_exactly_once(application, truth, application.state_directory())

    restarts = replays(application)[1:]
    for of_run in restarts:
        for replay in of_run:
            assert replay.start > 0, f"restored from the beginning: {replay}"
            assert replay.transactions <= 1, f"replayed more than the last commit: {replay}"
    start_ups = [seconds for each in application.runs if (seconds := each.start_up_seconds()) is not None]
    show(
        f"{len(truth.sent)} records, {kills} kills, {len(restarts)} restarts that restored; start-up median "
        f"{median(start_ups):.2f} s, longest {max(start_ups):.2f} s; replays of "
        f"{sum(bool(replay.rows) for of_run in restarts for replay in of_run)} store partitions, longest "
        f"{max(replay.rows for of_run in restarts for replay in of_run)} records"
    )


def _await_moment(run: Run, pick: random.Random) -> None:
    """Wait for the stage of the worker in which to kill it, and for a random moment of it.

    Half of the kills happen during a commit, which takes a few milliseconds of every hundred.
    """
    stage = pick.choices(["starting", "restoring", "running", "committing"], [2, 1, 2, 5])[0]
    longest_s = 0.4
    if stage == "restoring":
        run.await_(lambda run: run.facts("restore started"), "the worker restores")
        longest_s = 0.1
    elif stage == "running":
        run.await_running()
        longest_s = 1.2
    elif stage == "committing":
        run.await_commits(pick.randrange(2, 10))
    # A random moment needs a clock.
    time.sleep(pick.uniform(0.08, 0.11) if stage == "committing" else pick.uniform(0, longest_s))
