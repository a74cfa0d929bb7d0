"""Inputs that are deleted and created again: nothing is skipped in silence, whether the application runs or not."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import millpond as mp
from millpond.cli import main
from millpond.errors import TopicError
from millpond.runtime.offsets.metadata import decode_metadata, encode_metadata
from tests.runtime.running import Running, failure_of, run_until
from tests.support import kafka

FIRST, LATER = [("k", f"first {each}") for each in range(3)], [("k", f"later {each}") for each in range(9)]


@pytest.fixture
def recreate(broker: Any) -> Callable[[str], None]:
    """Delete a topic and create it again with more records than the first one had."""

    def again(topic: str) -> None:
        servers = broker.bootstrap_servers
        kafka.delete_topics(servers, [topic])
        kafka.create_topic(servers, topic)
        kafka.produce(servers, topic, LATER)

    return again


def copied(source: str, target: str) -> mp.Topology:
    """A topic copied to another."""
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target)
    return builder.build()


def values(servers: str, topic: str) -> list[str]:
    """The committed values of a topic."""
    return [(row.value or b"").decode() for row in kafka.read(servers, topic, settled=True)]


def test_an_input_that_was_created_again_while_stopped_is_refused_with_the_choices(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path, recreate: Any
) -> None:
    """No record of the new topic is skipped. The command in the message makes the application read all of them."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    kafka.produce(servers, source, FIRST)
    topology = copied(source, target)
    run_until(topology, servers, app_id, tmp_path, target, len(FIRST))
    before = kafka.committed_offsets(servers, app_id, source)
    recreate(source)
    # Brokers forget the offsets in a deleted topic. A worker that ran then commits them again.
    kafka.eventually(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] < 0, "the offset is forgotten")
    metadata = decode_metadata(before[0][1])
    again = TopicPartition(source, 0, before[0][0], metadata=encode_metadata(metadata))
    kafka.commit_offsets(servers, app_id, [again])
    for _ in range(2):  # the first refusal changes nothing
        error = failure_of(topology, servers, app_id, tmp_path)
        assert isinstance(error, TopicError)
        assert f"topic '{source}' was deleted and created again: the committed offset 3" in str(error)
    assert kafka.committed_offsets(servers, app_id, source)[0][0] == len(FIRST)
    assert decode_metadata(kafka.committed_offsets(servers, app_id, source)[0][1]).topic == metadata.topic
    command = str(error).split("'millpond ", 1)[1].partition("'")[0]
    assert command.endswith("--to-earliest")
    main([*shlex.split(command), "--state-dir", str(tmp_path), "--yes"])
    run_until(topology, servers, app_id, tmp_path, target, len(FIRST) + len(LATER))
    assert values(servers, target) == [value for _, value in (*FIRST, *LATER)]


def test_an_input_that_is_created_again_while_running_ends_the_worker(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path, recreate: Any
) -> None:
    """The client continues at its offset in the new topic; its id tells, every 10 s. The next start is refused, too."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    settings = {"processing.guarantee": "exactly_once"}
    kafka.produce(servers, source, FIRST)
    topology = copied(source, target)
    running = Running(topology, servers, app_id, tmp_path, settings).start()
    running.wait(
        lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == len(FIRST), "the first records are committed"
    )
    recreate(source)
    error = running.join(30)
    assert isinstance(error, TopicError)
    assert f"topic '{source}' was deleted and created again while the application ran" in str(error)
    assert "--to-earliest" in str(error)
    # The client may have skipped records by then, and the worker may have committed that, but for the former topic.
    assert "was deleted and created again" in str(failure_of(topology, servers, app_id, tmp_path, settings))
