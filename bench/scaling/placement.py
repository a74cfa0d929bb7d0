"""Which cores the workers and the broker of a run have, and how a process is given them (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Placement:
    """The cores of each worker, and those of everything else: broker, coordinator, the bench itself."""

    name: str
    workers: tuple[frozenset[int], ...]
    rest: frozenset[int]
    shares: int = 1
    """How many workers share each worker's core: each has that part of a core's speed."""


def placements(cores: Sequence[int]) -> dict[str, Placement]:
    """The placements to measure on a machine with these cores, by name.

    `alone`: one worker has a core of its own, the rest has the others. `halves`: two workers share that core, so each is one at half
    speed, and the broker, which serves both, still has its own: twice their rate is what two workers on two
    cores would reach with a broker aside. `mixed`: two workers on a core each, with the broker on the same
    two. `apart`, with four cores or more: two workers on a core each and the broker on the others, which needs no calculation.

    Raises:
        ValueError: when there is one core only.
    """
    if len(cores) < 2:
        message = "two workers on two cores cannot be measured on one core"
        raise ValueError(message)
    first, second, *others = sorted(cores)
    one, two = frozenset({first}), frozenset({second})
    aside = frozenset({second, *others})
    found = [
        Placement("alone", (one,), aside),
        Placement("halves", (one, one), aside, shares=2),
        Placement("mixed", (one, two), frozenset({first, second})),
    ]
    if len(others) >= 2:
        found.append(Placement("apart", (one, two), frozenset(others)))
    return {placement.name: placement for placement in found}


def pin(pid: int, cores: frozenset[int]) -> None:
    """Give a running process, all its threads, these cores; threads it makes later inherit them."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task.name), cores)


@contextlib.contextmanager
def starting_on(cores: frozenset[int]) -> Iterator[None]:
    """Processes that are started inside the block have these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
