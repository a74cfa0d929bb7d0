"""Records that workers dropped, counted over processes that end and tasks that move."""

from __future__ import annotations

import random

from millpond.cli.dev.observing.increases import Increases
from tests.support import seeds


def test_counters_that_begin_anew_are_added_to_what_was_counted_before() -> None:
    """A process that is started again, and a task that comes back, begin at 0."""
    letters = Increases()
    for process, counters, total in (
        (1, {"0_0": 4}, 4),
        (1, {"0_0": 5, "0_1": 2}, 7),
        (1, {"0_1": 3}, 8),  # 0_0 has moved to another worker
        (1, {"0_0": 1, "0_1": 3}, 9),  # and is back
        (2, {"0_0": 6, "0_1": 3}, 18),
        (2, {}, 18),
        (2, {"0_0": 6}, 24),
    ):
        letters.add(process, counters)
        assert letters.total == total


def test_the_sum_is_that_of_all_increases_however_tasks_move() -> None:
    """If every increase is seen by a scrape before the process ends or the task moves."""
    chance = random.Random(seeds.derived(seeds.RUN, "increases"))
    letters, expected = Increases(), 0
    process, counters = 1, dict.fromkeys(("0_0",), 0)
    for _ in range(1_000):
        if chance.random() < 0.05:
            process, counters = process + 1, {}
        task = f"0_{chance.randrange(4)}"
        if chance.random() < 0.1:
            counters.pop(task, None)
        else:
            more = chance.randrange(3)
            counters[task] = counters.get(task, 0) + more
            expected += more
        letters.add(process, dict(counters))
        assert letters.total == expected
