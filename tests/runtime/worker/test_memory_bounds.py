"""What configuration bounds: caches, staged state, repartition topics, memory. Results never depend on the bounds."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from tests.runtime.running import Running, run_until
from tests.support import kafka


def _summing(source, target):
    builder = mp.StreamsBuilder()
    table = (
        builder.stream(source, key=mp.String, value=mp.Long)
        .group_by_key()
        .reduce(lambda total, value: total + value, store="sums")
    )
    table.to_stream().to(target, key=mp.String, value=mp.Long)
    return builder.build()


RECORDS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-5, 5)), max_size=60)


@given(records=RECORDS, cache=st.sampled_from([0, 1, 300, 10_000_000]))
def test_the_final_result_is_the_same_for_any_cache_size(records, cache):
    """Regrouped sums over sums: the last value of each key and every store equal a plain computation."""
    builder = mp.StreamsBuilder()
    sums = builder.stream("in", key=mp.String, value=mp.Long).group_by_key().reduce(
        lambda total, value: total + value, store="sums"
    )  # fmt: skip
    halves = sums.group_by(
        lambda key, value: ("even" if ord(key) % 2 == 0 else "odd", value), key=mp.String, value=mp.Long
    )
    halves = halves.reduce(lambda total, value: total + value, lambda total, value: total - value, store="halves")
    halves.to_stream().to("out", key=mp.String, value=mp.Long)
    with mp.testing.TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache}) as driver:
        source = driver.create_input_topic("in", key=mp.String, value=mp.Long)
        target = driver.create_output_topic("out", key=mp.String, value=mp.Long)
        for key, value in records:
            source.pipe_input(key, value)
        totals, regrouped = {}, {}
        for key, value in records:
            totals[key] = totals.get(key, 0) + value
        for key, value in totals.items():
            half = "even" if ord(key) % 2 == 0 else "odd"
            regrouped[half] = regrouped.get(half, 0) + value
        assert dict(target.read_key_values_to_list()) == regrouped
        store = driver.get_key_value_store("sums")
        assert dict(store.all()) == totals


@pytest.mark.parametrize("cache", [0, 2_000, 10_000_000])
def test_a_worker_gives_the_same_result_with_any_cache(broker, create_topic, app_id, tmp_path, cache):
    """On a broker: the last value per key is right, a cache only leaves out updates in between."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    records = [(f"k{each % 50}", each.to_bytes(8, "big")) for each in range(5_000)]
    kafka.produce(servers, source, records)
    truth = {}
    for key, value in records:
        truth[key.encode()] = truth.get(key.encode(), 0) + int.from_bytes(value, "big")
    settings = {"statestore.cache.max.bytes": cache, "processing.guarantee": "exactly_once"}
    rows = run_until(
        _summing(source, target), servers, app_id, tmp_path, target,
        lambda rows: {row.key: int.from_bytes(row.value, "big") for row in rows} == truth, settings,
    )  # fmt: skip
    assert (len(rows) == len(records)) == (cache == 0)


def test_much_uncommitted_state_makes_the_worker_commit_early(broker, create_topic, app_id, tmp_path):
    """With a commit interval of an hour, statestore.uncommitted.max.bytes alone moves the committed offset."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    kafka.produce(servers, source, [(f"key-{each:06d}", (1).to_bytes(8, "big")) for each in range(40_000)])
    settings = {"commit.interval.ms": "1h", "statestore.uncommitted.max.bytes": 300_000}
    with Running(_summing(source, target), servers, app_id, tmp_path, settings) as running:
        running.wait(
            lambda: kafka.committed_offsets(servers, app_id, source)[0][0] >= 30_000, "the worker commits early"
        )
        running.wait(lambda: len(running.listener.commits) >= 3, "the worker has noted several commits")


def test_processed_records_are_purged_from_repartition_topics(broker, create_topic, app_id, tmp_path):
    """The repartition topic's first offset moves on with the commits, and nothing of the result is missing."""
    from confluent_kafka import Consumer, TopicPartition

    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    kafka.produce(servers, source, [(f"k{each}", f"v{each % 3}") for each in range(3_000)])
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    counts = stream.group_by(lambda _key, value: value, key=mp.String, name="by-value").count(store="counts")
    counts.to_stream().to(target, key=mp.String, value=mp.Long)
    topic = f"{app_id}-by-value-repartition"
    settings = {"repartition.purge.interval.ms": 100, "processing.guarantee": "exactly_once"}
    reader = Consumer({"bootstrap.servers": servers, "group.id": "watermarks"}, logger=kafka.log)
    with Running(builder.build(), servers, app_id, tmp_path, settings) as running:
        running.wait_running()
        more = count(1)

        def purged():
            kafka.produce(servers, source, [(f"m{next(more)}", "v0")])  # purging goes along with commits
            return reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[0] >= 3_000

        running.wait(purged, "the topic begins where processing is")
        wanted = {b"v0": 1_000 + next(more) - 1, b"v1": 1_000, b"v2": 1_000}
        running.wait(
            lambda: {row.key: int.from_bytes(row.value, "big") for row in kafka.read(servers, target)} == wanted,
            "all is counted once",
        )
    reader.close()


MEASURED = """
    import sys, threading, time
    import millpond as mp
    from millpond.runtime.worker.memory.malloc import keep_few_arenas
    from millpond.runtime.states import WorkerState

    servers, app_id, directory, source, target, stop_at = sys.argv[1:7]
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.to_table(store="all").to_stream().map_values(len, value=mp.Json(int)).to(target)
    settings = dict(each.split("=", 1) for each in sys.argv[7:])
    config = mp.Config.of({
        "bootstrap.servers": servers, "application.id": app_id, "state.dir": directory, **settings,
    })
    keep_few_arenas()  # as `millpond run` does
    worker = mp.Worker(builder.build(), config)

    def figure(name):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))

    def watch():
        ready_since = None
        while True:
            time.sleep(0.05)
            if worker.state is WorkerState.RUNNING and worker.metrics.records_processed >= int(stop_at):
                ready_since = ready_since or time.monotonic()
                if time.monotonic() - ready_since > 1.0:
                    break
        print("resident", figure("VmRSS"), "peak", figure("VmHWM"), flush=True)
        worker.stop()

    threading.Thread(target=watch, daemon=True).start()
    worker.run()
"""


def _measure(servers, app_id, directory, source, target, stop_at, **settings):
    """Resident memory and its peak, KiB, of a worker in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(MEASURED), servers, app_id, str(directory), source, target]
    command += [str(stop_at), *(f"{name.replace('_', '.')}={value}" for name, value in settings.items())]
    environment = {**os.environ, "PYTHONPATH": str(Path(mp.__file__).parent.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    words = done.stdout.split()
    return int(words[1]), int(words[3])


def test_an_idle_worker_stays_under_100_mb(broker, create_topic, app_id, tmp_path, processes, figures):
    """A worker with a store and nothing to do, measured from outside its loop."""
    source, target = create_topic("in"), create_topic("out")
    resident, _ = _measure(broker.bootstrap_servers, app_id, tmp_path, source, target, 0)
    figures.note("resident memory of an idle worker", resident / 1024, "MB", wished=100)
    assert resident < 100 * 1024


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_large_input_and_state_stay_within_the_memory_limits(
    broker, create_topic, app_id, tmp_path, processes, figures
):
    """Some 480 MB of input become 480 MB of state; with small limits the whole process stays far below that."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    number, size = 250_000, 2_000
    value = os.urandom(size // 2).hex()
    kafka.produce(servers, source, ((f"key-{each:08d}", value) for each in range(number)), batch_size=900_000)
    limits = {
        "statestore_cache_max_bytes": 2 * 2**20,
        "statestore_uncommitted_max_bytes": 4 * 2**20,
        "rocksdb_block_cache_bytes": 8 * 2**20,
        "rocksdb_row_cache_bytes": 64 * 2**20,
        "rocksdb_write_buffer_bytes": 4 * 2**20,
        "consumer.queued.max.messages.kbytes": 8 * 2**10,
        "producer.queue.buffering.max.kbytes": 8 * 2**10,
        "commit_interval_ms": "9s",
        "processing_guarantee": "exactly_once",
    }
    resident, peak = _measure(servers, app_id, tmp_path, source, target, number, **limits)
    megabytes = number * size / 2**20
    figures.note(f"memory at the peak for {megabytes:.0f} MB of input and state", peak / 1024, "MB", wished=360)
    figures.note(f"memory after {megabytes:.0f} MB of input and state", resident / 1024, "MB")
    # 70 MB are the idle process; the rest are clients, RocksDB, and what waits for the next transaction.
    assert peak / 1024 < 360 < megabytes
