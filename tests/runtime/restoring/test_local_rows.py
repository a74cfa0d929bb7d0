"""Local rows at the start of a worker: after a weekend, after a reset, or after topics were deleted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopicError
from millpond.protocol import Role, TaskState
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity
from millpond.state.formats import partition_prefix
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka, Record
from tests.runtime.worker_parts import Parts

A = TaskId(0, 0)
IN, CHANGELOG, TABLE = Partition("in", 0), Partition("app-counts-changelog", 0), Partition("table", 0)
DAY_MS = 86_400_000

Start = Callable[..., Parts]


def _topology(*, added: bool = False) -> Any:
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts")
    if added:
        stream.group_by_key().count(store="added")
    return builder.build()


class _Rows(mp.Processor[str, str, str, str]):
    """Keeps the newest value of each key, in a store whose changelog is the input itself."""

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        super().init(context)
        self._store: Any = context.get_state_store("rows")

    def process(self, record: mp.Record[str, str]) -> None:
        self._store.put(record.key, record.value)


class _TimedRows(_Rows):
    """The same, with the records' timestamps."""

    def process(self, record: mp.Record[str, str]) -> None:
        self._store.put(record.key, mp.ValueAndTimestamp(record.value, record.timestamp))


def _table() -> Any:
    made = mp.Topology()
    made.add_source("source", "table", key=mp.String, value=mp.String)
    made.add_processor("rows", _Rows, "source")
    store = mp.KeyValueStoreBuilder(name="rows", key=mp.String, value=mp.String, source_topic="table", logging=False)
    made.add_state_store(store, "rows")
    return made


@pytest.fixture
def kafka() -> Kafka:
    """Two records for one key and one for another."""
    made = Kafka()
    for key in ("a", "a", "b"):
        made.append("in", key, "x")
    return made


@pytest.fixture
def start(kafka: Kafka, tmp_path: Path) -> Iterator[Start]:
    """Starts a worker on a directory, after the one before has ended."""
    parts: list[Parts] = []

    def starting(directory: str = "state", topology: Any = None, ahead_ms: int = 0, *, added: bool = False) -> Parts:
        for each in parts:
            each.close()
        topics = {"in": 1} if topology is None else {"table": 1}
        made = Parts(kafka, topology or _topology(added=added), tmp_path / directory, topics)
        made.ahead_ms = ahead_ms
        parts[:] = [made]
        return made

    yield starting
    for each in parts:
        each.close()


def _count(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _counts(worker: Parts) -> dict[bytes, int]:
    return {key: int.from_bytes(value[8:], "big") for key, value in worker.rows("counts").items()}


def _processed(start: Start) -> Parts:
    """A worker that has counted and committed everything."""
    worker = start()
    worker.own(A)
    worker.process()
    worker.commit()
    assert _counts(worker) == {b"a": 2, b"b": 1}
    return worker


def _delete_elsewhere(kafka: Kafka) -> None:
    """Another worker deletes `a` and counts `c`; then compaction removes the deletion and all of `a`."""
    log = kafka.logs[CHANGELOG]
    for each in log:
        if each.key == b"a":
            each.stable = False
    log += [Record(b"a", None, 1_000, stable=False), Record(b"c", _count(1), 1_000, stable=True)]


@pytest.mark.parametrize(("away_ms", "resurrected"), [(DAY_MS // 2, True), (2 * DAY_MS, False)])
def test_key_deleted_during_a_long_absence_stays_deleted(
    kafka: Kafka, start: Start, away_ms: int, resurrected: bool
) -> None:
    """Within `delete.retention.ms` the deletion would still be in the topic, so local rows are good enough."""
    _processed(start)
    _delete_elsewhere(kafka)
    worker = start(ahead_ms=away_ms)
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert worker.executor.held[A].state is TaskState.RUNNING
    assert (b"a" in _counts(worker)) is resurrected
    assert _counts(worker)[b"c"] == 1


def test_rows_before_the_beginning_of_the_changelog_are_rebuilt(kafka: Kafka, start: Start) -> None:
    """The records in between are gone, deletions included."""
    _processed(start)
    _delete_elsewhere(kafka)
    kafka.starts[CHANGELOG] = len(kafka.logs[CHANGELOG]) - 1
    worker = start()
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert _counts(worker) == {b"c": 1}


@pytest.mark.parametrize(("away_s", "kept"), [(3_600, True), (3 * 86_400, False)])
def test_rows_without_a_time_are_as_old_as_their_files(
    kafka: Kafka, start: Start, tmp_path: Path, away_s: int, kept: bool
) -> None:
    """Older versions wrote no time."""
    worker = _processed(start)
    rows = [(partition_prefix(0) + key, value) for key, value in worker.rows("counts").items()]
    offset = worker.offset_on_disk("counts")
    worker.state_file.drop("counts", 0)
    worker.state_file.write([("counts", 0, rows)], {("counts", 0): (offset, b"")})
    worker.close()
    for path in (tmp_path / "state").rglob("*"):
        then = path.stat().st_mtime - away_s
        os.utime(path, (then, then))
    _delete_elsewhere(kafka)
    worker = start()
    assert worker.state_file.provenance("counts", 0) is None
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert (b"a" in _counts(worker)) is kept


def test_idle_task_keeps_its_rows_young(kafka: Kafka, start: Start) -> None:
    """Its commits write the time even if nothing has changed."""
    worker = _processed(start)
    before = worker.state_file.provenance("counts", 0)
    assert before is not None
    worker.ahead_ms = 2 * DAY_MS
    worker.executor.running[0].commit_needed = True
    worker.commit()
    after = worker.state_file.provenance("counts", 0)
    assert after is not None
    assert after.as_of_ms - before.as_of_ms >= 2 * DAY_MS
    assert worker.offset_on_disk("counts") == 2


@pytest.mark.parametrize(("since_ms", "renewed"), [(0, False), (21_000, True)])
def test_short_delete_retention_renews_the_time_sooner(
    kafka: Kafka, start: Start, since_ms: int, renewed: bool
) -> None:
    """Otherwise rows would count as too old within a minute, although a commit has just covered them."""
    kafka.facts_of[CHANGELOG.topic] = TopicIdentity("id", 80_000)
    worker = _processed(start)
    before = worker.state_file.provenance("counts", 0)
    worker.ahead_ms = since_ms
    worker.executor.running[0].commit_needed = True
    worker.commit()
    assert (worker.state_file.provenance("counts", 0) != before) is renewed


def test_copy_that_was_frozen_for_days_is_rebuilt(kafka: Kafka, start: Start) -> None:
    """It held the rows all the time, and had nothing to read."""
    _processed(start)
    copy = start()
    copy.executor.hold([A], Role.STANDBY)
    copy.settle()
    assert _counts(copy) == {b"a": 2, b"b": 1}
    _delete_elsewhere(kafka)
    copy.ahead_ms = 2 * DAY_MS
    copy.copy()
    assert b"c" not in _counts(copy)
    copy.executor.reopen_expired()
    copy.settle()
    assert _counts(copy) == {b"b": 1, b"c": 1}


def test_copy_that_hears_from_brokers_never_expires(kafka: Kafka, start: Start) -> None:
    """However long nothing is written, it is known to be complete."""
    _processed(start)
    copy = start()
    copy.executor.hold([A], Role.STANDBY)
    copy.settle()
    restoration = copy.executor.held[A].changelogs[0]
    before = restoration.completeness.at
    copy.executor.look_at_ends()
    copy.executor.look_at_ends()
    assert restoration.completeness.at is not None
    assert before is not None
    assert restoration.completeness.at > before


def test_changelog_made_again_behind_the_back_is_refused(kafka: Kafka, start: Start) -> None:
    """The rows may be the only copy of the state: they stay, and the message names the cure."""
    _processed(start)
    kafka.remake("app-counts-changelog", "other")
    for rows in (0, 5):
        kafka.logs[CHANGELOG] = [Record(b"z", _count(9), 1_000, stable=True)] * rows
        worker = start()
        worker.executor.hold([A], Role.ACTIVE)
        with pytest.raises(TopicError, match="deleted and created again") as raised:
            worker.settle()
        assert "millpond reset" in str(raised.value)
        assert str(worker.config.directory) in str(raised.value)
        assert _counts(worker) == {b"a": 2, b"b": 1}


def test_copy_of_a_changelog_made_again_is_refused_too(kafka: Kafka, start: Start) -> None:
    """A copy may be the last one."""
    _processed(start)
    kafka.remake("app-counts-changelog", "other")
    worker = start()
    worker.executor.hold([A], Role.STANDBY)
    with pytest.raises(TopicError, match="deleted and created again"):
        for _ in range(2):
            worker.settle()
    assert _counts(worker) == {b"a": 2, b"b": 1}


@pytest.mark.parametrize("restarted", [False, True])
def test_rows_from_before_a_reset_are_dropped(kafka: Kafka, start: Start, restarted: bool) -> None:
    """The reset deleted topics and offsets, but not this disk; other workers may have begun again meanwhile."""
    _processed(start)
    kafka.remake("app-counts-changelog", "other")
    kafka.offsets.clear()
    if restarted:
        other = start("elsewhere")
        other.own(A)
        other.process()
        other.commit()
    worker = start()
    worker.own(A)
    assert worker.process() == (0 if restarted else 3)
    worker.commit()
    assert _counts(worker) == {b"a": 2, b"b": 1}


def test_empty_changelog_under_committed_offsets_is_refused(kafka: Kafka, start: Start) -> None:
    """Also by a worker that never had the state: it would count from zero."""
    _processed(start)
    kafka.remake("app-counts-changelog", "other")
    worker = start("elsewhere")
    worker.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match="the state of store 'counts' is lost"):
        worker.settle()


def test_store_that_a_new_version_adds_begins_empty(kafka: Kafka, start: Start) -> None:
    """Its new changelog may be empty; from the first commit on, it is checked like the others."""
    _processed(start)
    worker = start(added=True)
    executor = worker.executor
    client: Any = worker.producer
    executor.registrar.announce(client, executor.claims.announcement(executor.registrar.look_up_now([A])), {})
    executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert executor.held[A].state is TaskState.RUNNING
    worker.commit()
    kafka.remake("app-added-changelog", "other")
    again = start("elsewhere", added=True)
    again.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match="the state of store 'added' is lost"):
        again.settle()


def test_changelog_restored_with_its_content_is_taken(kafka: Kafka, start: Start) -> None:
    """By a worker without local rows, as the error message advises."""
    _processed(start)
    content = kafka.logs[CHANGELOG]
    kafka.remake("app-counts-changelog", "other")
    kafka.logs[CHANGELOG] = content
    worker = start("elsewhere")
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    kafka.append("in", "a", "x")
    worker.process()
    worker.commit()
    assert _counts(worker) == {b"a": 3, b"b": 1}
    again = start("elsewhere")
    again.executor.hold([A], Role.ACTIVE)
    again.settle()
    assert _counts(again) == {b"a": 3, b"b": 1}


def test_table_restored_from_its_input_goes_on_where_it_was(kafka: Kafka, start: Start) -> None:
    """It does not read the input from its beginning at each start."""
    for each in range(5):
        kafka.append("table", "k", str(each))
    worker = start(topology=_table())
    worker.own(A)
    worker.process()
    worker.commit()
    assert worker.offset_on_disk("rows") == 5
    kafka.append("table", "l", "1")
    again = start(topology=_table())
    again.executor.hold([A], Role.ACTIVE)
    again.settle()
    assert again.executor.held[A].changelogs[0].start == 5
    assert again.executor.held[A].changelogs[0].restored == 0
    assert again.process() == 1
    again.commit()
    assert again.offset_on_disk("rows") == 6


def test_read_only_store_is_restored_from_its_topic_up_to_what_was_processed(kafka: Kafka, start: Start) -> None:
    """Its processor puts what comes after the committed offset, once; no changelog is made."""
    store = mp.KeyValueStoreBuilder(name="rows", key=mp.String, value=mp.String, timestamped=True)
    made = mp.Topology().add_read_only_state_store(
        store, "table", _TimedRows, source_name="s", processor_name="p", key=mp.String, value=mp.String
    )
    for each in range(3):
        kafka.append("table", f"k{each}", str(each))
    worker = start(topology=made)
    worker.own(A)
    worker.process()
    worker.commit()
    rows = worker.rows("rows")
    kafka.append("table", "k3", "3")
    again = start("elsewhere", topology=made)
    again.executor.hold([A], Role.ACTIVE)
    again.settle()
    assert again.executor.held[A].changelogs[0].restored == 3
    assert again.rows("rows") == rows
    assert again.process() == 1
    again.commit()
    assert set(again.rows("rows")) == {b"k0", b"k1", b"k2", b"k3"}
    assert set(kafka.logs) == {TABLE, IN}


def test_table_ahead_of_its_committed_offset_is_rebuilt(kafka: Kafka, start: Start) -> None:
    """The offsets were reset to earlier ones, so rows of records that are processed again are dropped."""
    for each in range(3):
        kafka.append("table", f"k{each}", "x")
    worker = start(topology=_table())
    worker.own(A)
    worker.process()
    worker.commit()
    kafka.commit(TABLE, 1, kafka.committed(TABLE).metadata)
    again = start(topology=_table())
    again.executor.hold([A], Role.ACTIVE)
    again.settle()
    assert set(again.rows("rows")) == {b"k0"}
    assert again.process() == 2
