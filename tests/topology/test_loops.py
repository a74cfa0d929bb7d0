"""Topics whose records come back to them."""

from __future__ import annotations

import re

import millpond as mp
from millpond.topology.loops import looping_topics


def _looping(*edges: tuple[str | re.Pattern[str], str]) -> list[str]:
    builder = mp.StreamsBuilder()
    for source, sink in edges:
        builder.stream(source, key=mp.String, value=mp.String).filter(lambda _key, _value: True).to(sink)
    return looping_topics(builder.build())


def test_a_topic_that_is_written_from_itself_loops() -> None:
    """Also by a pattern, and by way of other topics."""
    assert _looping(("a", "a")) == ["a"]
    assert _looping((re.compile("a.*"), "ab")) == ["ab"]
    assert _looping(("a", "b"), ("b", "c"), ("c", "a")) == ["a", "b", "c"]


def test_a_topic_that_is_only_passed_does_not_loop() -> None:
    """An application may write a topic and read it, as `through()` did; and it has repartition topics."""
    assert _looping(("a", "b"), ("b", "c")) == []
    builder = mp.StreamsBuilder()
    views = builder.stream("views", key=mp.String, value=mp.String)
    views.group_by(lambda _key, value: value).count(store="counts").to_stream().to("counts")
    assert looping_topics(builder.build()) == []
