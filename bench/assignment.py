"""The duration of assignments of a large application: `python -m bench.assignment`.

Prints a table and writes `build/bench-assignment.json`. The cost of an assignment depends on its reason, so each case
is one change to a settled cluster; one more is the first assignment.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId
from millpond_operator.assignment import (
    AssignableWorker,
    AssignmentOptions,
    Copy,
    Placement,
    Situation,
    Task,
    grant,
    refine,
    target,
)

__all__ = ("Case", "Figures", "Size", "cases", "measure")

_END: Final = 1_000_000  # records in each changelog
_LOST: Final = "w0007"
_WIDTH: Final = 110  # columns of the output if it is not a terminal


@dataclass(frozen=True)
class Size:
    """An application."""

    tasks: int = 10_000
    workers: int = 500
    subtopologies: int = 10
    """Sub-topologies; every fifth one is stateless."""
    standbys: int = 1
    zones: int = 3


@dataclass(frozen=True)
class Case:
    """One change to an application."""

    name: str
    size: Size
    situation: Situation
    options: AssignmentOptions
    goal: Placement
    """The last target."""
    placement: Placement
    """The last refined target."""


@dataclass(frozen=True)
class Figures:
    """The durations of a case: medians over the repeats, in seconds; `worst` is the longest sum."""

    name: str
    size: Size
    target: float
    refine: float
    grant: float
    worst: float
    cpu: float
    """CPU time of all three steps, median. The difference to `total` is the time in which other processes ran."""
    moves: int
    """Active tasks that have to move."""
    warm_ups: int

    @property
    def total(self) -> float:
        """The duration of all three steps, in seconds."""
        return self.target + self.refine + self.grant


def cases(size: Size) -> Iterator[Case]:
    """All cases for one size."""
    options = AssignmentOptions(standby_replicas=size.standbys, rack_aware_tags=("zone",))
    workers = {
        id_: AssignableWorker(id_, {"zone": f"z{i % size.zones}"}) for i in range(size.workers) for id_ in [f"w{i:04}"]
    }
    tasks = {}
    for i in range(size.tasks):
        id_ = TaskId(i % size.subtopologies, i // size.subtopologies)
        tasks[id_] = Task(id_, stateful=id_.subtopology % 5 != 4)
    nothing = Situation(tasks, workers, {id_: {} for id_ in workers}, {}, dict.fromkeys(tasks))

    def case(name: str, situation: Situation, goal: Placement, placement: Placement | None = None) -> Case:
        return Case(name, size, situation, options, goal, goal if placement is None else placement)

    yield case("first assignment", nothing, Placement())
    goal = target(nothing, options, Placement())
    settled = replace(nothing, copies=_copies(goal, workers), owners=dict(goal.active))
    yield case("only lags changed", settled, goal)
    yield case("one worker lost", _without(settled, {_LOST}), goal)
    yield case("one worker added", _with(settled, {"x": AssignableWorker("x", {"zone": "z0"})}), goal)
    added = {id_: AssignableWorker(id_, {"zone": f"z{i % size.zones}"}) for i in range(50) for id_ in [f"x{i:02}"]}
    yield case("50 workers added", _with(settled, added), goal)
    zone = {id_ for id_, worker in workers.items() if worker.tags["zone"] == "z0"}
    if size.zones > 1:
        yield case("a zone lost", _without(settled, zone), goal)
    draining = {**workers, _LOST: replace(workers[_LOST], placeable=False)}
    yield case("one worker drains", replace(settled, workers=draining), goal)
    yield case("coordinator lost its state", settled, Placement())
    forgetful = _without(settled, {_LOST})
    yield case("and a worker is gone", replace(forgetful, owners=dict(goal.active)), Placement())
    heavy = {id_: replace(task, weight=1.0 + 9 * (id_.partition % 7 == 0)) for id_, task in tasks.items()}
    yield case("weights differ", replace(settled, tasks=heavy), goal)


def _copies(placement: Placement, workers: Mapping[str, AssignableWorker]) -> dict[str, dict[TaskId, Copy]]:
    copies: dict[str, dict[TaskId, Copy]] = {id_: {} for id_ in workers}
    for task, worker in placement.active.items():
        copies[worker][task] = Copy(Role.ACTIVE, TaskState.RUNNING, None, _END)
    for task, holders in placement.standby.items():
        for worker in holders:
            copies[worker][task] = Copy(Role.STANDBY, TaskState.RUNNING, 10, _END - 10)
    return copies


def _without(situation: Situation, gone: set[str]) -> Situation:
    return replace(
        situation,
        workers={id_: worker for id_, worker in situation.workers.items() if id_ not in gone},
        copies={id_: copies for id_, copies in situation.copies.items() if id_ not in gone},
    )


def _with(situation: Situation, added: Mapping[str, AssignableWorker]) -> Situation:
    copies = {**situation.copies, **{id_: {} for id_ in added}}
    return replace(situation, workers={**situation.workers, **added}, copies=copies)


def measure(case: Case, repeats: int, clock: Callable[[], float] = time.perf_counter) -> Figures:
    """Assign `repeats` times, and measure the time with `clock` (seconds)."""
    rounds: list[tuple[float, float, float]] = []
    spent: list[float] = []
    goal = placement = Placement()
    for _ in range(repeats):
        gc.collect()
        cpu = time.process_time()
        began = clock()
        goal = target(case.situation, case.options, case.goal)
        aimed = clock()
        placement = refine(goal, case.situation, case.options, case.placement)
        refined = clock()
        grant(placement, case.situation)
        rounds.append((aimed - began, refined - aimed, clock() - refined))
        spent.append(time.process_time() - cpu)
    aim, check, order = (statistics.median(times) for times in zip(*rounds, strict=True))
    return Figures(
        case.name,
        case.size,
        aim,
        check,
        order,
        worst=max(map(sum, rounds)),
        cpu=statistics.median(spent),
        moves=sum(case.placement.active.get(task, worker) != worker for task, worker in goal.active.items()),
        warm_ups=len(placement.warm_up),
    )


def _table(figures: list[Figures]) -> Table:
    size = figures[0].size
    table = Table(
        title=f"{size.tasks:,} tasks in {size.subtopologies} sub-topologies on {size.workers:,} workers in "
        f"{size.zones} zones, {size.standbys} standbys; milliseconds, medians",
    )
    table.add_column("what happened")
    for column in ("target", "refine", "grant", "total", "worst", "CPU", "moves", "warm-ups"):
        table.add_column(column, justify="right")
    for each in figures:
        times = (each.target, each.refine, each.grant, each.total, each.worst, each.cpu)
        table.add_row(each.name, *(f"{1000 * t:.0f}" for t in times), f"{each.moves:,}", f"{each.warm_ups}")
    return table


@click.command(context_settings={"show_default": True})
@click.option("--tasks", default=10_000, help="Tasks of the application.")
@click.option("--workers", default=500, help="Workers it has.")
@click.option("--repeats", default=5, help="Runs of each case.")
@click.option("--output", default="build/bench-assignment.json", type=click.Path(dir_okay=False, path_type=Path))
def main(tasks: int, workers: int, repeats: int, output: Path) -> None:
    """Measure target, refine and grant for large applications, with and without standbys and zones."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    everything: list[Figures] = []
    for subtopologies, standbys, zones in ((10, 0, 1), (10, 1, 3), (10, 2, 3), (100, 1, 3), (10, 2, 25)):
        size = Size(tasks, workers, subtopologies, standbys, zones)
        figures = [measure(case, repeats) for case in cases(size)]
        console.print(_table(figures))
        everything += figures
    measured = [{**asdict(each), "total": each.total} for each in everything]
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"unit": "seconds", "machine": machine, "cases": measured}, indent=2) + "\n")
    slowest, cpu = (1000 * max(getattr(each, name) for each in everything) for name in ("total", "cpu"))
    console.print(f"Slowest: {slowest:.0f} ms, {cpu:.0f} ms of CPU; all results in {output}")


if __name__ == "__main__":
    main()
