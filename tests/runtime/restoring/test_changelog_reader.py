"""Which changelog records a store gets, and when it is complete."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from millpond.runtime.listeners import WorkerListener
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring import changelog_reader as restore
from millpond.runtime.restoring.changelog_reader import ChangelogReader, Restoration

SOURCE = Partition("changelog", 0)


class _Target:
    """A store with its backend: the restored records, and the offset written with them."""

    def __init__(self, end: int, **fields: Any) -> None:
        self.keys: list[bytes] = []
        self.offset: int | None = None
        self.reader = ChangelogReader(lambda _: None, WorkerListener())
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


def test_many_records_are_written_together_and_few_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is limited by records, by memory of all changelogs, by time, and by the end of the changelog."""
    clock = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1.0, now=0.0)
    monkeypatch.setattr(restore, "time", clock)
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
