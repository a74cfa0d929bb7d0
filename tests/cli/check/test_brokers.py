"""`millpond check --connect`: what a worker would meet on these brokers, before anything is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from millpond.cli.check import brokers as of_brokers
from millpond.runtime.kafka.dry_run import default_replication_factor
from tests.cli.conftest import COUNT, Application, Millpond
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker, OwnBroker, free_port
from tests.support.clusters.kafka import KafkaCluster

APP = """\
apiVersion: millpond.dev/v1alpha1
kind: StreamApp
metadata:
  name: {name}
spec:
  image: registry.example.com/words:1
  topology: {target}
  kafka:
    bootstrapServers: {servers}
"""


@pytest.fixture
def target(application: Application, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application that counts words, whose input and output exist."""
    monkeypatch.setenv("WORDS", create_topic("words", partitions=2))
    monkeypatch.setenv("COUNTS", create_topic("counts"))
    return f"{application(COUNT)}:count"


@pytest.fixture
def options(broker: Broker, app_id: str) -> list[str]:
    """The options that name the brokers and the application."""
    return ["--connect", "--bootstrap-servers", broker.bootstrap_servers, "--set", f"application.id={app_id}"]


def test_brokers_that_have_all_are_told_and_get_nothing(
    millpond: Millpond, target: str, options: list[str], broker: Broker, app_id: str
) -> None:
    """One broker may hold one replica; no topic is created, and no group."""
    ended = millpond("check", target, *options)
    assert ended == (0, f"{target}: a worker can start on {broker.bootstrap_servers}\n", "")
    assert kafka.topic_names(broker.bootstrap_servers, app_id) == set()
    groups = kafka.answer(kafka.admin(broker.bootstrap_servers).list_consumer_groups(), "groups are listed")
    assert not [each.group_id for each in groups.valid if each.group_id.startswith(app_id)]


def test_missing_topics_are_named_as_by_a_worker(
    millpond: Millpond, target: str, options: list[str], monkeypatch: pytest.MonkeyPatch, app_id: str
) -> None:
    monkeypatch.setenv("COUNTS", f"{app_id}-nowhere")
    ended = millpond("check", target, *options)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"{target}: sink topic '{app_id}-nowhere' does not exist: create it first")
    assert ended.err.endswith("\nmillpond: 1 fault found.\n")


def test_partition_counts_that_do_not_fit_are_faults(
    millpond: Millpond, target: str, options: list[str], broker: Broker, app_id: str
) -> None:
    """Internal topics of another application with the same id, or of inputs that have changed."""
    kafka.create_topic(broker.bootstrap_servers, f"{app_id}-by-word-repartition", 2)
    kafka.create_topic(broker.bootstrap_servers, f"{app_id}-counts-changelog", 3)
    ended = millpond("check", target, *options)
    assert (ended.status, ended.out) == (1, "")
    assert f"internal topic '{app_id}-counts-changelog' has 3 partitions, but the topology needs 2" in ended.err


def test_topics_that_brokers_would_not_create_are_faults(
    millpond: Millpond, target: str, options: list[str], app_id: str
) -> None:
    """Each with the broker's own reason."""
    ended = millpond("check", target, *options, "--set", "replication.factor=7")
    assert ended.status == 1
    for name in ("by-word-repartition", "counts-changelog"):
        assert f"{target}: internal topic '{app_id}-{name}' cannot be created: " in ended.err
    assert "replication factor" in ended.err.lower()
    assert ended.err.endswith("\nmillpond: 2 faults found.\n")


def test_brokers_that_do_not_answer_are_a_fault(
    millpond: Millpond, target: str, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_brokers, "_PATIENCE", of_brokers._PATIENCE / 50)
    servers = f"127.0.0.1:{free_port()}"
    ended = millpond("check", target, "--connect", "--bootstrap-servers", servers, "--set", f"application.id={app_id}")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"{target}: no answer from Kafka at '{servers}'")


def test_a_streamapp_is_checked_with_its_own_brokers(
    millpond: Millpond, target: str, broker: Broker, app_id: str
) -> None:
    """An option names others, since the addresses in a cluster are seldom reached from outside."""
    Path("streamapp.yaml").write_text(APP.format(name=app_id, target=target, servers=broker.bootstrap_servers))
    ended = millpond("check", "--connect")
    assert (ended.status, ended.err) == (0, "")
    assert f"{target}: a worker can start on {broker.bootstrap_servers}\n" in ended.out
    Path("streamapp.yaml").write_text(APP.format(name=app_id, target=target, servers="kafka.nowhere:9092"))
    ended = millpond("check", "--connect", "--bootstrap-servers", broker.bootstrap_servers)
    assert (ended.status, ended.err) == (0, "")


def test_brokers_that_reject_a_check_without_the_secret_of_a_streamapp(
    millpond: Millpond, target: str, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest has no passwords, so the error of the brokers alone would mislead."""
    monkeypatch.setattr(of_brokers, "_PATIENCE", of_brokers._PATIENCE / 50)
    text = APP.format(name=app_id, target=target, servers=f"127.0.0.1:{free_port()}")
    Path("streamapp.yaml").write_text(f"{text}    credentialsSecret: words-kafka\n")
    ended = millpond("check", "--connect")
    assert ended.status == 1
    assert "no answer from Kafka" in ended.err
    assert "note: brokers were asked without the Secret 'words-kafka', which is not read: give" in ended.out
    assert "words-kafka" not in millpond("check").out


def test_default_of_replicas_that_brokers_do_not_tell_is_unknown() -> None:
    """Services that keep Kafka's protocol tell only some of the settings of their brokers."""
    for entries in ({}, {"default.replication.factor": SimpleNamespace(value=None)}):
        answer: Future[Any] = Future()
        answer.set_result(entries)
        admin: Any = SimpleNamespace(
            describe_configs=lambda asked, request_timeout, answer=answer: dict.fromkeys(asked, answer)
        )
        assert default_replication_factor(admin, 1, 1.0) is None


def test_what_is_missing_on_the_command_line_is_told(millpond: Millpond, target: str) -> None:
    """Without an id there is no name of an internal topic; and brokers that nobody asks are a mistake."""
    ended = millpond("check", target, "--connect", "--bootstrap-servers", "kafka:9092")
    assert (ended.status, ended.out) == (1, "")
    assert "application.id" in ended.err
    ended = millpond("check", target, "--bootstrap-servers", "kafka:9092")
    assert ended.status == 2
    assert "--bootstrap-servers is for --connect" in ended.err


@pytest.fixture
def stock(own_brokers: type[OwnBroker], tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three brokers with the default of brokers."""
    with KafkaCluster(tmp_path / "cluster", {"default.replication.factor": "1"}, make=own_brokers) as made:
        yield made


@pytest.mark.long
@pytest.mark.timeout(300)
def test_single_replicas_on_three_brokers_are_noted_before_they_are_made(
    millpond: Millpond, application: Application, stock: KafkaCluster, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that would be created, and those that exist; not where the settings ask for three, or accept one."""
    servers = stock.bootstrap_servers
    stock.create_topics(NewTopic("words", 1, 1), NewTopic("counts", 1, 1))
    for variable, topic in (("WORDS", "words"), ("COUNTS", "counts")):
        monkeypatch.setenv(variable, topic)
    name = f"{application(COUNT)}:count"
    options = ["--connect", "--bootstrap-servers", servers, "--set", f"application.id={app_id}"]
    log, other = f"{app_id}-counts-changelog", f"{app_id}-by-word-repartition"
    ended = millpond("check", name, *options)
    assert (ended.status, ended.err) == (0, "")
    assert f"{name}: note: 2 internal topics ('{other}', '{log}') would be created with one replica, " in ended.out
    assert kafka.topic_names(servers, app_id) == set()
    for factor in (1, 3):
        assert "note" not in millpond("check", name, *options, "--set", f"replication.factor={factor}").out
    stock.create_topics(NewTopic(log, 1, 1))
    ended = millpond("check", name, *options)
    assert f"note: 1 internal topic ('{log}') has one replica, on a cluster of 3 brokers" in ended.out
    assert f"note: 1 internal topic ('{other}') would be created with one replica" in ended.out
