"""The autoscaler meets its targets on the load traces: a fast version of `make bench-autoscaling`."""

from __future__ import annotations

import pytest

from bench.autoscaling import traces
from bench.autoscaling.run import SCALERS, Outcome, replay
from millpond_operator.autoscaling import Policy

_TICK_S, _LONG_TICK_S = 5.0, 15.0
_LONG_S = 12 * 3600.0


def _replayed(name: str, seed: int) -> Outcome:
    trace = traces.read(name)
    tick_s = _LONG_TICK_S if trace.length > _LONG_S else _TICK_S
    outcome = replay(trace, SCALERS[0], Policy(max_replicas=100), seed=seed, tick_s=tick_s)
    print(f"{name}, seed {seed}: {outcome.rescales}")
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", traces.NAMES)
def test_targets_are_met(name, pytestconfig) -> None:
    """At most 3 steps in a row and 4 rescales a day, lag within the target 95 % of the time, one worker for a task."""
    seed = int(pytestconfig.getoption("--seed", default=None) or 1)
    outcome = _replayed(name, seed)
    assert outcome.steps <= 3
    assert outcome.rescales_per_day <= 4
    assert outcome.within >= 0.95
    assert outcome.most <= traces.PARTITIONS
    assert outcome.hours < 1.25, "of the worker-hours of an oracle"
    hours = outcome.seconds / 3600
    assert len(outcome.reasons) <= 10 + hours, "the status is written seldom, whatever the noise"


def test_files_of_the_traces_are_what_the_script_writes(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(traces, "FOLDER", tmp_path)
    traces.write()
    monkeypatch.undo()
    for name in traces.NAMES:
        assert (tmp_path / f"{name}.csv").read_text() == (traces.FOLDER / f"{name}.csv").read_text()
