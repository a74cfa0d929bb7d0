"""The work of both sides: equal data and equal topologies."""

from __future__ import annotations

import os
import re
import shutil
from itertools import islice, pairwise
from pathlib import Path

import pytest

import bench
import bench.apps
import millpond as mp
from bench.apps import topology
from bench.options import from_arguments, to_arguments
from bench.processes import cpu_seconds, peak_memory_mb
from bench.workloads import GRACE_MS, KEYS, TABLE_VALUE_BYTES, VALUE_BYTES, WINDOW_MS, WORKLOADS, Data

JAVA = Path(bench.__file__).parent / "java" / "KafkaStreamsBench.java"
TOPICS = {"input": "in", "table": "rows", "output": "out"}


def test_the_same_seed_gives_the_same_records() -> None:
    """Two runs with the same seed have the same bytes; another seed gives others."""
    first = list(Data(1000, seed=7, start_ms=0).stream())
    assert first == list(Data(1000, seed=7, start_ms=0).stream())
    assert first != list(Data(1000, seed=8, start_ms=0).stream())


def test_records_are_of_the_promised_size_and_in_time_order() -> None:
    """100 bytes each, time never goes back, and about one in sixteen is dropped by the filter."""
    records = list(Data(120_000, seed=7, start_ms=1_000).stream())
    assert len(records) == 120_000
    assert {len(record.value) for record in records} == {VALUE_BYTES}
    assert all(earlier.timestamp <= later.timestamp for earlier, later in pairwise(records))
    assert records[0].timestamp == 1_000
    dropped = sum(record.value[:1] == b"0" for record in records)
    assert 0.05 < dropped / len(records) < 0.075


def test_every_record_joins_a_row() -> None:
    """The join's table has each key once, older than all records of the stream."""
    data = Data(2_000, seed=7, start_ms=1_000)
    rows = list(data.table())
    assert len({row.key for row in rows}) == len(rows) == KEYS
    assert {len(row.value) for row in rows} == {TABLE_VALUE_BYTES}
    assert {record.key for record in data.stream()} <= {row.key for row in rows}
    assert all(row.timestamp < 1_000 for row in rows)


def test_both_sides_use_the_same_windows() -> None:
    """The Java source repeats the constants of the Python one."""
    source = JAVA.read_text()
    (minutes,) = re.findall(r"WINDOW = Duration\.ofMinutes\((\d+)\)", source)
    (seconds,) = re.findall(r"GRACE = Duration\.ofSeconds\((\d+)\)", source)
    assert (int(minutes) * 60_000, int(seconds) * 1000) == (WINDOW_MS, GRACE_MS)


def test_both_sides_know_every_workload() -> None:
    """No workload exists on one side only."""
    assert set(re.findall(r'case "(\w+)"', JAVA.read_text())) == set(WORKLOADS)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_computes_what_its_description_says(workload: str) -> None:
    """The four topologies, on records of the bench, against a plain computation."""
    data = Data(300, seed=3, start_ms=60_000)
    records = [record._replace(key=b"k%07d" % (i % 20)) for i, record in enumerate(data.stream())]
    with mp.testing.TopologyTestDriver(topology({**TOPICS, "workload": workload})) as driver:
        if workload == "join":
            rows = driver.create_input_topic("rows", key=mp.String, value=mp.String)
            for row in islice(data.table(), 20):
                rows.pipe_input(row.key.decode(), row.value.decode(), row.timestamp)
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for record in records:
            source.pipe_input(record.key.decode(), record.value.decode(), record.timestamp)
        found: list[tuple[object, object]]
        if workload in {"stateless", "join"}:
            found = [*driver.create_output_topic("out", key=mp.String, value=mp.String).read_key_values_to_list()]
        elif workload == "count":
            found = [*driver.create_output_topic("out", key=mp.String, value=mp.Long).read_key_values_to_list()]
        else:
            windowed = mp.TimeWindowedSerde(mp.String, bench.apps.WINDOW)
            counts = driver.create_output_topic("out", key=windowed, value=mp.Long).read_key_values_to_list()
            assert {(key.window.start, key.window.end) for key, _ in counts} == {(60_000, 120_000)}
            found = [(key.key, count) for key, count in counts]
    texts = [(record.key.decode(), record.value.decode()) for record in records]
    if workload == "stateless":
        assert found == [(key, value.upper()) for key, value in texts if value[0] != "0"]
    elif workload == "join":
        names = {row.key.decode(): row.value.decode() for row in islice(data.table(), 20)}
        assert found == [(key, value + names[key]) for key, value in texts]
    else:
        assert dict(found) == {f"k{number:07}": 15 for number in range(20)}


def test_arguments_survive_the_command_line() -> None:
    """Arguments are read as they were passed, including `=` in values."""
    assert from_arguments(to_arguments(input="a=b", records=3)) == {"input": "a=b", "records": "3"}
    with pytest.raises(ValueError, match="name=value"):
        from_arguments(["records"])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="figures of processes are read from /proc")
def test_a_process_is_measured_from_outside() -> None:
    """CPU time and peak memory increase with work; an ended process is an error."""
    before = cpu_seconds(os.getpid())
    while os.times().user + os.times().system - before < 0.1:
        sum(range(10_000))
    assert cpu_seconds(os.getpid()) > before
    assert 5 < peak_memory_mb(os.getpid()) < 10_000
    with pytest.raises(ProcessLookupError):
        cpu_seconds(2**22 + 1)


@pytest.mark.usefixtures("processes")
def test_the_java_side_compiles(tmp_path: Path) -> None:
    """`KafkaStreamsBench.java` is valid against the pinned Kafka Streams jars."""
    if not shutil.which("javac"):
        pytest.skip("needs a JDK")
    from bench.sides import Commands
    from millpond.broker.jars import paths
    from millpond.broker.java import find_jdk

    Commands(tmp_path, find_jdk() / "bin", paths("kafka-streams"))
    assert (tmp_path / "classes" / "KafkaStreamsBench.class").exists()
