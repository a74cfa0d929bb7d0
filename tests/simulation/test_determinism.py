"""The same seed gives the same run: every request to the API server, in the same order and at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def sequences(processes, tmp_path_factory):
    """The requests of two processes with different hash seeds: with seed 7 in one, with seeds 9 and 7 in the other."""
    directory = tmp_path_factory.mktemp("sequences")
    files = (directory / "first.json", directory / "second.json")
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation.sequence", str(file), *seeds],
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for file, seeds, hash_seed in zip(files, (("7",), ("9", "7")), ("1", "2"), strict=True)
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


def test_same_seed_repeats_all_calls_in_another_process(sequences):
    """This holds even if that process has another hash seed and ran another simulation before."""
    first, again, _ = sequences
    assert len(first) > 100
    differences = [pair for pair in zip_longest(first, again) if pair[0] != pair[1]]
    assert not differences, f"the first of {len(differences)} differences: {differences[0]}"


def test_another_seed_gives_other_moments_and_order(sequences):
    """The requests are the same under other names; their times and order follow from the seed."""
    first, _, other = sequences

    def asked(calls):
        return [(verb, resource) for verb, resource, *_ in calls]

    def moments(calls):
        return [at for *_, at in calls]

    assert set(asked(first)) == set(asked(other))
    assert asked(first) != asked(other)
    assert moments(first) != moments(other)
