"""Kafka clients that do not reconnect to the brokers are found and replaced."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import millpond as mp
from millpond.runtime.kafka import admin as cluster_module
from millpond.runtime.kafka import reconnect as reconnect_module
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.reconnect import ReconnectCheck, WorkerClient
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership import takeover as claims
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.worker import assembly, producers
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.kafka import eventually


@pytest.fixture
def nowhere():
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


#: How long clients get to find the brokers again, and how often brokers are asked; a tenth of what it is otherwise.
RECONNECT_S, PAUSE_S = 0.2, 0.02


@pytest.fixture
def brisk(monkeypatch):
    """Shorten waits whose length does not matter here."""
    monkeypatch.setattr(reconnect_module, "_RECONNECT_S", RECONNECT_S)
    monkeypatch.setattr(reconnect_module, "_PAUSE_S", PAUSE_S)
    monkeypatch.setattr(assembly, "_METADATA_TIMEOUT_S", 0.2)
    monkeypatch.setattr(claims, "_REQUEST_TIMEOUT_S", 1.0)
    monkeypatch.setattr(cluster_module, "_REQUEST_TIMEOUT_S", 1.0)


class Asked:
    """A client, or the brokers, that the test lets answer or not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.times = 0

    def __call__(self, timeout_s: float) -> bool:
        self.times += 1
        return self.answers


def test_silent_clients_are_checked_only_after_brokers_answer(brisk) -> None:
    """While the brokers are down no client can answer; later, clients get time to reconnect."""
    reader, brokers = Asked(answers=False), Asked(answers=False)
    reconnect = ReconnectCheck({WorkerClient.READER: reader}, brokers)
    assert not reconnect.due
    reconnect.check()
    reconnect.check()
    eventually(lambda: brokers.times > 2, "the brokers are asked again and again")
    assert not reconnect.due
    back_at = time.monotonic()
    brokers.answers = True
    eventually(lambda: reconnect.due, "clients had their time")
    assert time.monotonic() - back_at >= RECONNECT_S
    assert not reader.times


def test_answering_client_is_not_replaced(brisk) -> None:
    """The other one is reported once. After the next report, all clients are checked again."""
    reader, copier = Asked(answers=False), Asked(answers=True)
    reconnect = ReconnectCheck({WorkerClient.READER: reader, WorkerClient.COPIER: copier}, Asked(answers=True))
    for _ in range(2):
        reconnect.check()
        eventually(lambda: reconnect.due, "clients had their time")
        assert list(reconnect.dead()) == [WorkerClient.READER]
        assert not reconnect.due
    reader.answers = True
    reconnect.check()
    eventually(lambda: reconnect.due, "clients had their time")
    assert not reconnect.dead()


def test_brokers_that_go_away_again_are_waited_for_again(brisk) -> None:
    """The check starts again."""
    brokers = Asked(answers=True)
    reconnect = ReconnectCheck({WorkerClient.READER: Asked(answers=False)}, brokers)
    reconnect.check()
    eventually(lambda: brokers.times == 1 and not reconnect._probing, "brokers answered")
    brokers.answers = False
    reconnect.check()
    away_since = time.monotonic()
    eventually(lambda: brokers.times > 2 * RECONNECT_S / PAUSE_S, "they are asked again and again")
    assert time.monotonic() - away_since > RECONNECT_S, "clients would have had their time"
    assert not reconnect.due
    reconnect.close()


def test_client_is_kept_while_brokers_are_away_again(brisk) -> None:
    """Silence proves nothing then, but it does once the brokers answer again."""
    brokers = Asked(answers=True)
    reconnect = ReconnectCheck({WorkerClient.READER: Asked(answers=False)}, brokers)
    reconnect.check()
    eventually(lambda: reconnect.due, "clients had their time")
    brokers.answers = False
    assert not reconnect.dead()
    assert not reconnect.due
    brokers.answers = True
    eventually(lambda: reconnect.due, "clients had their time")
    assert list(reconnect.dead()) == [WorkerClient.READER]


def test_closed_check_sends_nothing(brisk) -> None:
    """The thread that probes the brokers ends with the worker."""
    brokers = Asked(answers=False)
    reconnect = ReconnectCheck({}, brokers)
    reconnect.check()
    eventually(lambda: brokers.times, "they are asked")
    reconnect.close()
    eventually(lambda: not reconnect._probing, "they are not asked any more")
    assert not reconnect.due


def counting(source, target):
    """Count by key, forwarding every update."""
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.String)
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to(target, key=mp.String, value=mp.Long)
    )
    return builder.build()


def silent(kind):
    """A class of clients that give no answer, for which nobody has to wait."""
    return type("Silent", (kind,), {"list_topics": lambda self, topic, timeout: kind.list_topics(self, topic, 0.2)})


def cut_off(monkeypatch, line, nowhere):
    """The first client of this kind that a worker makes never reaches a broker; the ones after it do.

    Returns:
        a list that has it once it is made.
    """
    made = []
    module, name = (producers, "make_producer") if line is WorkerClient.PRODUCER else (assembly, "make_consumer")
    make = getattr(module, name)

    def instead(config, *given, **named):
        # Only the one for changelogs is told how much to read ahead.
        if made or (line is not WorkerClient.PRODUCER and (len(given) == 3) != (line is WorkerClient.COPIER)):
            return make(config, *given, **named)
        # What is left of a client that lost all brokers: it says so, and nothing more.
        left = {"bootstrap.servers": nowhere, "error_cb": given[1]}
        kind = Producer if line is WorkerClient.PRODUCER else Consumer
        made.append(silent(kind)(left if kind is Producer else {**left, "group.id": "cut-off"}, logger=kafka.log))
        return made[0]

    monkeypatch.setattr(module, name, instead)
    return made


#: A transaction that cannot be committed is noticed anyway.
CASES = [
    (WorkerClient.READER, "exactly_once"),
    (WorkerClient.READER, "at_least_once"),
    (WorkerClient.COPIER, "exactly_once"),
    (WorkerClient.PRODUCER, "at_least_once"),
]


@pytest.mark.share(2)
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("line", "guarantee"), CASES)
def test_worker_continues_with_a_new_client(
    line, guarantee, broker, create_topic, tmp_path, monkeypatch, nowhere, brisk
) -> None:
    """Whichever client loses the brokers for good, it is replaced, and everything is counted."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    app_id = f"reconnect-{source}"
    settings = {"processing.guarantee": guarantee, "statestore.cache.max.bytes": 0}
    topology = counting(source, target)

    def counts():
        return {row.key.decode(): int.from_bytes(row.value, "big") for row in kafka.read(servers, target)}

    kafka.produce(servers, source, [(key, "v") for key in "abcab"])
    with Running(topology, servers, app_id, tmp_path / "state", settings) as first:
        first.wait(lambda: counts() == {"a": 2, "b": 2, "c": 1}, "it counts")
    shutil.rmtree(tmp_path / "state")  # so that it has to be restored
    made = cut_off(monkeypatch, line, nowhere)
    # A broker of a busy machine may be silent for longer than otherwise.
    monkeypatch.setattr(reconnect_module, "_CLIENT_TIMEOUT_S", 20.0)
    kafka.produce(servers, source, [(key, "v") for key in "abc"])
    with Running(topology, servers, app_id, tmp_path / "state", settings) as second:
        second.wait(lambda: counts() == {"a": 3, "b": 3, "c": 2}, "it goes on counting", 90)
        assert made
        assert second.worker.metrics.clients_replaced == 1


def test_request_for_offsets_is_repeated_with_a_new_consumer(broker, create_topic, nowhere, brisk) -> None:
    """The first consumer gives no answer."""
    asked = Partition(create_topic("in"), 0)
    addresses = iter([nowhere])

    def make():
        return Consumer(
            {"bootstrap.servers": next(addresses, broker.bootstrap_servers), "group.id": "asking", "log_level": 0},
            logger=kafka.log,
        )

    threads = ConsumerThreads("threads-of-reconnect", 1, make)
    store = OffsetStore(threads.consumer, threads.forget_consumer, make, threading.Event().is_set, 60.0)
    try:
        assert threads.run(lambda: store.read([asked])).result(60)[asked].offset is None
    finally:
        threads.close()


def test_admin_request_is_repeated_with_a_new_client(broker, create_topic, nowhere, brisk) -> None:
    """A client that answered before and is silent now is replaced, for any request."""
    there = Partition(create_topic("in"), 0)
    for ask in (lambda cluster: there.topic in cluster.topics(), lambda cluster: cluster.ranges([there])):
        cluster = KafkaAdmin(
            {"bootstrap.servers": broker.bootstrap_servers}, patience=timedelta(minutes=1), stopping=lambda: False
        )
        assert cluster.topics()
        cluster._admin = AdminClient({"bootstrap.servers": nowhere, "log_level": 0}, logger=kafka.log)
        assert ask(cluster)
