"""Kafka clients continue after the network lost their connections without closing them.

The connections go through a proxy that loses all bytes of the present ones; new connections work.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS, make_consumer, make_offset_reader, make_producer
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.end_offsets import offset_in
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership import takeover
from millpond.runtime.ownership.lookups import OwnershipLookups
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.topology import TaskId
from tests.chaos.proxying import Proxies
from tests.support import kafka
from tests.support.broker import free_port

NOW_MS = int(time.time() * 1000)
TASK, OTHER = TaskId(0, 0), TaskId(0, 1)
#: Two seconds for each of the two clients of a lookup, and time for new connections.
LOOKUP_BOUND_S = 10.0
#: The limit of silence, 20 s, and time for new connections; librdkafka's own limit is 60 s.
SILENCE_BOUND_S = 45.0
#: For so long a test waits, standstills of the machine included.
PATIENCE_S = 150.0


@pytest.fixture(scope="module")
def behind_proxy(own_brokers, tmp_path_factory):
    """A broker, and the proxy to which it refers its clients."""
    port = free_port()
    with Proxies() as proxies:
        proxy = proxies.before(lambda: port)
        properties = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with own_brokers(tmp_path_factory.mktemp("silent"), port=port, properties=properties) as broker:
            yield SimpleNamespace(broker=broker, proxy=proxy, address=f"127.0.0.1:{proxy.port}")


@pytest.fixture
def topic(behind_proxy):
    """An empty topic with two partitions."""
    name = f"in-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(behind_proxy.address, name, 2)
    return name


def config(address: str, directory: Path, guarantee: str = "exactly_once") -> Config:
    settings = {"application.id": "silent", "bootstrap.servers": address, "state.dir": str(directory)}
    return Config.load(environ={}, flags={**settings, "processing.guarantee": guarantee})


def ignored(*_: object) -> None:
    """Ignore an error of a client."""


class Lookups:
    """The lookups of a worker, with the parts that a worker gives them."""

    def __init__(self, settings: Config, topic: str) -> None:
        never = threading.Event().is_set
        threads = ConsumerThreads("silent", 3, lambda: make_offset_reader(settings, ignored))
        offsets = OffsetStore(
            threads.consumer,
            threads.forget_consumer,
            lambda: make_offset_reader(settings, ignored, stable=False),
            never,
            120.0,
        )
        cluster = KafkaAdmin(settings.admin_settings(CLIENT_DEFAULTS), patience=timedelta(minutes=2), stopping=never)
        self.lookups = OwnershipLookups(
            threads,
            cluster,
            offsets,
            lambda task: ([Partition(topic, task.partition)], [Partition(topic, task.partition)]),
            None,
            lambda *_: 0,
            lambda _: None,
            "topology",
        )

    def look_up(self) -> None:
        """Look both tasks up."""
        found = self.lookups.look_up_now([TASK, OTHER]).tasks
        assert found.keys() == {TASK, OTHER}
        # librdkafka reports silence as the offset -1001: as the end of a changelog, nothing would be restored.
        assert [range for each in found.values() for range in each.ranges.values()] == [(0, 0), (0, 0)]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_lookup_ends_soon_after_the_broker_returns(behind_proxy, topic, tmp_path, standstills, figures) -> None:
    """The broker is killed, and nobody tells its clients: their connections are silent from then on."""
    lookups = Lookups(config(behind_proxy.address, tmp_path), topic)
    try:
        lookups.look_up()
        behind_proxy.proxy.black_hole()
        behind_proxy.broker.kill()
        behind_proxy.broker.start()  # returns when it answers a new client
        began = time.monotonic()
        lookups.look_up()
        ended = time.monotonic()
        figures.note("ownership lookup after a broker was lost", ended - began, "s")
        assert standstills.lasted(began, ended) < LOOKUP_BOUND_S
    finally:
        lookups.lookups.close()


@pytest.mark.long
@pytest.mark.timeout(240)
def test_readers_and_writers_notice_silence(behind_proxy, topic, tmp_path, standstills, figures) -> None:
    """Reads of inputs, deliveries and commits continue, without a worker that waits for them."""
    settings = config(behind_proxy.address, tmp_path, "at_least_once")
    reader, committer = (make_consumer(settings, None, ignored) for _ in range(2))
    writer = make_producer(settings, None, ignored)
    try:
        kafka.produce(behind_proxy.address, topic, [("k", "v", NOW_MS, 0)])
        reader.assign([TopicPartition(topic, 0, 0)])
        assert read(reader)
        writer.produce(topic, b"v", partition=1)
        assert writer.flush(PATIENCE_S) == 0
        committer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        behind_proxy.proxy.black_hole()
        began = time.monotonic()
        kafka.produce(behind_proxy.address, topic, [("k", "w", NOW_MS, 0)])
        writer.produce(topic, b"w", partition=1)
        acts = {
            "read": lambda: read(reader),
            "delivery": lambda: writer.flush(PATIENCE_S) == 0,
            "commit": lambda: commit(committer, topic),
        }
        with ThreadPoolExecutor(len(acts)) as threads:
            ended = {name: threads.submit(succeeded_at, act) for name, act in acts.items()}
        for name, at in ended.items():
            figures.note(f"{name} after the network lost a connection", at.result() - began, "s")
            assert standstills.lasted(began, at.result()) < SILENCE_BOUND_S, name
    finally:
        reader.close()
        committer.close()


def succeeded_at(act: Callable[[], bool]) -> float:
    """Return the moment at which something has succeeded."""
    assert act()
    return time.monotonic()


def read(reader: Consumer) -> bool:
    """Return whether a record arrives."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if any(message.error() is None for message in reader.consume(100, 0.1)):
            return True
    return False


def commit(committer: Consumer, topic: str) -> bool:
    """Return whether a commit succeeds."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            committer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        except KafkaException:
            continue
        return True
    return False


def test_silence_is_not_an_offset() -> None:
    """If a broker is silent, librdkafka reports success, with the offset -1001."""
    silent, first = Future[SimpleNamespace](), Future[SimpleNamespace]()
    silent.set_result(SimpleNamespace(offset=OFFSET_INVALID))
    first.set_result(SimpleNamespace(offset=0))
    assert offset_in(first) == 0
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        offset_in(silent)


class SlowToConnect:
    """A consumer whose first connection takes longer than the first request may take."""

    def __init__(self, clock: SimpleNamespace, connects_s: float) -> None:
        self._clock = clock
        self._connects_s = connects_s

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._clock.now += min(timeout, self._connects_s) + 0.01
        if timeout < self._connects_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [TopicPartition(each.topic, each.partition, 5) for each in partitions]

    def poll(self, _: float) -> None:
        """Return no event."""

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize("read", [OffsetStore.read, OffsetStore.survey])
def test_new_clients_get_time_to_connect(monkeypatch, caplog, read) -> None:
    """If connecting takes longer than a request may take, a fixed limit would discard one new client after another."""
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(takeover, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    made: list[SlowToConnect] = [SlowToConnect(clock, 7.0)]

    def another() -> None:
        made.append(SlowToConnect(clock, 7.0))

    def fresh() -> SlowToConnect:
        another()
        return made[-1]

    store = OffsetStore(lambda: made[-1], another, fresh, lambda: False, 60.0)
    assert read(store, [Partition("in", 0)])[Partition("in", 0)].offset == 5
    assert clock.now < 15, "2 s, 4 s, and 7 s with the client that connects"
    assert "committed offsets: no answer for 6.0 s" in caplog.text, "the log says what a lookup waits for"
