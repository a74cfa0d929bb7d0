"""A run of generated cases: drawing, both sides, comparing, shrinking, coverage."""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.differential import stored
from tests.differential.comparing import difference
from tests.differential.drawing.coverage import pairs_of
from tests.differential.drawing.generator import Generator, possible_pairs
from tests.differential.original import Original
from tests.differential.ours.answers import answer
from tests.differential.shrinking import shrink
from tests.support import seeds

BUILD = Path("build/differential")
_BATCH = 20
_MANY = 5000

Case = dict[str, Any]


@dataclass
class Result:
    """What a run found."""

    seed: int
    compared: int = 0
    refused: int = 0
    """Cases that both sides refuse, or in which both fail at the same record; they are not counted as coverage."""
    counts: Counter[Any] = field(default_factory=Counter)
    """Cases in which an operator, or a pair of them, was compared."""
    differences: list[tuple[Case, str]] = field(default_factory=list)
    seconds: float = 0.0


def run(
    original: Original,
    cases: int,
    seed: int,
    *,
    seconds: float | None = None,
    most: int = 1,
    progress: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Compare generated cases.

    Args:
        original: the original.
        cases: how many cases.
        seed: the seed of all of them.
        seconds: after how long no new case is begun; None for no limit.
        most: after how many differences the run ends.
        progress: called after each batch.
    """
    began = time.monotonic()
    result = Result(seed)
    drawn: Counter[Any] = Counter()
    generator = Generator(seed, drawn)

    def batch(size: int) -> list[Case]:
        made = [generator.case() for _ in range(size)]
        for each in made:
            drawn.update(pairs_of(each))
        return made

    waiting = batch(min(_BATCH, cases))
    original.send(waiting)
    left = cases - len(waiting)
    while waiting:
        answers = [answer(case) for case in waiting]
        theirs = original.receive()
        done, waiting = waiting, []
        late = seconds is not None and time.monotonic() - began > seconds
        if left and not late and len(result.differences) < most:
            waiting = batch(min(_BATCH, left))
            left -= len(waiting)
        found = []
        for case, mine, their in zip(done, answers, theirs, strict=True):
            result.compared += 1
            what = difference(case, their, mine)
            if what is not None:
                found.append((case, what))
            elif "error" in their:
                result.refused += 1
            else:
                result.counts.update(pairs_of(case))
        for case, what in found:
            if len(result.differences) < most:
                result.differences.append(smaller(original, case, what))
        if len(result.differences) >= most:
            waiting = []
        if waiting:
            original.send(waiting)
        result.seconds = time.monotonic() - began
        progress(result)
    return result


def compare(original: Original, case: Case) -> str | None:
    """Return how both sides differ in a case; None if they do not."""
    return difference(case, original.answers([case])[0], answer(case))


def smaller(original: Original, case: Case, what: str) -> tuple[Case, str]:
    """Return a smaller case that differs in the same part, and how."""
    kind = _kind(what)

    def differs(candidate: Case) -> bool:
        found = compare(original, candidate)
        return found is not None and _kind(found) == kind

    least = shrink(case, differs)
    return least, compare(original, least) or what


def _kind(what: str) -> tuple[str, ...]:
    """Return what stays the same while a difference is made smaller: the part, or which side fails and how."""
    if what.startswith("failures"):
        return ("failures", *re.findall(r'null$|"text": "[\w.:]+', what, re.MULTILINE))
    return (what.split(maxsplit=1)[0],)


def save(result: Result) -> list[Path]:
    """Write the differences and the coverage of a run into `build/differential`."""
    BUILD.mkdir(parents=True, exist_ok=True)
    pairs = {pair: result.counts[pair] for pair in possible_pairs()}
    operators = {name: count for name, count in sorted(result.counts.items(), key=str) if isinstance(name, str)}
    (BUILD / "coverage.json").write_text(
        json.dumps(
            {
                "seed": result.seed,
                "cases": result.compared,
                "refused": result.refused,
                "different": len(result.differences),
                "operators": operators,
                "pairs": [[*pair, count] for pair, count in sorted(pairs.items())],
            },
            indent=1,
        )
    )
    files = []
    for number, (case, what) in enumerate(result.differences):
        file = BUILD / f"difference-{result.seed}-{number}.json"
        file.write_text(stored.written(case))
        file.with_suffix(".txt").write_text(what)
        files.append(file)
    return files


def show(result: Result, console: Console) -> None:
    """Print counts and coverage."""
    table = Table("operator", "cases", title=f"{result.compared} cases, seed {result.seed}")
    for name, count in sorted(result.counts.items(), key=str):
        if isinstance(name, str):
            table.add_row(name, str(count))
    console.print(table)
    pairs = sorted((result.counts[pair], pair) for pair in set(possible_pairs()))
    console.print(f"{len(pairs)} pairs of operators; the ones compared least:")
    for count, pair in pairs[:15]:
        console.print(f"  {count:6} {pair[0]} -> {pair[1]}")
    rate = result.compared / max(result.seconds, 0.001)
    console.print(
        f"{result.compared} cases in {result.seconds:.0f} s ({rate:.0f} a second), {result.refused} refused by both, "
        f"{len(result.differences)} different; seed {result.seed}"
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=None, help="seed of all random choices; default: a new one")
    parser.add_argument("--seconds", type=float, default=None, help="begin no new case after so many seconds")
    parser.add_argument("--most", type=int, default=5, help="end after so many differences")
    parser.add_argument("--replay", type=Path, default=None, help="compare the case of this file instead")
    parser.add_argument("--answers", action="store_true", help="write the original's answers beside all stored cases")
    given = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with Original(lasting=given.cases > _MANY) as original:
        if given.answers:
            files = stored.files()
            for file, theirs in zip(files, original.answers([stored.read(file) for file in files]), strict=True):
                stored.answer_of(file).write_text(stored.answer_written(theirs))
            return 0
        if given.replay is not None:
            what = compare(original, json.loads(given.replay.read_text()))
            console.print(what or "no difference")
            return what is not None
        seed = seeds.fresh() if given.seed is None else given.seed
        columns = (TextColumn("seed {task.fields[seed]}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("", total=given.cases, seed=seed)
            result = run(
                original,
                given.cases,
                seed,
                seconds=given.seconds,
                most=given.most,
                progress=lambda so_far: bar.update(task, completed=so_far.compared),
            )
    files = save(result)
    show(result, console)
    for file, (_, what) in zip(files, result.differences, strict=True):
        console.print(f"\n{what}\n{file.read_text()}replay: python -m tests.differential --replay {file}")
    return bool(result.differences)
