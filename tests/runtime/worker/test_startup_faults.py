"""Faults at the start: topics, the state directory, a broker that is not up yet."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import millpond as mp
from millpond.errors import BrokerError, StateDirectoryLocked, TopicError
from millpond.state import StateFile
from millpond.state.formats import partition_prefix
from tests.runtime.running import Running, config, failure_of
from tests.support import kafka
from tests.support.broker import free_port


def counting(source, target, store="counts"):
    """Counts by key into a changelogged store."""
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.String)
        .group_by_key()
        .count(store=store)
        .to_stream()
        .to(target, key=mp.String, value=mp.Long)
    )
    return builder.build()


def test_a_missing_source_topic_is_named_before_anything_is_made(broker, app_id, tmp_path):
    """The error names the topic and the cure; no internal topic is left behind."""
    error = failure_of(counting("no-such-topic", "no-such-topic"), broker.bootstrap_servers, app_id, tmp_path)
    assert isinstance(error, TopicError)
    assert "'no-such-topic' does not exist" in str(error)
    assert "create it" in str(error)
    assert not kafka.topic_names(broker.bootstrap_servers, prefix=app_id)


def test_topics_to_be_joined_with_different_counts_name_the_node(broker, create_topic, app_id, tmp_path):
    """The message names the topics, their partition counts, the node, and the cure."""
    left, right = create_topic("left", 3), create_topic("right", 2)
    builder = mp.StreamsBuilder()
    table = builder.table(right, key=mp.String, value=mp.String)
    stream = builder.stream(left, key=mp.String, value=mp.String)
    stream.join(table, lambda mine, theirs: mine + theirs).to(left, value=mp.String)
    error = failure_of(builder.build(), broker.bootstrap_servers, app_id, tmp_path)
    assert isinstance(error, TopicError)
    text = str(error)
    for part in (f"'{left}' has 3 partitions", f"'{right}' has 2", "KSTREAM-JOIN-", ".repartition(partitions=3)"):
        assert part in text


def test_an_internal_topic_with_the_wrong_count_is_refused(broker, create_topic, app_id, tmp_path):
    """A changelog with another partition count is neither used nor changed; the message names the cure."""
    source = create_topic("in", 2)
    changelog = f"{app_id}-counts-changelog"
    kafka.create_topic(broker.bootstrap_servers, changelog, 3)
    error = failure_of(counting(source, source), broker.bootstrap_servers, app_id, tmp_path)
    assert isinstance(error, TopicError)
    assert f"'{changelog}' has 3 partitions, but the topology needs 2" in str(error)
    assert "millpond reset" in str(error)


def test_a_missing_sink_topic_is_named(broker, create_topic, app_id, tmp_path):
    """The worker does not start, instead of holding records for a topic that never exists."""
    source = create_topic("in")
    kafka.produce(broker.bootstrap_servers, source, [("a", "1")])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to("nowhere-to-be-found")
    error = failure_of(builder.build(), broker.bootstrap_servers, app_id, tmp_path)
    assert "'nowhere-to-be-found'" in str(error)
    assert kafka.committed_offsets(broker.bootstrap_servers, app_id, source)[0][0] <= 0


def test_state_directory_of_another_process_is_not_touched(broker, create_topic, app_id, tmp_path, processes):
    """The error of the second worker names the process that uses the directory; the first worker continues."""
    source, target = create_topic("in"), create_topic("out")
    directory = config(broker.bootstrap_servers, app_id, tmp_path).directory
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(f"""
                from millpond.state import StateFile
                with StateFile({str(directory)!r}):
                    print("held", flush=True)
                    input()
            """),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": _worker_root()},
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "held\n"
        error = failure_of(counting(source, target), broker.bootstrap_servers, app_id, tmp_path)
        assert isinstance(error, StateDirectoryLocked)
        assert str(holder.pid) in str(error)
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.wait(60) == 0
    with Running(counting(source, target), broker.bootstrap_servers, app_id, tmp_path) as running:
        running.wait_running()


def _worker_root():
    return str(Path(mp.__file__).parent.parent)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_worker_waits_for_a_broker_at_the_start(own_brokers, tmp_path, app_id, caplog):
    """The worker logs that it waits, and starts with the broker; without one it ends after task.timeout.ms."""
    caplog.set_level(logging.WARNING, "millpond")
    with own_brokers(tmp_path / "broker", port=free_port()) as own:
        servers = own.bootstrap_servers
        kafka.create_topic(servers, "in")
        kafka.create_topic(servers, "out")
        own.stop()
        settings = {"task.timeout.ms": 100_000}  # a broker takes its time to start
        running = Running(counting("in", "out"), servers, app_id, tmp_path / "state", settings).start()
        running.wait(lambda: "no answer from Kafka" in caplog.text, "the worker says what it waits for")
        assert servers in caplog.text
        assert not running.ended
        own.start()
        kafka.produce(servers, "in", [("a", "1")])
        running.wait(lambda: kafka.read(servers, "out"), "the output is there", 90)
        running.stop()
        own.stop()
        error = failure_of(counting("in", "out"), servers, app_id, tmp_path / "state", {"task.timeout.ms": 1_500})
        assert isinstance(error, BrokerError)
        assert "bootstrap.servers" in str(error)


def test_stop_while_waiting_for_a_broker_ends_at_once(app_id, tmp_path, monkeypatch):
    """stop() works at once while a cluster does not answer, and is no error."""
    monkeypatch.setattr("millpond.runtime.kafka.admin._REQUEST_TIMEOUT_S", 0.2)
    running = Running(counting("in", "out"), "127.0.0.1:1", app_id, tmp_path, {"task.timeout.ms": 600_000}).start()
    running.wait(lambda: running.state.value == "starting", "the worker starts")
    running.stop(timeout_s=60)
    assert running.state.value == "not_running"


def test_committed_offset_beyond_the_topic_is_refused(broker, create_topic, app_id, tmp_path):
    """A source topic that lost records ends before the committed offset: an error, and nothing is changed."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, [("a", str(each)) for each in range(10)])
    with Running(counting(source, target), servers, app_id, tmp_path) as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 10, "everything is committed")
    metadata = kafka.committed_offsets(servers, app_id, source)[0][1]
    kafka.commit_offsets(servers, app_id, [TopicPartition(source, 0, 99, metadata)])
    error = failure_of(counting(source, target), servers, app_id, tmp_path)
    assert f"{source}-0" in str(error)
    assert "99" in str(error)
    assert "millpond reset" in str(error)


def test_records_deleted_by_retention_are_reported(broker, create_topic, app_id, tmp_path, caplog):
    """After retention deleted the committed position, the worker continues at the first record and logs the gap."""
    caplog.set_level(logging.ERROR, "millpond")
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, [("a", str(each)) for each in range(10)])
    with Running(counting(source, target), servers, app_id, tmp_path) as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 10, "all is committed")
    kafka.produce(servers, source, [("a", str(each)) for each in range(10)])
    _delete_before(servers, source, 15)
    with Running(counting(source, target), servers, app_id, tmp_path) as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 20, "all is committed")
    assert "records 10 to 14" in caplog.text
    rows = kafka.read(servers, target, settled=True)
    assert int.from_bytes(rows[-1].value, "big") == 15


def _delete_before(servers, topic, offset):
    client = kafka.admin(servers)
    for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


def _full_disk(path):
    """A small tmpfs at `path`, or skip with the reason."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")


def test_a_full_disk_stops_the_worker_and_loses_nothing(broker, create_topic, app_id, tmp_path, processes):
    """The error names the full disk; with more space the next start has every record, exactly once."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    small = tmp_path / "small"
    small.mkdir()
    kafka.produce(servers, source, [(f"{each:06d}" + "k" * 1_000, "v") for each in range(12_000)])
    _full_disk(small)
    settings = {"processing.guarantee": "exactly_once", "rocksdb.write.buffer.bytes": 1024 * 1024}
    try:
        error = failure_of(counting(source, target), servers, app_id, small, settings)
        assert "no space is left" in str(error)
        assert str(small) in str(error)
        subprocess.run(["mount", "-o", "remount,size=200m", str(small)], check=True)
        with Running(counting(source, target), servers, app_id, small, settings) as running:
            running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 12_000, "all is committed")
            running.wait_running()
        with StateFile(config(servers, app_id, small).directory) as state:
            rows = sum(1 for _ in state.range("counts", partition_prefix(0), partition_prefix(1)))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert rows == 12_000
    output = kafka.read(servers, target, settled=True)
    assert len(output) == 12_000
    assert {row.value for row in output} == {(1).to_bytes(8, "big")}
