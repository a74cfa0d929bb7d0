"""The rules of ownership against a model of the broker: which worker may run a task after any sequence of events."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.runtime.offsets.metadata import (
    Claim,
    CommittedOffset,
    OffsetMetadata,
    Partition,
    belongs_to,
    claim_of,
    decode_metadata,
    encode_metadata,
    tasks_by_claim,
    text_of,
)
from millpond.runtime.ownership.takeover import claimed
from millpond.topology import TaskId

_int64 = st.integers(-(2**63), 2**63 - 1)
_names = st.text(min_size=1, max_size=20)
_metadata = st.builds(
    OffsetMetadata,
    owner=st.none() | _names,
    epoch=st.integers(0, 2**63 - 1),
    partition_time=_int64,
    processors=st.dictionaries(_names, _int64, max_size=4),
    topology=st.sampled_from(["", "h1", "h2"]),
)
_workers = st.sampled_from(["w0", "w1", "w2", "unowned"])
_partitions = st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 3))
_committed = st.builds(
    CommittedOffset,
    st.none() | st.integers(0, 1_000),
    st.builds(
        OffsetMetadata,
        owner=st.none() | _workers,
        epoch=st.integers(0, 5),
        partition_time=st.integers(-1, 100),
        topology=st.sampled_from(["", "h1", "h2"]),
    ),
)
_task = st.dictionaries(_partitions, _committed, max_size=4)
_tasks = st.dictionaries(st.builds(TaskId, st.integers(0, 3), st.integers(0, 3)), _task, max_size=6)


@given(_metadata)
def test_metadata_survives_the_broker(metadata: OffsetMetadata) -> None:
    """Offset metadata is read as it was written."""
    assert decode_metadata(encode_metadata(metadata)) == metadata


@given(_metadata, st.text(alphabet='Aj/=+ {}"\0\x7f', max_size=30))
def test_bytes_behind_metadata_are_not_read(metadata: OffsetMetadata, rest: str) -> None:
    """Librdkafka may return bytes of freed memory behind the text; an owner must not be lost by that."""
    shared = msgspec.structs.replace(metadata, shared={"sent": 7})
    many = msgspec.structs.replace(metadata, processors={f"node {number}": number for number in range(70)})
    for each in (metadata, shared, many):
        found = decode_metadata(encode_metadata(each) + rest)
        assert found == decode_metadata(encode_metadata(each))
        assert found.owner == metadata.owner
    assert decode_metadata(f'{{"o":"w0","e":3}}{rest}') == OffsetMetadata("w0", 3)


def test_bytes_that_are_no_text_end_metadata() -> None:
    """A client that cannot decode what follows the text still returns the text."""

    class Read:
        @property
        def metadata(self) -> str:
            return b"AgAAAYvP5sDj\x9b\x7f".decode()

    read: Any = Read()
    assert text_of(read) == "AgAAAYvP5sDj"
    assert decode_metadata(text_of(read)).partition_time == 1_700_000_088_291


def test_committed_metadata_is_short_and_backward_compatible() -> None:
    """Metadata stays within the broker's limit, and versions with and without topologies read each other's."""
    metadata = OffsetMetadata("pay-0", 3, 1_700_000_000_000, {"merge": 5}, topology="627dae5a8bb75986")
    text = '{"o":"pay-0","e":3,"t":1700000000000,"p":{"merge":5},"h":"627dae5a8bb75986"}'
    assert encode_metadata(metadata) == text
    # What `new TopicPartitionMetadata(…).encode()` of Kafka Streams 4.1 returns.
    assert decode_metadata("AgAAAYvP5WgAAAAAAQAAAARzZW50AAAAAAAAAAc=") == OffsetMetadata(
        partition_time=1_700_000_000_000, shared={"sent": 7}
    )
    before = '{"o":"pay-0","e":3,"t":1700000000000,"p":{"merge":5}}'
    assert decode_metadata(before) == OffsetMetadata("pay-0", 3, 1_700_000_000_000, {"merge": 5})
    assert decode_metadata('{"o":"pay-0","e":3,"later":true}') == OffsetMetadata("pay-0", 3)


@given(_task, st.sampled_from(["h1", "h2"]))
def test_metadata_decides_which_topology_a_task_belongs_to(partitions: dict, topology: str) -> None:
    """Partitions without a topology, from workers of earlier versions, are ignored."""
    named = {each.metadata.topology for each in partitions.values()} - {""}
    assert belongs_to(topology, partitions) == (not named or named == {topology})


@given(st.none() | st.text() | st.binary().map(lambda data: base64.b64encode(data).decode()))
def test_foreign_metadata_names_no_owner(text: str | None) -> None:
    """Offset metadata of other clients is read without an error, and names no owner."""
    metadata = decode_metadata(text)
    assert metadata.owner is None or encode_metadata(metadata)


@given(_int64, st.binary(max_size=20))
def test_kafka_streams_partition_time_is_taken_over(time_ms: int, rest: bytes) -> None:
    """Offsets that Kafka Streams committed keep their partition time, and have no owner."""
    for version in (1, 2):
        text = base64.b64encode(struct.pack(">bq", version, time_ms) + rest).decode()
        assert decode_metadata(text) == OffsetMetadata(partition_time=time_ms)


@given(_workers, _task)
def test_task_naming_another_worker_is_foreign(worker: str, partitions: dict) -> None:
    """A task with one partition of another owner is foreign; with one of ours and none of another owner, it is ours."""
    claim, owner = claim_of(worker, partitions)
    owners = {each.metadata.owner for each in partitions.values()} - {None}
    if owners - {worker}:
        assert claim is Claim.FOREIGN
        assert owner in owners - {worker}
    elif owners:
        assert (claim, owner) == (Claim.RESUME, worker)
    else:
        assert (claim, owner) == (Claim.CLAIM, None)


@given(_workers, _tasks)
def test_every_task_has_one_claim(worker: str, committed: dict) -> None:
    """Tasks to resume, tasks to claim and tasks of other owners are together all tasks, each once."""
    resume, unowned, foreign = tasks_by_claim(worker, committed)
    sorted_tasks = [*resume, *unowned, *(task for tasks in foreign.values() for task in tasks)]
    assert sorted(sorted_tasks) == sorted(committed)
    assert worker not in foreign
    for owner, tasks in foreign.items():
        assert all(owner in {each.metadata.owner for each in committed[task].values()} for task in tasks)


@given(_task, _names, st.integers(1, 100), st.integers(0, 1_000))
def test_claim_changes_only_owner_epoch_and_topology(committed: dict, worker: str, epoch: int, first: int) -> None:
    """A claim keeps offsets, partition times and processor metadata; partitions without an offset get their start."""
    made = claimed(committed, lambda _: first, worker, epoch, "new")
    assert made.keys() == committed.keys()
    for partition, (offset, metadata) in made.items():
        before = committed[partition]
        assert offset == (first if before.offset is None else before.offset)
        assert (metadata.owner, metadata.epoch) == (worker, epoch)
        assert metadata.partition_time == before.metadata.partition_time
        assert metadata.processors == before.metadata.processors
        assert metadata.topology == "new"
    assert belongs_to("new", {each: CommittedOffset(*offset) for each, offset in made.items()})


class OwnershipProtocol(RuleBasedStateMachine):
    """Processes that start, commit, stall and take over in any order, with a broker that only knows producer epochs.

    The model has what the protocol depends on: a transactional id belongs to the process that initialized it last, and
    commits of other processes under it fail. Each process is stopped between any two steps of a start.
    """

    tasks = (TaskId(0, 0), TaskId(0, 1))

    @initialize()
    def begin(self) -> None:
        self.holder: dict[str, int] = {}
        self.committed = {
            task: {Partition("in", task.partition): CommittedOffset(None, OffsetMetadata())} for task in self.tasks
        }
        self.processes: list[dict[str, Any]] = []
        self.progress = dict.fromkeys(self.tasks, 0)

    def _all(self) -> dict[Partition, CommittedOffset]:
        return {partition: each for task in self.committed.values() for partition, each in task.items()}

    def _write(self, process: dict, under: str, offsets: dict) -> bool:
        """Commit a transaction; only the process that holds the transactional id succeeds."""
        if self.holder.get(under) != process["pid"]:
            return False
        for task in self.tasks:
            for partition in self.committed[task]:
                if partition in offsets:
                    self.committed[task][partition] = CommittedOffset(*offsets[partition])
        return True

    @rule(worker=st.sampled_from(["w0", "w1"]), take_over=st.booleans())
    def start(self, worker: str, take_over: bool) -> None:
        """Initialize the process's own id."""
        process: dict[str, Any] = {"pid": len(self.processes), "worker": worker, "step": "read", "take_over": take_over}
        self.holder[worker] = process["pid"]
        self.processes.append(process)

    def _some(self, data: st.DataObject, step: str) -> dict:
        return data.draw(st.sampled_from([each for each in self.processes if each["step"] == step]))

    def _has(self, step: str) -> bool:
        return any(each["step"] == step for each in self.processes)

    @precondition(lambda self: self._has("read"))
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """Read the metadata; then end, fence the owners to take over from, or continue."""
        process = self._some(data, "read")
        _, unowned, foreign = tasks_by_claim(process["worker"], self.committed)
        if foreign and not process["take_over"]:
            process["step"] = "over"
            return
        process["epoch"] = max(each.metadata.epoch for each in self._all().values()) + 1
        process["claims"] = ([("unowned", unowned)] if unowned else []) + list(foreign.items())
        process["step"] = "fence" if process["claims"] else "announce"

    @precondition(lambda self: self._has("fence"))
    @rule(data=st.data())
    def fence(self, data: st.DataObject) -> None:
        """Initialize the previous owner's id, then check whether that one still owns the tasks."""
        process = self._some(data, "fence")
        owner, tasks = process["claims"][0]
        self.holder[owner] = process["pid"]
        expected = None if owner == "unowned" else owner
        owners = {each.metadata.owner for task in tasks for each in self.committed[task].values()}
        process["step"] = "swap" if owners == {expected} else "over"
        process["read"] = {partition: each for task in tasks for partition, each in self.committed[task].items()}

    @precondition(lambda self: self._has("swap"))
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        """Commit the offsets with itself as the owner, under the previous owner's id."""
        process = self._some(data, "swap")
        owner, _ = process["claims"].pop(0)
        offsets = claimed(process["read"], lambda _: 0, process["worker"], process["epoch"], "h")
        if not self._write(process, owner, offsets):
            process["step"] = "over"
        else:
            process["step"] = "fence" if process["claims"] else "announce"

    @precondition(lambda self: self._has("announce"))
    @rule(data=st.data())
    def announce(self, data: st.DataObject) -> None:
        """Write its epoch under its own id, and run from the committed offsets."""
        process = self._some(data, "announce")
        mine = {partition: each for partition, each in self._all().items() if each.metadata.owner == process["worker"]}
        written = self._write(
            process, process["worker"], claimed(mine, lambda _: 0, process["worker"], process["epoch"], "h")
        )
        self._resume(process, going=written)

    def _resume(self, process: dict, *, going: bool) -> None:
        process["step"] = "run" if going else "over"
        process["at"] = {partition: each.offset for partition, each in self._all().items()}

    @precondition(lambda self: self._has("run"))
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Commit one more record of each task, or, if fenced, look up the owners."""
        process = self._some(data, "run")
        offsets = {
            partition: (offset + 1, OffsetMetadata(process["worker"], process["epoch"]))
            for partition, offset in process["at"].items()
        }
        if self._write(process, process["worker"], offsets):
            for task in self.tasks:
                self.progress[task] += 1
            process["at"] = {partition: offset for partition, (offset, _) in offsets.items()}
            return
        self.holder[process["worker"]] = process["pid"]
        mine = all(
            (each.metadata.owner, each.metadata.epoch) == (process["worker"], process["epoch"])
            for each in self._all().values()
        )
        self._resume(process, going=mine)

    @invariant()
    def each_record_is_committed_once(self) -> None:
        """Offsets never go back, and are the sum of all commits."""
        if hasattr(self, "progress"):
            for task, partitions in self.committed.items():
                for each in partitions.values():
                    assert (each.offset or 0) == self.progress[task]


test_interleaved_processes_commit_each_record_once = OwnershipProtocol.TestCase
