"""Kafka clients that do not find the brokers again: found out, and replaced."""

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
from millpond.runtime.kafka import reconnect as lifelines_module
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.reconnect import Lifelines, Line
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership import takeover as claims
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.worker import assembly, producers
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.kafka import eventually


@pytest.fixture
def nowhere():
    """An address where nobody answers, and nobody else will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


#: How long clients get to find the brokers again, and how often brokers are asked; a tenth of what it is otherwise.
RECONNECT_S, PAUSE_S = 0.2, 0.02


@pytest.fixture
def brisk(monkeypatch):
    """Shorten waits whose length nothing here depends on."""
    monkeypatch.setattr(lifelines_module, "_RECONNECT_S", RECONNECT_S)
    monkeypatch.setattr(lifelines_module, "_PAUSE_S", PAUSE_S)
    monkeypatch.setattr(assembly, "_KNOWN_S", 0.2)
    monkeypatch.setattr(claims, "_ANSWER_S", 1.0)
    monkeypatch.setattr(cluster_module, "_TRY_S", 1.0)


class Asked:
    """A client, or the brokers, that can be made to answer or not."""

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.times = 0

    def __call__(self, timeout_s: float) -> bool:
        self.times += 1
        return self.answers


def test_silent_clients_are_checked_only_after_brokers_answer(brisk) -> None:
    """While they are away nobody can answer; and then clients are given the time to find them."""
    reader, brokers = Asked(answers=False), Asked(answers=False)
    lifelines = Lifelines({Line.READER: reader}, brokers)
    assert not lifelines.due
    lifelines.check()
    lifelines.check()
    eventually(lambda: brokers.times > 2, "the brokers are asked again and again")
    assert not lifelines.due
    back_at = time.monotonic()
    brokers.answers = True
    eventually(lambda: lifelines.due, "clients had their time")
    assert time.monotonic() - back_at >= RECONNECT_S
    assert not reader.times


def test_answering_client_is_not_replaced(brisk) -> None:
    """The one that does not is told, once; and all are examined again when there is reason to."""
    reader, copier = Asked(answers=False), Asked(answers=True)
    lifelines = Lifelines({Line.READER: reader, Line.COPIER: copier}, Asked(answers=True))
    for _ in range(2):
        lifelines.check()
        eventually(lambda: lifelines.due, "clients had their time")
        assert list(lifelines.dead()) == [Line.READER]
        assert not lifelines.due
    reader.answers = True
    lifelines.check()
    eventually(lambda: lifelines.due, "clients had their time")
    assert not lifelines.dead()


def test_brokers_that_go_away_again_are_waited_for_again(brisk) -> None:
    """What was reported meanwhile begins anew."""
    brokers = Asked(answers=True)
    lifelines = Lifelines({Line.READER: Asked(answers=False)}, brokers)
    lifelines.check()
    eventually(lambda: brokers.times == 1 and not lifelines._asking, "brokers answered")
    brokers.answers = False
    lifelines.check()
    away_since = time.monotonic()
    eventually(lambda: brokers.times > 2 * RECONNECT_S / PAUSE_S, "they are asked again and again")
    assert time.monotonic() - away_since > RECONNECT_S, "clients would have had their time"
    assert not lifelines.due


def test_client_is_kept_while_brokers_are_away_again(brisk) -> None:
    """Silence tells nothing then; once they are back for good, it does."""
    brokers = Asked(answers=True)
    lifelines = Lifelines({Line.READER: Asked(answers=False)}, brokers)
    lifelines.check()
    eventually(lambda: lifelines.due, "clients had their time")
    brokers.answers = False
    assert not lifelines.dead()
    assert not lifelines.due
    brokers.answers = True
    eventually(lambda: lifelines.due, "clients had their time")
    assert list(lifelines.dead()) == [Line.READER]


def test_closed_monitor_checks_nothing(brisk) -> None:
    """The thread that asks for brokers ends with the worker."""
    brokers = Asked(answers=False)
    lifelines = Lifelines({}, brokers)
    lifelines.check()
    eventually(lambda: brokers.times, "they are asked")
    lifelines.close()
    eventually(lambda: not lifelines._asking, "they are not asked any more")
    assert not lifelines.due


def counting(source, target):
    """Counts by key, forwarding every update."""
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.String)
        .group_by_key()
        .count(store="counts")
        .to_stream()
        .to(target, key=mp.String, value=mp.Long)
    )
    return builder.build()


def cut_off(monkeypatch, line, nowhere):
    """The first client of this kind that a worker makes never reaches a broker; the ones after it do.

    Returns:
        a list that has it once it is made.
    """
    made = []
    module, name = (producers, "make_producer") if line is Line.PRODUCER else (assembly, "make_consumer")
    make = getattr(module, name)

    def instead(config, *given, **named):
        # Only the one for changelogs is told how much to read ahead.
        if made or (line is not Line.PRODUCER and (len(given) == 3) != (line is Line.COPIER)):
            return make(config, *given, **named)
        # What is left of a client that lost all brokers: it says so, and nothing more.
        left = {"bootstrap.servers": nowhere, "error_cb": given[1]}
        made.append(Producer(left) if line is Line.PRODUCER else Consumer({**left, "group.id": "cut-off"}))
        return made[0]

    monkeypatch.setattr(module, name, instead)
    return made


#: A transaction that cannot be committed is noticed anyway.
CASES = [
    (Line.READER, "exactly_once"),
    (Line.READER, "at_least_once"),
    (Line.COPIER, "exactly_once"),
    (Line.PRODUCER, "at_least_once"),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("line", "guarantee"), CASES)
def test_worker_continues_with_a_new_client(
    line, guarantee, broker, create_topic, tmp_path, monkeypatch, nowhere, brisk
) -> None:
    """Whichever client is cut off for good while the brokers are there: it is replaced, and everything is counted."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    app_id = f"lifelines-{source}"
    settings = {"processing.guarantee": guarantee, "statestore.cache.max.bytes": 0}
    topology = counting(source, target)

    def counts():
        return {row.key.decode(): int.from_bytes(row.value, "big") for row in kafka.read(servers, target)}

    kafka.produce(servers, source, [(key, "v") for key in "abcab"])
    with Running(topology, servers, app_id, tmp_path / "state", settings) as first:
        first.wait(lambda: counts() == {"a": 2, "b": 2, "c": 1}, "it counts")
    shutil.rmtree(tmp_path / "state")  # so that it has to be restored
    made = cut_off(monkeypatch, line, nowhere)
    kafka.produce(servers, source, [(key, "v") for key in "abc"])
    with Running(topology, servers, app_id, tmp_path / "state", settings) as second:
        second.wait(lambda: counts() == {"a": 3, "b": 3, "c": 2}, "it goes on counting", 90)
        assert made
        assert second.worker.metrics.clients_replaced == 1


def test_a_question_about_offsets_goes_to_a_new_consumer(broker, create_topic, nowhere, brisk) -> None:
    """The one that was asked first gives no answer."""
    asked = Partition(create_topic("in"), 0)
    addresses = iter([nowhere])

    def make():
        return Consumer(
            {"bootstrap.servers": next(addresses, broker.bootstrap_servers), "group.id": "asking", "log_level": 0}
        )

    errands = ConsumerThreads("errands-of-lifelines", 1, make)
    store = OffsetStore(errands.consumer, errands.forget_consumer, make, threading.Event().is_set, 60.0)
    try:
        assert errands.run(lambda: store.read([asked])).result(60)[asked].offset is None
    finally:
        errands.close()


def test_questions_about_the_cluster_go_to_a_new_client(broker, create_topic, nowhere, brisk) -> None:
    """One that answered before and does not any more is replaced, whatever is asked."""
    there = Partition(create_topic("in"), 0)
    for ask in (lambda cluster: there.topic in cluster.topics(), lambda cluster: cluster.ranges([there])):
        cluster = KafkaAdmin(
            {"bootstrap.servers": broker.bootstrap_servers}, patience=timedelta(minutes=1), stopping=lambda: False
        )
        assert cluster.topics()
        cluster._admin = AdminClient({"bootstrap.servers": nowhere, "log_level": 0})
        assert ask(cluster)
