"""Rights that are taken away from an application while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
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
from tests.runtime.running import GUARANTEES, Running, failure_of
from tests.support import kafka


@pytest.fixture(scope="module")
def servers(own_brokers: type[EmbeddedBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that allows what no rule denies."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with own_brokers(tmp_path_factory.mktemp("broker"), properties=properties) as made:
        yield made.bootstrap_servers


def _deny(servers: str, name: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC) -> None:
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, AclPermissionType.DENY
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": servers})
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
    assert "write its outputs" in error


def test_group_that_may_not_be_read_is_named(servers: str, app_id: str, tmp_path: Path) -> None:
    """Without the right to it the client finds no coordinator, and waits: the brokers are up nevertheless."""
    source = f"{app_id}-in"
    kafka.create_topic(servers, source)
    _deny(servers, app_id, AclOperation.READ, ResourceType.GROUP)
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
    error = str(failure_of(builder.build(), servers, app_id, tmp_path))
    assert "Group authorization failed" in error
    assert "the right to read the consumer group" in error
    assert "brokers are up" not in error
