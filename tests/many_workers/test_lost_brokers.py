"""A worker that only loses its connection to Kafka loses its tasks to others, and gets its share back later."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import millpond as mp
from millpond.protocol import Brokers
from tests.chaos.processes import broker_with_listeners
from tests.chaos.proxying import Cut, Proxies, Proxy
from tests.many_workers.fleet import Fleet
from tests.support import kafka
from tests.support.broker import free_port

pytestmark = [pytest.mark.usefixtures("own_brokers"), pytest.mark.xdist_group("lost brokers")]  # one broker for both

PARTITIONS = 4
LOST_AFTER_MS = 2_000


class _Cluster(NamedTuple):
    servers: str
    proxies: dict[str, Proxy]


@pytest.fixture(scope="module")
def cluster(own_brokers: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Cluster]:
    """A broker with one connection per worker, which can be cut."""
    with Proxies() as proxies:
        listeners = {}
        for name in ("w0", "w1"):
            port = free_port()
            listeners[name] = (port, proxies.before(partial(int, port)))
        with broker_with_listeners(tmp_path_factory.mktemp("broker"), listeners) as broker:
            yield _Cluster(broker.bootstrap_servers, {name: proxy for name, (_, proxy) in listeners.items()})


def _ready(fleet: Fleet, name: str) -> tuple[int, str]:
    try:
        url = f"{fleet.workers[name].worker.metrics.http.url}/readyz"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _cut_off(worker: mp.Worker, proxy: Proxy, *, in_commit: bool) -> threading.Event:
    """Cut the connection of a worker now, or during its next commit; return an event that is set then."""
    cut = threading.Event()

    def now() -> None:
        proxy.cut(Cut.BOTH)
        cut.set()

    if not in_commit:
        now()
        return cut
    sink: Any = worker._parts.offset_sink
    start = sink.start

    def start_cut_off(offsets: Any, expected: Any) -> None:
        if not cut.is_set():
            now()
            time.sleep(0.05)  # the proxy runs in its own thread
        start(offsets, expected)

    sink.start = start_cut_off
    return cut


@pytest.mark.parametrize(("guarantee", "in_commit"), [("exactly_once", True), ("at_least_once", False)])
def test_worker_without_brokers_loses_its_tasks_until_they_are_back(
    guarantee: str, in_commit: bool, cluster: _Cluster, app_id: str, tmp_path: Path
) -> None:
    """It reports this everywhere. Meanwhile the other worker counts the records, exactly once if so configured."""
    source, target = f"in-{app_id}", f"out-{app_id}"
    for topic in (source, target):
        kafka.create_topic(cluster.servers, topic, PARTITIONS)

    def topology() -> mp.Topology:
        builder = mp.StreamsBuilder()
        counted = builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
        counted.to_stream().to(target, key=mp.String, value=mp.Long)
        return builder.build()

    def counts() -> dict[str, int]:
        rows = kafka.read(cluster.servers, target)
        return {row.key.decode(): int.from_bytes(row.value, "big") for row in rows}

    def send() -> None:
        kafka.produce(cluster.servers, source, [(f"k{n}", "v", 1, n % PARTITIONS) for n in range(40)])

    settings = {
        "processing.guarantee": guarantee, "commit.interval.ms": 50, "statestore.cache.max.bytes": 0,
        "brokers.unreachable.timeout.ms": LOST_AFTER_MS, "http.port": 0,
    }  # fmt: skip
    with Fleet(topology, cluster.servers, app_id, tmp_path, settings) as fleet:
        for name, proxy in cluster.proxies.items():
            fleet.start(name, **{"bootstrap.servers": f"127.0.0.1:{proxy.port}"})
        fleet.wait_shared(PARTITIONS)
        send()
        fleet.wait(lambda: set(counts().values()) == {1} and len(counts()) == 40, "the first records are counted")
        cut = _cut_off(fleet.workers["w0"].worker, cluster.proxies["w0"], in_commit=in_commit)
        send()
        fleet.wait(cut.is_set, "the worker is cut off")
        fleet.wait(lambda: len(fleet.active()["w1"]) == PARTITIONS, "the other worker runs every task")
        fleet.wait(lambda: min(counts().values()) >= 2, "it counts the records sent after the cut")
        status, text = _ready(fleet, "w0")
        assert status == 503
        assert "no broker at" in text

        def told() -> bool:
            (member,) = [each for each in fleet.coordinator.view().members if each.worker == "w0"]
            trouble = member.trouble
            return (
                member.alive and member.brokers is Brokers.LOST and trouble is not None and "no broker" in str(trouble)
            )

        fleet.wait(told, "the coordinator knows why")
        cluster.proxies["w0"].mend()
        fleet.wait_shared(PARTITIONS)
        send()
        if guarantee == "exactly_once":
            fleet.wait(lambda: set(counts().values()) == {3}, "both continue to count, each record once")
        else:
            fleet.wait(lambda: min(counts().values()) >= 3, "both go on counting")
        fleet.wait(lambda: _ready(fleet, "w0")[0] == 200, "the worker is ready again")
