"""Run the checks before a change lands: `.ci/run`, or `python -m tests.ci --only lint`.

Nothing is drawn: all random choices follow from the tree of the checkout, so a tree that passed passes again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.ci import passed
from tests.ci.cluster import Cluster, Machine, choose
from tests.ci.phases import PHASES, Phase
from tests.ci.tree import Tree, tree_of
from tests.support import choices
from tests.support.measuring import figures

_ROOT = Path(__file__).parents[2]
_BUILD = _ROOT / "build" / "ci"
_CHOICES = _BUILD / "choices"
_CHROMIUM = ("apt-get", "install", "--yes", "--no-install-recommends", "chromium")


@dataclass
class Run:
    """One run of phases.

    Attributes:
        tree: the tree of the checkout.
        results: the phases that ended, with their seconds and whether they passed.
        left_out: the phases that could not run, with one sentence each.
    """

    tree: Tree
    results: list[tuple[str, float, bool]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether no phase failed."""
        return all(passed for _, _, passed in self.results)


def main(arguments: Sequence[str]) -> int:
    """Run the phases; return 0 if all of them passed."""
    names = [each.name for each in PHASES]
    parser = argparse.ArgumentParser(prog="python -m tests.ci", description=__doc__)
    parser.add_argument("--only", choices=names, action="append", help="only this phase; the option can be repeated")
    parser.add_argument("--tree", action="store_true", help="show tree, seed and the runs that passed, and end")
    given = parser.parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    began = float(os.environ.get("CI_BEGAN") or time.time())
    run = Run(tree_of(_ROOT))
    console.print(f"tree {run.tree.id}: seed {run.tree.seed} for all random choices")
    for each in passed.passed(run.tree.id):
        console.print(f"This tree has passed before: {each}")
    if given.tree:
        return 0
    shutil.rmtree(_BUILD, ignore_errors=True)
    _CHOICES.mkdir(parents=True)
    chosen = [each for each in PHASES if not given.only or each.name in given.only]
    if not given.only:
        run.results.append(("install", time.time() - began, True))
    way = choose(Machine.this()) if any(each.on_cluster for each in chosen) else "no phase needs one"
    with Cluster(_BUILD, way) as cluster, ThreadPoolExecutor(1) as beside:
        _run(run, chosen, cluster, beside, console)
    _tell(run, console, time.time() - began, whole=not given.only)
    # A phase that was asked for by its name has to run.
    return 0 if run.good and not (given.only and run.left_out) else 1


def _run(run: Run, chosen: Sequence[Phase], cluster: Cluster, beside: ThreadPoolExecutor, console: Console) -> None:
    """Run phases until one fails. What later phases need is installed beside the first one."""
    needed = beside.submit(_prepare, chosen)
    environment = {**os.environ, **_seeded(run.tree)}
    for number, phase in enumerate(chosen):
        if phase.tests:
            needed.result()
        if any(each.on_cluster for each in chosen[number : number + 2]):
            cluster.bring_up()
        variables: Mapping[str, str] = {}
        if phase.on_cluster:
            found = cluster.environment()
            if isinstance(found, str):
                run.left_out[phase.name] = found
                continue
            variables = found
        command = phase.command(run.tree.seed)
        console.print(f"=== {phase.name}: {' '.join(command)}")
        sys.stdout.flush()
        began = time.monotonic()
        good = subprocess.call(command, cwd=_ROOT, env={**environment, **variables}) == 0
        run.results.append((phase.name, time.monotonic() - began, good))
        with contextlib.suppress(FileNotFoundError):  # each phase writes its own
            (_ROOT / figures.FILE).rename(_BUILD / f"figures-{phase.name}.txt")
        if not good:
            return


def _seeded(tree: Tree) -> dict[str, str]:
    """Return the variables by which the tests choose nothing by themselves, and record what they choose."""
    return {choices.DIRECTORY: str(_CHOICES), "PYTHONHASHSEED": str(tree.seed)}


def _prepare(chosen: Sequence[Phase]) -> None:
    """Install what tests need besides `make venv`. What fails here is told by the tests that need it."""
    if not any(each.tests for each in chosen):
        return
    with (_BUILD / "prepare.log").open("wb") as log:
        subprocess.call(["make", "spark"], cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if shutil.which("chromium") is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (("apt-get", "update"), _CHROMIUM):
                subprocess.call(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _tell(run: Run, console: Console, seconds: float, *, whole: bool) -> None:
    """Print the table, and record the run if it was whole and passed."""
    digest = choices.digest(choices.read(_CHOICES))
    table = Table("phase", "result", "time", title=f"tree {run.tree.id[:12]}, seed {run.tree.seed}, choices {digest}")
    for name, took, good in run.results:
        table.add_row(name, "passed" if good else "FAILED", _minutes(took))
    for name in run.left_out:
        table.add_row(name, "left out", "")
    table.add_row("in all", "passed" if run.good else "FAILED", _minutes(seconds))
    console.print(table)
    if run.good and whole and tree_of(_ROOT) != run.tree:
        console.print("Files were changed meanwhile: this run says nothing about a tree, and is not recorded.")
    elif run.good and whole:
        line = passed.Passed(run.tree.id, digest, round(seconds), datetime.now(UTC), tuple(sorted(run.left_out)))
        passed.add(line)
        console.print(f"Recorded in {passed.file()}: {line}")
    for file in sorted(_BUILD.glob("figures-*.txt")):
        console.print(f"Figures: {file.relative_to(_ROOT)}")
    for name, why in run.left_out.items():
        console.print(f"{name} was left out: {why}.")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the cluster goes with the run
    sys.exit(main(sys.argv[1:]))
