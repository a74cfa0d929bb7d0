"""Snapshots on a broker that denies by default, with the rights that `millpond acls --for snapshot` prints."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation

import millpond as mp
from millpond.cli.acls.formats import kafka_acls
from millpond.cli.acls.grants import grants_of
from millpond.cli.acls.table import Part
from millpond.errors import MillpondError
from millpond.runtime.config.model import Config
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.secured.denying_broker import DenyingBroker, Rule, denying_broker, rules_of

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore:unclosed <socket:ResourceWarning"
    ),  # pyspark leaves them to the garbage collector
]


@pytest.fixture(scope="module")
def guarded(own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DenyingBroker]:
    """A broker for this module alone."""
    with denying_broker(own_brokers, tmp_path_factory.mktemp("broker")) as made:
        yield made


def _topology(name: str) -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.table(f"{name}.rows", key=mp.String, value=mp.Long, store="rows").to_stream().to(f"{name}.out")
    (
        builder.stream(f"{name}.in", key=mp.String, value=mp.Long)
        .group_by(lambda _, number: str(number), key=mp.String, value=mp.Long, name="by-number")
        .count(store="counts")
    )
    return builder.build(optimization="reuse.ktable.source.topics")


#: The sentence without each right, in which `{}` is the application's name.
SENTENCES = {
    ("topic", "{}.in", "DESCRIBE"): "lacks Describe on topic '{}.in'",
    ("topic", "{}.out", "DESCRIBE"): "lacks Describe on topic '{}.out'",
    ("topic", "{}.rows", "READ"): "lacks Read on topic '{}.rows'",
    ("topic", "{}.rows", "DESCRIBE_CONFIGS"): "lacks DescribeConfigs on topic '{}.rows'",
    ("topic", "{}-", "READ"): "lacks Read on topics '{}-by-number-repartition', '{}-counts-changelog'",
    ("topic", "{}-", "DESCRIBE_CONFIGS"): "lacks DescribeConfigs on topic '{}-counts-changelog'",
    ("group", "{}", "DESCRIBE"): "lacks Describe on group '{}'",
}


def _named(rule: Rule, name: str) -> tuple[str, str, str]:
    kind, resource, _, operation = rule
    return kind.name.lower(), resource.replace(name, "{}"), operation.name


@pytest.mark.long
def test_snapshot_needs_its_rights_and_names_those_that_are_missing(
    guarded: DenyingBroker, spark: Any, app_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver reads offsets, and Spark reads records."""
    from millpond_spark.job import create_snapshot

    servers = guarded.bootstrap_servers
    for topic in ("in", "rows", "out"):
        kafka.create_topic(servers, f"{app_id}.{topic}")
    kafka.create_topic(servers, f"{app_id}-by-number-repartition")
    kafka.create_topic(servers, f"{app_id}-counts-changelog", config={"cleanup.policy": "compact"})
    number = struct.pack(">q", 1)
    kafka.produce(servers, f"{app_id}.rows", [("a", number)])
    kafka.produce(servers, f"{app_id}-counts-changelog", [("1", struct.pack(">qq", 1, 1))])
    kafka.commit_offsets(servers, app_id, [TopicPartition(f"{app_id}.rows", 0, 1)])
    topology = _topology(app_id)
    config = Config.load(None, flags={"application.id": app_id, **guarded.settings("alice")})
    grants = grants_of(topology, config, [Part.SNAPSHOT])
    rules = rules_of("\n".join(kafka_acls(grants, "User:alice", "")), "User:alice")

    def make(catalog: str | None = None) -> Any:
        return create_snapshot(
            topology, config, str(tmp_path / "s"), lambda: contextlib.nullcontext(spark), full=True, catalog=catalog
        )

    assert {_named(each, app_id) for each in rules} == set(SENTENCES)
    for rule in rules:
        sentence = f"User:alice {SENTENCES[_named(rule, app_id)].replace('{}', app_id)}"
        with guarded.allowing("alice", [each for each in rules if each != rule]):
            if rule[3] is AclOperation.DESCRIBE_CONFIGS:
                make()
                assert sentence in caplog.text
            else:
                with pytest.raises(MillpondError, match=re.escape(sentence)):
                    make()
        caplog.clear()
    seen = [
        (*each[:3], AclOperation.DESCRIBE if each[2] and each[3] is AclOperation.READ else each[3]) for each in rules
    ]
    sentence = f"User:alice lacks Read on topic '{app_id}-counts-changelog'"
    with guarded.allowing("alice", seen), pytest.raises(MillpondError, match=re.escape(sentence)):
        make()  # what Spark says
    with guarded.allowing("alice", rules):
        made = make(catalog=str(tmp_path / "tables"))  # the driver reads the ends of changelogs, too
    assert {each.store for each in made.manifest.stores} == {"counts", "rows"}
    assert "lacks" not in caplog.text
