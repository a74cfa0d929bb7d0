"""Which changelog records a store gets, and when it is complete."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from millpond.runtime.listeners import SuspendReason, WorkerListener
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring import changelog_reader as restore
from millpond.runtime.restoring.changelog_reader import ChangelogReader, Restoration

SOURCE = Partition("changelog", 0)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that the test sets: records are held for half a second."""
    made = SimpleNamespace(monotonic=lambda: made.now, time=lambda: 1.0, now=0.0)
    monkeypatch.setattr(restore, "time", made)
    return made


class _Target:
    """A store with its backend: the restored records, and the offset written with them."""

    def __init__(self, end: int, listener: WorkerListener | None = None, **fields: Any) -> None:
        self.keys: list[bytes] = []
        self.offset: int | None = None
        self.reader = ChangelogReader(lambda _: None, listener or WorkerListener())
        store = SimpleNamespace(name="store", partition=0, restore=self._restore, metadata=lambda: b"")
        self.restoration = Restoration(store, SimpleNamespace(write=self._write), SOURCE, 0, end, **fields)
        self.reader.add(self.restoration)

    def _restore(self, changes: list[Any]) -> list[bytes]:
        self.keys += [key for key, *_ in changes]
        return [key for key, *_ in changes]

    def _write(self, groups: list[Any], offsets: dict[Any, Any], _provenances: dict[Any, Any]) -> None:
        self.offset = offsets["store", 0][0]

    def read(self, first: int, after: int) -> None:
        """Pass on the records of these offsets."""
        self.reader.records(
            SOURCE,
            [
                Message(topic="changelog", partition=0, offset=each, key=b"%d" % each, value=b"v", timestamp=(1, 0))
                for each in range(first, after)
            ],
        )


def test_store_is_complete_when_the_broker_reports_the_end() -> None:
    """Transaction markers take offsets, so records cannot be counted."""
    target = _Target(end=5)
    target.read(0, 4)
    assert not target.restoration.done
    target.reader.reached_end(SOURCE, 5)
    assert target.restoration.done
    assert (target.keys, target.offset) == ([b"0", b"1", b"2", b"3"], 5)


def test_table_restored_from_its_input_stops_at_the_committed_offset() -> None:
    """The task processes the records from there on: each changes the table once."""
    target = _Target(end=3, bounded=True)
    target.read(0, 6)
    assert target.restoration.done
    assert (target.keys, target.offset, target.restoration.position) == ([b"0", b"1", b"2"], 3, 3)


@pytest.mark.parametrize(("end", "done"), [(3, True), (4, True), (5, False)])
def test_promoted_copy_is_complete_only_at_the_fixed_end(end: int, done: bool) -> None:
    """A copy that is behind reads on before its task runs."""
    target = _Target(end=2, following=True)
    target.read(0, 2)
    target.reader.reached_end(SOURCE, 4)
    target.reader.promote(target.restoration, end)
    assert target.restoration.done is done


def test_complete_store_takes_no_more_records() -> None:
    """An active task changes its store only by processing."""
    target = _Target(end=2)
    target.read(0, 2)
    target.reader.reached_end(SOURCE, 2)
    target.read(2, 4)
    assert target.keys == [b"0", b"1"]


def _applied(seed: int, steps: int) -> tuple[_Target, int]:
    """Apply records in polls of random sizes, some of them twice as after a new client, and the end."""
    rng = random.Random(seed)
    end = rng.randrange(1, 400)
    target = _Target(end=end)
    target.reader.batch = rng.choice([1, 7, 50, 1000])
    at = 0
    for _ in range(steps):
        if rng.random() < 0.2:
            at = target.restoration.position
        upto = min(end, at + rng.randrange(1, 40))
        if upto > at:
            target.read(at, upto)
        at = upto
    return target, end


@pytest.mark.parametrize("number", range(50))
def test_each_record_is_applied_once_and_in_order_whatever_the_polls(seed: int, number: int) -> None:
    """Held records are not progress, so a new client reads them again; at the end all are applied."""
    target, end = _applied(seed + number, 100)
    assert target.keys == [b"%d" % each for each in range(len(target.keys))]
    assert target.restoration.position == len(target.keys)
    target.read(target.restoration.position, end)
    target.reader.reached_end(SOURCE, end)
    assert target.keys == [b"%d" % each for each in range(end)]
    assert (target.offset, target.restoration.done, target.reader._held_bytes) == (end, True, 0)


def test_many_records_are_written_together_and_few_do_not_wait_for_more(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is limited by records, by memory of all changelogs, by time, and by the end of the changelog."""
    target = _Target(end=10_000)
    target.reader.batch = 100
    target.read(0, 99)
    assert target.keys == []
    target.read(99, 101)
    assert len(target.keys) == 101
    target.read(101, 102)
    clock.now = 1.0
    target.read(102, 103)
    assert len(target.keys) == 103
    monkeypatch.setattr(restore, "_MAX_HELD_BYTES", 4_200)
    target.read(103, 113)
    assert len(target.keys) == 103
    target.read(113, 114)
    assert len(target.keys) == 114
    assert target.reader._held_bytes == 0


def test_held_records_are_dropped_with_the_changelog_and_applied_at_a_promotion() -> None:
    """A dropped changelog writes nothing; a promoted copy has all records that it read."""
    target = _Target(end=100)
    target.read(0, 5)
    target.reader.remove(target.restoration)
    assert (target.keys, target.offset, target.reader._held_bytes) == ([], None, 0)
    copy = _Target(end=100, following=True)
    copy.read(0, 5)
    copy.reader.promote(copy.restoration, 5)
    assert copy.restoration.done
    assert (len(copy.keys), copy.offset) == (5, 5)


class _Noted(WorkerListener):
    """Notes each call, with its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def restore_started(self, store: str, partition: int, start: int, end: int) -> None:
        self.calls.append(("restore started", start, end))

    def restore_ended(self, store: str, partition: int, records: int) -> None:
        self.calls.append(("restore ended", records))

    def restore_suspended(self, store: str, partition: int, records: int) -> None:
        self.calls.append(("restore suspended", records))

    def update_started(self, store: str, partition: int, start: int) -> None:
        self.calls.append(("update started", start))

    def batch_loaded(self, store: str, partition: int, batch_end: int, records: int, end: int) -> None:
        self.calls.append(("batch", batch_end, records, end))

    def update_suspended(self, store: str, partition: int, offset: int, end: int, reason: SuspendReason) -> None:
        self.calls.append(("update suspended", offset, end, reason))


def _noted(end: int, **fields: Any) -> tuple[_Target, list[tuple[Any, ...]]]:
    noted = _Noted()
    return _Target(end, listener=noted, **fields), noted.calls


def test_a_listener_follows_a_copy_until_it_is_promoted() -> None:
    """A copy reports its start and each batch; then the restore of the active task begins, and reads the rest."""
    target, calls = _noted(4, following=True)
    target.read(0, 4)
    target.reader.promote(target.restoration, 6)
    assert calls == [
        ("update started", 0), ("batch", 3, 4, 4), ("update suspended", 3, 4, SuspendReason.PROMOTED),
        ("restore started", 4, 6),
    ]  # fmt: skip
    del calls[:]
    target.read(4, 6)
    target.reader.reached_end(SOURCE, 6)
    assert calls == [("restore ended", 2)]


def test_a_copy_without_lag_is_promoted_without_a_record() -> None:
    """The restore of the active task starts and ends at once."""
    target, calls = _noted(2, following=True)
    target.read(0, 2)
    del calls[:]
    target.reader.promote(target.restoration, 2)
    assert calls == [
        ("update suspended", 1, 2, SuspendReason.PROMOTED), ("restore started", 2, 2), ("restore ended", 0)
    ]  # fmt: skip


def test_a_listener_is_told_once_that_a_copy_or_a_restore_is_given_up() -> None:
    """A copy that moves away is MIGRATED; a restore that is not complete is suspended; a complete one is not."""
    copy, calls = _noted(4, following=True)
    copy.read(0, 4)
    copy.reader.remove(copy.restoration)
    copy.reader.remove(copy.restoration)
    assert calls[2:] == [("update suspended", 3, 4, SuspendReason.MIGRATED)]
    active, calls = _noted(4)
    active.read(0, 2)
    active.reader.stamp(active.restoration)
    active.reader.remove(active.restoration)
    assert calls == [("restore started", 0, 4), ("restore suspended", 0)]
    complete, calls = _noted(2)
    complete.read(0, 2)
    complete.reader.reached_end(SOURCE, 2)
    complete.reader.remove(complete.restoration)
    assert calls == [("restore started", 0, 2), ("restore ended", 2)]


def test_a_task_that_becomes_a_copy_starts_to_update() -> None:
    """Its restore is over, and the copy begins at its position."""
    target, calls = _noted(2)
    target.read(0, 2)
    target.reader.reached_end(SOURCE, 2)
    target.reader.demote(target.restoration)
    assert calls[-1] == ("update started", 2)
