"""`/metrics`, `/healthz` and `/readyz` of a worker, and offset metadata of other programs."""

from __future__ import annotations

import base64
import struct
import urllib.error
import urllib.request

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

import millpond as mp
from millpond.runtime.http.metric_families import HELD, INPUT_LAGS, INPUTS, LOAD, RESTORATIONS, ROCKSDB, STORES, TASKS
from millpond.runtime.http.metrics import COMMIT_FAILURES
from millpond.runtime.offsets.metadata import OffsetMetadata, decode_metadata, encode_metadata
from tests.runtime.running import Running
from tests.support import kafka

#: Metrics that a key-value store without caching does not have.
OF_OTHER_STORES = {
    "millpond_store_record_cache_bytes",
    "millpond_store_expired_records",
    "millpond_store_restored_incomplete",
    "millpond_store_suppressed_records",
    "millpond_store_suppressed_bytes",
}


def _get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _caught_up(worker):
    load = worker._parts.load.latest
    return load.processed == 100 and [each.lag for each in load.tasks["0_0"].inputs.values()] == [0]


def _samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_a_running_worker_add_up(broker, create_topic, app_id, tmp_path):
    """Metrics of worker, task, processor, store, commit and restore exist, in base units, and are correct."""
    servers = broker.bootstrap_servers
    source, target = create_topic("in"), create_topic("out")
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts").to_stream().to(target, key=mp.String, value=mp.Long)
    topology = builder.build()
    settings = {"http.port": 0, "deserialization.exception.handler": "continue", "statestore.cache.max.bytes": 0}
    good = [(f"k{each % 10}", "v") for each in range(100)]
    kafka.produce(servers, source, [*good, (b"\xff\xfe", b"not utf-8")])
    with Running(topology, servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 101, "all is committed")
        running.wait(lambda: running.listener.commits, "the worker has noted a commit")
        port = running.worker.metrics.port
        assert _get(port, "/healthz") == (200, "running\n")
        assert _get(port, "/readyz") == (200, "running\n")
        assert _get(port, "/elsewhere")[0] == 404
        running.wait(lambda: _caught_up(running.worker), "the load is measured after the last record")
        status, text = _get(port, "/metrics")
    assert status == 200
    samples = _samples(text)

    def value(name, **labels):
        everything = {"application_id": app_id, "worker": "w0", **labels}
        return samples[(name, *sorted(everything.items()))]

    assert value("millpond_worker_state", state="running") == 1
    assert value("millpond_worker_state", state="error") == 0
    assert value("millpond_worker_processed_records_total") == 100
    assert value("millpond_worker_produced_records_total") >= 110
    assert 0 < value("millpond_worker_process_seconds_total") < 60
    busy = value("millpond_worker_busy_seconds_total")
    assert value("millpond_worker_process_seconds_total") < busy < 60
    assert value("millpond_input_lag_records", task="0_0", topic=source, partition="0") == 0
    assert 0 < value("millpond_worker_volume_free_bytes") <= value("millpond_worker_volume_bytes")
    assert value("millpond_worker_recoveries_total") == 0
    assert value("millpond_worker_commit_seconds_count") >= 1
    assert 0 < value("millpond_worker_commit_seconds_sum") < 60
    assert value("millpond_task_processed_records_total", task="0_0") == 100
    assert value("millpond_task_dropped_records_total", task="0_0", reason="failed") == 1
    assert value("millpond_task_failed_records_total", task="0_0") == 1
    assert value("millpond_task_late_records_total", task="0_0") == 0
    assert value("millpond_task_dead_letters_total", task="0_0") == 0
    assert value("millpond_worker_e2e_latency_seconds_count") >= 1
    assert 0 <= value("millpond_worker_e2e_latency_seconds_sum") < 60
    for name in ("count", "bucket"):
        whole = {"le": "3600.0"} if name == "bucket" else {}
        seen = value(f"millpond_input_e2e_latency_seconds_{name}", subtopology="0", topic=source, **whole)
        assert seen >= 2
        assert seen % 2 == 0, "the first and the last record of each commit"
    assert {value("millpond_worker_commit_failures_total", reason=each) for each in COMMIT_FAILURES} == {0}
    assert value("millpond_worker_resident_bytes") > 10e6
    assert value("millpond_worker_cpu_seconds_total") > 0
    assert value("millpond_task_enforced_processing_total", task="0_0") == 0
    assert value("millpond_task_buffered_records", task="0_0") == 0
    assert value("millpond_processor_position_offset", task="0_0", topic=source) == 101
    assert value("millpond_processor_buffered_records", task="0_0", topic=source) == 0
    assert value("millpond_store_staged_bytes", task="0_0", store="counts") >= 0
    assert value("millpond_store_cache_bytes", task="0_0", store="counts") > 0
    assert value("millpond_restore_remaining_records", store="counts", partition="0") == 0
    assert all(name.startswith("millpond_") for name, *_ in samples), "metrics are named millpond_<part>_<what>_<unit>"
    names = {name for name, *_ in samples}
    rows = (*TASKS, *INPUTS, *INPUT_LAGS, *LOAD, *STORES, *HELD, *RESTORATIONS, *ROCKSDB)
    silent = {row.name for row in rows if f"{row.name}_total" not in names and row.name not in names}
    assert silent == OF_OTHER_STORES, "a row without samples reads an attribute that does not exist"


def test_a_restore_is_counted(broker, create_topic, app_id, tmp_path):
    """A start on another machine restores the changelog, and the metrics count it."""
    servers = broker.bootstrap_servers
    source = create_topic("in")
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
    topology = builder.build()
    kafka.produce(servers, source, [(f"k{each}", "v") for each in range(500)])
    with Running(topology, servers, app_id, tmp_path / "a") as running:
        running.wait(lambda: kafka.committed_offsets(servers, app_id, source)[0][0] == 500, "all is committed")
    with Running(topology, servers, app_id, tmp_path / "b", {"http.port": 0}) as running:
        running.wait_running()
        samples = _samples(_get(running.worker.metrics.port, "/metrics")[1])
    restored = [value for name, value in samples.items() if name[0] == "millpond_restore_records_total"]
    assert restored == [500]


def test_a_worker_that_waits_is_alive_but_not_ready(app_id, tmp_path, monkeypatch):
    """Without brokers the worker is alive, not ready, and reports the reason."""
    monkeypatch.setattr("millpond.runtime.kafka.admin._REQUEST_TIMEOUT_S", 0.2)
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    running = Running(builder.build(), "127.0.0.1:1", app_id, tmp_path, {"http.port": 0}).start()
    running.wait(lambda: running.worker.metrics.port, "it serves")
    port = running.worker.metrics.port
    running.wait(lambda: _get(port, "/healthz") == (200, "starting\n"), "it is alive")
    assert _get(port, "/readyz")[0] == 503
    running.wait(lambda: "no answer from Kafka at '127.0.0.1:1'" in _get(port, "/readyz")[1], "it says why")
    assert _get(port, "/readyz")[0] == 503
    running.stop()


METADATA = st.builds(
    OffsetMetadata,
    owner=st.one_of(st.none(), st.text(min_size=1, max_size=20)),
    epoch=st.integers(0, 2**40),
    partition_time=st.integers(-1, 2**45),
    processors=st.dictionaries(st.text(max_size=10), st.integers(-(2**60), 2**60), max_size=4),
    shared=st.dictionaries(st.text(max_size=10), st.integers(-(2**60), 2**60), max_size=4),
)


@given(METADATA)
def test_offset_metadata_survives_the_broker(metadata):
    """Metadata is read back as it was committed."""
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(
    version=st.sampled_from([1, 2]),
    time=st.integers(-1, 2**62),
    rest=st.binary(max_size=30),
)
def test_kafka_streams_own_metadata_keeps_its_partition_time(version, time, rest):
    """An application moved from Java starts with its partition times, and without an owner."""
    raw = struct.pack(">bq", version, time) + (rest if version == 2 else b"")
    found = decode_metadata(base64.b64encode(raw).decode())
    assert found == OffsetMetadata(partition_time=time)


@given(st.text(max_size=40))
def test_foreign_metadata_names_no_owner(text):
    """Metadata of other programs names no owner and raises no error."""
    assert isinstance(decode_metadata(text), OffsetMetadata)
