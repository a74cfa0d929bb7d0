"""Exactly once through random faults; the same without fencing has to fail."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from tests.chaos.applications import APPLICATIONS
from tests.chaos.planning import UNTIL_TAKEN_OVER, Fault, Kind
from tests.chaos.processes import ROOT
from tests.chaos.reporting import summary
from tests.chaos.running import Outcome, run
from tests.chaos.stage import Options
from tests.support.measuring.figures import Figures

#: The number of faults in a normal test run and in full length; `make chaos` and `make nightly` have more.
FAULTS, ALL_FAULTS = 5, 16
#: Not pytest's temporary directory: the files of a failed run are kept.
_DIRECTORY = ROOT / "build" / "chaos"
#: Zombies with open work: stopped right before a commit, until others have taken over their tasks, and have had time to
#: commit, but not so long that the broker aborts their transactions, which would fence them, too. Without fencing, only
#: the broker aborts one that failed, and its offsets cannot be read until then: within a minute, as the test does.
_ZOMBIE_S = 12.0
_TRANSACTION_MS = 40_000
_TWO_AT_ONCE = (2.0, 2.5)
_TWO_IN_TURN = (2.0, 16.5)


def _zombies(moments: Iterable[float]) -> list[Fault]:
    return [
        Fault(number, at, Kind.PAUSE, f"w{number}", _ZOMBIE_S, UNTIL_TAKEN_OVER) for number, at in enumerate(moments)
    ]


def _directory(name: str, seed: int) -> Path:
    directory = _DIRECTORY / f"{name}-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def _report(outcome: Outcome, *, kept: bool) -> None:
    Console(file=sys.stdout, width=150).print(summary(outcome))
    if not kept:
        shutil.rmtree(outcome.options.directory)


@pytest.mark.long
@pytest.mark.share(1)
@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.xdist_group("chaos")
@pytest.mark.usefixtures("own_brokers")
@pytest.mark.parametrize("application", sorted(APPLICATIONS))
def test_chaos_exactly_once(application: str, seed: int, soak: bool, figures: Figures) -> None:
    """Three workers with standbys and faults of all kinds: every record is processed exactly once."""
    faults = ALL_FAULTS if soak else FAULTS
    options = Options(
        seed=seed, directory=_directory(application, seed), application=application, faults=faults, every=2.5,
        optimized=application == "operators" and seed % 2 == 1,
    )  # fmt: skip
    outcome = run(options)
    _report(outcome, kept=not outcome.good)
    for fault in outcome.carried_out:
        if fault.number in outcome.pauses:
            figures.note(f"{application}: pause after {fault.kind}", outcome.pauses[fault.number], "s")
    assert outcome.exactly_once
    assert not outcome.exits
    assert len(outcome.carried_out) == faults


@pytest.mark.long
@pytest.mark.share(1)
@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.xdist_group("chaos")
@pytest.mark.usefixtures("own_brokers")
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "unfenced"])
def test_chaos_without_fencing_doubles_records(fencing: bool, seed: int, soak: bool) -> None:
    """Workers that continue after others took over their tasks do no harm; with unique transactional ids they do."""
    options = Options(
        seed=seed, directory=_directory("zombies", seed), rate=600.0, fencing=fencing,
        # A client that was frozen must not count its connections as silent when it continues.
        settings={"transaction.timeout.ms": _TRANSACTION_MS, "producer.socket.timeout.ms": _TRANSACTION_MS - 1_000},
    )  # fmt: skip
    outcome = run(options, plan=_zombies(_TWO_IN_TURN if soak else _TWO_AT_ONCE))
    _report(outcome, kept=outcome.exactly_once is not fencing)
    assert not outcome.stuck
    assert outcome.exactly_once is fencing
    twice = [finding for finding in outcome.findings if "twice" in finding.text]
    assert bool(twice) is not fencing
