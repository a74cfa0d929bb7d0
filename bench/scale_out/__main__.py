"""`python -m bench.scale_out`: add workers with an empty disk; print a table, write `build/bench-scale-out.json`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.cluster import BROKER, JVM, Cluster
from bench.failover.analysis import Correctness
from bench.failover.fleet import COMMIT_MS, Holdings, Work
from bench.failover.millpond_side import MillpondFleet
from bench.failover.records import PARTITIONS, STORE, now_us
from bench.failover.traffic import Generator, Probe
from bench.scale_out.figures import WAYS, Figure, Way, caught_up, longest_gap_ms, longest_pause_ms, shared, size_of
from bench.scale_out.filling import VALUE_BYTES, fill
from bench.sides import RunFailed
from millpond.broker import EmbeddedBroker
from millpond.errors import MillpondError

_APPLICATION: Final = "bench.failover.app:topology"
_ID: Final = "bench-scale-out"
_FIRST: Final = "w0"
_SESSION_MS: Final = 6_000
_LOOK_S: Final = 0.1
_PATIENCE_S: Final = 180.0
_SLOWEST_BYTES_PER_S: Final = 2e6
_END_S: Final = 30.0
_INGESTED: Final = "ingested"


class _Size(click.ParamType[int]):
    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else size_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--state-bytes", default="48M", type=_Size(), help="Keys and values of each task, such as 2G.")
@click.option("--repeats", default=1, type=click.IntRange(1), help="Workers to add in each way.")
@click.option("--rate", default=1_000, type=click.IntRange(1), help="Input records per second.")
@click.option("--seed", default=20_131, help="Of the values.")
@click.option(
    "--directory",
    default=None,
    type=click.Path(path_type=Path),
    help="The directory of topics, states, snapshots and logs, which is emptied first. Default: bench-scale-out beside "
    "the results.",
)
@click.option(
    "--output",
    default=Path("build/bench-scale-out.json"),
    type=click.Path(path_type=Path),
    help="Where the figures go.",
)
def main(state_bytes: int, repeats: int, rate: int, seed: int, directory: Path | None, output: Path) -> None:
    """Add a worker with an empty disk to a running application, once by replay and once by a snapshot.

    docs/benchmarks.md describes what is measured, and how.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops the workers and the broker
    console = Console()
    directory = (directory or output.parent / "bench-scale-out").absolute()
    shutil.rmtree(directory, ignore_errors=True)
    console.print(
        f"{PARTITIONS} tasks with {state_bytes / 1e6:,.0f} MB of state each, in rows of {VALUE_BYTES} bytes; "
        f"{rate:,} records/s, exactly once, commit every {COMMIT_MS} ms, seed {seed}"
    )
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, directory / "broker" / "data", ignore_errors=True)
            broker = stack.enter_context(
                EmbeddedBroker(directory / "broker", heap_mb=1024, properties=BROKER, jvm_options=JVM)
            )
            changelog = f"{_ID}-{STORE}-changelog"
            with Progress(console=console, transient=True) as progress:
                task = progress.add_task("Filling the changelog", total=None)
                rows = fill(
                    broker.bootstrap_servers, changelog, state_bytes, seed, lambda more: progress.advance(task, more)
                )
            # Its clients are released before the broker ends: otherwise they log errors.
            figures, job_s, correctness = _bench(console, stack, broker, directory, state_bytes, rate).run(repeats)
    except (MillpondError, RunFailed, KafkaException) as error:
        raise click.ClickException(str(error)) from error
    settings = {"state_bytes": state_bytes, "rows": rows, "tasks": PARTITIONS, "rate": rate, "commit_ms": COMMIT_MS}
    _write(output, settings, figures, job_s, correctness)
    _show(console, figures, job_s, correctness)
    console.print(f"Written to {output}")
    if not correctness.holds:
        sys.exit(1)


class _SnapshotFleet(MillpondFleet):
    """Workers of millpond; those that start while `snapshots` is set load snapshots from there."""

    snapshots: Path | None = None

    def command(self, worker: str) -> tuple[list[str], dict[str, str]]:
        """One worker."""
        arguments, environment = super().command(worker)
        if self.snapshots is not None:
            arguments += ["--set", f"bootstrap.location={self.snapshots}"]
        return arguments, environment


def _bench(
    console: Console, stack: contextlib.ExitStack, broker: EmbeddedBroker, directory: Path, state_bytes: int, rate: int
) -> _Bench:
    """Start coordinator, input and probe; the stack stops them."""
    work = Work(
        application=_ID,
        bootstrap=broker.bootstrap_servers,
        input="in-scale-out",
        output="out-scale-out",
        directory=directory,
        session_ms=_SESSION_MS,
        transaction_ms=_SESSION_MS,
    )
    cluster = Cluster(work.bootstrap)
    for topic in (work.input, work.output):
        cluster.create(topic, PARTITIONS)
    fleet = _SnapshotFleet(work, standbys=0, application=_APPLICATION)
    stack.enter_context(fleet.running())
    return _Bench(
        console,
        fleet,
        Generator(work.bootstrap, work.input, rate),
        Probe(work.bootstrap, work.output),
        state_bytes,
        _PATIENCE_S + state_bytes * PARTITIONS / _SLOWEST_BYTES_PER_S,
    )


@dataclass
class _Bench:
    """An application on one worker, to which others are added one after the other."""

    console: Console
    fleet: _SnapshotFleet
    generator: Generator
    probe: Probe
    state_bytes: int
    patience_s: float

    def run(self, repeats: int) -> tuple[list[Figure], float, Correctness]:
        """Measure; return the measurements, the seconds of the snapshot, and violations of exactly-once.

        Raises:
            RunFailed: a step failed, or took too long.
        """
        self.fleet.start(_FIRST)
        self.probe.start()
        self.generator.start()
        self._until(lambda: shared(self.fleet.holdings(), PARTITIONS), f"all tasks at {_FIRST}")
        self.console.log(f"{_FIRST} has all tasks")
        figures = [self._add("replay", number) for number in range(repeats)]
        job_s = self._snapshot()
        self.console.log(f"snapshot made in {job_s:.1f} s")
        figures += [self._add("snapshot", number) for number in range(repeats)]
        sent = self.generator.stop()
        self._until(lambda: sum(map(self.probe.seen, range(PARTITIONS))) >= sum(sent), "the last results", _END_S)
        self.probe.stop()
        return figures, job_s, self.probe.finish(sent)

    def _add(self, way: Way, number: int) -> Figure:
        """Add a worker, wait until it has its share, and stop it again."""
        worker = f"{way}{number}"
        self.fleet.snapshots = self._snapshots if way == "snapshot" else None
        since_us, began = now_us(), time.monotonic()
        first: float | None = None
        self.fleet.start(worker)

        def through() -> bool:
            nonlocal first
            holdings: Holdings = self.fleet.holdings()
            if first is None and caught_up(holdings, worker):
                first = time.monotonic() - began
            return bool(holdings[worker].active) and shared(holdings, PARTITIONS)

        self._until(through, f"its share at {worker}")
        took, tasks = time.monotonic() - began, len(self.fleet.holdings()[worker].active)
        name = self.fleet.name(worker)
        self._until(lambda: len(self.probe.owned_by(name)) == tasks, f"results of {worker}")
        figure = Figure(
            way=way,
            state_bytes=self.state_bytes,
            tasks=tasks,
            first_s=took if first is None else first,
            all_s=took,
            pause_ms=longest_pause_ms(self.probe.moves, name),
            others_ms=longest_gap_ms(self.probe.gaps, since_us),
            ingested=self.fleet.log(worker).read_text(errors="replace").count(_INGESTED),
        )
        self.console.log(f"{way}: {figure.tasks} tasks in {figure.all_s:.1f} s")
        if way == "snapshot" and not figure.ingested:
            self.console.log("[yellow]it chose to replay, which it expected to be faster: use more --state-bytes[/]")
        self.fleet.terminate(worker)
        self._until(lambda: self.fleet.ended(worker), f"end of {worker}")
        self._until(lambda: shared(self.fleet.holdings(), PARTITIONS), f"all tasks back at {_FIRST}")
        self.fleet.forget(worker)
        return figure

    @property
    def _snapshots(self) -> Path:
        return self.fleet.work.directory / "snapshots"

    def _snapshot(self) -> float:
        """Make a snapshot while the application runs; return the seconds that it took."""
        work = self.fleet.work
        log = work.directory / "logs" / "snapshot.log"
        command = [
            *(
                sys.executable,
                "-m",
                "millpond.cli",
                "snapshot",
                "create",
                _APPLICATION,
                "--location",
                str(self._snapshots),
            ),
            *("--application-id", work.application, "--bootstrap-servers", work.bootstrap),
        ]
        environment = {"BENCH_INPUT": work.input, "BENCH_OUTPUT": work.output, "BENCH_OWNER": "snapshot"}
        began = time.monotonic()
        with log.open("wb") as out:
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}, check=False
            )
        if done.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RunFailed(f"no snapshot was made; the last lines of {log}:\n{tail}")
        return time.monotonic() - began

    def _until(self, reached: Callable[[], bool], what: str, seconds: float | None = None) -> None:
        limit = self.patience_s if seconds is None else seconds
        deadline = time.monotonic() + limit
        while not reached():
            self.fleet.check()
            if failure := self.probe.failure or self.generator.failure:
                raise RunFailed(failure)
            if time.monotonic() > deadline:
                raise RunFailed(f"{what}: not within {limit:.0f} s")
            time.sleep(_LOOK_S)


def _show(console: Console, figures: list[Figure], job_s: float, correctness: Correctness) -> None:
    table = Table(title="Adding a worker with an empty disk")
    table.add_column("way")
    for name in ("tasks", "first copy s", "all tasks s", "longest pause ms", "others ms", "stores loaded"):
        table.add_column(name, justify="right")
    for way in WAYS:
        for each in (figure for figure in figures if figure.way == way):
            table.add_row(
                way, str(each.tasks), f"{each.first_s:.1f}", f"{each.all_s:.1f}", f"{each.pause_ms:,.0f}",
                f"{each.others_ms:,.0f}", str(each.ingested),
            )  # fmt: skip
    console.print(table)
    style = "green" if correctness.holds else "red"
    console.print(
        f"The snapshot itself took {job_s:.1f} s. {correctness.results:,} results, [{style}]{correctness.lost} lost, "
        f"{correctness.twice} twice, {correctness.wrong} with a wrong count[/]"
    )


def _write(
    output: Path, settings: dict[str, int], figures: list[Figure], job_s: float, correctness: Correctness
) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    rounded = [
        each._replace(
            first_s=round(each.first_s, 3),
            all_s=round(each.all_s, 3),
            pause_ms=round(each.pause_ms, 1),
            others_ms=round(each.others_ms, 1),
        )._asdict()
        for each in figures
    ]
    counts = {
        "results": correctness.results,
        "lost": correctness.lost,
        "twice": correctness.twice,
        "wrong": correctness.wrong,
    }
    found = {"settings": settings, "snapshot_job_s": round(job_s, 3), **counts, "runs": rounded}
    output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
