"""The stream times of many operators fit into offset metadata and can be read again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.errors import TopologyError
from millpond.runtime.offsets.metadata import OffsetMetadata, check_metadata, decode_metadata, encode_metadata
from millpond.runtime.offsets.operator_times import check_names, pack, short_name, unpack, value_of
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts

TIME = 1_700_000_000_000
NAMES = [f"KSTREAM-AGGREGATE-{number:010}.stream-time" for number in range(300)]
_int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.dictionaries(st.text(min_size=1), _int64, max_size=20), _int64)
def test_packed_values_are_found_by_their_names(values: dict[str, int], near: int) -> None:
    """For any values, at any distance from the partition time."""
    read = unpack(pack(values, near), near)
    assert {name: value_of(read, name) for name in values} == values
    assert value_of(read, "another") is None


def test_300_operators_fit_into_offset_metadata() -> None:
    """With names and digits, 70 did not."""
    values = {name: TIME - 1_000 * number for number, name in enumerate(NAMES)}
    text = encode_metadata(OffsetMetadata("pay-0", 3, TIME, values, topology="627dae5a8bb75986"))
    assert len(text) <= 4096
    read = decode_metadata(text)
    assert (read.owner, read.epoch, read.partition_time, read.topology) == ("pay-0", 3, TIME, "627dae5a8bb75986")
    assert {name: value_of(read.processors, name) for name in NAMES} == values


def test_metadata_read_by_another_worker_is_written_unchanged() -> None:
    """A worker that takes over a task writes what it read, without knowing the operators."""
    values = dict.fromkeys(NAMES, TIME)
    text = encode_metadata(OffsetMetadata("w0", 3, TIME, values))
    assert encode_metadata(decode_metadata(text)) == text
    few = OffsetMetadata("w0", 3, TIME, {short_name("a"): TIME})
    assert decode_metadata(encode_metadata(few)) == few


@pytest.mark.parametrize("packed", ["AAAA", "?", "AAAAAIA="])
def test_owner_is_valid_with_unreadable_values(packed: str) -> None:
    """The task has an owner; only the operators start with the time of the next record."""
    assert decode_metadata(f'{{"o":"w0","e":3,"q":"{packed}"}}') == OffsetMetadata("w0", 3)


def test_too_many_operators_are_an_error_before_the_first_record() -> None:
    """Not only at the first commit. If two names have the same checksum, the error has both names."""
    check_metadata(TaskId(0, 0), NAMES, "h")
    with pytest.raises(TopologyError, match=r"900 windowed operators.*repartition\(\)"):
        check_metadata(TaskId(0, 0), [f"{name}-{more}" for name in NAMES for more in "abc"], "h")
    stores = [f"{number:02}-" + "s" * 100 for number in range(40)]
    with pytest.raises(TopologyError, match=r"40 windowed operators.*shorter names"):
        check_metadata(TaskId(0, 0), stores, "h", stores)
    with pytest.raises(TopologyError, match="'plumless' and 'buckeroo'"):
        check_names(["plumless", "buckeroo"])


def test_windows_of_many_operators_continue_on_another_worker(tmp_path: Path) -> None:
    """Each operator still knows which records are late, although the names are not written."""
    kafka = Kafka()
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    hour = mp.TimeWindows(timedelta(hours=1), grace=timedelta(0))
    for number in range(40):
        stream.group_by_key().windowed_by(hour).count(store=f"counts-{number}")
    topology = builder.build()
    first = Parts(kafka, topology, tmp_path / "w0", {"in": 1})
    try:
        first.own(TaskId(0, 0))
        kafka.append("in", "k", "v", timestamp=TIME)
        first.process()
        first.commit()
    finally:
        first.close()
    ((_, text),) = kafka.offsets.values()
    assert len(text) < 1024
    assert "AGGREGATE" not in text
    second = Parts(kafka, topology, tmp_path / "w1", {"in": 1})
    try:
        second.own(TaskId(0, 0))
        task = second.executor.tasks[TaskId(0, 0)]
        assert {task._hooks.memories[name]() for name in task.remembered_names} == {TIME}
    finally:
        second.close()
