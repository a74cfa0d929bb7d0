"""Exactly once through faults at random, and the same without fencing, which must be seen to fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.planning import Fault, Kind
from tests.chaos.reporting import summary
from tests.chaos.running import Outcome, run
from tests.chaos.stage import Options
from tests.exactly_once.truth import new_seed

FAULTS = 22
#: A zombie with work in its hands: stopped while it processes, for so long that others take its tasks over.
_ZOMBIES = [Fault(0, 2.0, Kind.PAUSE, "w0", 5.0), Fault(1, 9.0, Kind.PAUSE, "w1", 5.0)]


def _tell(outcome: Outcome) -> None:
    Console(file=sys.stdout, width=150).print(summary(outcome))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("chaos")
def test_random_faults_lose_nothing_double_nothing_and_need_nobody(tmp_path: Path) -> None:
    """Three workers with standbys through faults of all kinds: every record is where it should be, once."""
    outcome = run(Options(seed=new_seed(), directory=tmp_path, faults=FAULTS, every=2.5))
    _tell(outcome)
    assert outcome.exactly_once
    assert not outcome.exits
    assert len(outcome.carried_out) == FAULTS


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.xdist_group("chaos")
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "unfenced"])
def test_zombies_double_records_if_nothing_fences_them_and_only_then(tmp_path: Path, fencing: bool) -> None:
    """Workers that come back after others took their tasks over do no harm; with transactional ids of nobody they do."""
    outcome = run(Options(seed=new_seed(), directory=tmp_path, rate=600.0, fencing=fencing), plan=_ZOMBIES)
    _tell(outcome)
    assert not outcome.stuck
    assert outcome.exactly_once is fencing
    twice = [finding for finding in outcome.findings if "twice" in finding.text]
    assert bool(twice) is not fencing
