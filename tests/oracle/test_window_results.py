"""Cogroups and final results of windows write the same records as Kafka Streams', also to their internal topics."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.oracle.window_results.cogroups
import tests.oracle.window_results.finals  # noqa: F401 - each registers its cases
from tests.oracle.window_results.running import CASES, run

GOLDEN = Path(__file__).parent / "golden-window-results"
NAMES = [name + suffix for name in sorted(CASES) for suffix in ("", "-cached")]


def test_every_golden_file_has_its_case() -> None:
    """Cases and golden files cover each other, so none is forgotten on one side."""
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_output_and_internal_topics_equal_kafka_streams(name: str) -> None:
    """Description, results, timestamps, order, and the bytes in internal topics are the original's."""
    assert run(name) == (GOLDEN / f"{name}.txt").read_text()
