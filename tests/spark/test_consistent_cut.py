"""The end offsets of a snapshot's stores: between two commits of their task, in any order of markers and answers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest

from millpond.runtime.offsets.metadata import Partition
from millpond_spark.cuts.consistent_cut import find_cut

STORES = 3


class Log:
    """Changelog partitions of tasks whose transactions change all stores, step by step, between any two answers.

    The record at each offset is the number of the transaction that wrote it; a marker takes an offset, too.
    """

    def __init__(self, tasks: int, rng: random.Random) -> None:
        self.rng = rng
        self.tasks = [[Partition(f"store-{store}", task) for store in range(STORES)] for task in range(tasks)]
        self.latest = {each: 0 for own in self.tasks for each in own}
        self.stable = dict(self.latest)
        self.contents: dict[Partition, list[tuple[int, int]]] = {each: [] for each in self.latest}
        self.steps = [self._commits(own) for own in self.tasks]

    def _commits(self, own: list[Partition]):
        number = 0
        while True:
            number += 1
            for each in self.rng.sample(own, len(own)):
                self.contents[each].append((self.latest[each], number))
                self.latest[each] += 1
                yield
            for each in self.rng.sample(own, len(own)):
                self.latest[each] += 1
                self.stable[each] = self.latest[each]
                yield
            for _ in range(self.rng.randrange(30)):
                yield

    def _answer(self, ends: dict[Partition, int], wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        """Partitions are looked at one after the other, and the tasks go on between any two of them."""
        found = {}
        for each in self.rng.sample(sorted(wanted), len(wanted)):
            found[each] = ends[each]
            for task in self.steps:
                for _ in range(self.rng.randrange(3)):
                    next(task)
        return found

    def ask_stable(self, wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        return self._answer(self.stable, wanted)

    def ask_latest(self, wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        return self._answer(self.latest, wanted)


@pytest.mark.parametrize("number", range(40))
def test_every_transaction_is_in_all_stores_of_its_task_or_in_none(seed: int, number: int) -> None:
    """A transaction is in a store when its last record is before the end."""
    log = Log(2, random.Random(f"{seed}-{number}"))
    cut = find_cut(log.tasks, log.ask_stable, log.ask_latest, 1.0, 1.0, now=lambda: 0.0, sleep=lambda _: None)
    assert not cut.torn
    for own in log.tasks:
        assert len({_last(log, cut.ends, each) for each in own}) == 1


@pytest.mark.parametrize("number", range(20))
def test_one_moment_for_all_tasks_is_preferred(seed: int, number: int) -> None:
    """Two tasks that commit together, as those of one worker do: a transaction is in both or in neither."""
    log = Log(1, random.Random(f"{seed}-{number}"))
    (own,) = log.tasks
    cut = find_cut([own[:1], own[1:]], log.ask_stable, log.ask_latest, 1.0, 1.0, now=lambda: 0.0, sleep=lambda _: None)
    assert cut.whole
    assert len({_last(log, cut.ends, each) for each in own}) == 1


def test_each_task_by_itself_is_enough_when_all_at_once_are_never_quiet() -> None:
    """Workers commit at different times."""
    clock = iter(range(1000))
    first, second = Partition("a", 0), Partition("a", 1)
    turns = iter(range(1000))

    def ends(wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        turn = next(turns)
        moving = first if turn // 3 % 2 else second
        return {each: turn if each == moving else 7 for each in wanted}

    cut = find_cut([[first], [second]], ends, ends, 5.0, 50.0, now=lambda: float(next(clock)), sleep=lambda _: None)
    assert (cut.ends, cut.torn, cut.whole) == ({first: 7, second: 7}, frozenset(), False)


def _last(log: Log, ends: Mapping[Partition, int], partition: Partition) -> int:
    """Return the last transaction before the end of a partition."""
    return max((number for offset, number in log.contents[partition] if offset < ends[partition]), default=0)


def test_ends_of_one_request_may_be_torn() -> None:
    """One request is not enough: this is why the ends are read again."""
    torn = 0
    for number in range(40):
        log = Log(1, random.Random(number))
        ends = log.ask_stable(set(log.latest))
        torn += len({_last(log, ends, each) for each in log.tasks[0]}) > 1
    assert torn


def test_task_that_never_pauses_is_named_after_the_patience() -> None:
    """Its last ends are used; those of other tasks are of one moment."""
    clock = iter(range(1000))
    moving = iter(range(1000))
    busy, quiet = Partition("a", 0), Partition("a", 1)

    def ends(wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        return {each: 7 if each == quiet else next(moving) for each in wanted}

    asked = []

    def latest(wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        asked.append(set(wanted))
        return ends(wanted)

    cut = find_cut([[busy], [quiet]], ends, latest, 0.0, 3.0, now=lambda: float(next(clock)), sleep=lambda _: None)
    assert cut.torn == {0}
    assert cut.ends[quiet] == 7
    assert asked[0] == {busy, quiet}
    assert asked[1] == {busy}


def test_open_transaction_that_commits_nothing_yet_is_waited_for() -> None:
    """Its marker may not have reached another partition of the task yet."""
    one, other = Partition("a", 0), Partition("b", 0)
    stable = {one: 5, other: 3}
    open_ = [6, 6, 3]

    def latest(_: AbstractSet[Partition]) -> dict[Partition, int]:
        end = open_.pop(0)
        if end == 3:
            stable[other] = 3
        return {one: 5, other: end}

    cut = find_cut([[one, other]], lambda _: dict(stable), latest, 1.0, 1.0, now=lambda: 0.0, sleep=lambda _: None)
    assert cut.ends == {one: 5, other: 3}
    assert open_ == []


def test_end_counts_when_it_was_complete_before_the_last_answer(seed: int) -> None:
    """The search goes on while another end is not, and names the task if it never is."""
    log = Log(2, random.Random(seed))
    asked: list[tuple[Partition, int]] = []

    def ask_stable(wanted: AbstractSet[Partition]) -> dict[Partition, int]:
        asked.clear()
        return log.ask_stable(wanted)

    def complete(partition: Partition, end: int) -> bool:
        asked.append((partition, end))
        return end > 20

    cut = find_cut(
        log.tasks, ask_stable, log.ask_latest, 1.0, 1.0, complete=complete, now=lambda: 0.0, sleep=lambda _: None
    )
    assert min(cut.ends.values()) > 20
    assert asked == []
    never = log.tasks[1][0]
    times = iter(range(1000))
    cut = find_cut(
        log.tasks, log.ask_stable, log.ask_latest, 10.0, 100.0,
        complete=lambda partition, _: partition != never, now=lambda: float(next(times)), sleep=lambda _: None,
    )  # fmt: skip
    assert cut.torn == {1}
