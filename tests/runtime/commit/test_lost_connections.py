"""After a lost connection, a call about the transaction that waits is given up; otherwise it may take its time."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from millpond.runtime.commit.lost_connections import LostConnections, Patience
from millpond.runtime.commit.pipeline import CommitFailed, TransactionCommitter
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.clusters.kafka import KafkaCluster

GROUP, ROW = "app", Partition("in", 0)
OWNER = OffsetMetadata("w0", 1, topology="h")


#: As the client logs it: level, format, kind, client and text.
_DISCONNECTED = (20, "%s [%s] %s", "FAIL", "producer", "Disconnected: connection closed by peer")


class _Waiting:
    """A producer whose call of a given name waits for `answer`, and whose connection ends when it is polled."""

    def __init__(self, connections: LostConnections, waits: str, *, disconnects: bool) -> None:
        self.connections, self.waits, self.disconnects = connections, waits, disconnects
        self.answer, self.called = threading.Event(), threading.Event()

    def send_offsets_to_transaction(self, *_: object) -> None:
        self._call("send_offsets_to_transaction")

    def commit_transaction(self, _timeout_s: float) -> None:
        self._call("commit_transaction")

    def poll(self, _timeout_s: float) -> None:
        if self.disconnects:
            self.connections.log(*_DISCONNECTED)

    def _call(self, name: str) -> None:
        if name == self.waits:
            self.called.set()
            assert self.answer.wait(60)


class _Committing:
    """One commit after the other by a committer whose producer is a `_Waiting`."""

    def __init__(self, waits: str, *, disconnects: bool = False) -> None:
        connections = LostConnections(kafka.log)
        self.client = _Waiting(connections, waits, disconnects=disconnects)
        given: Any = (self.client, SimpleNamespace(consumer_group_metadata=lambda: None), lambda: None)
        self.committer = TransactionCommitter(*given, lambda: 50.0, 20.0, lambda *_: None, connections, 1.0)

    def begin(self) -> None:
        self.committer.start({ROW: (1, OWNER)}, {})
        self.committer.complete()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.answer.set()
        self.committer.close()


def _failure(committer: TransactionCommitter, within_s: float) -> CommitFailed | None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if committer.done():
                return None
        except CommitFailed as failed:
            return failed
        time.sleep(0.005)
    return None


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
def test_a_call_that_waits_after_a_lost_connection_is_given_up(call: str) -> None:
    """The message names the call. The next transactions are as large as before, since none was too slow."""
    with _Committing(call, disconnects=True) as commits:
        commits.begin()
        failed = _failure(commits.committer, 30)
    assert failed is not None
    assert f"the client's {call} has not returned for " in str(failed)
    assert not failed.late


@pytest.mark.parametrize("lost", [False, True])
def test_a_call_waits_as_long_as_connections_are_there(*, lost: bool) -> None:
    """A slow broker keeps its connections, and one that was lost before both coordinators answered says nothing."""
    with _Committing("commit_transaction") as commits:
        if lost:
            commits.client.connections.log(*_DISCONNECTED)
        commits.begin()
        assert _failure(commits.committer, 2.5) is None
        commits.client.answer.set()
        kafka.eventually(commits.committer.done, "the commit is complete")


def test_a_connection_that_is_lost_before_the_last_answer_to_a_commit_may_be_that_of_the_group() -> None:
    """The end of a transaction is answered by its own coordinator alone."""
    with _Committing("commit_transaction") as commits:
        commits.begin()
        assert commits.client.called.wait(60)
        commits.client.connections.log(*_DISCONNECTED)
        commits.client.answer.set()
        kafka.eventually(commits.committer.done, "the commit is complete")
        commits.client.answer.clear()
        commits.client.waits = "send_offsets_to_transaction"
        commits.begin()
        assert _failure(commits.committer, 30) is not None


def test_a_connection_without_requests_for_a_minute_may_be_lost_without_a_message() -> None:
    """Most are not, and the call connects. It waits for one that is lost from when both are known: loss and call."""
    now = 100.0
    connections = LostConnections(kafka.log, lambda: now)
    assert [connections.waits_since(began) for began in (100.0, 159.0, 160.0)] == [None, None, 162.0]
    connections.log(*_DISCONNECTED)
    assert [connections.waits_since(began) for began in (90.0, 130.0)] == [100.0, 130.0]
    now = 150.0
    connections.answered()
    assert [connections.waits_since(began) for began in (160.0, 211.0)] == [None, 213.0]


def test_calls_may_wait_longer_with_each_producer_that_commits_nothing() -> None:
    """Otherwise no commit of a slow broker would end where each new producer loses a connection."""
    patience = Patience()
    assert [patience.next_s(commits) for commits in (0, 0, 0, 7, 7, 8)] == [1.0, 2.0, 4.0, 1.0, 2.0, 1.0]
    assert [patience.next_s(8) for _ in range(9)][-1] == 60.0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_producer_that_waits_for_a_stopped_coordinator_is_given_up(
    own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The client waits for a connection to a broker that is gone, and asks nobody who coordinates the group now."""
    with KafkaCluster(tmp_path_factory.mktemp("cluster"), make=own_brokers) as cluster:
        cluster.create_topics(NewTopic(ROW.topic, 1, 3))
        cluster.await_all()
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        connections = LostConnections(kafka.log)
        producer = Producer({**servers, "transactional.id": f"{GROUP}-w0"}, logger=connections)
        consumer = Consumer({**servers, "group.id": GROUP, "enable.auto.commit": False}, logger=kafka.log)
        producer.init_transactions(60)
        producer.poll(0)
        connections.answered()
        committer = TransactionCommitter(
            producer, consumer, lambda: None, lambda: 120.0, 60.0, lambda *_: None, connections, 1.0
        )

        def begin(offset: int) -> None:
            producer.begin_transaction()
            committer.start({ROW: (offset, OWNER)}, {})
            committer.complete()

        begin(1)
        kafka.eventually(committer.done, "offsets are committed", timeout_s=120)
        stopped = cluster.group_coordinator(GROUP)

        def coordinated_by_another() -> bool:
            try:
                return cluster.group_coordinator(GROUP) not in {stopped, -1}
            except KafkaException:
                return False

        def forgotten() -> bool:
            producer.poll(0)
            try:
                known = producer.list_topics(timeout=10).brokers
            except KafkaException:
                return False
            return connections.waits_since(0.0) is not None and stopped not in known

        cluster.brokers[stopped].stop()
        kafka.eventually(coordinated_by_another, "another broker coordinates the group", timeout_s=60)
        kafka.eventually(forgotten, "the producer has forgotten the stopped broker", timeout_s=60)
        begin(2)
        failed = _failure(committer, 40)
        committer.close()
        assert failed is not None
        assert "the client's send_offsets_to_transaction has not returned for " in str(failed)
