"""`python -m bench.scaling`: measure, print a table, write `build/bench-scaling.json`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from bench.cluster import BROKER, JVM, Cluster, Group
from bench.failover.fleet import COMMIT_MS, Work
from bench.failover.millpond_side import MillpondFleet
from bench.processes import cpu_seconds
from bench.progress import Sample, drain
from bench.scaling.figures import Line, Run, lines
from bench.scaling.load import Load
from bench.scaling.placement import Placement, pin, placements, starting_on
from bench.sides import RunFailed
from bench.workloads import KEYS, VALUE_BYTES, Data
from millpond.broker import EmbeddedBroker
from millpond.errors import MillpondError

_PARTITIONS: Final = 10
_TARGET: Final = 1.6
_WIDTH: Final = 130
_LOOK_EVERY: Final = 0.02
_SETTLE: Final = 60.0
_STALLED: Final = 60.0
_SESSION_MS: Final = 6_000
_APPLICATIONS: Final = {
    "count": "group_by_key().count(): the broker uses about as much CPU time as the workers",
    "busy": "the same after some microseconds of Python per value: the workers are the bottleneck",
}
_HOW: Final = {
    "alone": "one worker on a core of its own, broker on the others",
    "halves": "two workers share that core, broker as before; speed-up: twice the rate, since each has half a core",
    "mixed": "two workers on a core each, broker on the same two",
    "apart": "two workers on a core each, broker on the others",
}


@dataclass
class Bench:
    """One run of the bench."""

    console: Console
    broker: EmbeddedBroker
    directory: Path
    placements: dict[str, Placement]
    records: int
    seed: int
    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    _number: int = 0

    def measure(self, application: str, name: str) -> None:
        """Measure one run: workers start and get their tasks; then the input is committed; then they drain it.

        Raises:
            RunFailed: they do not drain it in time.
        """
        placement = self.placements[name]
        self._number += 1
        identity = f"scaling-{application}-{name}-{self._number}"
        work = Work(
            application=identity,
            bootstrap=self.broker.bootstrap_servers,
            input=f"in-{identity}",
            output=f"out-{identity}",
            directory=self.directory,
            session_ms=_SESSION_MS,
            transaction_ms=0,
        )
        cluster = Cluster(work.bootstrap)
        for topic in (work.input, work.output):
            cluster.create(topic, _PARTITIONS)
        load = Load(work.bootstrap, work.input, Data(self.records, self.seed, int(time.time() * 1000) - 3_600_000))
        try:
            assert self.broker.pid is not None
            pin(self.broker.pid, placement.rest)
            with starting_on(placement.rest):
                fleet = MillpondFleet(work, application=f"bench.scaling.app:{application}", standbys=0)
                with fleet.running():
                    run = self._drained(fleet, placement, load)
        finally:
            load.close()
            cluster.delete([work.input, work.output, f"{identity}-"])
        self.runs.setdefault(application, {}).setdefault(name, []).append(run)
        self.console.log(
            f"{application} {name}: {run.rps:,.0f} records/s, workers {run.worker_us:.2f} µs, "
            f"broker {run.broker_us:.2f} µs per record"
        )

    def warm(self, application: str) -> None:
        """Run once unmeasured, with the broker on its own core: the broker is a JVM, which has to be warm.

        Raises:
            RunFailed: the workers do not drain the input.
        """
        self.measure(application, "alone")
        self.runs.clear()
        self.console.log("the broker is warm: that run is not in the results")

    def _drained(self, fleet: MillpondFleet, placement: Placement, load: Load) -> Run:
        workers = [f"w{number}" for number in range(len(placement.workers))]
        for worker, cores in zip(workers, placement.workers, strict=True):
            with starting_on(cores):
                fleet.start(worker)
        self._settle(fleet, len(workers))
        broker = self.broker.pid
        assert broker is not None
        group = Group(Cluster(fleet.work.bootstrap), fleet.work.application, fleet.work.input, _PARTITIONS)
        samples: list[Sample] = []
        served: list[tuple[int, float]] = []
        try:
            before = group.committed()
            load.commit()
            seen, news = 0, time.monotonic()
            while seen < self.records:
                fleet.check()
                now = time.monotonic()
                committed = group.committed() - before
                if committed > seen:
                    used = sum(cpu_seconds(fleet.pid(worker)) for worker in workers)
                    samples.append(Sample(time.monotonic(), committed, used))
                    served.append((committed, cpu_seconds(broker)))
                    seen, news = committed, now
                elif now - news > _STALLED:
                    raise RunFailed(f"{fleet.work.application}: {seen} of {self.records} records, then none")
                time.sleep(_LOOK_EVERY)
        finally:
            group.close()
        found = drain(samples, self.records, rss_mb=0.0, output_records=0)
        (first, first_cpu), (last, last_cpu) = (
            next(each for each in served if each[0] >= 0.3 * self.records),
            served[-1],
        )
        return Run(found.rps, found.cpu_s_per_million, (last_cpu - first_cpu) / (last - first) * 1e6)

    def _settle(self, fleet: MillpondFleet, workers: int) -> None:
        """Wait until the tasks are spread evenly, and all of them wait for input."""
        deadline = time.monotonic() + _SETTLE
        while True:
            fleet.check()
            held = list(fleet.holdings().values())
            if len(held) == workers and all(each.ready and len(each.active) == _PARTITIONS // workers for each in held):
                return
            if time.monotonic() > deadline:
                raise RunFailed(f"{fleet.work.application}: the tasks were not spread within {_SETTLE:.0f} s: {held}")
            time.sleep(0.1)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--quick", is_flag=True, help="One run of each.")
@click.option("--repeats", default=3, type=click.IntRange(1), help="Runs of each.")
@click.option("--applications", default=",".join(_APPLICATIONS), help="Which applications.")
@click.option(
    "--records", default=2_000_000, type=click.IntRange(100_000), help="Records of `count`; `busy` has a quarter."
)
@click.option("--seed", default=20_131, help="Of the keys and values.")
@click.option(
    "--output", default=Path("build/bench-scaling.json"), type=click.Path(path_type=Path), help="Where the figures go."
)
def main(quick: bool, repeats: int, applications: str, records: int, seed: int, output: Path) -> None:
    """Compare the throughput of two workers on two cores with one on one. docs/benchmarks.md describes how."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops the workers and the broker
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    try:
        where = placements(sorted(os.sched_getaffinity(0)))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    chosen = [name for name in _APPLICATIONS if name in applications.split(",")]
    console.print(
        f"{records:,} records of {VALUE_BYTES} bytes, {KEYS:,} keys, {_PARTITIONS} partitions, exactly once, commit "
        f"every {COMMIT_MS} ms, seed {seed}; the measurement starts when all records are in Kafka and the workers have "
        "their tasks"
    )
    for name in where:
        console.print(f"  [bold]{name}[/bold]: {_HOW[name]}")
    directory = output.parent.absolute() / "bench-scaling"
    shutil.rmtree(directory, ignore_errors=True)
    found: list[Line] = []
    with contextlib.ExitStack() as stack:
        try:
            broker = stack.enter_context(EmbeddedBroker(heap_mb=1024, properties=BROKER, jvm_options=JVM))
            for application in chosen:
                bench = Bench(console, broker, directory, where, records // (4 if application == "busy" else 1), seed)
                bench.warm(application)
                for _ in range(1 if quick else repeats):
                    for name in where:
                        bench.measure(application, name)
                found += lines(application, where, bench.runs[application])
        except (MillpondError, RunFailed) as error:
            raise click.ClickException(str(error)) from error
        finally:
            if found:
                _finish(console, found, output)


def _finish(console: Console, found: Sequence[Line], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([line.to_json() for line in found], indent=2) + "\n", encoding="utf-8")
    table = Table(
        title="Throughput of two workers, compared with one on a core of its own; medians",
        caption=f"Target: {_TARGET} with the broker on other cores, as in `halves` (or, with four cores, `apart`). "
        "by CPU: the speed-up that the workers' CPU time per record allows.",
    )
    for name in ("application", "placement"):
        table.add_column(name)
    for name in (
        "workers",
        "records/s",
        "workers' CPU\nµs per record",
        "broker's CPU\nµs per record",
        "speed-up",
        "by CPU",
    ):
        table.add_column(name, justify="right")
    before = None
    for line in found:
        if before not in {None, line.application}:
            table.add_section()
        before = line.application
        run = line.run
        style = "" if line.placement == "alone" else "[green]" if line.speed_up >= _TARGET else "[red]"
        table.add_row(
            line.application, line.placement, str(line.workers), f"{run.rps:,.0f}", f"{run.worker_us:.2f}",
            f"{run.broker_us:.2f}", f"{style}{line.speed_up:.2f}", f"{line.cpu_speed_up:.2f}",
        )  # fmt: skip
    console.print(table)
    console.print(f"Written to {output}")


if __name__ == "__main__":
    main()
