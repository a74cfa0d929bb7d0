"""The cores of workers and broker in a run, and how to assign them to a process (Linux)."""

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
    """The number of workers that share each worker's core."""


def placements(cores: Sequence[int]) -> dict[str, Placement]:
    """Return the placements to measure on a machine with these cores, by name.

    - `alone`: one worker has a core of its own; everything else has the other cores.
    - `halves`: two workers share that core, so each has half of it; the broker, which serves both, still has its own.
      Twice their rate is what two workers on two cores would reach with the broker elsewhere.
    - `mixed`: two workers on a core each, with the broker on the same two.
    - `apart`, with four cores or more: two workers on a core each and the broker on the others; no calculation needed.

    Raises:
        ValueError: there is only one core.
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
    """Assign cores to all threads of a running process; later threads inherit them."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # the thread has just ended
            os.sched_setaffinity(int(task.name), cores)


@contextlib.contextmanager
def starting_on(cores: frozenset[int]) -> Iterator[None]:
    """Assign cores to processes that are started inside the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
