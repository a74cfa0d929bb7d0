"""Stores return what Kafka Streams' stores return, and leave the same in the changelog."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.store_reads import run, stores

GOLDEN = Path(__file__).parent / "golden-store-reads"


def test_every_golden_file_has_its_store() -> None:
    """Stores and golden files cover each other, so none is forgotten on one side."""
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(stores())


@pytest.mark.parametrize("name", sorted(stores()))
def test_reads_equal_kafka_streams(name: str) -> None:
    """The results of generated calls, their order, and the changelog are the original's."""
    assert run(name) == (GOLDEN / f"{name}.txt").read_text()
