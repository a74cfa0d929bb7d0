"""Topologies describe themselves exactly as Kafka Streams describes the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.topologies import CASES

GOLDEN = Path(__file__).parent / "golden"
UNNAMED = Path(__file__).parent / "golden-unnamed"


def test_every_golden_file_has_its_topology() -> None:
    """Cases and golden files cover each other, so none is forgotten on one side."""
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_describe_equals_kafka_streams(name: str) -> None:
    """Names, numbering of sub-topologies, order and layout are the original's, byte for byte."""
    assert str(CASES[name]().describe()) == (GOLDEN / f"{name}.txt").read_text()


_UNNAMED = dict(line.split(": ", 1) for line in (UNNAMED / "unnamed.txt").read_text().splitlines())


@pytest.mark.parametrize("name", sorted(CASES))
def test_generated_names_are_those_that_kafka_streams_refuses(name: str) -> None:
    """`ensure.explicit.internal.resource.naming` lists the same names in the same order (KIP-1111)."""
    assert str(CASES[name]().unnamed) == _UNNAMED.get(name, "")
