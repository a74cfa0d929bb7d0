"""Workers with another topology than the committed one: they activate no task before the coordinator admits them."""

from __future__ import annotations

import asyncio
import threading

import pytest
from confluent_kafka.cimpl import NewPartitions

import millpond as mp
from millpond.runtime.offsets.metadata import decode_metadata
from millpond.runtime.topics.plan import make_plan, summary
from millpond_operator.coordinator import CoordinatorServer, EngineOptions
from tests.runtime.running import GUARANTEES, Running
from tests.support import kafka

SETTINGS = {"processing.guarantee": "exactly_once", "commit.interval.ms": 100}
TASKS = 2


class Service:
    """A coordinator in a thread, which keeps its address after a restart."""

    def __init__(self, app_id):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.app_id = app_id
        self.term = 0
        self.port = 0
        self.coordinator = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def engine(self):
        return self.coordinator.application(self.app_id).engine

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def start(self, pinned=""):
        async def up():
            coordinator = CoordinatorServer()
            await coordinator.add(self.app_id, EngineOptions(pinned=pinned), None, self.term)
            await coordinator.start(port=self.port)
            return coordinator

        self.term += 1
        self.coordinator = self.call(up())
        self.port = self.coordinator.port

    def pin(self, pinned):
        self.loop.call_soon_threadsafe(self.coordinator.application(self.app_id).pin, pinned)

    def stop(self):
        if self.coordinator is not None:
            self.call(self.coordinator.stop())
            self.coordinator = None

    def close(self):
        self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Scene:
    """An application with two topologies, `counting` and `passing`, and its workers."""

    def __init__(self, servers, app_id, directory, create_topic):
        self.servers = servers
        self.app_id = app_id
        self.directory = directory
        self.source, self.target = create_topic("in", TASKS), create_topic("out", TASKS)
        self.service = Service(app_id)
        self.workers = {}
        partitions = {self.source: TASKS, self.target: TASKS}
        self.hashes = {
            each: summary(make_plan(each(self), partitions, app_id)).hash for each in (Scene.counting, Scene.passing)
        }

    def counting(self):
        builder = mp.StreamsBuilder()
        counts = builder.stream(self.source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
        counts.to_stream().map_values(lambda count: f"count:{count}").to(self.target, key=mp.String, value=mp.String)
        return builder.build()

    def passing(self):
        builder = mp.StreamsBuilder()
        builder.stream(self.source, key=mp.String, value=mp.String).to(self.target, key=mp.String, value=mp.String)
        return builder.build()

    def start(self, name, which, **settings):
        given = {**SETTINGS, "worker.id": name, "coordinator.url": self.service.url, **settings}
        given = {key: value for key, value in given.items() if value is not None}
        running = Running(which(self), self.servers, self.app_id, self.directory / f"state-{name}", given)
        self.workers[name] = running.start()
        return running

    def stop(self, *names):
        for name in names:
            self.workers.pop(name).stop()

    def produce(self, value):
        kafka.produce(self.servers, self.source, [(f"key-{each}", value, None, each) for each in range(TASKS)])

    def output(self):
        """Return the output by key, in order."""
        found = {}
        for row in kafka.read(self.servers, self.target):
            found.setdefault(row.key.decode(), []).append(row.value.decode())
        return found

    def puts_out(self, *values):
        wanted = {f"key-{each}": list(values) for each in range(TASKS)}
        kafka.eventually(lambda: self.output() == wanted, f"each key has {values}", 60)

    def offsets(self):
        return {each: offset for each, (offset, _) in self.committed().items()}

    def committed(self):
        return kafka.committed_offsets(self.servers, self.app_id, self.source)

    def topologies(self):
        return {decode_metadata(text).topology for _, text in self.committed().values()}

    def belongs_to(self, which):
        kafka.eventually(lambda: self.topologies() == {self.hashes[which]}, "all tasks are the topology's", 60)

    def runs(self, name):
        assembly = getattr(self.workers[name].worker._parts, "assembly", None)
        executor = None if assembly is None else assembly.executor
        return 0 if executor is None else len(executor.running)

    def holds(self, name):
        return list(self.workers[name].worker._parts.executor.held)

    def keeps_off(self, name):
        """A worker runs for a while, and neither holds tasks nor commits."""
        running, before = self.workers[name], self.committed()
        running.wait_running()
        for _ in range(100):
            running.worker.call(lambda: None).result(30)
            assert not self.holds(name)
        assert self.committed() == before

    def close(self):
        self.stop(*self.workers)
        self.service.close()


@pytest.fixture
def scene(broker, create_topic, app_id, tmp_path):
    made = Scene(broker.bootstrap_servers, app_id, tmp_path, create_topic)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_worker_refused_for_its_topology_touches_nothing(scene, guarantee):
    """It has the name of the last owner, which is not enough: the records wait for an admitted worker."""
    settings = {"processing.guarantee": guarantee}
    scene.service.start()
    scene.start("w0", Scene.counting, **settings)
    scene.produce("a")
    scene.puts_out("count:1")
    scene.stop("w0")
    scene.service.stop()
    scene.service.start(pinned=scene.hashes[Scene.counting])
    running = scene.start("w0", Scene.passing, **settings)
    running.wait(lambda: running.worker.rejection, "it is refused")
    scene.produce("b")
    scene.keeps_off("w0")
    scene.stop("w0")
    scene.start("w0", Scene.counting, **settings)
    scene.puts_out("count:1", "count:2")


def test_refused_worker_leaves_tasks_of_its_own_topology_alone(scene):
    """The application has to continue with the other topology: this worker does not even announce itself."""
    scene.service.start()
    scene.start("w0", Scene.counting)
    scene.produce("a")
    scene.puts_out("count:1")
    scene.stop("w0")
    before = scene.committed()
    scene.service.pin(scene.hashes[Scene.passing])
    running = scene.start("w0", Scene.counting)
    running.wait(lambda: running.worker.rejection, "it is refused")
    scene.produce("b")
    scene.keeps_off("w0")
    assert scene.committed() == before
    assert running.worker.metrics.records_processed == 0


@pytest.mark.long
def test_without_a_coordinator_only_the_same_topology_resumes(scene):
    """Another topology waits until it is admitted; from its first commit on, it is the one that may resume."""
    scene.service.start()
    scene.start("w0", Scene.counting)
    scene.produce("a")
    scene.puts_out("count:1")
    scene.stop("w0")
    scene.service.stop()
    scene.start("w0", Scene.counting)
    scene.produce("b")
    scene.puts_out("count:1", "count:2")
    scene.stop("w0")
    scene.start("w0", Scene.passing)
    scene.produce("c")
    scene.keeps_off("w0")
    assert scene.topologies() == {scene.hashes[Scene.counting]}
    scene.service.start()
    scene.puts_out("count:1", "count:2", "c")
    scene.belongs_to(Scene.passing)
    scene.stop("w0")
    scene.service.stop()
    scene.start("w0", Scene.counting)
    scene.produce("d")
    scene.keeps_off("w0")
    scene.stop("w0")
    scene.start("w0", Scene.passing)
    scene.puts_out("count:1", "count:2", "c", "d")


def test_suspended_application_continues_with_an_admitted_topology(scene):
    """All workers stop, the pin is changed, and they start again: every task changes, including idle ones."""
    counting, passing = scene.hashes[Scene.counting], scene.hashes[Scene.passing]
    scene.service.start(pinned=counting)
    for name in ("w0", "w1"):
        scene.start(name, Scene.counting)
    scene.produce("a")
    scene.puts_out("count:1")
    kafka.eventually(lambda: all(scene.runs(name) for name in scene.workers), "both have tasks")
    scene.stop("w0", "w1")
    for name in ("w0", "w1"):
        scene.start(name, Scene.passing)
    for name in ("w0", "w1"):
        scene.workers[name].wait(lambda name=name: scene.workers[name].worker.rejection, "it is refused")
        scene.keeps_off(name)
    scene.service.pin(passing)
    scene.belongs_to(Scene.passing)
    scene.produce("b")
    scene.puts_out("count:1", "b")


def test_workers_refused_after_admission_commit_and_let_go(scene):
    """Processed records are committed, and nothing else; they activate their tasks again when they are admitted."""
    scene.service.start()
    running = scene.start("w0", Scene.counting, **{"commit.interval.ms": 60_000, "transaction.timeout.ms": 60_000})
    running.wait(lambda: scene.runs("w0") == TASKS, "all tasks run")
    scene.produce("a")
    running.wait(lambda: running.worker.metrics.records_processed == TASKS, "all is processed")
    scene.service.pin("another")
    running.wait(lambda: running.worker.rejection and not scene.holds("w0"), "it lets go")
    scene.puts_out("count:1")
    assert set(scene.offsets().values()) == {1}
    scene.produce("b")
    scene.keeps_off("w0")
    scene.service.pin("")
    running.wait(lambda: scene.runs("w0") == TASKS, "all tasks run again")
    assert running.worker.rejection is None
    running.wait(lambda: running.worker.metrics.records_processed == 2 * TASKS, "all is processed")
    scene.stop("w0")
    scene.puts_out("count:1", "count:2")


def test_without_a_coordinator_a_topology_may_change(scene):
    """Without a coordinator, one worker runs everything, with the topology that it was started with."""
    alone = {"coordinator.url": None}
    scene.start("w0", Scene.counting, **alone)
    scene.produce("a")
    scene.puts_out("count:1")
    scene.stop("w0")
    scene.start("w0", Scene.passing, **alone)
    scene.produce("b")
    scene.puts_out("count:1", "b")
    scene.belongs_to(Scene.passing)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_new_partitions_of_an_input_without_state_are_read(scene, guarantee):
    """The restarted worker sees them first, the other one when it is told; no record is passed on twice."""
    settings = {"processing.guarantee": guarantee}
    scene.service.start(pinned=scene.hashes[Scene.passing])
    for name in ("w0", "w1"):
        scene.start(name, Scene.passing, **settings)
    kafka.eventually(lambda: all(scene.runs(name) for name in scene.workers), "both have tasks")
    admin = kafka.admin(scene.servers)  # a stopping worker ends its requests
    admin.create_partitions([NewPartitions(scene.source, 3 * TASKS)])[scene.source].result(60)
    scene.stop("w1")
    scene.start("w1", Scene.passing, **settings)
    kafka.eventually(lambda: sum(map(scene.runs, scene.workers)) == 3 * TASKS, "each partition has a task", 60)
    records = [(f"key-{each}", "new", None, each) for each in range(3 * TASKS)]
    kafka.produce(scene.servers, scene.source, records)
    wanted = {key: ["new"] for key, *_ in records}
    kafka.eventually(lambda: scene.output() == wanted, "each record is passed on once", 60)
    assert all(scene.workers[name].worker.rejection is None for name in scene.workers)
    assert all(scene.runs(name) for name in scene.workers)
