"""One run of generated cases in several processes, each with an original of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event

from tests.differential.drawing.generator import possible_pairs
from tests.differential.original import Original
from tests.differential.running import Result, run

_NO_END = 10**9
_LASTING_S = 120.0


def run_in_processes(
    processes: int,
    cases: int,
    seed: int,
    *,
    least: int = 0,
    seconds: float | None = None,
    most: int = 1,
    progress: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Compare generated cases in several processes. The cases of each are those of one of the seeds from `seed` on.

    Args:
        processes: how many processes.
        cases: how many cases at least.
        seed: the first seed.
        least: in how many cases each operator, and each pair of operators, is to be compared at least.
        seconds: after how long no new case is begun; None for no limit.
        most: after how many differences the run ends.
        progress: called after each batch.
    """
    began = time.monotonic()
    total = Result(seed)
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    parts: dict[Connection, Result] = {}
    children = []
    for number in range(processes):
        mine, theirs = context.Pipe()
        child = context.Process(target=_work, args=(theirs, stop, seed + number, seconds, most), daemon=True)
        child.start()
        theirs.close()
        children.append(child)
        parts[mine] = Result(seed + number)
    running = set(parts)
    while running:
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            try:
                parts[connection] = connection.recv()
            except EOFError:
                running.discard(connection)
        total = _sum(seed, list(parts.values()))
        total.seconds = time.monotonic() - began
        progress(total)
        if (total.compared >= cases and fewest(total) >= least) or len(total.differences) >= most:
            stop.set()
    for child in children:
        child.join()
        if child.exitcode:
            raise RuntimeError(f"a process of the run ended with status {child.exitcode}")
    return total


def fewest(result: Result) -> int:
    """Return in how many cases the pair of operators was compared that was compared least."""
    return min(result.counts[pair] for pair in possible_pairs())


def _sum(seed: int, parts: list[Result]) -> Result:
    total = Result(seed)
    for part in parts:
        total.compared += part.compared
        total.refused += part.refused
        total.counts.update(part.counts)
        total.options.update(part.options)
        total.differences += part.differences
    return total


def _work(connection: Connection, stop: Event, seed: int, seconds: float | None, most: int) -> None:
    def progress(result: Result) -> bool:
        connection.send(result)
        return not stop.is_set()

    with Original(lasting=seconds is None or seconds > _LASTING_S) as original:
        run(original, _NO_END, seed, seconds=seconds, most=most, progress=progress)
    connection.close()
