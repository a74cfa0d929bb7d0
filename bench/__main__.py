"""`python -m bench`: run the comparison, print its table, write `build/bench.json`."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from bench import latency, throughput
from bench.cluster import BROKER, Cluster
from bench.data import Rows, load
from bench.progress import Drain
from bench.report import GUARANTEE_NAMES, show
from bench.sides import SIDES, Commands, Job, RunFailed, SideName
from bench.statistics import Case, Latency, Throughput
from bench.workloads import (
    DESCRIPTIONS,
    GUARANTEES,
    KEY_COUNTS,
    KEYED_WORKLOADS,
    KEYS,
    VALUE_BYTES,
    WITH_TABLE,
    WORKLOADS,
    Data,
    Guarantee,
    WorkloadName,
)
from millpond.broker import EmbeddedBroker
from millpond.broker.jars import paths
from millpond.broker.java import find_jdk
from millpond.errors import MillpondError

_COMMIT_MS: Final = 100
_LATENCY_COMMIT_MS: Final = (10, 100, 1000)
_LATENCY_PARTITIONS: Final = 10
_WIDTH: Final = 140  # of the output when it goes to a file
_DATA_AGE_MS: Final = (
    3_600_000  # the oldest record is an hour old: inside every retention, before anything that is written now
)


@dataclass
class Bench:
    """One run of the comparison."""

    console: Console
    commands: Commands
    cluster: Cluster
    data: Data
    progress: Progress
    throughputs: dict[Case, Throughput] = field(default_factory=dict)
    latencies: dict[Case, Latency] = field(default_factory=dict)
    _loaded: set[str] = field(default_factory=set)
    _runs: int = 0

    def throughput(self, cases: list[Case], repeats: int, deadline: float) -> None:
        """Run all cases in rounds, so that every case has a pair before any has two; the sides take turns to be first.

        No pair starts after `deadline` (monotonic seconds), except in the first round.
        """
        self._warm(cases[0], lambda side: self._drain(side, cases[0]))
        rounds = self.progress.add_task("throughput", total=len(cases) * repeats, status="pairs")
        for repeat in range(repeats):
            for case in cases:
                if repeat and time.monotonic() > deadline:
                    self.progress.console.print(
                        f"The time limit is reached: some cases have {repeat} pairs instead of {repeats}."
                    )
                    return
                order = SIDES if repeat % 2 == 0 else SIDES[::-1]
                pair = {side: self._drain(side, case) for side in order}
                self.throughputs.setdefault(case, Throughput(case, self.data.records)).pairs.append(pair)
                self.progress.advance(rounds)

    def latency(self, cases: list[Case], repeats: int, rate: int, seconds: float) -> None:
        """Run all cases, the sides in turns; collect the samples of all repeats."""
        self._warm(cases[0], lambda side: self._latencies(side, cases[0], rate, seconds))
        rounds = self.progress.add_task("latency", total=len(cases) * repeats, status="pairs")
        for repeat in range(repeats):
            for case in cases:
                order = SIDES if repeat % 2 == 0 else SIDES[::-1]
                found = self.latencies.setdefault(case, Latency(case, rate))
                for side in order:
                    found.samples.setdefault(side, []).extend(self._latencies(side, case, rate, seconds))
                self.progress.advance(rounds)

    def _warm(self, case: Case, run: Callable[[SideName], object]) -> None:
        """Run both sides once unmeasured: the broker is a JVM, and its first client waits for the JIT compiler."""
        guarantee = GUARANTEE_NAMES[case.guarantee]
        what = f"{case.workload}, {guarantee}, {case.partitions} partitions, commit every {case.commit_ms} ms"
        for side in SIDES:
            run(side)
        self.progress.console.print(f"The broker is warm: both sides ran once ({what}), which is not in the results.")

    def _latencies(self, side: SideName, case: Case, rate: int, seconds: float) -> list[float]:
        with self._bar(f"{side} latency {case.guarantee} {case.commit_ms} ms", None) as bar:
            return latency.measure(
                self.commands,
                self.cluster,
                side,
                self._job(side, case, own_topics=True),
                case.partitions,
                rate,
                seconds,
                lambda what: self.progress.update(bar, status=what),
            )

    def _drain(self, side: SideName, case: Case) -> Drain:
        self._load(case)
        title = f"{side} {case.workload} {case.guarantee}, {case.partitions} partitions, {case.keys:,} keys"
        with self._bar(title, self.data.records) as bar:
            return throughput.measure(
                self.commands, self.cluster, side, self._job(side, case), case.partitions, self.data.records,
                lambda committed: self.progress.update(bar, completed=committed),
            )  # fmt: skip

    def _load(self, case: Case) -> None:
        data = replace(self.data, keys=case.keys)
        wanted: list[tuple[str, Rows]] = [(_input(case), "stream")]
        if case.workload in WITH_TABLE:
            wanted.append((_table(case), "table"))
        for topic, rows in wanted:
            if topic not in self._loaded:
                with self._bar(f"loading {case.partitions} partitions, {case.keys:,} keys", None):
                    self.cluster.create(topic, case.partitions)
                    load(self.cluster.bootstrap, topic, rows, data)
                self._loaded.add(topic)

    def _job(self, side: SideName, case: Case, *, own_topics: bool = False) -> Job:
        self._runs += 1
        name = f"bench-{side.replace('_', '-')}-{case.workload}-{self._runs}"
        return Job(
            application=name,
            workload=case.workload,
            guarantee=case.guarantee,
            commit_ms=case.commit_ms,
            input=f"in-{name}" if own_topics else _input(case),
            table=f"table-{name}" if own_topics else _table(case),
            output=f"out-{name}",
            bootstrap=self.cluster.bootstrap,
            state=self.commands.build / "state" / name,
        )

    @contextlib.contextmanager
    def _bar(self, title: str, total: int | None) -> Iterator[TaskID]:
        bar = self.progress.add_task(title, total=total, status="")
        try:
            yield bar
        finally:
            self.progress.remove_task(bar)


def _input(case: Case) -> str:
    return f"records-{case.partitions}-{case.keys}"


def _table(case: Case) -> str:
    return f"rows-{case.partitions}-{case.keys}"


def usual_keys(keys: Sequence[int]) -> int:
    """Return `KEYS` if it is one of `keys`, else the first of them."""
    return KEYS if KEYS in keys else keys[0]


def throughput_cases(
    workloads: Sequence[WorkloadName], guarantees: Sequence[Guarantee], partitions: Sequence[int], keys: Sequence[int]
) -> list[Case]:
    """Return the lines of the throughput table, in the order in which they run.

    `count` and `window` run with every number of keys on the first number of partitions, and with `usual_keys` on the
    others.
    """
    usual = usual_keys(keys)
    return [
        Case(workload, guarantee, _COMMIT_MS, count, distinct)
        for count in partitions
        for workload in workloads
        for distinct in ((keys if count == partitions[0] else [usual]) if workload in KEYED_WORKLOADS else [KEYS])
        for guarantee in guarantees
    ]


def _choices(_context: object, parameter: click.Parameter, value: str) -> list[str]:
    known = {"workloads": WORKLOADS, "guarantees": GUARANTEES}[str(parameter.name)]
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(known)}.")
    return names


def _numbers(_context: object, _parameter: object, value: str) -> list[int]:
    try:
        numbers = [int(each) for each in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise click.BadParameter("expected positive numbers separated by commas, such as 1,10.")
    return numbers


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--quick", is_flag=True, help="Less than three minutes: 10 partitions, exactly once, short runs, cold JVM."
)
@click.option("--workloads", default=",".join(WORKLOADS), callback=_choices, help="The workloads to run.")
@click.option(
    "--partitions", default="10,1,100", callback=_numbers, help="Partition counts, in the order in which they run."
)
@click.option(
    "--keys",
    default=",".join(map(str, KEY_COUNTS)),
    callback=_numbers,
    help="Distinct keys of count and window: all on the first partition count, 100000 (or the first) on the others.",
)
@click.option("--guarantees", default=",".join(GUARANTEES[::-1]), callback=_choices, help="The guarantees to run.")
@click.option("--repeats", default=3, type=click.IntRange(1), help="Pairs of runs per case.")
@click.option("--records", default=1_500_000, type=click.IntRange(100_000), help="Records in the input topic.")
@click.option("--minutes", default=24.0, help="Start no further round of throughput pairs after this time.")
@click.option("--only", type=click.Choice(["throughput", "latency"]), help="Run only this part.")
@click.option("--rate", default=2_000, type=click.IntRange(1), help="Records per second for latency.")
@click.option("--seconds", default=10.0, help="The duration of one latency measurement.")
@click.option("--latency-workload", default="count", type=click.Choice(("stateless", "count", "window")))
@click.option("--seed", default=20_131, help="The seed of keys and values.")
@click.option(
    "--output", default=Path("build/bench.json"), type=click.Path(path_type=Path), help="The file of the results."
)
@click.option("--bootstrap-servers", default=None, help="Use this broker instead of the embedded one.")
def main(
    quick: bool,
    workloads: list[WorkloadName],
    partitions: list[int],
    keys: list[int],
    guarantees: list[Guarantee],
    repeats: int,
    records: int,
    minutes: float,
    only: str | None,
    rate: int,
    seconds: float,
    latency_workload: WorkloadName,
    seed: int,
    output: Path,
    bootstrap_servers: str | None,
) -> None:
    """Run the same work on millpond and on Kafka Streams 4.1 (Java, one stream thread) in turns, on the same broker.

    docs/benchmarks.md describes what is measured, and how.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops the sides and the broker
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    latency_commits: tuple[int, ...] = _LATENCY_COMMIT_MS
    latency_repeats = min(repeats, 2)
    latency_guarantees = guarantees
    if quick:
        partitions, guarantees, repeats, records = [10], ["exactly_once"], 1, min(records, 500_000)
        keys = [usual_keys(keys)]
        latency_commits, latency_repeats, latency_guarantees, seconds = (100,), 1, ["exactly_once"], 5.0
    data = Data(records, seed, int(time.time() * 1000) - _DATA_AGE_MS)
    build = output.parent.absolute() / "bench"
    with contextlib.ExitStack() as stack:
        try:
            commands = Commands(build, find_jdk() / "bin", paths("kafka-streams"))
            bootstrap = bootstrap_servers or stack.enter_context(_broker()).bootstrap_servers
        except (MillpondError, RunFailed) as error:
            raise click.ClickException(str(error)) from error
        _introduce(console, data, workloads, keys)
        progress = stack.enter_context(_progress(console))
        bench = Bench(console, commands, Cluster(bootstrap), data, progress)
        try:
            if only != "latency":
                cases = throughput_cases(workloads, guarantees, partitions, keys)
                bench.throughput(cases, repeats, time.monotonic() + minutes * 60)
            if only != "throughput":
                cases = [
                    Case(latency_workload, guarantee, commit_ms, _LATENCY_PARTITIONS)
                    for guarantee in latency_guarantees
                    for commit_ms in latency_commits
                ]
                bench.latency(cases, latency_repeats, rate, seconds)
        except RunFailed as error:
            raise click.ClickException(str(error)) from error
        finally:
            progress.stop()
            _finish(bench, output)


def _broker() -> EmbeddedBroker:
    # Enough heap for the requests of 100 partitions.
    return EmbeddedBroker(heap_mb=1024, properties=BROKER)


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _introduce(console: Console, data: Data, workloads: list[WorkloadName], keys: list[int]) -> None:
    console.print(
        f"{data.records:,} records of {VALUE_BYTES} bytes (keys: 8 bytes more), keys drawn uniformly: {KEYS:,}, "
        f"for count and window {', '.join(f'{each:,}' for each in keys)}; seed {data.seed}; "
        f"commit every {_COMMIT_MS} ms"
    )
    for workload in workloads:
        console.print(f"  [bold]{workload}[/bold]: {DESCRIPTIONS[workload]}")


def _finish(bench: Bench, output: Path) -> None:
    """Write and show all results, also if the bench was interrupted."""
    throughputs = sorted(
        bench.throughputs.values(),
        key=lambda each: (
            WORKLOADS.index(each.case.workload),
            each.case.partitions,
            each.case.keys,
            each.case.guarantee,
        ),
    )
    latencies = [each for each in bench.latencies.values() if set(each.samples) == set(SIDES)]
    if throughputs or latencies:
        output.parent.mkdir(parents=True, exist_ok=True)
        objects = [*(each.to_json() for each in throughputs), *(each.to_json() for each in latencies)]
        output.write_text(json.dumps(objects, indent=2) + "\n", encoding="utf-8")
        show(bench.console, throughputs, latencies)
        bench.console.print(f"Written to {output}")


if __name__ == "__main__":
    main()
