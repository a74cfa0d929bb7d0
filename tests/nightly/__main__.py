"""Run what does not decide about a change: `make nightly MINUTES=60 SEED=1`; without minutes, all in full length.

Each part has its log, and each round that failed its evidence, in `build/nightly`. The table has the command that
repeats it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.ci.cluster import Cluster, Machine, choose
from tests.nightly.parts import PARTS, Part
from tests.nightly.sharing import left_out, shares
from tests.support import evidence, seeds

_BUILD = Path("build/nightly")
_E2E = Path("build/e2e")
_TAIL_LINES, _LAST_LINES = 60, 12


@dataclass(frozen=True)
class Round:
    """The result of one round of a part."""

    part: str
    seed: int
    seconds: float
    status: int
    log: Path
    repeat: str
    """The command that repeats it."""

    @property
    def result(self) -> str:
        """The result as the table shows it."""
        return "passed" if self.status == 0 else f"FAILED ({self.status}), see {self.log.parent}"


def rounds(part: Part, seed: int, seconds: float | None, environment: Mapping[str, str]) -> Iterator[Round]:
    """Run rounds of a part until its time is over.

    Args:
        part: the part.
        seed: the seed of the whole run; each round derives its own.
        seconds: the time limit; None for all rounds in full length.
        environment: further variables.
    """
    began, number = time.monotonic(), 0
    while True:
        left = None if seconds is None else seconds - (time.monotonic() - began)
        if number and (part.takes_s or (number >= part.rounds if left is None else left < part.shortest_s)):
            return
        yield _round(part, seeds.derived(seed, f"{part.name} {number}"), number, left, environment)
        number += 1


def _round(part: Part, seed: int, number: int, left_s: float | None, environment: Mapping[str, str]) -> Round:
    directory = _BUILD / f"{part.name.replace(' ', '-').replace(',', '')}-{number}"
    directory.mkdir(parents=True)
    found = directory / "evidence"
    command = part.command(seed, left_s)
    began = time.monotonic()
    with (directory / "log").open("wb") as out:
        variables = {**os.environ, **environment, evidence.VARIABLE: str(found.absolute())}
        status = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=variables)
    if status == 0:
        shutil.rmtree(found, ignore_errors=True)
    elif part.on_cluster:
        shutil.copytree(_E2E, found, dirs_exist_ok=True)
    return Round(part.name, seed, time.monotonic() - began, status, directory / "log", shlex.join(command))


def main() -> int:
    """Run all parts; exit with status 0 if none failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("--minutes", type=float, default=None, help="time for all parts; default: all in full length")
    parser.add_argument("--seed", type=int, default=None, help="seed of all random choices; default: a new one")
    parser.add_argument("--only", default="", help="run only parts whose name contains this")
    parser.add_argument("--jobs", type=int, default=2, help="parts that run at the same time; most of them wait often")
    given = parser.parse_args()
    seed = seeds.fresh() if given.seed is None else given.seed
    seconds = None if given.minutes is None else given.minutes * 60
    chosen = [part for part in PARTS if given.only in part.name]
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"seed {seed}; logs and evidence are in {_BUILD}")
    shutil.rmtree(_BUILD, ignore_errors=True)
    _BUILD.mkdir(parents=True)
    table = Table("part", "seed", "seconds", "result", title=f"make nightly, seed {seed}")
    without = {
        name: f"takes a night of {needed / 60:.0f} minutes"
        for name, needed in left_out(chosen, seconds, given.jobs).items()
    }
    running = [part for part in chosen if part.name not in without]
    on_cluster = [part for part in running if part.on_cluster]
    way = choose(Machine.this()) if on_cluster else "no part needs one"
    with Cluster(_BUILD, way) as cluster:
        night = _Night(seed, shares(chosen, seconds, given.jobs), cluster, console)
        lanes = [on_cluster, *([part] for part in running if not part.on_cluster)]
        done = night.run([lane for lane in lanes if lane], given.jobs)
    for each in done:
        table.add_row(each.part, str(each.seed), f"{each.seconds:.0f}", each.result)
    for name, why in {**without, **night.left_out}.items():
        table.add_row(name, "", "", f"left out: {why}")
    failed = [each for each in done if each.status != 0]
    console.print(table)
    # At the end, because of a long output often only the end is kept.
    for each in failed:
        console.print(f"{each.part} ends with:\n{_tail(each.log, _LAST_LINES)}\nrepeat: {each.repeat}", markup=False)
    return 1 if failed else 0


class _Night:
    """Runs lanes of parts: the parts of a lane follow each other.

    Attributes:
        left_out: the parts that could not run, with the reason.
    """

    def __init__(self, seed: int, seconds: Mapping[str, float | None], cluster: Cluster, console: Console) -> None:
        self.left_out: dict[str, str] = {}
        self._seed = seed
        self._seconds = seconds
        self._cluster = cluster
        self._console = console
        self._ending = threading.Event()

    def run(self, lanes: Sequence[Sequence[Part]], jobs: int) -> list[Round]:
        """Run all lanes, so many at a time; return their rounds."""
        done: list[Round] = []
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for finished in as_completed([pool.submit(self._lane, lane) for lane in lanes]):
                    done += finished.result()
            finally:  # an interrupt begins nothing more
                self._ending.set()
                pool.shutdown(wait=False, cancel_futures=True)
        return done

    def _lane(self, lane: Sequence[Part]) -> list[Round]:
        environment: Mapping[str, str] | str = {}
        if any(part.on_cluster for part in lane):
            environment = self._cluster.environment()
            if isinstance(environment, str):
                self.left_out.update(dict.fromkeys((part.name for part in lane), environment))
                return []
        return [done for part in lane for done in self._part(part, environment)]

    def _part(self, part: Part, environment: Mapping[str, str]) -> Iterator[Round]:
        for done in rounds(part, self._seed, self._seconds[part.name], environment):
            self._console.print(f"{done.part}: seed {done.seed}, {done.seconds:.0f} s, {done.result}")
            if done.status != 0:
                self._console.print(_tail(done.log, _TAIL_LINES), markup=False)
            yield done
            if self._ending.is_set():
                return


def _tail(log: Path, lines: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the cluster goes with the run
    sys.exit(main())
