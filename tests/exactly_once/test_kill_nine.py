"""kill -9, again and again, while input flows."""

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
    tell,
    verify_exactly_once,
)

KILLS, ALL_KILLS = 8, 30
"""In the share that each run of all tests has, and in full length: `make soak`."""
RATE = 3_000
"""Input records per second."""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kills_lose_nothing_and_double_nothing(application: Application, seed: int, soak: bool) -> None:
    """Killed at random moments, a windowed count ends with the truth everywhere, one commit replayed at most."""
    kills = ALL_KILLS if soak else KILLS
    pick = random.Random(seed)
    with Generator(application, seed, RATE) as generator:
        run = application.start()
        run.await_commits()
        await_changelogs(application)
        run.await_commits()  # the state has what the changelogs have when the worker has noted the commit, too
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
    tell(
        f"{len(truth.sent)} records, {kills} kills, {len(restarts)} restarts that came to restore; start-up median "
        f"{median(start_ups):.2f} s, longest {max(start_ups):.2f} s; replays of "
        f"{sum(bool(replay.rows) for of_run in restarts for replay in of_run)} store partitions, longest "
        f"{max(replay.rows for of_run in restarts for replay in of_run)} records"
    )


def _await_moment(run: Run, pick: random.Random) -> None:
    """Wait for the stage of the worker's life in which the kill is to come, and for some moment of it.

    Half of the kills are aimed at the middle of a commit, which takes a few milliseconds of every hundred.
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
    # At no particular moment: only a clock gives such.
    time.sleep(pick.uniform(0.08, 0.11) if stage == "committing" else pick.uniform(0, longest_s))
