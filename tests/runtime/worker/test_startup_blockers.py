"""A worker that cannot start yet reports why, by HTTP and to its coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta

import pytest

import millpond as mp
from millpond.errors import BrokerError
from millpond.protocol import Trouble
from millpond.runtime import blockers as waiting
from millpond.runtime.blockers import Blockers
from millpond.runtime.kafka.clients import make_producer
from millpond.runtime.worker.startup import announce
from millpond_operator.coordinator import CoordinatorServer, EngineOptions
from tests.runtime.running import Running


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blockers are reported at once, and requests to brokers time out sooner."""
    monkeypatch.setattr(Blockers.trouble, "__defaults__", (0.0,))
    monkeypatch.setattr("millpond.runtime.worker.admission._REPORT_INTERVAL_S", 0.05)
    monkeypatch.setattr("millpond.runtime.kafka.admin._REQUEST_TIMEOUT_S", 0.3)


@contextlib.contextmanager
def coordinator(application: str) -> Iterator[CoordinatorServer]:
    """A coordinator in a thread of its own."""
    service = CoordinatorServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> None:
        options = EngineOptions(gathering=timedelta(milliseconds=1))
        await service.add(application, options, namespace="shop")
        await service.start()

    asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(service.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def passing(source: str = "in", target: str = "out") -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to(target)
    return builder.build()


def readiness(running: Running) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{running.worker.metrics.http.url}/readyz", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def wait_for_trouble(running: Running, *words: str) -> None:
    """Wait until the trouble contains all these texts. Until a connection fails, it reports no answer."""

    def told() -> bool:
        trouble = running.worker.waiting.trouble()
        return trouble is not None and all(each in trouble.message for each in words)

    running.wait(told, f"it says {words}", 60)


def test_a_worker_that_waits_for_the_brokers_reports_to_its_coordinator(app_id, tmp_path):
    """It is not a member yet, but visible with its trouble and its revision."""
    with coordinator(app_id) as service:
        settings = {
            "coordinator.url": f"{service.url}/namespaces/shop",
            "http.port": 0,
            "revision": "7d4f0c2a91",
        }
        running = Running(passing(), "127.0.0.1:1", app_id, tmp_path, settings).start()
        engine = service.application(app_id, "shop").engine
        told = lambda: [each.trouble.message for each in engine.starting.values() if each.trouble is not None]
        running.wait(lambda: any("no answer from Kafka at '127.0.0.1:1'" in each for each in told()), "it is heard of")
        starting = engine.starting["w0"]
        assert starting.revision == "7d4f0c2a91"
        assert starting.trouble is not None
        assert starting.trouble.reason == "BrokerError"
        assert not engine.members
        running.stop()


def test_worker_that_recovers_at_start_joins_without_trouble(broker, create_topic, app_id, tmp_path):
    """The same process is admitted as soon as it knows its tasks."""
    source, target = create_topic("in"), create_topic("out")
    with coordinator(app_id) as service:
        settings = {"coordinator.url": f"{service.url}/namespaces/shop", "http.port": 0, "revision": "r1"}
        running = Running(passing(source, target), broker.bootstrap_servers, app_id, tmp_path, settings)
        running.worker.waiting.add("test", BrokerError("nothing goes on."))
        with running:
            engine = service.application(app_id, "shop").engine
            running.wait(lambda: "w0" in engine.members, "it is a member")
            assert engine.members["w0"].incarnation == running.worker._parts.admission.incarnation
            running.wait(lambda: engine.members["w0"].trouble is not None, "its trouble goes along")
            running.worker.waiting.remove("test")
            running.wait(lambda: engine.members["w0"].trouble is None, "its trouble is over")
            running.wait(lambda: engine.owners, "it has its task")
            assert engine.members["w0"].pod_revision == "r1"


def test_a_worker_that_is_fenced_during_its_start_tries_again(
    broker, create_topic, app_id, tmp_path, monkeypatch, caplog
):
    """As by a worker that takes over the tasks of its earlier process: that is no failure, unless it lasts."""
    source, target = create_topic("in"), create_topic("out")
    fences = [0]

    def fenced_once(executor, config, producer, tasks):
        if fences[0]:
            fences[0] -= 1
            make_producer(config, config.worker_id, lambda _: None).init_transactions(60)
        announce(executor, config, producer, tasks)

    monkeypatch.setattr("millpond.runtime.worker.startup.announce", fenced_once)
    with coordinator(app_id) as service:
        settings = {"coordinator.url": f"{service.url}/namespaces/shop", "processing.guarantee": "exactly_once"}
        for fences[0], limit_s, level in (0, 5.0, None), (1, 1e9, logging.INFO), (1, 0.0, logging.WARNING):
            monkeypatch.setattr("millpond.runtime.worker.startup._TAKE_OVERS_S", limit_s)
            caplog.clear()
            caplog.set_level(logging.INFO)
            with Running(passing(source, target), broker.bootstrap_servers, app_id, tmp_path, settings) as running:
                running.wait_running()
                running.wait(lambda worker=running.worker: worker._parts.executor.running, "its task runs", 60)
                assert running.worker.waiting.trouble() is None
            said = [(each.levelno, each.message) for each in caplog.records if each.name.endswith("worker.startup")]
            assert [number for number, _ in said] == ([] if level is None else [level])
            assert all("trying again in" in text for number, text in said if number == logging.INFO)
            assert all("its own 'worker.id'" in text for number, text in said if number == logging.WARNING)


def test_worker_without_admission_is_not_ready(broker, create_topic, app_id, tmp_path):
    """It runs nothing and never will: what waits for its readiness must not continue."""
    source, target = create_topic("in"), create_topic("out")
    with coordinator("another") as service:
        settings = {"coordinator.url": service.url, "http.port": 0}
        with Running(passing(source, target), broker.bootstrap_servers, app_id, tmp_path, settings) as running:
            running.wait(lambda: running.worker.rejection, "it is rejected")
            running.wait_running()
            status, text = readiness(running)
            assert status == 503
            assert f"does not serve application '{app_id}'" in text


def test_wrong_protocol_is_not_reported_as_unreachable_brokers(broker, app_id, tmp_path):
    """Whoever configures SASL without need should not look for a broker that is down."""
    settings = {
        "http.port": 0,
        "security.protocol": "ssl",
        "task.timeout.ms": 120_000,
    }
    running = Running(passing(), broker.bootstrap_servers, app_id, tmp_path, settings).start()
    wait_for_trouble(running, "over TLS", "'security.protocol'")
    running.stop()


def test_a_host_that_does_not_exist_is_named(app_id, tmp_path):
    """A wrong host name is the most common mistake."""
    settings = {"task.timeout.ms": 120_000}
    running = Running(passing(), "no-such-host.invalid:9092", app_id, tmp_path, settings).start()
    wait_for_trouble(running, "cannot be resolved")
    running.stop()


def test_oldest_blocker_is_reported(monkeypatch):
    """And none before its time."""
    clock = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: clock[0])
    things = Blockers()
    things.add("a", BrokerError("first."))
    clock[0] += 5
    things.add("b", BrokerError("second."))
    assert things.trouble(10) is None
    clock[0] += 6
    assert things.trouble(10) == Trouble("BrokerError", "first.")
    things.add("a", BrokerError("first, in other words."))
    assert things.trouble(10) == Trouble("BrokerError", "first, in other words.")
    things.remove("a")
    assert things.trouble(10) is None
    clock[0] += 5
    assert things.trouble(10) == Trouble("BrokerError", "second.")
    things.remove("b")
    things.remove("b")
    assert things.trouble(0) is None
