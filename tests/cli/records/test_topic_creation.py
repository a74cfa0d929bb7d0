"""`millpond topics NAME --create`: what it creates, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Ended, Millpond
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

Topics = Callable[..., Ended]


@pytest.fixture
def topics(millpond: Millpond, broker: Broker) -> Topics:
    """Run the command on the broker of the tests."""
    return lambda *arguments: millpond("topics", *arguments, "--bootstrap-servers", broker.bootstrap_servers)


def test_a_topic_is_created_once(topics: Topics, create_topic: CreateTopic, broker: Broker) -> None:
    """Again with the same partitions is no error, so that it may stand in a script; another number is one."""
    existing = create_topic("orders", partitions=2)
    made = f"{existing}-refunds"
    try:
        assert topics(made, "--create", 3).out == f"created topic {made} with 3 partitions\n"
        assert "there is already a topic" in topics(made, "--create", 3).out
        assert json.loads(topics(made, "--create", 3, "--json").out)["created"] is False
        assert len(json.loads(topics(made, "--json").out)["partitions"]) == 3
    finally:
        kafka.delete_topics(broker.bootstrap_servers, [made])
    refused = topics(existing, "--create", 3)
    assert refused.status == 1
    assert f"topic '{existing}' exists with 2 partitions, not 3" in refused.err
    assert "--create needs the name of the topic" in topics("--create", 3).err


def test_a_new_topic_has_the_settings_that_are_given(topics: Topics, create_topic: CreateTopic, broker: Broker) -> None:
    """All others are the broker's defaults. If it exists with other values, that is an error that says so."""
    existing = create_topic("orders")
    made = f"{existing}-customers"
    compacted = (made, "--create", 2, "--with", "cleanup.policy=compact", "--with", "segment.ms=60000")
    try:
        assert topics(*compacted).out == f"created topic {made} with 2 partitions\n"
        assert "there is already a topic" in topics(*compacted).out
        plain, config = (json.loads(topics(each, "--json").out)["config"] for each in (existing, made))
        assert config == plain | {"cleanup.policy": "compact", "segment.ms": "60000"}
        other = topics(made, "--create", 2, "--with", "segment.ms=1")
        assert f"topic '{made}' exists with segment.ms=60000, not segment.ms=1" in other.err
        assert other.status == 1
    finally:
        kafka.delete_topics(broker.bootstrap_servers, [made])
    unknown = topics(f"{made}-2", "--create", 2, "--with", "cleanup.polici=compact")
    assert unknown.status == 1
    assert "cleanup.polici" in unknown.err
    assert "--with is for new topics" in topics(made, "--with", "segment.ms=1").err
    assert "--with needs KEY=VALUE" in topics(made, "--create", 2, "--with", "compact").err
