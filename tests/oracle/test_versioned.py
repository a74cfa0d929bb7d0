"""Versioned tables and joins with a grace period write the same records as Kafka Streams', internal topics included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.versioned.cases import CASES
from tests.oracle.versioned.running import run

GOLDEN = Path(__file__).parent / "golden-versioned"


def test_every_golden_file_has_its_case() -> None:
    """Cases and golden files cover each other, so none is forgotten on one side."""
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_output_equals_kafka_streams(name: str) -> None:
    """Description, results, timestamps, headers, changelog bytes and the stores' histories are the original's."""
    assert run(name) == (GOLDEN / f"{name}.txt").read_text()
