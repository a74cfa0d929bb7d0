"""When the worker looks for cyclic garbage."""

from __future__ import annotations

import gc
import weakref

from millpond.runtime.worker.gc import GarbageCollector

RECORDS = 50_000


class Ring:
    """Refers to itself, so only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def collections() -> int:
    """How often any generation was collected."""
    return sum(generation["collections"] for generation in gc.get_stats())


def test_nothing_is_collected_while_as_much_is_freed_as_made() -> None:
    """A store that only replaces entries leaves nothing to find, however many records it processes."""
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
    """What user code leaves behind is found once there is enough of it."""
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
    """Without a commit they are found after a number of records."""
    collector = GarbageCollector()
    with collector.in_charge():
        first = weakref.ref(Ring())
        collector.processed(4 * RECORDS)
        assert first() is None
