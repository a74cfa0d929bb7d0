"""`python -m tests.chaos`: cause random faults, then check that nothing was lost and nothing repeated."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.live import Live

from tests.chaos.applications import APPLICATIONS
from tests.chaos.planning import Kind, described, make_plan
from tests.chaos.reporting import summary, view
from tests.chaos.running import run
from tests.chaos.stage import Options
from tests.support import evidence

_PLAIN_EVERY = 50  # statuses


def main(arguments: list[str]) -> int:
    """Run, and print the result; return 0 if there were no violations."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--application", choices=sorted(APPLICATIONS), default="orders", help="what the workers run")
    parser.add_argument("--optimized", action="store_true", help="with topology.optimization=all")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="seed of the plan and the input; default: random")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--standbys", type=int, default=1)
    parser.add_argument("--rate", type=float, default=None, help="input records per second")
    parser.add_argument("--every", type=float, default=3.5, help="mean seconds between two faults")
    parser.add_argument("--session", type=float, default=2.0, help="session timeout in seconds")
    parser.add_argument("--alone", action="store_true", help="one worker and no coordinator")
    parser.add_argument("--only", default="", help="kinds of faults, separated by commas: " + ", ".join(Kind))
    parser.add_argument("--without-fencing", action="store_true", help="then the run has to fail")
    parser.add_argument("--plan", action="store_true", help="show the plan and end")
    parser.add_argument("--directory", type=Path, default=_directory(), help="directory for logs; default: %(default)s")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    options = Options(
        seed=seed, application=given.application, optimized=given.optimized, faults=given.faults,
        directory=(given.directory / str(seed)).absolute(),
        workers=given.workers, standbys=given.standbys, rate=given.rate, every=given.every, session=given.session,
        alone=given.alone, fencing=not given.without_fencing,
        only=frozenset(Kind(kind.strip()) for kind in given.only.split(",") if kind.strip()),
    )  # fmt: skip
    console = Console()
    if given.plan:
        names = ["w0"] if options.alone else [f"w{number}" for number in range(options.workers)]
        plan = make_plan(
            seed, options.faults, every=options.every, workers=names,
            spare=None if options.alone else f"w{options.workers}", session=options.session,
            stores=APPLICATIONS[options.application].stores,
            large_stores=APPLICATIONS[options.application].large_stores,
            coordinated=not options.alone, only=options.only,
        )  # fmt: skip
        console.print(described(plan), highlight=False)
        return 0
    shutil.rmtree(options.directory, ignore_errors=True)
    console.print(f"seed {seed}; everything is written to {options.directory}", highlight=False, soft_wrap=True)
    if console.is_terminal:
        with Live(console=console, refresh_per_second=5) as live:
            outcome = run(options, lambda status: live.update(view(status)))
    else:
        shown = 0

        def show(status: object) -> None:
            nonlocal shown
            if shown % _PLAIN_EVERY == 0:
                console.print(view(status))  # type: ignore[arg-type]
            shown += 1

        outcome = run(options, show)
    report = summary(outcome)
    console.print(report)
    with (options.directory / "report.txt").open("w") as file:
        Console(file=file, width=160).print(report)
        file.writelines(f"{finding}\n" for finding in outcome.findings)
    if outcome.good:
        # Logs and plan are kept; only the data is large.
        shutil.rmtree(options.directory / "broker" / "data", ignore_errors=True)
        shutil.rmtree(options.directory / "state", ignore_errors=True)
    return 0 if outcome.good else 1


def _directory() -> Path:
    return Path(os.environ.get(evidence.VARIABLE, "build")) / "chaos"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
