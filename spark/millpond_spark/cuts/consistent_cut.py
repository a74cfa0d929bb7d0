"""Find a consistent cut: end offsets of one moment at which no transaction of a task is half committed.

The markers that end a transaction reach its partitions one after the other. End offsets that are read meanwhile may
include a transaction in one changelog and not in another, and a sum over two tables would be wrong. So the ends are
read again until none changed between two reads and no transaction was open between them: for all tasks at once, else
for each task alone.

Tables of a moment also have to be complete, and compaction may remove records while they are read: then ends count only
if `complete` says so (see `moving_cut`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from millpond.runtime.offsets.metadata import Partition

__all__ = ("Ask", "Complete", "Cut", "find_cut")

Ends = Mapping[Partition, int]
Ask = Callable[[AbstractSet[Partition]], Ends]
Complete = Callable[[Partition, int], bool]
"""Returns whether everything that a partition had before an offset was read."""

_BACKOFF_S = 0.02


class Cut(NamedTuple):
    """The end offsets of all partitions."""

    ends: Ends
    """The offset after the last record to read."""
    torn: frozenset[int]
    """The indexes of tasks without a consistent cut: their stores may be of different commits, or incomplete."""
    whole: bool
    """Whether the cut is of one moment for all tasks."""


def find_cut(  # noqa: PLR0913  # clock functions for tests
    tasks: Collection[Collection[Partition]],
    stable: Ask,
    latest: Ask,
    whole_s: float,
    timeout_s: float,
    *,
    complete: Complete = lambda _partition, _end: True,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Cut:
    """Read the end offsets of all tasks' partitions until they are of one moment between commits.

    Args:
        tasks: the partitions of each task.
        stable: returns the offsets after the last committed records; of inputs, the committed offsets.
        latest: returns the offsets after the last records, open transactions included; nothing for inputs.
        whole_s: seconds to look for one moment for all tasks; after that, one moment for each task is enough.
        timeout_s: the longest total search, in seconds; after that, the last ends are returned.
        complete: whether the rows up to an end can be known; a task has no cut before. It is called before the last
            request for the ends: nothing was written until then that could have replaced what was read.
        now: returns monotonic seconds.
        sleep: waits for the given number of seconds.
    """
    began = now()
    ends: dict[Partition, int] = {}
    left = dict(enumerate(tasks))  # tasks without a consistent cut so far
    while True:
        whole = now() - began < whole_s
        asked = dict(enumerate(tasks)) if whole else left
        wanted = {each for own in asked.values() for each in own}
        before, between = stable(wanted), latest(wanted)
        known = {each for each in wanted if complete(each, before[each])}
        after = stable(wanted)
        moving = {
            number
            for number, own in asked.items()
            if not (known.issuperset(own) and _is_quiet(own, before, between, after))
        }
        if not moving and asked.keys() == set(range(len(tasks))):
            return Cut(after, frozenset(), whole=True)
        for number in [each for each in left if each not in moving]:
            ends |= {each: after[each] for each in left.pop(number)}
        if not whole and not left:
            return Cut(ends, frozenset(), whole=False)
        if now() - began >= timeout_s:
            return Cut({**after, **ends}, frozenset(left), whole=False)
        sleep(_BACKOFF_S)


def _is_quiet(own: Collection[Partition], before: Ends, between: Ends, after: Ends) -> bool:
    """Return whether nothing was committed and no transaction was open while `between` was read."""
    return all(before[each] == after[each] == between.get(each, after[each]) for each in own)
