"""The three tables of operators agree: Java's, Python's, and the generator's."""

from __future__ import annotations

import re
from pathlib import Path

from tests.differential.drawing.generator import RULES
from tests.differential.ours.topologies import OPERATORS

_JAVA = Path(__file__).parent / "java" / "Topologies.java"
_ORIGINAL = set(re.findall(r'"((?:StreamsBuilder|Topology|\w*K(?:Grouped)?(?:Stream|Table))\.\w+)"', _JAVA.read_text()))

#: Operators of Kafka Streams that millpond does not have yet.
MISSING: set[str] = set()


def test_missing_operators_are_those_that_are_listed() -> None:
    """Every operator that the original runs is run by millpond too, or is listed as missing."""
    assert _ORIGINAL - OPERATORS.keys() == MISSING


def test_every_operator_is_drawn() -> None:
    """The generator draws every operator, except for stores, which each case has some of."""
    assert _ORIGINAL - {"StreamsBuilder.addStateStore"} == RULES.keys()
    assert OPERATORS.keys() <= _ORIGINAL
