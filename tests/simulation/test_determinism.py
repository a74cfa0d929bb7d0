"""The same seed gives the same run: every callback and every request to the API server, in the same order and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.simulation.background import VirtualBackground
from tests.simulation.machine_clocks import machine_reads
from tests.simulation.sequence import sequence

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 120
_MOST_SHOWN = 10


@pytest.fixture(scope="module")
def runs(processes, tmp_path_factory):
    """The runs of two processes: with seed 7 in one; with seeds 9 and 7 in the other, where the real clocks jump."""
    directory = tmp_path_factory.mktemp("sequences")
    files = (directory / "first.json", directory / "second.json")
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.sequence", str(file), *arguments],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for file, arguments, hash_seed in zip(files, (("7",), ("9", "7", "--hostile")), ("1", "2"), strict=True)
    ]
    try:
        for child in children:
            output, _ = child.communicate(timeout=_TIMEOUT_S)
            assert child.returncode == 0, output
    finally:
        for child in children:
            child.kill()
            child.wait()
    (seven,), (nine, seven_again) = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    return seven, seven_again, nine


def test_same_seed_repeats_the_run_although_real_clocks_jump(runs):
    """This holds even if that process has another hash seed and ran another simulation before."""
    first, again, _ = runs
    for what in ("calls", "callbacks"):
        assert len(first[what]) > 100
        pairs = list(zip_longest(first[what], again[what]))
        differs = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
        if differs is not None:
            shown = "\n".join(str(one) for one, _ in pairs[max(differs - _MOST_SHOWN, 0) : differs])
            pytest.fail(f"the first difference in {what} is {pairs[differs]} after\n{shown}")


def test_another_seed_gives_other_moments_and_order(runs):
    """The requests are the same under other names; their times and order follow from the seed."""
    first, _, other = (run["calls"] for run in runs)

    def asked(calls):
        return [(verb, resource) for verb, resource, *_ in calls]

    def moments(calls):
        return [at for *_, at in calls]

    assert set(asked(first)) == set(asked(other))
    assert asked(first) != asked(other)
    assert moments(first) != moments(other)


@pytest.mark.slow
def test_simulation_reads_no_real_clock_and_starts_no_thread():
    """Under load, such a read returns another time: let the module that the message names read a virtual clock."""
    with machine_reads() as reads:
        sequence(7)
    assert not reads


def test_reads_of_real_clocks_are_found():
    """By the function and the module that called it, in a simulation and elsewhere."""
    with VirtualBackground(seed=1) as background, machine_reads() as reads:
        background.sleep(60)
        assert not reads
        time.monotonic()
        datetime.now(UTC)
    assert [read.rpartition(":")[0] for read in reads] == [f"monotonic in {__name__}", f"now in {__name__}"]
