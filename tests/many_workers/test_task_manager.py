"""Sequences of events after which workers once stopped processing, went back, or missed an event."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import millpond as mp
import millpond.runtime.ownership.takeover as claims_module
import millpond.runtime.worker.commit_scheduler as committer_module
from millpond.errors import StateCorrupted
from millpond.protocol import Role, TaskState
from millpond.runtime.commit.pipeline import CommitFailed, TransactionCommitter
from millpond.runtime.offsets.metadata import decode_metadata
from millpond.runtime.tasks.task_stores import TaskStores
from tests.many_workers.fleet import Fleet
from tests.runtime.running import GUARANTEES, Running
from tests.support import kafka

pytestmark = pytest.mark.usefixtures("processes")

SETTINGS = {"processing.guarantee": "exactly_once", "commit.interval.ms": 100}
STANDBY = {"standby-replicas": 1}
#: The timeout of a lookup; a loop that waits for it would miss the expected times.
ASKED_S, EXPECTED_S = 90.0, 45.0


def counting(source, target):
    """Return a function that makes topologies that count records by key."""

    def topology():
        builder = mp.StreamsBuilder()
        counts = builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
        counts.to_stream().to(target, key=mp.String, value=mp.Long)
        return builder.build()

    return topology


def newest(servers, topic):
    """Return the newest count of each key."""
    return {row.key.decode(): int.from_bytes(row.value, "big") for row in kafka.read(servers, topic)}


def one_each(partitions):
    """Return one record for each partition."""
    return [(f"key-{number}", "value", None, number) for number in range(partitions)]


def copies(fleet):
    """Return all standbys of the workers, in any state."""
    return [
        held
        for running in fleet.workers.values()
        for held in list(running.worker._parts.executor.held.values())
        if held.role is not Role.ACTIVE
    ]


def ends_of(servers, changelog):
    """Return the ends of a changelog whose transactions are over: their markers come later than their output."""
    kafka.settle(servers, changelog)
    return kafka.end_offsets(servers, changelog)


def wait_copied(fleet, tasks, ends):
    """Wait until so many tasks have a standby, and each has read its changelog to the end."""

    def copied():
        held = copies(fleet)
        return len(held) == tasks and all(
            each.changelogs and each.changelogs[0].position >= ends[each.id.partition] for each in held
        )

    fleet.wait(copied, f"{tasks} copies are at {ends}")


def recoveries(fleet):
    """Return how often workers went back to the last commit."""
    return {name: running.worker.metrics.recoveries for name, running in fleet.workers.items()}


def test_tasks_with_deleted_offsets_are_claimed_again(broker, create_topic, app_id, tmp_path):
    """Kafka lost the owners that the coordinator knows: the tasks have no owner, and are assigned anew."""
    source, target = create_topic("in", 2), create_topic("out", 2)
    servers = broker.bootstrap_servers
    with Fleet(counting(source, target), servers, app_id, tmp_path, SETTINGS) as fleet:
        fleet.start("w0")
        fleet.wait_shared(2)
        fleet.stop("w0")
        client = kafka.admin(servers)
        client.delete_consumer_groups([app_id])[app_id].result(60)
        fleet.start("w0")
        fleet.wait_shared(2)


def test_idle_task_is_refreshed_beside_a_busy_one(broker, create_topic, app_id, tmp_path, monkeypatch):
    """Offsets of an idle task are committed from time to time, while another task commits at every interval."""
    monkeypatch.setattr(committer_module, "_REFRESH_S", 0.5)
    source, target = create_topic("in", 2), create_topic("out", 2)
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0}, logger=kafka.log)
    with Running(counting(source, target)(), servers, app_id, tmp_path, SETTINGS) as running:
        running.wait_running()

        def both_committed():
            producer.produce(source, key="busy", value="value", partition=0)
            producer.poll(0)
            return any(stats.partitions == 2 for stats in running.listener.commits)

        running.wait(both_committed, "the idle task is committed with the busy one")
        producer.flush(30)


def test_copy_older_than_its_changelog_is_rebuilt(broker, create_topic, app_id, tmp_path):
    """Retention deleted the standby's next records: it starts at the changelog's beginning, and no worker goes back."""
    source, target = create_topic("in", 2), create_topic("out", 2)
    servers = broker.bootstrap_servers
    changelog = f"{app_id}-counts-changelog"

    def topology():
        builder = mp.StreamsBuilder()
        grouped = builder.stream(source, key=mp.String, value=mp.String).group_by_key()
        counts = grouped.windowed_by(mp.TimeWindows(timedelta(seconds=10))).count(store="counts")
        counts.to_stream().map(lambda window, count: (window.key, count)).to(target, key=mp.String, value=mp.Long)
        return builder.build()

    with Fleet(topology, servers, app_id, tmp_path, SETTINGS, STANDBY) as fleet:
        fleet.start("w0")
        fleet.wait_shared(2)
        kafka.produce(servers, source, one_each(2))
        kafka.read_until(servers, target, 2)
        ends = ends_of(servers, changelog)
        gone = [TopicPartition(changelog, number, end) for number, end in ends.items()]
        client = kafka.admin(servers)
        for deleted in client.delete_records(gone).values():
            deleted.result(60)
        fleet.start("w1")
        fleet.wait_shared(2)
        kafka.produce(servers, source, one_each(2))
        kafka.read_until(servers, target, 4)
        wait_copied(fleet, 2, ends_of(servers, changelog))
        assert recoveries(fleet) == {"w0": 0, "w1": 0}


def test_promoted_table_copy_has_all_processed_records(broker, create_topic, app_id, tmp_path):
    """A store with its input as changelog has all processed records when its standby is promoted."""
    source, target = create_topic("in", 1, cleanup_policy="compact"), create_topic("out", 1)
    servers = broker.bootstrap_servers

    class Rows(mp.Processor):
        def init(self, context):
            self.context, self.store = context, context.get_state_store("rows")

        def process(self, record):
            self.store.put(record.key, record.value)
            self.context.forward(record.with_value(sum(1 for _ in self.store.all())))

    def topology():
        made = mp.Topology()
        made.add_source("source", source, key=mp.String, value=mp.String)
        made.add_processor("rows", Rows, "source")
        store = mp.KeyValueStoreBuilder(name="rows", key=mp.String, value=mp.String, source_topic=source, logging=False)
        made.add_state_store(store, "rows")
        made.add_sink("sink", target, "rows", key=mp.String, value=mp.Long)
        return made

    with Fleet(topology, servers, app_id, tmp_path, SETTINGS, STANDBY) as fleet:
        fleet.start("w0", "w1")
        fleet.wait(lambda: sorted(map(len, fleet.active().values())) == [0, 1], "the task runs")
        fleet.wait(lambda: sum(map(len, fleet.copies().values())) == 1, "it has a copy")
        kafka.produce(servers, source, [(f"key-{number}", "value") for number in range(10)])
        kafka.read_until(servers, target, 10)
        fleet.wait(lambda: [each.changelogs[0].seen_end for each in copies(fleet)] == [10], "the copy saw the end")
        owner = next(name for name, tasks in fleet.active().items() if tasks)
        fleet.stop(owner)
        kafka.produce(servers, source, [("last", "value")])
        rows = kafka.read_until(servers, target, 11)
    assert int.from_bytes(rows[-1].value, "big") == 11


def test_handed_over_task_is_not_looked_up_again(broker, create_topic, app_id, tmp_path, caplog):
    """Assignments from before a hand-over do not make the previous owner look up a task that it handed over."""
    source, target = create_topic("in", 2), create_topic("out", 2)
    caplog.set_level(logging.INFO, "millpond")
    with Fleet(counting(source, target), broker.bootstrap_servers, app_id, tmp_path, SETTINGS) as fleet:
        fleet.start("w0")
        fleet.wait_shared(2)
        fleet.start("w1")
        fleet.wait_shared(2)
        fleet.wait(lambda: not copies(fleet), "the rest of the task is dropped")
        said = [record.getMessage() for record in caplog.records]
    assert sum("over to w1" in line for line in said) == 1
    assert not [line for line in said if "is worker w1's" in line]


def test_loop_continues_while_a_lookup_waits(broker, create_topic, app_id, tmp_path, monkeypatch):
    """An open transaction blocks a task's input: the worker waits for it, and runs its other tasks meanwhile."""
    source, target = create_topic("in", 2), create_topic("out", 2)
    servers = broker.bootstrap_servers
    with Fleet(counting(source, target), servers, app_id, tmp_path, SETTINGS, STANDBY) as fleet:
        fleet.start("w0", "w1")
        fleet.wait_shared(2)
        fleet.wait(lambda: sum(map(len, fleet.copies().values())) == 2, "both tasks have copies")
        task = next(iter(fleet.workers["w1"].worker._parts.executor.tasks))
        # Like a worker that stopped between its offsets and its commit, but with another id: w1 continues.
        group = Consumer({"bootstrap.servers": servers, "group.id": app_id}, logger=kafka.log)
        hung = Producer({"bootstrap.servers": servers, "transactional.id": f"{app_id}-hung"}, logger=kafka.log)
        hung.init_transactions(30)
        hung.begin_transaction()
        hung.send_offsets_to_transaction(
            [TopicPartition(source, task.partition, 0)], group.consumer_group_metadata(), 30
        )
        group.close()
        monkeypatch.setattr(claims_module, "_REQUEST_TIMEOUT_S", ASKED_S)
        fleet.coordinator.post("w1", "drain")
        worker = fleet.workers["w0"].worker
        taken_up = lambda: worker._parts.executor.held[task].role is Role.ACTIVE
        fleet.wait(taken_up, "w0 takes the task up")
        for count in range(1, 4):
            kafka.produce(servers, source, one_each(2))
            other = {f"key-{1 - task.partition}": count}
            fleet.wait(lambda other=other: newest(servers, target) == other, "its other task goes on", EXPECTED_S)
            assert worker._parts.executor.held[task].state is TaskState.ACQUIRING
        hung.abort_transaction(30)
        fleet.wait(lambda: newest(servers, target) == {"key-0": 3, "key-1": 3}, "its task goes on, too")


def test_copies_follow_after_one_store_was_corrupted(broker, create_topic, app_id, tmp_path, monkeypatch):
    """One of several standbys cannot be opened: all are activated again, and each reads its changelog once."""
    source, target = create_topic("in", 4), create_topic("out", 4)
    servers = broker.bootstrap_servers
    opened, copied = TaskStores.open, []

    def once_corrupted(self, held, where, *, topology, following):
        if following and "state-w1" in str(self._state_file.path):
            copied.append(held.id)
            if len(copied) == 2:  # another standby of the same assignment is open by then
                raise StateCorrupted("a block is broken.", "counts")
        return opened(self, held, where, topology=topology, following=following)

    monkeypatch.setattr(TaskStores, "open", once_corrupted)
    with Fleet(counting(source, target), servers, app_id, tmp_path, SETTINGS, STANDBY) as fleet:
        fleet.start("w0")
        fleet.wait_shared(4)
        kafka.produce(servers, source, one_each(4))
        kafka.read_until(servers, target, 4)
        fleet.start("w1")
        fleet.wait_shared(4)
        kafka.produce(servers, source, one_each(4))
        kafka.read_until(servers, target, 8)
        wait_copied(fleet, 4, ends_of(servers, f"{app_id}-counts-changelog"))
        assert recoveries(fleet) == {"w0": 0, "w1": 0}
    assert len(copied) > 2


def test_a_processor_sees_its_restored_store_when_it_is_initialised(broker, create_topic, app_id, tmp_path):
    """`init()` sees the content of the changelog in a store."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers

    class Seen(mp.Processor):
        def init(self, context):
            self.context, self.store = context, context.get_state_store("rows")
            self.seen = sum(1 for _ in self.store.all())

        def process(self, record):
            self.store.put(record.key, record.value)
            self.context.forward(record.with_value(self.seen))

    topology = mp.Topology()
    topology.add_source("source", source, key=mp.String, value=mp.String)
    topology.add_processor("seen", Seen, "source")
    topology.add_state_store(mp.KeyValueStoreBuilder(name="rows", key=mp.String, value=mp.String), "seen")
    topology.add_sink("sink", target, "seen", key=mp.String, value=mp.Long)
    for start, keys in enumerate(("abc", "d"), 1):
        kafka.produce(servers, source, [(key, "value") for key in keys])
        with Running(topology, servers, app_id, tmp_path / str(start), SETTINGS):
            rows = kafka.read_until(servers, target, 2 + start)
    assert [int.from_bytes(row.value, "big") for row in rows] == [0, 0, 0, 3]


def test_a_worker_that_leaves_hands_over_though_a_commit_fails(broker, create_topic, app_id, tmp_path, monkeypatch):
    """The commit of a hand-over fails: the worker goes back to the last commit, and still hands over."""
    source, target = create_topic("in", 2), create_topic("out", 2)
    servers = broker.bootstrap_servers
    start, failed = TransactionCommitter.start, []
    with Fleet(counting(source, target), servers, app_id, tmp_path, SETTINGS) as fleet:
        fleet.start("w0", "w1")
        fleet.wait_shared(2)
        (task,) = fleet.workers["w1"].worker._parts.executor.tasks
        leaving = fleet.workers.pop("w1")

        def once_refused(self, offsets, expected):
            if leaving.worker._parts.offset_sink is self and leaving.worker._parts.stop.is_set() and not failed:
                failed.append(offsets)
                self._answers.put(CommitFailed("the broker went away for a moment"))
            else:
                start(self, offsets, expected)

        monkeypatch.setattr(TransactionCommitter, "start", once_refused)
        monkeypatch.setattr(claims_module, "_FIRST_INIT", timedelta(milliseconds=1))  # the broker answers late
        leaving.stop()
        assert failed
        _, metadata = kafka.committed_offsets(servers, app_id, source)[task.partition]
        assert decode_metadata(metadata).owner == "w0"
        fleet.wait_shared(2)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_sleeping_worker_lets_go_of_a_task_taken_over(broker, create_topic, app_id, tmp_path, guarantee):
    """A worker that was declared dead continues with nothing to commit: it looks up the task's new owner."""
    source, target = create_topic("in", 2), create_topic("out", 2)
    servers = broker.bootstrap_servers
    settings = {**SETTINGS, "processing.guarantee": guarantee}
    awake = threading.Event()
    with Fleet(counting(source, target), servers, app_id, tmp_path, settings) as fleet:
        fleet.start("w0", "w1")
        try:
            fleet.wait_shared(2)
            fleet.workers["w1"].worker.call(awake.wait)
            fleet.coordinator.post("w1", "drain")  # it is assigned no task that it did not close
            fleet.coordinator.post("w1", "gone")
            fleet.wait(lambda: len(fleet.active()["w0"]) == 2, "w0 takes the task over")
            assert len(fleet.active()["w1"]) == 1
        finally:
            awake.set()
        fleet.wait(lambda: not fleet.active()["w1"], "w1 lets go of the task")
        kafka.produce(servers, source, one_each(2))
        kafka.read_until(servers, target, 2)
        assert newest(servers, target) == {"key-0": 1, "key-1": 1}
        assert list(map(len, fleet.active().values())) == [2, 0]
