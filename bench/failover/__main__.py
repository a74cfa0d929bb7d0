"""`python -m bench.failover`: cause faults, print a table, write `build/bench-failover.json`."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from bench.cluster import BROKER, JVM, Cluster
from bench.failover.analysis import Kind
from bench.failover.broker_log import parse_stall
from bench.failover.conduct import WORKERS, Conductor
from bench.failover.fleet import COMMIT_MS, Fleet, Work
from bench.failover.millpond_side import MillpondFleet
from bench.failover.records import PARTITIONS
from bench.failover.report import Outcome, show, write
from bench.failover.streams import StreamsFleet
from bench.failover.traffic import Generator, Probe
from bench.sides import SIDES, RunFailed, SideName
from millpond.broker import EmbeddedBroker
from millpond.broker.jars import paths
from millpond.broker.java import find_jdk
from millpond.errors import MillpondError

_WIDTH: Final = 220
WARM_S: Final = 15.0
"""Seconds under load without faults, which warm the broker."""
_FAULTS: Final[dict[SideName, tuple[Kind, ...]]] = {
    "millpond": ("kill_known", "kill_silent", "freeze", "leave", "restart", "grow"),
    # A death cannot be reported to a consumer group: only its session timeout detects it.
    "kafka_streams": ("kill_silent", "freeze", "leave", "restart", "grow"),
}


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--quick", is_flag=True, help="Run only two rounds.")
@click.option("--repeats", default=10, type=click.IntRange(1), help="Faults of each kind.")
@click.option(
    "--grow-repeats",
    default=2,
    type=click.IntRange(0),
    help="Repeats of `grow`, for which Kafka Streams takes minutes.",
)
@click.option("--sides", default=",".join(SIDES), help="Which sides.")
@click.option(
    "--faults",
    default=None,
    help="The faults to cause: kill_known, kill_silent, freeze, leave, restart, grow. Default: all.",
)
@click.option("--rate", default=4_000, type=click.IntRange(1), help="Records per second.")
@click.option("--session-timeout-ms", default=6_000, type=click.IntRange(1), help="On both sides.")
@click.option(
    "--streams-transaction-timeout-ms",
    default=6_000,
    type=click.IntRange(1),
    help="Kafka Streams' transaction.timeout.ms (its default is 10,000): the time until an open transaction of a dead "
    "instance is aborted.",
)
@click.option(
    "--directory",
    default=None,
    type=click.Path(path_type=Path),
    help="The directory of topics, states and logs, which is emptied first; one in memory, such as /dev/shm/bench, "
    "avoids the effects of a busy disk. Default: bench-failover beside the results.",
)
@click.option("--seed", default=20_131, help="The seed of the choice of victims.")
@click.option(
    "--output", default=Path("build/bench-failover.json"), type=click.Path(path_type=Path), help="Where the figures go."
)
def main(
    quick: bool,
    repeats: int,
    grow_repeats: int,
    sides: str,
    faults: str | None,
    rate: int,
    session_timeout_ms: int,
    streams_transaction_timeout_ms: int,
    directory: Path | None,
    seed: int,
    output: Path,
) -> None:
    """Kill, drain, stop and add workers of millpond and of Kafka Streams 4.1, and measure the pause of every task.

    Application, broker, input and probe are the same for both; docs/benchmarks.md describes what is measured, and how.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also stops the workers and the broker
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    if quick:
        repeats, grow_repeats = 2, 1
    chosen = [side for side in SIDES if side in sides.split(",")]
    wanted = None if faults is None else set(faults.split(","))
    directory = (directory or output.parent / "bench-failover").absolute()
    setting: dict[str, Any] = {
        "workers": len(WORKERS),
        "partitions": PARTITIONS,
        "rate": rate,
        "commit_ms": COMMIT_MS,
        "session_timeout_ms": session_timeout_ms,
        "streams_transaction_timeout_ms": streams_transaction_timeout_ms,
        "seed": seed,
    }
    console.print(
        f"{len(WORKERS)} workers, {PARTITIONS} partitions, {rate:,} records/s, count per key, exactly once, commit "
        f"every {COMMIT_MS} ms, one standby, session timeout {session_timeout_ms / 1000:g} s, seed {seed}"
    )
    outcomes: list[Outcome] = []
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        try:
            # Deleted at the end; the log is kept.
            stack.callback(shutil.rmtree, directory / "broker" / "data", ignore_errors=True)
            broker = stack.enter_context(
                EmbeddedBroker(directory / "broker", heap_mb=1024, properties=BROKER, jvm_options=JVM)
            )
            for side in chosen:
                warming = _work(f"warm-{side}", broker, directory, session_timeout_ms, streams_transaction_timeout_ms)
                _warm(console, warming, side, rate, broker.log_file)
            for side in chosen:
                schedule = [
                    kind
                    for repeat in range(repeats)
                    for kind in _FAULTS[side]
                    if (wanted is None or kind in wanted) and (kind != "grow" or repeat < grow_repeats)
                ]
                work = _work(side, broker, directory, session_timeout_ms, streams_transaction_timeout_ms)
                with _fleet(side, work, broker.log_file) as fleet:
                    outcomes.append(_measure(console, fleet, schedule, rate, seed, broker.log_file))
        except (MillpondError, RunFailed) as error:
            raise click.ClickException(str(error)) from error
        finally:
            if outcomes:
                write(outcomes, setting, output)
                show(console, outcomes)
                console.print(f"Written to {output}")
    if any(outcome.failure is not None or not outcome.correctness.holds for outcome in outcomes):
        sys.exit(1)


def _work(name: str, broker: EmbeddedBroker, directory: Path, session_ms: int, transaction_ms: int) -> Work:
    return Work(
        application=f"failover-{name.replace('_', '-')}",
        bootstrap=broker.bootstrap_servers,
        input=f"in-{name}",
        output=f"out-{name}",
        directory=directory,
        session_ms=session_ms,
        transaction_ms=transaction_ms,
    )


@contextlib.contextmanager
def _fleet(side: SideName, work: Work, broker_log: Path) -> Iterator[Fleet]:
    if side == "millpond":
        fleet: Fleet = MillpondFleet(work)
    else:
        fleet = StreamsFleet(work, find_jdk() / "bin", paths("kafka-streams"), broker_log)
    with fleet.running():
        yield fleet


def _warm(console: Console, work: Work, side: SideName, rate: int, broker_log: Path) -> None:
    """Run a side under load and without faults, unmeasured: the broker is a JVM, and its first client waits for it.

    Raises:
        RunFailed: it does not settle, or a record is lost.
    """
    with _fleet(side, work, broker_log) as fleet:
        outcome = _measure(console, fleet, [], rate, 0, broker_log)
    Cluster(work.bootstrap).delete([work.input, work.output, f"{work.application}-"])
    if outcome.failure is not None:
        raise RunFailed(outcome.failure)
    console.log(f"{side} ran {WARM_S:.0f} s without faults to warm the broker, which is not in the results")


def _measure(console: Console, fleet: Fleet, schedule: list[Kind], rate: int, seed: int, broker_log: Path) -> Outcome:
    """Cause all faults on one side; after a failure, return the measurements before it."""
    work = fleet.work
    cluster = Cluster(work.bootstrap)
    for topic in (work.input, work.output):
        cluster.create(topic, PARTITIONS)
    generator, probe = Generator(work.bootstrap, work.input, rate), Probe(work.bootstrap, work.output)
    failure, logged = None, broker_log.stat().st_size
    with console.status(fleet.side) as status:
        conductor = Conductor(fleet, generator, probe, random.Random(seed), _status_updates(status, fleet.side))
        try:
            conductor.begin()
            if not schedule:
                time.sleep(WARM_S)
            for number, kind in enumerate(schedule):
                console.log(f"{fleet.side} {number + 1}/{len(schedule)}: {kind}")
                conductor.perform(kind)
        except RunFailed as error:
            failure = str(error)
        sent = conductor.end()
    return Outcome(
        side=fleet.side,
        faults=conductor.faults,
        moves=probe.moves,
        gaps=probe.gaps,
        correctness=probe.finish(sent),
        records=sum(sent),
        input_gap_ms=generator.longest_gap_us / 1000,
        broker_stalls_ms=_stalls(broker_log, logged),
        failure=failure,
    )


def _stalls(broker_log: Path, logged: int) -> list[int]:
    with broker_log.open(encoding="utf-8", errors="replace") as log:
        log.seek(logged)
        return [stall for line in log if (stall := parse_stall(line)) is not None]


def _status_updates(status: Any, side: SideName) -> Callable[[str], None]:
    return lambda what: status.update(f"{side}: {what}")


if __name__ == "__main__":
    main()
