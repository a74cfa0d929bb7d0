"""What the rules of the comparison leave out, and that they end for every topology that can be drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.differential.comparing import difference
from tests.differential.drawing.coverage import pairs_of
from tests.differential.drawing.generator import Generator, possible_pairs
from tests.differential.ours.answers import answer
from tests.differential.rules import avoid


def test_a_cogroup_of_its_own_aggregation_has_the_topics_of_its_groups() -> None:
    """Two cached tables of it come from one topic, also where the way from one to it leads around in a circle."""
    steps: list[dict[str, Any]] = [
        {"id": "s1", "op": "StreamsBuilder.stream", "topic": "in"},
        {"id": "g1", "op": "KStream.groupByKey", "of": ["s1"]},
        {"id": "c1", "op": "KGroupedStream.cogroup", "of": ["g1"]},
        {"id": "t1", "op": "CogroupedKStream.aggregate", "of": ["c1"]},
        {"id": "s2", "op": "KTable.toStream", "of": ["t1"]},
        {"id": "g2", "op": "KStream.groupBy", "of": ["s2"]},
        {"id": "c2", "op": "CogroupedKStream.cogroup", "of": ["c1", "g2"]},
        {"id": "t2", "op": "CogroupedKStream.aggregate", "of": ["c2"]},
        {"id": "t3", "op": "KTable.join", "of": ["t1", "t2"], "joiner": "glue"},
    ]
    case: dict[str, Any] = {"steps": steps, "config": {}, "input": []}
    avoid(case)
    assert (steps[-1]["op"], steps[-1]["of"]) == ("KTable.mapValues", ["t1"])


def test_topics_that_the_original_merges_wrongly_are_not_compared() -> None:
    """Its merged topic above this merge of streams has only a part of the records; see `rules.UNMERGED`."""
    case: dict[str, Any] = {
        "config": {"topology.optimization": "merge.repartition.topics"},
        "input": [],
        "steps": [
            {"id": "s1", "op": "StreamsBuilder.stream", "topics": ["in"]},
            {"id": "k1", "op": "KStream.selectKey", "of": ["s1"], "selector": "letter"},
            {"id": "g1", "op": "KStream.groupByKey", "of": ["k1"], "name": "alone"},
            {"id": "t1", "op": "KGroupedStream.count", "of": ["g1"]},
            {"id": "s2", "op": "StreamsBuilder.stream", "topics": ["other"]},
            {"id": "k2", "op": "KStream.selectKey", "of": ["s2"], "selector": "letter"},
            {"id": "m", "op": "KStream.merge", "of": ["k1", "k2"]},
            {"id": "g2", "op": "KStream.groupByKey", "of": ["m"], "name": "both"},
            {"id": "t2", "op": "KGroupedStream.count", "of": ["g2"]},
        ],
    }
    ours = answer(case)
    assert ours["unmerged"] == ["both-repartition"]
    assert difference(case, {**ours, "internal": []}, ours) is None


@pytest.mark.parametrize("seed", [1, 2])
def test_rare_pairs_of_operators_are_drawn_on_purpose(seed: int) -> None:
    """Two windowed tables have equal keys rarely, and a join of cached tables of one topic is replaced."""
    aggregations = (
        "TimeWindowedKStream.count", "SessionWindowedKStream.count", "TimeWindowedKStream.aggregate",
        "SessionWindowedKStream.aggregate",
    )  # fmt: skip
    rare = [
        (first, second) for first in aggregations for second in ("KTable.join", "KTable.leftJoin", "KTable.outerJoin")
    ]
    counts = Counter({pair: 0 if pair in rare else 1_000 for pair in possible_pairs()})
    generator = Generator(seed, counts)
    for _ in range(250):
        counts.update(pair for pair in pairs_of(generator.case()) if pair in rare)
    assert [pair for pair in rare if not counts[pair]] == []
