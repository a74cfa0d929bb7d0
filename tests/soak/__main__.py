"""Run the long tests: `python -m tests.soak --minutes 10 --seed 1`; without minutes, all tests in full length."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.soak.parts import PARTS, Part
from tests.support import seeds

_LOGS = Path("build/soak")
_TAIL_LINES, _LAST_LINES = 60, 12


@dataclass(frozen=True)
class Round:
    """The result of one round of a part."""

    part: str
    seed: int
    seconds: float
    status: int
    log: Path


def rounds(part: Part, seed: int, seconds: float | None) -> Iterator[Round]:
    """Run rounds of a part until its time is over.

    Args:
        part: the part.
        seed: the seed of the whole run; each round derives its own.
        seconds: the time limit; None for all rounds in full length.
    """
    began, number = time.monotonic(), 0
    while True:
        left = None if seconds is None else seconds - (time.monotonic() - began)
        if number and (number >= part.rounds if left is None else left < part.shortest_s):
            return
        yield _round(part, seeds.derived(seed, f"{part.name} {number}"), number, left)
        number += 1


def _round(part: Part, seed: int, number: int, left_s: float | None) -> Round:
    log = _LOGS / f"{part.name.replace(' ', '-')}-{number}.log"
    began = time.monotonic()
    with log.open("wb") as out:
        status = subprocess.call(part.command(seed, left_s), stdout=out, stderr=subprocess.STDOUT)
    return Round(part.name, seed, time.monotonic() - began, status, log)


def main() -> int:
    """Run all parts; exit with status 0 if none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=None, help="time for the long tests; default: all tests in full length"
    )
    parser.add_argument("--seed", type=int, default=None, help="seed of all random choices; default: a new one")
    parser.add_argument("--only", default="", help="run only parts whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="parts that run at the same time; most of them wait often")
    given = parser.parse_args()
    seed = seeds.fresh() if given.seed is None else given.seed
    chosen = [part for part in PARTS if given.only in part.name]
    weights = sum(part.weight for part in chosen)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"seed {seed}; logs are in {_LOGS}")
    _LOGS.mkdir(parents=True, exist_ok=True)
    table = Table("part", "seed", "seconds", "result", title=f"make soak, seed {seed}")
    failed: list[Round] = []
    ended = threading.Event()

    def run(part: Part) -> list[Round]:
        share = None if given.minutes is None else given.jobs * given.minutes * 60 * part.weight / weights
        done = []
        for each in rounds(part, seed, share):
            console.print(f"{each.part}: seed {each.seed}, {each.seconds:.0f} s, {_result(each)}")
            done.append(each)
            if ended.is_set():
                break
        return done

    with ThreadPoolExecutor(given.jobs) as lanes:
        try:
            for finished in as_completed([lanes.submit(run, part) for part in chosen]):
                for each in finished.result():
                    table.add_row(each.part, str(each.seed), f"{each.seconds:.0f}", _result(each))
                    if each.status != 0:
                        failed.append(each)
                        console.print(_tail(each.log, _TAIL_LINES), markup=False)
        finally:  # an interrupt begins nothing more
            ended.set()
            lanes.shutdown(wait=False, cancel_futures=True)
    console.print(table)
    # Again, because of a long output often only the end is kept.
    for each in failed:
        console.print(f"{each.part}, seed {each.seed}, ends with:\n{_tail(each.log, _LAST_LINES)}", markup=False)
    return 1 if failed else 0


def _result(round: Round) -> str:
    return "passed" if round.status == 0 else f"FAILED ({round.status}), see {round.log}"


def _tail(log: Path, lines: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    sys.exit(main())
