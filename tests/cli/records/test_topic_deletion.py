"""`millpond topics NAME --delete`: what it deletes, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from millpond.cli.application import load_topology
from millpond.runtime.kafka import admin
from tests.cli.conftest import COUNT, Application, Ended, Millpond
from tests.conftest import CreateTopic
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.broker import Broker
from tests.support.presence import await_report

Delete = Callable[..., Ended]


@pytest.fixture
def delete(millpond: Millpond, broker: Broker) -> Delete:
    """Run the command on the broker of the tests."""
    return lambda topic, *more: millpond(
        "topics", topic, "--delete", *more, "--bootstrap-servers", broker.bootstrap_servers
    )


def _exists(broker: Broker, topic: str) -> bool:
    return topic in kafka.topic_names(broker.bootstrap_servers, prefix=topic)


def test_it_asks_before(
    delete: Delete, broker: Broker, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what would be lost. Only a yes deletes."""
    topic = create_topic("counts", partitions=2)
    kafka.produce(broker.bootstrap_servers, topic, [("a", "1"), ("b", "2")])
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    refused = delete(topic)
    assert f"Delete topic {topic} with 2 partitions and 2 records? [y/N]" in refused.err
    assert (refused.status, _exists(broker, topic)) == (130, True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert delete(topic).out == f"deleted topic {topic}\n"
    assert not _exists(broker, topic)


def test_readers_that_do_not_run_are_named(delete: Delete, broker: Broker, create_topic: CreateTopic) -> None:
    """They have committed offsets in the topic, and state of its records."""
    topic = create_topic("counts")
    reader = f"reader-of-{topic}"
    kafka.commit_offsets(broker.bootstrap_servers, reader, [TopicPartition(topic, 0, 0)])
    ended = delete(topic, "--yes", "--json")
    assert json.loads(ended.out) == {"topic": topic, "deleted": True, "readers": [reader]}


@pytest.mark.parametrize("name", ["counts-changelog", "orders-repartition"])
def test_internal_topics_are_refused(delete: Delete, broker: Broker, create_topic: CreateTopic, name: str) -> None:
    """They belong to the state of an application, which `millpond reset` deletes as a whole."""
    topic = f"{create_topic('app')}-{name}"
    kafka.create_topic(broker.bootstrap_servers, topic)
    try:
        refused = delete(topic, "--yes")
        assert refused.status == 1
        assert "`millpond reset` deletes it together with the rest" in " ".join(refused.err.split())
        assert _exists(broker, topic)
    finally:
        kafka.delete_topics(broker.bootstrap_servers, [topic])


def test_the_input_of_a_running_worker_is_refused(
    delete: Delete,
    broker: Broker,
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is named; after its end the topic is deleted."""
    words = create_topic("words")
    monkeypatch.setenv("WORDS", words)
    monkeypatch.setenv("COUNTS", create_topic("counts"))
    topology = load_topology(f"{application(COUNT)}:count")
    with Running(topology, broker.bootstrap_servers, app_id, tmp_path / "state", {}) as worker:
        worker.wait_running()
        kafka.produce(broker.bootstrap_servers, words, [(None, "a", 1_700_000_000_000, 0)])
        worker.wait(
            lambda: kafka.committed_offsets(broker.bootstrap_servers, app_id, words)[0][0] > 0, "the word is committed"
        )
        await_report(broker.bootstrap_servers, app_id, words, "w0")
        refused = delete(words, "--yes")
        assert refused.status == 1
        assert f"topic '{words}' is read by '{app_id}', which seems to run (worker 'w0'" in " ".join(
            refused.err.split()
        )
        assert _exists(broker, words)
    assert f"deleted topic {words}\nIt was read by {app_id}: reset these before" in delete(words, "--yes").out


def test_topics_that_are_deleted_during_a_list_are_left_out(
    millpond: Millpond, broker: Broker, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker does not know their offsets any more, whenever they are deleted; the others are shown."""
    topic, gone = create_topic("counts"), [f"topic-that-was-deleted-{each}" for each in range(3)]
    left = list(gone)
    real = admin.KafkaAdmin.topics

    def topics(self: admin.KafkaAdmin) -> dict[str, int]:
        found = real(self) | dict.fromkeys(left, 1)
        del left[:1]
        return found

    monkeypatch.setattr(admin.KafkaAdmin, "topics", topics)
    ended = millpond("topics", "--json", "--bootstrap-servers", broker.bootstrap_servers)
    assert ended.status == 0, ended.err
    names = {row["topic"] for row in json.loads(ended.out)["topics"]}
    assert topic in names
    assert not names & {*gone}


def test_a_missing_topic_or_name_is_told(delete: Delete, millpond: Millpond, create_topic: CreateTopic) -> None:
    """With the name that was meant, or the form of the command."""
    topic = create_topic("counts")
    assert f"Did you mean '{topic}'?" in delete(f"{topic}s", "--yes").err
    assert "millpond topics NAME --delete" in millpond("topics", "--delete").err
    assert "no --create" in delete(topic, "--create", 2).err
