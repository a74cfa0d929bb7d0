"""A program reads the stores and tasks of a worker in its own process."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import SerializationError, TopologyError, WorkerStateError
from millpond.queries.failures import FailureReason, QueryFailed
from tests.runtime.running import config
from tests.support import kafka

SOON = timedelta(seconds=40)
HOUR = 3_600_000


def counting(source: str) -> mp.Topology:
    """Counts of each key: on disk, in memory, and in windows of an hour; and a store without timestamps."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream(source, key=mp.String, value=mp.String).group_by_key()
    grouped.count(store="counts")
    grouped.count(store="fast", persistent=False)
    grouped.windowed_by(mp.TimeWindows(timedelta(hours=1))).count(store="hours")
    grouped.windowed_by(mp.SessionWindows(timedelta(minutes=1))).count(store="visits")

    class Last(mp.Processor[str, str, None, None]):
        stores = (
            mp.KeyValueStoreBuilder(name="last", key=mp.String, value=mp.String),
            mp.VersionedKeyValueStoreBuilder(name="past", key=mp.String, value=mp.String, history_retention_ms=HOUR),
        )

        def init(self, context: Any) -> None:
            self.last = context.get_state_store("last", mp.KeyValueStore[str, str])
            self.past = context.get_state_store("past", mp.VersionedKeyValueStore[str, str])

        def process(self, record: mp.Record[str, str]) -> None:
            self.last.put(record.key, record.value)
            self.past.put(record.key, "early", record.timestamp - 5)
            self.past.put(record.key, record.value, record.timestamp)

    builder.stream(source, key=mp.String, value=mp.String).process(Last)
    return builder.build()


def test_a_program_reads_all_partitions_of_its_worker(broker, create_topic, app_id, tmp_path):
    """Points, ranges and windows of stores on disk and in memory have the committed rows of all local partitions."""
    source = create_topic("in", partitions=2)
    servers = broker.bootstrap_servers
    keys = [f"k{number}" for number in range(6)]
    kafka.produce(servers, source, [(key, key.upper(), HOUR) for key in keys] * 2)
    worker = mp.Worker(counting(source), config(servers, app_id, tmp_path))
    with pytest.raises(WorkerStateError, match="which is created: stores can be read while it runs"):
        worker.store("counts", mp.KeyValueStore)
    assert worker.metadata_for_local_threads() == ()
    with worker:
        assert worker.wait_for(mp.WorkerState.RUNNING, SOON)
        counts = worker.store("counts", mp.KeyValueStore[str, int])
        kafka.eventually(lambda: dict(counts.all()) == dict.fromkeys(keys, 2), "all is committed")
        assert [counts.get(key) for key in ("k0", "k5", "nobody")] == [2, 2, None]
        assert [key for key, _ in counts.range("k1", "k3")] == ["k1", "k2", "k3"]
        assert [key for key, _ in counts.reverse_range("k1", "k3")] == ["k3", "k2", "k1"]
        assert [key for key, _ in counts.reverse_all()] == keys[::-1]
        assert [key for key, _ in counts.prefix_scan(b"k4")] == ["k4"]
        assert counts.approximate_num_entries() == 6
        stamped = worker.store("counts", mp.TimestampedKeyValueStore[str, int])
        assert stamped.get("k2") == mp.ValueAndTimestamp(2, HOUR)
        assert dict(worker.store("fast", mp.KeyValueStore[str, int]).all()) == dict.fromkeys(keys, 2)
        assert worker.store("last", mp.KeyValueStore[str, str], committed=False).get("k3") == "K3"
        hours = worker.store("hours", mp.WindowStore[str, int])
        assert hours.fetch("k1", HOUR) == 2
        assert hours.fetch("k1", 0) is None
        assert list(hours.fetch("k1", 0, 5 * HOUR)) == list(hours.backward_fetch("k1", 0, 5 * HOUR)) == [(HOUR, 2)]
        assert {window.key for window, _ in hours.all()} == set(keys)
        assert [window.key for window, _ in hours.fetch_range("k1", "k2", 0, HOUR)] == ["k1", "k2"]
        visits = worker.store("visits", mp.SessionStore[str, int])
        assert visits.fetch_session("k1", HOUR, HOUR) == 2
        assert list(visits.fetch("k1")) == list(visits.backward_fetch("k1")) == [(mp.Windowed("k1", HOUR, HOUR), 2)]
        assert [window.key for window, _ in visits.fetch_range("k1", "k2")] == ["k1", "k2"]
        assert list(visits.find_sessions("k1", HOUR + 1, HOUR + 9)) == []
        past = worker.store("past", mp.VersionedKeyValueStore[str, str])
        early, late = mp.VersionedRecord("early", HOUR - 5, HOUR), mp.VersionedRecord("K1", HOUR)
        assert (past.get("k1"), past.get("k1", HOUR - 1), past.get("nobody")) == (late, early, None)
        assert list(past.versions("k1")) == [early, late]
        assert list(past.versions("k1", descending=True)) == [late, early]
        first, second = (worker.store("counts", mp.KeyValueStore[str, int], partition=each) for each in (0, 1))
        parts = [{key for key, _ in each.all()} for each in (first, second)]
        assert parts[0] | parts[1] == set(keys)
        assert not parts[0] & parts[1]
        _errors(worker)
        _tasks(worker, source)
    with pytest.raises(WorkerStateError, match="which is not_running"):
        worker.store("counts", mp.KeyValueStore)
    assert worker.all_local_store_partition_lags() == {}


def _errors(worker: mp.Worker) -> None:
    """What cannot be read says why."""
    for store, kind, options, reason in (
        ("nothing", mp.KeyValueStore, {}, FailureReason.DOES_NOT_EXIST),
        ("counts", mp.WindowStore, {}, FailureReason.UNKNOWN_QUERY_TYPE),
        ("last", mp.TimestampedKeyValueStore, {}, FailureReason.UNKNOWN_QUERY_TYPE),
        ("counts", mp.KeyValueStore, {"partition": 2}, FailureReason.DOES_NOT_EXIST),
    ):
        with pytest.raises(QueryFailed) as raised:
            worker.store(store, kind, **options)
        assert raised.value.reason is reason
    with pytest.raises(TopologyError, match="needs the kind of store 'counts' as one of"):
        worker.store("counts", dict)
    with pytest.raises(SerializationError, match="a key of store 'counts' is String"):
        worker.store("counts", mp.KeyValueStore).get(3)
    with pytest.raises(WorkerStateError, match="in the thread of worker 'w0' itself"):
        worker.call(lambda: worker.store("counts", mp.KeyValueStore)).result(60)


def _tasks(worker: mp.Worker, source: str) -> None:
    """Tasks, offsets and lags are those of the worker."""
    (thread,) = worker.metadata_for_local_threads()
    assert (thread.thread_name, thread.thread_state) == ("w0", mp.WorkerState.RUNNING)
    assert thread.standby_tasks == ()
    assert [str(task.task_id) for task in thread.active_tasks] == ["0_0", "0_1"]
    assert [task.topic_partitions for task in thread.active_tasks] == [{(source, 0)}, {(source, 1)}]
    assert sum(sum(task.committed_offsets.values()) for task in thread.active_tasks) >= 12
    assert {task.role for task in thread.active_tasks} == {"active"}
    lags = worker.all_local_store_partition_lags()
    assert lags.keys() == {"counts", "fast", "hours", "last", "past", "visits"}
    assert {lag.offset_lag for store in lags.values() for lag in store.values()} == {0}
    assert all(lag.current_offset_position == lag.end_offset_position for lag in lags["counts"].values())


def test_a_store_that_is_restored_is_read_only_on_request(broker, create_topic, app_id, tmp_path):
    """A paused worker does not restore: its rows on disk can be read with stale=True alone."""
    source = create_topic("in")
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, [("a", "x"), ("a", "y")])
    with mp.Worker(counting(source), config(servers, app_id, tmp_path)) as worker:
        assert worker.wait_for(mp.WorkerState.RUNNING, SOON)
        counts = worker.store("counts", mp.KeyValueStore[str, int])
        kafka.eventually(lambda: counts.get("a") == 2, "all is committed")
    restoring = threading.Event()

    class Held(mp.WorkerListener):
        def restore_started(self, store: str, partition: int, start: int, end: int) -> None:
            if store == "fast" and end > start:
                restoring.set()

    worker = mp.Worker(counting(source), config(servers, app_id, tmp_path), Held())
    worker.pause()
    with worker:
        assert restoring.wait(40)
        worker.call(lambda: None).result(60)  # the turn that opened the stores is over
        with pytest.raises(QueryFailed, match=r"as active \(restoring\)"):
            worker.store("counts", mp.KeyValueStore[str, int])
        stale = worker.store("counts", mp.KeyValueStore[str, int], stale=True)
        kafka.eventually(lambda: stale.get("a") == 2, "the rows on disk are read")
        lag = worker.all_local_store_partition_lags()["fast"][0]
        assert lag.offset_lag == lag.end_offset_position - lag.current_offset_position > 0
        worker.resume()
        assert worker.wait_for(mp.WorkerState.RUNNING, SOON)
