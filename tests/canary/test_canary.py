"""The canary of `helm test`: its topology, its requests, and its steps on a real broker."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import millpond as mp
from millpond.canary.cluster import CanaryFailed, PodCluster
from millpond.canary.run import Canary, check_installation
from millpond.canary.topology import TOPIC_PREFIX, input_topic, output_topic, topology
from millpond.runtime.config.model import Config
from millpond.testing import TopologyTestDriver
from tests.canary.http_stub import HttpStub
from tests.support import kafka
from tests.support.kafka import eventually, topic_names

KINDS = {"streamapps", "streamassignments", "statebootstraps"}


class InMemoryCluster:
    """A cluster that has one StreamApp at most.

    Args:
        on_create: called with its manifest; it plays the workers.
        ready: whether it becomes Ready.
        problems: its other conditions that are True while it is not Ready, with their messages.
    """

    def __init__(
        self,
        on_create=lambda manifest: None,
        *,
        ready: bool = True,
        kinds=KINDS,
        reasons=(),
        problems=(("Degraded", "kafka:9092 is silent"),),
    ) -> None:
        self._on_create, self._ready, self._kinds, self._reasons = on_create, ready, kinds, list(reasons)
        self._problems = [
            {"type": kind, "status": "True", "reason": "BrokerUnreachable", "message": message}
            for kind, message in problems
        ]
        self.app: dict[str, Any] | None = None
        self.log: list[str] = []

    def operator_ready(self) -> str:
        return self._reasons.pop(0) if self._reasons else ""

    def kinds(self) -> set[str]:
        return set(self._kinds)

    def create(self, manifest) -> None:
        self.log.append("create")
        self.app = dict(manifest)
        self._on_create(manifest)

    def find(self, name: str) -> dict[str, Any] | None:
        if self.app is None:
            return None
        ready = {"type": "Ready", "status": "True" if self._ready else "False"}
        return self.app | {"status": {"conditions": [ready] if self._ready else [ready, *self._problems]}}

    def delete(self, name: str) -> None:
        self.log.append("delete")
        self.app = None


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    """Look more often than once a second."""
    monkeypatch.setattr("millpond.canary.run._POLL_S", 0.05)


def canary(cluster: InMemoryCluster, servers: str, seconds: float = 30.0) -> Canary:
    config = Config.load(environ={}, flags={"bootstrap.servers": servers, "application.id": "canary"})
    return Canary(cluster=cluster, name="test", image="millpond-worker:1", bootstrap_servers=servers, config=config,
                  deadline=time.monotonic() + seconds, say=cluster.log.append, replication_factor=1)  # fmt: skip


def test_the_topology_counts_records_by_key(monkeypatch):
    """Each record of the output is the count so far."""
    monkeypatch.setenv(TOPIC_PREFIX, "a")
    with TopologyTestDriver(topology()) as driver:
        words = driver.create_input_topic("a-words", key=mp.String, value=mp.String)
        counts = driver.create_output_topic("a-counts", key=mp.String, value=mp.Long)
        for key in ("x", "y", "x"):
            words.pipe_input(key, "")
        assert counts.read_key_values_to_list()[-1] == ("x", 2)


def counting(servers: str, error: int = 0):
    """Play the workers: count the input into the output, with an error if there is to be one."""

    def work(manifest) -> None:
        (prefix,) = (each["value"] for each in manifest["spec"]["env"])
        producer = Producer({"bootstrap.servers": servers}, logger=kafka.log)
        for number in range(5):
            producer.produce(output_topic(prefix), key=f"word-{number}", value=(20 + error).to_bytes(8, "big"))
        producer.flush(60)

    return work


def test_the_canary_is_created_counted_and_deleted(broker):
    """Nothing is left: neither the StreamApp nor its topics."""
    cluster = InMemoryCluster(counting(broker.bootstrap_servers))
    run = canary(cluster, broker.bootstrap_servers)
    run.run()
    assert cluster.app is None
    assert cluster.log[0] == "delete"
    assert any("100 records were counted" in each for each in cluster.log)
    await_deleted(broker.bootstrap_servers, run)


def await_deleted(servers: str, run: Canary) -> None:
    """Wait until the topics of a canary are deleted: a broker shows deleted ones for a moment."""
    topics = {input_topic(run.application_id), output_topic(run.application_id)}
    eventually(lambda: not topics & topic_names(servers), "the topics are deleted")


def test_wrong_output_fails_and_is_shown(broker, monkeypatch):
    """Counts that are wrong are reported with those that are right, and everything is deleted all the same."""
    read = []

    class Reader(Consumer):
        def poll(self, timeout: float = -1.0) -> Any:
            message = super().poll(timeout)
            if message is not None and message.error() is None:
                read.append(message)
            return message

    monkeypatch.setattr("confluent_kafka.Consumer", Reader)
    # The deadline passes when all of the output is read.
    passed_s = lambda: time.monotonic() + (3_600.0 if len(read) == 5 else 0.0)
    monkeypatch.setattr("millpond.canary.run.time", SimpleNamespace(monotonic=passed_s, sleep=time.sleep))
    cluster = InMemoryCluster(counting(broker.bootstrap_servers, error=1))
    run = canary(cluster, broker.bootstrap_servers)
    with pytest.raises(CanaryFailed, match=r"'word-1': 21.*'word-1': 20"):
        run.run()
    assert cluster.app is None
    await_deleted(broker.bootstrap_servers, run)


def test_an_application_that_is_not_ready_is_reported_with_its_reason(broker):
    """The condition of the StreamApp is in the message."""
    cluster = InMemoryCluster(ready=False)
    with pytest.raises(CanaryFailed, match="BrokerUnreachable: kafka:9092 is silent"):
        canary(cluster, broker.bootstrap_servers, seconds=0.5).run()
    assert cluster.app is None


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        ((("Degraded", "the image does not exist."), ("Stalled", "See Degraded.")), "the image does not exist"),
        ((("Stalled", "the revision failed."),), "the revision failed"),
    ],
)
def test_a_stalled_application_ends_the_test_at_once(broker, problems, message):
    """It stays like that until somebody changes it, so there is nothing to wait for."""
    cluster = InMemoryCluster(ready=False, problems=problems)
    run = canary(cluster, broker.bootstrap_servers, seconds=600.0)
    with pytest.raises(CanaryFailed, match=rf"does not become Ready by itself\. BrokerUnreachable: {message}"):
        run.run()
    assert time.monotonic() < run.deadline - 300
    assert cluster.app is None


def test_missing_definitions_are_named():
    """The message has the value of the chart that installs them."""
    with pytest.raises(CanaryFailed, match=r"streamassignments.*crds\.install"):
        check_installation(InMemoryCluster(kinds={"streamapps", "statebootstraps"}), time.monotonic(), print)


def test_an_operator_that_starts_is_waited_for():
    """And one that does not become ready in time is reported with its answer."""
    said: list[str] = []
    check_installation(InMemoryCluster(reasons=["not yet", "not yet"]), time.monotonic() + 60, said.append)
    assert said[-1] == "the operator is ready"
    with pytest.raises(CanaryFailed, match="The operator is not ready: stands by"):
        check_installation(InMemoryCluster(reasons=["stands by"] * 9), time.monotonic() - 1, print)


def test_the_manifest_is_accepted_by_the_definitions(api, crds, namespace):
    """With and without everything optional."""
    config = Config.load(environ={}, flags={"bootstrap.servers": "kafka:9092", "application.id": "canary"})
    for more in ({}, {"credentials_secret": "a", "image_pull_secrets": ("b",), "replication_factor": 3}):
        made = Canary(cluster=InMemoryCluster(), name="test", image="millpond-worker:1", bootstrap_servers="kafka:9092",
                      config=config, deadline=0, say=print, **more).manifest()  # fmt: skip
        made["metadata"]["namespace"] = namespace
        api.apply(made, dry_run=True)


@pytest.fixture
def stub():
    """An HTTP server that plays the operator."""
    with HttpStub() as made:
        yield made


def test_the_operators_answer_is_the_reason(stub):
    """A standby answers 503 with one sentence."""
    cluster = PodCluster(stub.url)
    stub.answers["/readyz"] = (503, "this replica stands by")
    assert "answers 503: this replica stands by" in cluster.operator_ready()
    stub.answers["/readyz"] = (200, "ok")
    assert cluster.operator_ready() == ""
    assert "does not answer" in PodCluster("http://127.0.0.1:9").operator_ready()
