"""Drawn cases have none of the differences that are meant and that no rule can take out of an answer."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.differential.drawing.generator import Generator
from tests.differential.drawing.volumes import MOST, volume

_CASES = 200
_SEED = 2

_NOT_MERGED = re.compile(r"KStream\.process|CogroupedKStream\.cogroup|.*merge", re.IGNORECASE)


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    generator = Generator(_SEED, Counter())
    return [generator.case() for _ in range(_CASES)]


def test_merged_topics_are_not_drawn_with_what_the_original_merges_wrongly(cases: list[dict[str, Any]]) -> None:
    """Processors, merges and cogroups of several streams; see `rules.PROCESSORS_ABOVE_TOPICS` and the others."""
    rewritten = [case for case in cases if re.search("all|merge", case["config"].get("topology.optimization", ""))]
    assert rewritten
    wrong = [step["op"] for case in rewritten for step in case["steps"] if _NOT_MERGED.match(step["op"])]
    assert wrong == []


def test_no_case_multiplies_records(cases: list[dict[str, Any]]) -> None:
    """A case once wrote millions of records: operators that send several multiply each other."""
    for case in cases:
        volumes: dict[str, float] = {}
        for step in case["steps"]:
            volumes[step["id"]] = volume(step, [volumes[each] for each in step.get("of", ())])
        assert max(volumes.values()) <= MOST, case
