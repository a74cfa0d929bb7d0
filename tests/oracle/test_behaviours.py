"""Operators turn the same records into the same records, in the same order, as Kafka Streams does."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.oracle.session_behaviours
import tests.oracle.stream_join_behaviours
import tests.oracle.window_behaviours  # noqa: F401 - each registers its cases
from tests.oracle.behaviours import CASES, run

GOLDEN = Path(__file__).parent / "golden-behaviours"
NAMES = [name + suffix for name in sorted(CASES) for suffix in ("", "-cached")]


def test_every_golden_file_has_its_case() -> None:
    """Cases and golden files cover each other, so none is forgotten on one side."""
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_output_equals_kafka_streams(name: str) -> None:
    """Keys, values, timestamps, order and dropped records of generated input are the original's."""
    assert run(name) == (GOLDEN / f"{name}.txt").read_text()
