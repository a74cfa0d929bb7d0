"""A step without a serde is named with operator and topic, before anything runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError
from millpond.testing import TopologyTestDriver
from millpond.topology.settings.serdes import check_serdes

BOTH = {"key": mp.String, "value": mp.String}


def stream(builder: mp.StreamsBuilder, **serdes: Any) -> Any:
    return builder.stream("in", **(serdes or BOTH))


@pytest.mark.parametrize(
    ("add", "told"),
    [
        (lambda b: stream(b, value=mp.String), r"stream\('in'\) has no key serde: write stream\('in', key=…\)"),
        (lambda b: b.table("rows", key=mp.String), r"table\('rows'\) has no value serde"),
        (lambda b: b.global_table("all", value=mp.String), r"global_table\('all'\) has no key serde"),
        (lambda b: stream(b).map_values(len).to("out"), r"to\('out'\) has no value serde: write to\('out', value=…\)"),
        (
            lambda b: stream(b).group_by(lambda _key, value: value).count(store="counts"),
            "the repartition topic 'counts-repartition' of topic 'in' has no key serde: give key=… to the step that",
        ),
        (
            lambda b: stream(b).group_by_key().aggregate(list, lambda _k, v, a: [*a, v], store="lists"),
            r"aggregate\(\) of topic 'in' \(store 'lists'\) has no value serde",
        ),
        (
            lambda b: stream(b, key=mp.String).group_by_key().reduce(lambda one, _other: one, store="firsts"),
            r"stream\('in'\) has no value serde.*Others without one: reduce\(\) of topic 'in' \(store 'firsts'\)",
        ),
    ],
)
def test_the_step_that_lacks_a_serde_is_named(add: Any, told: str) -> None:
    """Operator, topic and argument are in the message."""
    builder = mp.StreamsBuilder()
    add(builder)
    with pytest.raises(TopologyError, match=told):
        TopologyTestDriver(builder.build())


def test_defaults_of_the_configuration_are_enough() -> None:
    """As in Kafka Streams, a topology without serdes is complete with the defaults."""
    builder = mp.StreamsBuilder()
    windows = mp.JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=1))
    joined = builder.stream("a").outer_join(builder.stream("b"), lambda one, other: one or other, windows)
    joined.group_by(lambda _key, value: value).count().to_stream().to("out")
    topology = builder.build()
    check_serdes(topology, mp.String, mp.String)
    with pytest.raises(TopologyError, match=r"and|more"):
        check_serdes(topology, None, mp.String)
