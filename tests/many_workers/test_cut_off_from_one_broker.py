"""A worker that loses its connection to one of three brokers loses its tasks to a worker that reaches it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

import millpond as mp
from millpond.protocol import Member
from millpond.runtime.kafka.broker_probe import BrokerProbe
from tests.chaos.proxying import Cut, Proxies, Proxy
from tests.many_workers.fleet import Fleet
from tests.support import kafka
from tests.support.broker import OwnBroker, free_port
from tests.support.clusters.kafka import NODES, KafkaCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("cut off")]  # one cluster for all

PARTITIONS = 12
LIMIT_MS = 12_000
_WORKERS = ("w0", "w1")
_LONG_S = 150.0


class _Cluster(NamedTuple):
    brokers: KafkaCluster
    proxies: dict[tuple[str, int], Proxy]
    """The connection of each worker to each broker."""

    @contextlib.contextmanager
    def cut(self, worker: str, node: int, how: Cut = Cut.BOTH) -> Iterator[None]:
        """Cut the connection of a worker to a broker for the time of the block."""
        self.proxies[worker, node].cut(how)
        try:
            yield
        finally:
            self.proxies[worker, node].mend()

    def servers_of(self, worker: str) -> str:
        return ",".join(f"127.0.0.1:{self.proxies[worker, node].port}" for node in NODES)


@pytest.fixture(scope="module")
def cluster(own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Cluster]:
    """Three brokers with one connection per worker and broker, which can be cut."""
    with Proxies() as proxies:
        made: dict[tuple[str, int], Proxy] = {}

        def make(directory: Path, *, properties: dict[str, str], **options: Any) -> OwnBroker:
            node = int(properties["node.id"])
            ports = {name: free_port() for name in _WORKERS}
            made.update({(name, node): proxies.before(partial(int, port)) for name, port in ports.items()})
            plain, controller = properties["listeners"].split(",")
            listeners = [plain, controller, *(f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items())]
            advertised = [plain, *(f"{name.upper()}://127.0.0.1:{made[name, node].port}" for name in ports)]
            names = ("PLAINTEXT", "CONTROLLER", *(name.upper() for name in ports))
            own = {
                "listeners": ",".join(listeners),
                "advertised.listeners": ",".join(advertised),
                "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
                "inter.broker.listener.name": "PLAINTEXT",
            }
            return own_brokers(directory, properties=properties | own, **options)

        with KafkaCluster(tmp_path_factory.mktemp("cluster"), make=make) as brokers:
            yield _Cluster(brokers, made)


class _Cut(NamedTuple):
    worker: str
    node: int
    partitions: list[int]
    """The input partitions that wait for the broker, or all."""


def _to_cut(case: str, cluster: _Cluster, fleet: Fleet, app_id: str, source: str) -> _Cut:
    """Return the worker and the broker to cut."""
    brokers = cluster.brokers
    group = brokers.group_coordinator(app_id)
    if case == "group":
        return _Cut("w0", group, list(range(PARTITIONS)))
    commits = {name: brokers.transaction_coordinator(f"{app_id}-{name}") for name in _WORKERS}
    if case == "commits":
        return _Cut("w0", commits["w0"], list(range(PARTITIONS)))
    leaders = brokers.leaders(source)
    return next(
        _Cut(name, node, waiting)
        for name in _WORKERS
        for node in NODES
        if node not in {group, commits[name]}
        and (waiting := [number for number in map(_number, fleet.active()[name]) if leaders[number] == node])
    )


def _number(task: str) -> int:
    return int(task.rpartition("_")[2])


class _Counting:
    """An application of two workers that counts records, and the counts that are right."""

    def __init__(self, cluster: _Cluster, app_id: str, guarantee: str) -> None:
        self.source, self._target = f"in-{app_id}", f"out-{app_id}"
        self._cluster = cluster
        self._app_id = app_id
        self._guarantee = guarantee
        self._sent: Counter[str] = Counter()

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Fleet]:
        """Run it for the time of the block, from when each worker has its share."""
        spread = [[NODES[(number + each) % 3] for each in range(3)] for number in range(PARTITIONS)]
        topics = [NewTopic(topic, PARTITIONS, replica_assignment=spread) for topic in (self.source, self._target)]
        self._cluster.brokers.create_topics(*topics)
        settings = {
            "processing.guarantee": self._guarantee, "commit.interval.ms": 50, "statestore.cache.max.bytes": 0,
            "brokers.unreachable.timeout.ms": LIMIT_MS, "num.standby.replicas": 1,
            # A busy machine is late with the report of a missing broker.
            "task.timeout.ms": 180_000,
        }  # fmt: skip
        # Heartbeats are a sixth of it apart: a report that a broker is reached must not outlive the broker by much.
        patient = {"session-timeout": "12s"}
        with Fleet(self._topology, self._servers, self._app_id, directory, settings, patient) as fleet:
            for name in _WORKERS:
                fleet.start(name, **{"bootstrap.servers": self._cluster.servers_of(name)})
            fleet.wait_shared(PARTITIONS)
            self.send()
            fleet.wait(self.all_counted, "the first records are counted")
            yield fleet

    def send(self, partitions: Iterable[int] = range(PARTITIONS)) -> None:
        """Send records to these partitions of the input."""
        records = [(f"k{number}-{each}", "v", 1, number) for number in partitions for each in range(5)]
        self._sent.update(key for key, *_ in records)
        kafka.produce(self._servers, self.source, records)

    def all_counted(self) -> bool:
        """Return whether all records are counted; exactly once, if so configured."""
        rows = kafka.read(self._servers, self._target)
        found = {(row.key or b"").decode(): int.from_bytes(row.value or b"", "big") for row in rows}
        if self._guarantee == "exactly_once":
            return found == self._sent
        return found.keys() == self._sent.keys() and all(found[key] >= count for key, count in self._sent.items())

    @property
    def _servers(self) -> str:
        return self._cluster.brokers.bootstrap_servers

    def _topology(self) -> mp.Topology:
        builder = mp.StreamsBuilder()
        counted = builder.stream(self.source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
        counted.to_stream().to(self._target, key=mp.String, value=mp.Long)
        return builder.build()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("guarantee", "case"), [("exactly_once", "reads"), ("exactly_once", "commits"), ("at_least_once", "group")]
)
def test_tasks_that_wait_for_one_broker_move_to_a_worker_that_reaches_it(
    guarantee: str, case: str, cluster: _Cluster, app_id: str, tmp_path: Path
) -> None:
    """The worker cannot read some inputs, but commits and hands over; or it cannot commit, and is taken over from.

    The other worker counts all records, exactly once if so configured; and the worker gets its share back afterwards.
    """
    counting = _Counting(cluster, app_id, guarantee)
    with counting.running(tmp_path) as fleet:

        def member(name: str) -> Member:
            (found,) = [each for each in fleet.coordinator.view().members if each.worker == name]
            return found

        cut = _to_cut(case, cluster, fleet, app_id, counting.source)
        (other,) = {*_WORKERS} - {cut.worker}
        with cluster.cut(cut.worker, cut.node):
            counting.send(cut.partitions)
            fleet.wait(lambda: len(fleet.active()[other]) == PARTITIONS, "the other worker runs every task", _LONG_S)
            fleet.wait(counting.all_counted, "it counts the records sent after the cut", _LONG_S)
            assert member(cut.worker).cut_off
            waiting, said = fleet.workers[cut.worker].worker.waiting, f"broker {cut.node} does not answer this worker"
            fleet.wait(lambda: said in str(waiting.trouble()), "the worker names the broker")
        # Without transactions, a commit request of the worker that was on its way may arrive now. It overwrites offsets
        # of the new owner, which nobody fences, and each of the two rejects them for 30 s.
        fleet.wait_shared(PARTITIONS, _LONG_S)
        counting.send()
        fleet.wait(counting.all_counted, "both continue to count", _LONG_S)
        assert not member(cut.worker).cut_off


@pytest.mark.timeout(600)
def test_broker_that_is_silent_for_all_workers_moves_no_task(cluster: _Cluster, app_id: str, tmp_path: Path) -> None:
    """It coordinates the group, and is frozen for longer than the limit, until it leads nothing; then it is back."""
    counting, brokers = _Counting(cluster, app_id, "exactly_once"), cluster.brokers
    with counting.running(tmp_path) as fleet:
        before, node = fleet.coordinator.view().owners, brokers.group_coordinator(app_id)
        began = time.monotonic()
        with brokers.frozen(node):

            def settled() -> bool:
                try:
                    led = node in brokers.leaders(counting.source).values()
                except KafkaException:  # it has asked the frozen broker
                    return False
                return not led and time.monotonic() - began > 1.5 * LIMIT_MS / 1000

            fleet.wait(settled, "the frozen broker leads nothing", _LONG_S)
            counting.send()
            fleet.wait(counting.all_counted, "the records are counted meanwhile", _LONG_S)
        brokers.await_all()
        counting.send()
        fleet.wait(counting.all_counted, "the records are counted afterwards", _LONG_S)
        assert fleet.coordinator.view().owners == before
        assert "cut off" not in (tmp_path / "coordinator.log").read_text()


@pytest.mark.parametrize("how", [Cut.BOTH, Cut.RESET])
def test_one_broker_without_an_answer_is_told_from_the_others(how: Cut, cluster: _Cluster) -> None:
    """It is silent, or refuses connections. When it answers again, that is noticed, too."""
    cluster.brokers.await_all()
    topic = f"asked-{how}"
    cluster.brokers.create_topics(NewTopic(topic, 3, replica_assignment=[[1], [2], [3]]))
    probe = BrokerProbe({"bootstrap.servers": cluster.servers_of("w0")}, lambda: [topic], {})

    def answering() -> Mapping[int, bool]:
        return probe.each_answers(2.0).answers

    kafka.eventually(lambda: answering() == {1: True, 2: True, 3: True}, "each broker answers")
    with cluster.cut("w0", 2, how):
        kafka.eventually(lambda: answering() == {1: True, 2: False, 3: True}, "one is told from the others")
        assert probe.any_answers(5.0)
    kafka.eventually(lambda: answering() == {1: True, 2: True, 3: True}, "each broker answers again")
