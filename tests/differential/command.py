"""The command `python -m tests.differential`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millpond.broker import java
from tests.differential import stored
from tests.differential.drawing.generator import possible_pairs
from tests.differential.original import Original
from tests.differential.parallel import fewest, run_in_processes
from tests.differential.running import Result, compare, save
from tests.support import seeds

_EACH = 1000
"""After how many cases a line is printed."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many cases")
    parser.add_argument("--least", type=int, default=0, help="go on until each pair of operators has so many cases")
    parser.add_argument("--processes", type=int, default=1, help="processes; each has a seed, from --seed on")
    parser.add_argument("--seed", type=int, default=None, help="seed of all random choices; default: a new one")
    parser.add_argument("--seconds", type=float, default=None, help="begin no new case after so many seconds")
    parser.add_argument("--most", type=int, default=5, help="end after so many differences")
    parser.add_argument("--replay", type=Path, default=None, help="compare the case of this file instead")
    parser.add_argument("--optional", action="store_true", help="succeed without a JDK, and compare nothing")
    parser.add_argument("--answers", action="store_true", help="write the original's answers beside all stored cases")
    given = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False, markup=False)
    if given.optional:
        try:
            java.find_jdk()
        except java.JavaNotFound as missing:
            console.print(f"nothing was compared: {missing}")
            return 0
    if given.answers:
        _write_answers()
        return 0
    if given.replay is not None:
        with Original() as original:
            what = compare(original, json.loads(given.replay.read_text()))
        console.print(what or "no difference")
        return what is not None
    seed = seeds.fresh() if given.seed is None else given.seed
    console.print(f"seed {seed}, {given.processes} processes")
    printed = 0

    def progress(so_far: Result) -> None:
        nonlocal printed
        if so_far.compared >= printed + _EACH:
            printed = so_far.compared
            console.print(
                f"{so_far.compared} cases in {so_far.seconds:.0f} s, {len(so_far.differences)} different, "
                f"{fewest(so_far)} of the pair compared least"
            )
            save(so_far)

    result = run_in_processes(
        given.processes,
        given.cases,
        seed,
        least=given.least,
        seconds=given.seconds,
        most=given.most,
        progress=progress,
    )
    files = save(result)
    show(result, console)
    for file, (_, what) in zip(files, result.differences, strict=True):
        console.print(f"\n{what}\n{file.read_text()}replay: python -m tests.differential --replay {file}")
    return bool(result.differences)


def _write_answers() -> None:
    files = stored.files()
    with Original() as original:
        answers = original.answers([stored.read(file) for file in files])
    for file, theirs in zip(files, answers, strict=True):
        stored.answer_of(file).write_text(stored.answer_written(theirs))


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
