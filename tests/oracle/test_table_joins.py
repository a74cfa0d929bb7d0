"""Joins of tables write the same records as Kafka Streams', also to their internal topics, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.table_joins.cases import CASES
from tests.oracle.table_joins.running import run

GOLDEN = Path(__file__).parent / "golden-table-joins"
NAMES = [name + suffix for name in sorted(CASES) for suffix in ("", "-cached")]


def test_every_golden_file_has_its_case() -> None:
    """Cases and golden files cover each other, so none is forgotten on one side."""
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_join_of_tables_equals_kafka_streams(name: str) -> None:
    """Description, results, timestamps, order, and the bytes in internal topics are the original's."""
    assert run(name) == (GOLDEN / f"{name}.txt").read_text()
