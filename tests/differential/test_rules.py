"""What the rules of the comparison leave out, and that they end for every topology that can be drawn."""

from __future__ import annotations

from typing import Any

from tests.differential.comparing import difference
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
