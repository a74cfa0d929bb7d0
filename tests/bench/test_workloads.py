"""The work of both sides: equal data and equal topologies."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import bench
import bench.apps
import millpond as mp
from bench.apps import topology
from bench.options import from_arguments, to_arguments
from bench.processes import cpu_seconds, peak_memory_mb
from bench.workloads import (
    DIFFERENCE_MS,
    GRACE_MS,
    KEYS,
    TABLE_VALUE_BYTES,
    VALUE_BYTES,
    WINDOW_MS,
    WITH_TABLE,
    WORKLOADS,
    Data,
    InputRecord,
)

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
    seconds = [
        int(*re.findall(rf"{name} = Duration\.ofSeconds\((\d+)\)", source)) * 1000 for name in ("GRACE", "DIFFERENCE")
    ]
    assert [int(minutes) * 60_000, *seconds] == [WINDOW_MS, GRACE_MS, DIFFERENCE_MS]


def test_both_sides_know_every_workload() -> None:
    """No workload exists on one side only."""
    assert set(re.findall(r'case "(\w+)"', JAVA.read_text())) == set(WORKLOADS)


def _pairs(records: list[InputRecord]) -> Iterator[tuple[InputRecord, InputRecord]]:
    """Yield each record with each earlier one of its key that is 20 s older at most."""
    for number, record in enumerate(records):
        for earlier in records[:number]:
            if earlier.key == record.key and record.timestamp - earlier.timestamp <= DIFFERENCE_MS:
                yield earlier, record


def _expected(workload: str, records: list[InputRecord], rows: dict[str, str]) -> object:
    """Return the results of a workload by a plain computation: final ones for aggregations, else all in order."""
    texts = [(record.key.decode(), record.value.decode()) for record in records]
    keys = {key for key, _ in texts}
    match workload:
        case "stateless":
            return [(key, value.upper()) for key, value in texts if value[0] != "0"]
        case "join" | "table_join":
            return [(key, value + rows[key]) for key, value in texts]
        case "fk_join":
            return [(key, value + rows[f"k{int(value[:4], 16):07d}"]) for key, value in texts]
        case "count" | "window":
            return {key: sum(key == each for each, _ in texts) for key in keys}
        case "cogroup":
            return {key: sum(1 if value[0] < "8" else 1000 for each, value in texts if each == key) for key in keys}
        case "stream_join":
            halves = [(one, other) for one, other in _pairs(records) if (one.value < b"8") != (other.value < b"8")]
            sides = [(one, other) if one.value < b"8" else (other, one) for one, other in halves]
            return [(left.key.decode(), (left.value[:50] + right.value[:50]).decode()) for left, right in sides]
        case "session":
            sessions: dict[str, list[list[int]]] = {key: [] for key in keys}
            for record in records:
                found = sessions[record.key.decode()]
                if found and record.timestamp - found[-1][1] <= DIFFERENCE_MS:
                    found[-1][1:] = [record.timestamp, found[-1][2] + 1]
                else:
                    found.append([record.timestamp, record.timestamp, 1])
            return {(key, start, end): count for key, found in sessions.items() for start, end, count in found}
        case "sliding":
            ends = {(record.key.decode(), record.timestamp): 1 for record in records}
            for _, record in _pairs(records):
                ends[record.key.decode(), record.timestamp] += 1
            return ends
    raise AssertionError(workload)


def _found(driver: mp.testing.TopologyTestDriver, workload: str) -> object:
    """Return the results in the form of `_expected`."""
    if workload in {"count", "cogroup"}:
        return dict(driver.create_output_topic("out", key=mp.String, value=mp.Long).read_key_values_to_list())
    if workload in {"window", "sliding"}:
        size = bench.apps.WINDOW if workload == "window" else bench.apps.DIFFERENCE
        windowed = mp.TimeWindowedSerde(mp.String, size)
        counts = driver.create_output_topic("out", key=windowed, value=mp.Long).read_key_values_to_list()
        if workload == "window":
            assert {(key.window.start, key.window.end) for key, _ in counts} == {(60_000, 120_000)}
            return {key.key: count for key, count in counts}
        ends = {(key.key, key.window.end): count for key, count in counts}
        return {end: ends[end] for end in ends if end[1] in _TIMES}
    if workload == "session":
        sessions = driver.create_output_topic("out", key=mp.SessionWindowedSerde(mp.String), value=mp.Long)
        found = {(key.key, key.window.start, key.window.end): n for key, n in sessions.read_key_values_to_list()}
        return {key: count for key, count in found.items() if count is not None}
    return [*driver.create_output_topic("out", key=mp.String, value=mp.String).read_key_values_to_list()]


#: Times of the records, in ms: some pairs of a key are within 20 s, some are not.
_TIMES = [60_000 + 180 * number for number in range(300)]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_computes_what_its_description_says(workload: str) -> None:
    """Each topology, on records of the bench, against a plain computation."""
    data = Data(300, seed=3, start_ms=60_000)
    # 53 keys in turn are 9.5 s apart, and a key rests for a while now and then.
    records = [
        record._replace(key=b"k%07d" % (i * i % 53 if workload != "window" else i % 20), timestamp=_TIMES[i])
        for i, record in enumerate(data.stream())
    ]
    with mp.testing.TopologyTestDriver(topology({**TOPICS, "workload": workload})) as driver:
        rows = {row.key.decode(): row.value.decode() for row in data.table()} if workload in WITH_TABLE else {}
        if rows:
            used = {f"k{int(record.value[:4], 16):07d}" for record in records} | {each.key.decode() for each in records}
            table = driver.create_input_topic("rows", key=mp.String, value=mp.String)
            for key in sorted(used):
                table.pipe_input(key, rows[key], 1)
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for record in records:
            source.pipe_input(record.key.decode(), record.value.decode(), record.timestamp)
        assert _found(driver, workload) == _expected(workload, records, rows)


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
