"""`millpond reset --delete`: internal topics and the consumer group of an application are deleted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.cli.conftest import COUNT, Application, Millpond
from tests.cli.reset.test_reset import Scene
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker


@pytest.fixture
def scene(
    broker: Broker, millpond: Millpond, app_id: str, create_topic: CreateTopic, tmp_path: Path
) -> Iterator[Scene]:
    """An application that has run, with input and output."""
    topic = create_topic("input", partitions=2)
    yield Scene(broker, millpond, app_id, topic, tmp_path / "state")


def delete(scene: Scene, *more: object):
    return scene.millpond(
        "reset", *more, "--delete", "--application-id", scene.app_id, "--bootstrap-servers", scene.broker,
        "--state-dir", scene.directory.parent.parent,
    )  # fmt: skip


def groups(scene: Scene) -> set[str]:
    admin = kafka.admin(scene.broker)
    admin.list_topics(timeout=30)
    listed = admin.list_consumer_groups().result(30)
    assert not listed.errors
    return {each.group_id for each in listed.valid}


def test_only_internal_topics_and_the_group_are_deleted(scene: Scene) -> None:
    """Inputs are kept, and so is local state, which is deleted with its volume."""
    ended = delete(scene, "--yes")
    assert ended.status == 0, ended.err
    assert "is deleted from Kafka" in ended.out
    assert not scene.internal()
    assert scene.app_id not in groups(scene)
    assert scene.topic in kafka.topic_names(scene.broker, prefix=scene.topic)
    assert (scene.directory / "data").exists()


def test_repeated_deletion_finds_nothing(scene: Scene) -> None:
    """A job that runs twice succeeds twice."""
    assert delete(scene, "--yes").status == 0
    again = delete(scene, "--yes")
    assert again.status == 0
    assert "Nothing to do" in again.out


def test_interrupted_deletion_is_completed_by_the_next(scene: Scene) -> None:
    """Topics may be deleted while the group still exists."""
    kafka.delete_topics(scene.broker, sorted(scene.internal()))
    assert delete(scene, "--yes").status == 0
    assert scene.app_id not in groups(scene)


def test_known_topology_protects_other_topics_with_the_prefix(scene: Scene, application: Application) -> None:
    """They may belong to another application; missing input topics do not matter."""
    kafka.create_topic(scene.broker, f"{scene.app_id}-counts-changelog")
    ended = delete(scene, f"{application(COUNT)}:count", "--yes")
    assert ended.status == 0, ended.err
    assert scene.internal() == {f"{scene.app_id}-store-changelog", f"{scene.app_id}-by-repartition"}
    assert "keep topic" in ended.out


def test_deletion_fences_workers_that_still_run(scene: Scene) -> None:
    """A worker on a lost node does not know that its application is deleted."""
    producer = Producer(
        {
            "bootstrap.servers": scene.broker,
            "transactional.id": f"{scene.app_id}-w0",
            "transaction.timeout.ms": 10_000,
        },
        logger=kafka.log,
    )
    producer.init_transactions(30)
    assert delete(scene, "--yes").status == 0
    with pytest.raises(KafkaException):
        producer.begin_transaction()
        producer.produce(scene.topic, b"x")
        producer.commit_transaction(30)


def test_a_dry_run_deletes_nothing(scene: Scene) -> None:
    """It shows what would be deleted."""
    before = scene.internal()
    ended = delete(scene, "--dry-run")
    assert ended.status == 0
    for topic in before:
        assert f"delete topic {topic}" in ended.out
    assert f"delete consumer group {scene.app_id}" in ended.out
    assert scene.internal() == before
    assert scene.app_id in groups(scene)


def test_deletion_asks_for_confirmation(scene: Scene) -> None:
    """Without --yes and without an answer, nothing is deleted."""
    before = scene.internal()
    assert delete(scene).status != 0
    assert scene.internal() == before


def test_application_that_joins_during_the_prompt_keeps_its_topics(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Active members are checked again after the prompt."""
    consumer = Consumer({"bootstrap.servers": scene.broker, "group.id": scene.app_id}, logger=kafka.log)

    class Yes(io.StringIO):
        def readline(self, *_: object) -> str:  # type: ignore[override]
            consumer.subscribe([scene.topic])
            kafka.eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "it has joined")
            return "y\n"

    monkeypatch.setattr("sys.stdin", Yes())
    before = scene.internal()
    try:
        ended = delete(scene)
        assert ended.status == 1
        assert "1 active member" in ended.err
        assert scene.internal() == before
    finally:
        consumer.close()


def test_deletion_and_reset_exclude_each_other(scene: Scene) -> None:
    """The error names --delete, and nothing is deleted."""
    ended = delete(scene, "--to-latest", "--yes")
    assert ended.status == 2
    assert "--delete" in ended.err
    assert scene.internal()
