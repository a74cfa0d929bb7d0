"""Names of internal topics that Kafka would not accept are found when a topology is built, or with its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError
from millpond.testing import TopologyTestDriver

Stream = mp.KStream[str, str]


def _counted(name: str) -> Callable[[Stream], Any]:
    return lambda stream: stream.group_by_key().count(store=name)


def _repartitioned(name: str) -> Callable[[Stream], Any]:
    return lambda stream: stream.repartition(name=name).to("out")


def _joined(name: str) -> Callable[[Stream], Any]:
    table = lambda stream, store: stream.to_table(store=store)
    return lambda stream: table(stream, "a").join(
        table(stream, "b"), lambda one, two: one + two, on=lambda value: value, name=name
    )


def _topology(write: Callable[[Stream], Any]) -> mp.Topology:
    builder = mp.StreamsBuilder()
    write(builder.stream("in", key=mp.String, value=mp.String))
    return builder.build()


def test_a_name_that_is_too_long_for_every_application_is_refused_at_build() -> None:
    """A name that fits with the shortest application.id is built; one more character is not."""
    longest = 249 - len("a--changelog")
    _topology(_counted("x" * longest))
    with pytest.raises(TopologyError, match="a name of 250 characters, and Kafka allows 249: shorten it by at least 1"):
        _topology(_counted("x" * (longest + 1)))


@pytest.mark.parametrize("write", [_repartitioned("x" * 220), _joined("x" * 190)])
def test_topics_of_steps_are_checked_with_the_application_id(write: Callable[[Stream], Any]) -> None:
    """Those of repartitions, and the subscriptions of joins by a foreign key, which have long suffixes."""
    topology = _topology(write)
    TopologyTestDriver(topology, {"application.id": "a"}).close()
    with pytest.raises(TopologyError, match=r"has a name of .* characters, and Kafka allows 249"):
        TopologyTestDriver(topology, {"application.id": "a" * 60})


def test_a_name_that_is_too_long_with_the_application_id_is_refused_with_the_settings() -> None:
    """In a test, in `millpond check` and at the start of a worker, before anything asks a broker."""
    topology = _topology(_counted("x" * 200))
    with TopologyTestDriver(topology, {"application.id": "a" * 38}):
        pass
    with pytest.raises(TopologyError) as raised:
        TopologyTestDriver(topology, {"application.id": "a" * 45})
    assert str(raised.value) == (
        f"The topic '{'a' * 45}-{'x' * 40}…' of the store '{'x' * 40}…' has a name of 256 characters, and Kafka allows "
        "249: shorten it by 7, or 'application.id'."
    )


def test_stores_without_a_changelog_of_their_own_may_have_any_name() -> None:
    """No topic is named after them."""
    builder = mp.StreamsBuilder()
    builder.global_table("in", key=mp.String, value=mp.String, store="g" * 245)
    builder.stream("other", key=mp.String, value=mp.String).group_by_key().count(store="x" * 245, logging=False)
    TopologyTestDriver(builder.build(), {"application.id": "application"}).close()
