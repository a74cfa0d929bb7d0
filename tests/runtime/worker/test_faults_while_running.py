"""Faults while records flow: lost brokers, deleted topics, damaged state, and a stop at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import millpond as mp
from millpond.errors import BrokerError
from millpond.runtime.states import WorkerState
from tests.runtime.running import GUARANTEES, Running, config
from tests.support import kafka

#: Shorter than the commit interval, and longer than a busy machine takes for a commit.
SHUTDOWN_S = 50


def counting(source, target, store="counts"):
    """Counts by key, forwarding every update."""
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.String)
        .group_by_key()
        .count(store=store)
        .to_stream()
        .to(target, key=mp.String, value=mp.Long)
    )
    return builder.build()


def final(rows):
    """The last value of each key."""
    return {row.key.decode(): int.from_bytes(row.value, "big") for row in rows}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_broker_outage_costs_only_time(own_broker, tmp_path):
    """Killed with both guarantees running, it comes back: all records are counted, exactly once where promised."""
    servers = own_broker.bootstrap_servers
    keys = [f"k{each % 7}" for each in range(4_000)]
    runs = {}
    for guarantee in GUARANTEES:
        for topic in ("in", "out"):
            kafka.create_topic(servers, f"{topic}-{guarantee}")
        kafka.produce(servers, f"in-{guarantee}", [(key, "v") for key in keys[:2_000]])
        settings = {"processing.guarantee": guarantee, "statestore.cache.max.bytes": 0}
        topology = counting(f"in-{guarantee}", f"out-{guarantee}")
        runs[guarantee] = Running(topology, servers, f"away-{guarantee}", tmp_path / guarantee, settings).start()
    for guarantee, running in runs.items():
        running.wait(lambda g=guarantee: kafka.read(servers, f"out-{g}"), "some output")
    own_broker.kill()
    own_broker.start()
    for guarantee in GUARANTEES:
        kafka.produce(servers, f"in-{guarantee}", [(key, "v") for key in keys[2_000:]])
    for guarantee, running in runs.items():
        running.wait(
            lambda g=guarantee: kafka.committed_offsets(servers, f"away-{g}", f"in-{g}")[0][0] == len(keys),
            f"{guarantee}: all is committed", 60,
        )  # fmt: skip
        running.stop()
    truth = Counter(keys)
    exactly = kafka.read(servers, "out-exactly_once", settled=True)
    assert len(exactly) == len(keys)
    assert final(exactly) == truth
    seen = Counter()
    for row in exactly:
        seen[row.key.decode()] += 1
        assert int.from_bytes(row.value, "big") == seen[row.key.decode()]
    at_least = final(kafka.read(servers, "out-at_least_once"))
    assert all(at_least[key] >= truth[key] for key in truth)


def test_a_source_topic_deleted_under_a_running_worker_is_named(broker, create_topic, app_id, tmp_path):
    """The worker does not wait in silence: it ends with the topic's name."""
    servers = broker.bootstrap_servers
    source, target = f"{app_id}-doomed", create_topic("out")
    kafka.create_topic(servers, source)
    kafka.produce(servers, source, [("a", "1")])
    settings = {
        "consumer.topic.metadata.refresh.interval.ms": 500,
        "consumer.topic.metadata.propagation.max.ms": 1_000,
    }
    running = Running(counting(source, target), servers, app_id, tmp_path, settings).start()
    running.wait(lambda: kafka.read(servers, target), "the output is there")
    kafka.delete_topics(servers, [source])
    error = running.join()
    assert isinstance(error, BrokerError)
    assert source in str(error)
    assert "deleted" in str(error)


@pytest.mark.parametrize("damaged", ["*.sst", "MANIFEST-*"], ids=["sst", "manifest"])
def test_corrupted_state_file_is_rebuilt_from_the_changelog(broker, create_topic, app_id, tmp_path, damaged, caplog):
    """The next start reports the corruption, restores the store, and continues with the right counts."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    keys = [f"k{each}" for each in range(500)]
    kafka.produce(servers, source, [(key, "v") for key in keys])
    settings = {"processing.guarantee": "exactly_once"}
    topology = counting(source, target)

    def committed(offset):
        return lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == offset

    for _ in range(2):  # the second start writes the log of the first into an SST file
        with Running(topology, servers, app_id, tmp_path, settings) as running:
            running.wait(committed(len(keys)), "all is committed")
            running.wait_running()
    files = [each for each in config(servers, app_id, tmp_path).directory.rglob(damaged) if each.stat().st_size]
    assert files, f"the state has files {damaged}"
    for file in files:
        data = bytearray(file.read_bytes())
        for at in range(0, len(data), 16):
            data[at] ^= 0xFF
        file.write_bytes(data)
    kafka.produce(servers, source, [(key, "v") for key in keys])
    with Running(topology, servers, app_id, tmp_path, settings) as running:
        running.wait(committed(2 * len(keys)), "all is committed")
    assert final(kafka.read(servers, target, settled=True)) == dict.fromkeys(keys, 2)
    said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR" and "changelog" in each.msg]
    assert said, caplog.text
    restored = [each for each in running.listener.restoring if each[0] == "counts"]
    assert restored[0][3] >= len(keys)


def test_a_stop_during_restore_ends_quickly_and_keeps_the_progress(broker, create_topic, app_id, tmp_path):
    """Records that were restored before the stop are not read again by the next start."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    keys = [f"k{each:06d}" for each in range(60_000)]
    kafka.produce(servers, source, [(key, "v" * 100) for key in keys])
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).to_table(store="all").to_stream().to(target)
    topology = builder.build()
    with Running(topology, servers, app_id, tmp_path / "first") as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == len(keys), "all is committed")

    interrupted = Running(topology, servers, app_id, tmp_path / "second")
    interrupted.listener.on_restore = lambda: (
        interrupted.worker.stop() if interrupted.listener.restoring[-1][2] > 0 else None
    )
    interrupted.start()
    interrupted.wait(lambda: interrupted.ended or interrupted.listener.restoring, "restoring")
    assert interrupted.join() is None
    assert interrupted.state is WorkerState.NOT_RUNNING
    stopped_at = next(at for at, (_, _, done, _) in enumerate(interrupted.listener.restoring) if done > 0)
    assert len(interrupted.listener.restoring) - stopped_at <= 2, "it read on after the stop"
    done, total = interrupted.listener.restoring[-1][2:]
    assert 0 < done < total, "the stop came in the middle"

    with Running(topology, servers, app_id, tmp_path / "second") as again:
        again.wait_running()
    first = again.listener.restoring[0]
    assert first[3] <= total - done, "the second start has only the rest to do"


def test_sigterm_commits_what_was_processed_within_the_deadline(broker, create_topic, app_id, tmp_path, processes):
    """The process ends with code 0 in time; every record it processed is committed, so nothing is processed twice."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    kafka.produce(servers, source, [(f"k{each % 5}", "v") for each in range(1_000)])
    (tmp_path / "application.py").write_text(
        "import millpond as mp\n"
        "builder = mp.StreamsBuilder()\n"
        f"builder.stream({source!r}, key=mp.String, value=mp.String).to({target!r})\n"
        "topology = builder.build()\n"
    )
    flags = {"application-id": app_id, "bootstrap-servers": servers, "state-dir": tmp_path}
    command = [sys.executable, "-m", "millpond.cli", "run", "application:topology"]
    command += [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    command += [
        "--set",
        "commit.interval.ms=10m",
        "--set",
        f"shutdown.timeout.ms={SHUTDOWN_S}s",
        "--set",
        "http.port=-1",
    ]
    root = str(Path(mp.__file__).parent.parent)
    process = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        kafka.read_until(servers, target, 1_000, timeout_s=40)
        assert kafka.committed_offsets(servers, app_id, source)[0][0] < 1_000
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=2 * SHUTDOWN_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode == 0, output.decode()
    assert kafka.committed_offsets(servers, app_id, source)[0][0] == 1_000
