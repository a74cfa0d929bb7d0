"""`python -m bench.broker_faults`: three brokers and three workers, one fault at a time, and a table of the pauses."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from bench.broker_faults.evidence import input_faults, result_faults
from bench.broker_faults.faults import FAULTS, Faults, Measured, until
from bench.cluster import Cluster
from bench.failover.analysis import Correctness
from bench.failover.conduct import WORKERS
from bench.failover.fleet import Work
from bench.failover.millpond_side import MillpondFleet
from bench.failover.records import PARTITIONS
from bench.failover.traffic import Arrivals, Generator, Probe
from bench.sides import RunFailed
from millpond.times import moment
from tests.ownership import watch
from tests.support.clusters.kafka import KafkaCluster

_TARGETS: Final[dict[str, Callable[[float], float]]] = {
    "restart": lambda _producer: 3.0,
    "rolling": lambda _producer: 3.0,
    "reassign": lambda _producer: 3.0,
    "kill": lambda producer: 1.5 * producer + 3.0,
    "freeze": lambda producer: producer + 10.0,
    "zombie": lambda producer: producer + 10.0,
}
"""The longest pause that is wanted, in seconds, from that of the producer."""
_SETTLE_S: Final = 60.0
_QUIET_S: Final = 8.0
_END_S: Final = 60.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--faults", default=",".join(FAULTS), help="The faults to cause, in this order.")
@click.option("--repeats", default=1, type=click.IntRange(1), help="How often the whole list is run.")
@click.option("--rate", default=1_000, type=click.IntRange(1), help="Records per second.")
@click.option("--seed", default=1, help="The seed of the times of zombies.")
@click.option(
    "--directory",
    default=Path("build/bench-broker-faults"),
    type=click.Path(path_type=Path),
    help="The directory of brokers, states and logs, which is emptied first. It is kept if a result is wrong.",
)
@click.option(
    "--output",
    default=Path("build/bench-broker-faults.json"),
    type=click.Path(path_type=Path),
    help="Where the figures go.",
)
def main(faults: str, repeats: int, rate: int, seed: int, directory: Path, output: Path) -> None:
    """Stop, kill and freeze brokers under a count with exactly once, and measure the pause of every task."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops workers and brokers
    console = Console()
    if not console.is_terminal:
        console.width = 160
    directory = directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    run = Run()
    with KafkaCluster(directory / "brokers") as brokers:
        work = Work("broker-faults", brokers.bootstrap_servers, "in", "out", directory, 6_000, 10_000)
        run.cause(console, brokers, work, rate, seed, [kind for _ in range(repeats) for kind in faults.split(",")])
        run.wrong += input_faults(work.bootstrap, work.input)
        run.wrong += result_faults(work.bootstrap, work.output, directory / "results.tsv")
        run.wrong += watch.faults(watch.read_chains(work.bootstrap, work.application))
    _show(console, run)
    document = {"rate": rate, "seed": seed, "load": os.getloadavg(), **asdict(run)}
    output.write_text(json.dumps(document, indent=1) + "\n")
    if run.failure or run.wrong or not run.correctness.holds:
        raise click.ClickException(f"{run.failure or 'results are wrong'}; {directory} is kept")
    shutil.rmtree(directory / "brokers", ignore_errors=True)


@dataclass
class Run:
    """The figures of a run."""

    faults: list[Measured] = field(default_factory=list)
    correctness: Correctness = field(default_factory=Correctness)
    wrong: list[str] = field(default_factory=list)
    """What is wrong in the topics, one sentence each."""
    failure: str | None = None
    """Why it ended before all faults."""

    def cause(
        self, console: Console, brokers: KafkaCluster, work: Work, rate: int, seed: int, kinds: list[str]
    ) -> None:
        """Start three workers and the input, cause one fault after the other, and wait for the last results."""
        for topic in (work.input, work.output):
            Cluster(work.bootstrap).create(topic, PARTITIONS, 3)
        acknowledgements, results = Arrivals(), Arrivals()
        generator = Generator(work.bootstrap, work.input, rate, acknowledgements)
        probe = Probe(work.bootstrap, work.output, results)
        fleet = MillpondFleet(work, settings={"replication.factor": 3})

        def check() -> None:
            fleet.check()
            if found := probe.failure or generator.failure:
                raise RunFailed(found)

        causing = Faults(brokers, fleet, results, acknowledgements, check, random.Random(seed))
        with fleet.running(), console.status("starting") as status:
            for worker in WORKERS:
                fleet.start(worker)
            probe.start()
            generator.start()
            try:
                until(lambda: all(probe.owner(each) for each in range(PARTITIONS)), "first results", check, _SETTLE_S)
                time.sleep(_QUIET_S)
                for kind in kinds:
                    status.update(kind)
                    self.faults.append(causing.perform(kind))
                    console.log(_line(self.faults[-1]))
                    time.sleep(_QUIET_S)
            except RunFailed as error:
                self.failure = str(error)
            status.update("waiting for the last results")
            sent = generator.stop()
            try:
                until(lambda: sum(map(probe.seen, range(PARTITIONS))) >= sum(sent), "last results", fleet.check, _END_S)
            except RunFailed as error:
                self.failure = self.failure or str(error)
            time.sleep(1.0)  # a repeated result may come after the last one
            probe.stop()
        self.correctness = probe.finish(sent)


def _target(fault: Measured) -> float:
    return _TARGETS[fault.kind.partition("_")[0]](fault.producer_s)


def _line(fault: Measured) -> str:
    return (
        f"{fault.kind} of {fault.node}: {fault.application_s:.1f} s, of partition {fault.partition} until "
        f"{moment(fault.ended_us // 1000):%H:%M:%S} "
        f"(producer {fault.producer_s:.1f} s, wanted at most {_target(fault):.1f} s)"
    )


def _show(console: Console, run: Run) -> None:
    table = Table(title="the longest pause of any partition, in seconds")
    for column in ("fault", "broker", "application", "plain producer", "wanted"):
        table.add_column(column, justify="left" if column in {"fault", "broker"} else "right")
    for each in run.faults:
        figures = (each.application_s, each.producer_s, _target(each))
        table.add_row(each.kind, each.node, *(f"{figure:.1f}" for figure in figures))
    console.print(table)
    console.print(
        f"{run.correctness.results:,} results, {run.correctness.lost} lost, {run.correctness.twice} twice, "
        f"{run.correctness.wrong} with a wrong count"
    )
    for line in run.wrong[:20]:
        console.print(line)


if __name__ == "__main__":
    main()
