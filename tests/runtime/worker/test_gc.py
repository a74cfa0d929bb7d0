"""The times at which the worker collects cyclic garbage."""

from __future__ import annotations

import gc
import weakref

from millpond.runtime.worker.memory.gc import GarbageCollector

RECORDS = 50_000


class Ring:
    """An object that refers to itself, so that only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def collections() -> int:
    """Return the number of collections of all generations."""
    return sum(generation["collections"] for generation in gc.get_stats())


def test_nothing_is_collected_while_as_much_is_freed_as_made() -> None:
    """A store that only replaces entries leaves nothing to collect, however many records it processes."""
    collector = GarbageCollector()
    with collector.in_charge():
        entries = [(number,) for number in range(1_000)]
        before = collections()
        for _ in range(200):
            entries[:] = [(number,) for number in range(1_000)]
            collector.processed(RECORDS // 200)
        collector.committed()
        assert collections() == before


def test_cycles_are_collected_after_the_commit() -> None:
    """Cycles that user code leaves behind are collected when there are enough of them."""
    collector = GarbageCollector()
    with collector.in_charge():
        first = weakref.ref(Ring())
        for _ in range(RECORDS):
            Ring()
        collector.processed(RECORDS)
        assert first() is not None
        collector.committed()
        assert first() is None


def test_long_commit_intervals_do_not_keep_cycles() -> None:
    """Without a commit they are collected after a number of records."""
    collector = GarbageCollector()
    with collector.in_charge():
        first = weakref.ref(Ring())
        collector.processed(4 * RECORDS)
        assert first() is None
