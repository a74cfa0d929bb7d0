"""Which records of a changelog a store gets, and when it is complete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message

from millpond.runtime.listeners import WorkerListener
from millpond.runtime.ownership import Partition
from millpond.runtime.restore import ChangelogReader, Restoration

SOURCE = Partition("changelog", 0)


class _Target:
    """A store and its backend: what was restored, and the offset that was written with it."""

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
        """Hand over the records of these offsets."""
        self.reader.records(
            SOURCE,
            [
                Message(topic="changelog", partition=0, offset=each, key=b"%d" % each, value=b"v", timestamp=(1, 0))
                for each in range(first, after)
            ],
        )


def test_store_is_complete_when_the_broker_shows_the_end() -> None:
    """Markers of transactions take offsets, so counting records would not do."""
    target = _Target(end=5)
    target.read(0, 4)
    assert not target.restoration.done
    target.reader.reached_end(SOURCE, 5)
    assert target.restoration.done
    assert (target.keys, target.offset) == ([b"0", b"1", b"2", b"3"], 5)


def test_table_restored_from_its_input_stops_at_the_committed_offset() -> None:
    """The records from there on are for the task to process: each changes the table once."""
    target = _Target(end=3, bounded=True)
    target.read(0, 6)
    assert target.restoration.done
    assert (target.keys, target.offset, target.restoration.position) == ([b"0", b"1", b"2"], 3, 3)


@pytest.mark.parametrize(("end", "done"), [(3, True), (4, True), (5, False)])
def test_promoted_copy_is_complete_only_at_the_fixed_end(end: int, done: bool) -> None:
    """One that has seen less reads on before its task runs."""
    target = _Target(end=2, following=True)
    target.read(0, 2)
    target.reader.reached_end(SOURCE, 4)
    target.reader.become_active(target.restoration, end)
    assert target.restoration.done is done


def test_complete_store_takes_no_more_records() -> None:
    """An active task changes its store by processing alone."""
    target = _Target(end=2)
    target.read(0, 2)
    target.reader.reached_end(SOURCE, 2)
    target.read(2, 4)
    assert target.keys == [b"0", b"1"]
