"""Exactly once through faults at random, and the same without fencing, which must be seen to fail."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.planning import ABOUT_TO_COMMIT, Fault, Kind
from tests.chaos.processes import ROOT
from tests.chaos.reporting import summary
from tests.chaos.running import Outcome, run
from tests.chaos.stage import Options
from tests.exactly_once.truth import new_seed

FAULTS = 16
#: Not pytest's temporary directory: what a failed run left behind is kept.
_DIRECTORY = ROOT / "build" / "chaos"
#: Zombies with work in their hands: stopped when they are about to commit, for so long that others take their tasks over,
#: also where that takes its time, and not so long that the broker ends their transactions, which would be a fence too.
_ZOMBIES = [
    Fault(0, 2.0, Kind.PAUSE, "w0", 6.0, ABOUT_TO_COMMIT),
    Fault(1, 10.0, Kind.PAUSE, "w1", 6.0, ABOUT_TO_COMMIT),
]


def _directory(name: str, seed: int) -> Path:
    directory = _DIRECTORY / f"{name}-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def _tell(outcome: Outcome, *, kept: bool) -> None:
    Console(file=sys.stdout, width=150).print(summary(outcome))
    if not kept:
        shutil.rmtree(outcome.options.directory)


@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.xdist_group("chaos")
def test_random_faults_lose_nothing_double_nothing_and_need_nobody() -> None:
    """Three workers with standbys through faults of all kinds: every record is where it should be, once."""
    seed = new_seed()
    outcome = run(Options(seed=seed, directory=_directory("faults", seed), faults=FAULTS, every=2.5))
    _tell(outcome, kept=not outcome.good)
    assert outcome.exactly_once
    assert not outcome.exits
    assert len(outcome.carried_out) == FAULTS


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.xdist_group("chaos")
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "unfenced"])
def test_zombies_double_records_if_nothing_fences_them_and_only_then(fencing: bool) -> None:
    """Workers that come back after others took their tasks over do no harm; with transactional ids of nobody they do."""
    seed = new_seed()
    options = Options(seed=seed, directory=_directory("zombies", seed), rate=600.0, fencing=fencing)
    outcome = run(options, plan=_ZOMBIES)
    _tell(outcome, kept=outcome.exactly_once is not fencing)
    assert not outcome.stuck
    assert outcome.exactly_once is fencing
    twice = [finding for finding in outcome.findings if "twice" in finding.text]
    assert bool(twice) is not fencing
