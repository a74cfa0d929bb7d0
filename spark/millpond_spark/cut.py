"""Find a moment at which no transaction of a task is half done, so that all of its stores are of one commit.

The markers that end a transaction reach its partitions one after the other. Ends that were asked for meanwhile may have a
transaction in one changelog and not in another, and a sum over two tables would be wrong. So ends are asked for until nothing
moved between two answers and no transaction was open between them: for all tasks at once, else for each task by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millpond.runtime.offsets.metadata import Partition

__all__ = ("Ask", "Cut", "find_cut")

Ends = Mapping[Partition, int]
Ask = Callable[[AbstractSet[Partition]], Ends]

_PAUSE_S = 0.02


class Cut(NamedTuple):
    """Where everything ends."""

    ends: Ends
    """The offset after the last record that counts."""
    torn: frozenset[int]
    """Numbers of the tasks for which no such moment was found: their stores may be of different commits."""
    whole: bool
    """Whether it is one moment for all tasks."""


def find_cut(
    tasks: Collection[Collection[Partition]],
    stable: Ask,
    latest: Ask,
    whole_s: float,
    patience_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Cut:
    """Ask for the ends of all tasks' partitions until they are of one moment between commits.

    Args:
        tasks: the partitions of each.
        stable: tells the offsets after the last committed records; of inputs, the committed offsets.
        latest: tells the offsets after the last records, of open transactions, too; of inputs, nothing.
        whole_s: how long to look for one moment for all tasks; after that, each task's own is enough.
        patience_s: how long to ask at all; then the last answer counts.
        now: monotonic seconds.
        sleep: waits so many seconds.
    """
    began = now()
    ends: dict[Partition, int] = {}
    left = dict(enumerate(tasks))  # for which no moment was found yet
    while True:
        whole = now() - began < whole_s
        asked = dict(enumerate(tasks)) if whole else left
        wanted = {each for own in asked.values() for each in own}
        before, between, after = stable(wanted), latest(wanted), stable(wanted)
        moving = {number for number, own in asked.items() if not _is_quiet(own, before, between, after)}
        if not moving and asked.keys() == set(range(len(tasks))):
            return Cut(after, frozenset(), whole=True)
        for number in [each for each in left if each not in moving]:
            ends |= {each: after[each] for each in left.pop(number)}
        if not whole and not left:
            return Cut(ends, frozenset(), whole=False)
        if now() - began >= patience_s:
            return Cut({**after, **ends}, frozenset(left), whole=False)
        sleep(_PAUSE_S)


def _is_quiet(own: Collection[Partition], before: Ends, between: Ends, after: Ends) -> bool:
    """Whether nothing was committed and nothing was open while `between` was asked for."""
    return all(before[each] == after[each] == between.get(each, after[each]) for each in own)
