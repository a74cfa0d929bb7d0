"""Rights that are taken away from an application while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import millpond as mp
from millpond.broker import EmbeddedBroker
from tests.runtime.running import GUARANTEES, Running, config, failure_of
from tests.support import kafka


@pytest.fixture(scope="module")
def servers(own_brokers: type[EmbeddedBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that allows what no rule denies."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "true",
    }
    with own_brokers(tmp_path_factory.mktemp("broker"), properties=properties) as made:
        yield made.bootstrap_servers


def _deny(servers: str, name: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": servers}, logger=kafka.log)
    for future in admin.create_acls([rule]).values():
        future.result(20)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_output_that_may_not_be_written_any_more_is_named(
    servers: str, app_id: str, tmp_path: Path, guarantee: str
) -> None:
    """The worker ends with the topic, the reason and the cure, instead of going back for ever."""
    source, target, other = (f"{app_id}-{name}" for name in ("in", "out", "other"))
    for topic in (source, target, other):
        kafka.create_topic(servers, topic)
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.to(target, key=mp.String, value=mp.String)
    stream.to(other, key=mp.String, value=mp.String)
    settings = {"processing.guarantee": guarantee, "consumer.metadata.max.age.ms": 1_000}
    running = Running(builder.build(), servers, app_id, tmp_path, settings).start()
    try:
        kafka.produce(servers, source, [("a", "1")])
        running.wait(lambda: len(kafka.read(servers, target)) == 1, "it runs")
        _deny(servers, target, AclOperation.WRITE)
        kafka.produce(servers, source, [("a", "2")])
        error = str(running.join(60))
    finally:
        running.worker.stop()
    assert target in error
    assert "Topic authorization failed" in error
    assert f"User:ANONYMOUS lacks Write on topic '{target}'" in error


def test_group_that_may_not_be_read_is_named(servers: str, app_id: str, tmp_path: Path) -> None:
    """Without the right to it the client finds no coordinator, and waits: the brokers are up nevertheless."""
    source = f"{app_id}-in"
    kafka.create_topic(servers, source)
    _deny(servers, app_id, AclOperation.READ, ResourceType.GROUP)
    error = str(failure_of(_counting(source), servers, app_id, tmp_path))
    assert "Group authorization failed" in error
    assert f"User:ANONYMOUS lacks Read on group '{app_id}'" in error
    assert "brokers are up" not in error


def _counting(source: str) -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


def test_changelog_that_may_not_be_seen_is_not_said_to_be_deleted(servers: str, app_id: str, tmp_path: Path) -> None:
    """The cure for a deleted changelog would destroy the state."""
    source, changelog = f"{app_id}-in", f"{app_id}-counts-changelog"
    kafka.create_topic(servers, source)
    kafka.produce(servers, source, [("a", "1")])
    with Running(_counting(source), servers, app_id, tmp_path) as running:
        running.wait(lambda: running.worker.metrics.commits, "it commits")
    _deny(servers, changelog, AclOperation.DESCRIBE)
    error = str(failure_of(_counting(source), servers, app_id, tmp_path))
    assert f"'{changelog}' does not exist, or may not be seen" in error
    assert f"User:ANONYMOUS lacks Read on topic '{changelog}'" in error
    assert "reset" not in error
    assert "deleted" not in error


@pytest.mark.parametrize("name", ["in", "out"])
def test_topic_that_may_not_be_seen_is_not_said_to_be_missing(
    servers: str, app_id: str, tmp_path: Path, name: str
) -> None:
    """Lists of topics leave it out, as if it did not exist."""
    source, target = f"{app_id}-in", f"{app_id}-out"
    for topic in (source, target):
        kafka.create_topic(servers, topic)
    _deny(servers, f"{app_id}-{name}", AclOperation.DESCRIBE)
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target, key=mp.String, value=mp.String)
    error = str(failure_of(builder.build(), servers, app_id, tmp_path))
    assert f"'{app_id}-{name}' does not exist, or may not be seen" in error
    assert f"lacks {'Read' if name == 'in' else 'Write'} on topic '{app_id}-{name}'" in error
    assert "create it first" not in error


def test_question_about_a_missing_topic_does_not_create_it(servers: str, app_id: str, tmp_path: Path) -> None:
    """Although the broker creates topics automatically: at the start, and for a topic that a record chooses."""
    source, missing, chosen = f"{app_id}-in", f"{app_id}-missing", f"{app_id}-chosen"
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(missing, key=mp.String, value=mp.String)
    kafka.create_topic(servers, source)
    assert "does not exist" in str(failure_of(builder.build(), servers, app_id, tmp_path))
    kafka.produce(servers, source, [("a", "1")])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(lambda *_: chosen, key=mp.String, value=mp.String)
    assert "does not exist" in str(failure_of(builder.build(), servers, app_id, tmp_path))
    assert not {missing, chosen} & set(kafka.topic_names(servers))


def test_no_client_creates_a_topic_by_asking_for_it(servers: str, app_id: str, tmp_path: Path) -> None:
    """A topic made by the broker has one partition and its defaults: a deleted output would come back in silence."""
    settings = config(servers, app_id, tmp_path)
    producer = Producer(dict(settings.producer_settings()), logger=kafka.log)
    producer.produce(f"{app_id}-produced", b"1")
    consumer = Consumer(dict(settings.consumer_settings(fixed={"group.id": app_id})), logger=kafka.log)
    admin = AdminClient(dict(settings.admin_settings()), logger=kafka.log)
    for client in (producer, consumer, admin):
        client.list_topics(f"{app_id}-{type(client).__name__}", timeout=20)
    producer.flush(2)
    consumer.close()
    producer.purge()
    assert not [each for each in kafka.topic_names(servers) if each.startswith(app_id)]
