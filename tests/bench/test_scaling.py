"""The analysis of the scaling bench, and the placement of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from bench.scaling.figures import Run, lines
from bench.scaling.placement import pin, placements, starting_on


def run(rps: float) -> Run:
    return Run(rps, 3.0, 2.0)


@given(st.sets(st.integers(0, 200), min_size=2, max_size=64))
def test_workers_and_broker_get_separate_cores(cores: set[int]) -> None:
    """In `alone`, `halves` and `apart` the rest runs on other cores; each worker has one core; all cores exist."""
    found = placements(sorted(cores))
    assert ("apart" in found) == (len(cores) >= 4)
    for name, placement in found.items():
        used = frozenset[int]().union(*placement.workers)
        assert all(len(each) == 1 for each in placement.workers)
        assert used | placement.rest <= cores
        assert placement.rest
        assert used.isdisjoint(placement.rest) == (name != "mixed")
        assert placement.shares * len(used) == len(placement.workers)


def test_one_core_is_not_enough() -> None:
    """It is an error, not a result."""
    with pytest.raises(ValueError, match="one core"):
        placements([3])


@given(base=st.floats(1e3, 1e6), cost=st.floats(0.5, 1.5), repeats=st.integers(1, 5))
def test_two_half_cores_count_as_two_slow_cores(base: float, cost: float, repeats: int) -> None:
    """Two workers whose records cost `cost` times as much as one worker's are 2 / cost times as fast."""
    runs = {
        "alone": [run(base)] * repeats,
        "halves": [Run(base / cost, 3.0 * cost, 2.0)] * repeats,
        "mixed": [run(base * 1.1)] * repeats,
    }
    alone, halves, mixed = lines("count", placements([0, 1]), runs)
    assert alone.speed_up == pytest.approx(1)
    assert (halves.speed_up, halves.cpu_speed_up) == (pytest.approx(2 / cost), pytest.approx(2 / cost))
    assert mixed.speed_up == pytest.approx(1.1)
    assert (alone.workers, halves.workers, mixed.workers) == (1, 2, 2)


def test_speed_ups_are_taken_repeat_by_repeat() -> None:
    """A machine that is slow during one repeat is slow for all its placements."""
    runs = {"alone": [run(100), run(10), run(100)], "halves": [run(90), run(9), run(20)]}
    assert lines("count", placements([0, 1]), runs)[1].speed_up == pytest.approx(1.8)


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are given by Linux's calls")
def test_a_process_runs_where_it_is_put() -> None:
    """It starts on some cores, and moves to others with all its threads, while this process keeps its cores."""
    mine = os.sched_getaffinity(0)
    one = frozenset({min(mine)})
    program = "import threading, sys; threading.Thread(target=sys.stdin.read).start(); print('up', flush=True)"
    with starting_on(one):
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert os.sched_getaffinity(child.pid) == one
        assert os.sched_getaffinity(0) == mine
        pin(child.pid, frozenset(mine))
        tasks = [int(each.name) for each in Path(f"/proc/{child.pid}/task").iterdir()]
        assert {frozenset(os.sched_getaffinity(task)) for task in tasks} == {frozenset(mine)}
    finally:
        child.communicate(timeout=60)


@pytest.mark.parametrize("name", ["count", "busy"])
def test_both_applications_count_correctly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`busy` gives the same results, only slower."""
    monkeypatch.setenv("BENCH_INPUT", "in")
    monkeypatch.setenv("BENCH_OUTPUT", "out")
    from bench.scaling import app

    with mp.testing.TopologyTestDriver(getattr(app, name)()) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for _ in range(3):
            source.pipe_input("a", "x")
        output = driver.create_output_topic("out", key=mp.String, value=mp.Long)
        assert dict(output.read_key_values_to_list()) == {"a": 3}
