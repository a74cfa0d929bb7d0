"""`python -m bench.bootstrap`: restore state in each way and size; print a table, write `bench-bootstrap.json`."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import Progress

from bench.bootstrap.app import APPLICATION, CHANGELOG, INPUT, PARTITIONS
from bench.bootstrap.measuring import measure
from bench.bootstrap.report import WAYS, Figure, show, write
from bench.cluster import BROKER, JVM
from bench.options import to_arguments
from bench.sides import RunFailed, compile_java
from millpond.broker import EmbeddedBroker
from millpond.broker.jars import paths
from millpond.broker.java import find_jdk
from millpond.errors import MillpondError

_JAVA: Final = Path(__file__).parent / "java" / "KafkaStreamsRestore.java"
_TIMEOUT_S: Final = 1_800.0
_VALUE_BYTES: Final = 100
_TOPIC_TIMEOUT_S: Final = 30.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--records", default="1000000,5000000,20000000", help="Records in the changelog, in the order of the runs."
)
@click.option("--keys", default=1_000_000, type=click.IntRange(1), help="Distinct keys.")
@click.option("--ways", default=",".join(WAYS), help="The ways to restore; ingestion needs the snapshot job.")
@click.option("--seed", default=20131, help="Of the keys and values.")
@click.option("--output", default="build/bench-bootstrap.json", type=click.Path(path_type=Path))
def main(records: str, keys: int, ways: str, seed: int, output: Path) -> None:
    """Restore the state of a worker with an empty disk; the changelog has 8 partitions and values of 100 bytes."""
    console = Console()
    try:
        sizes = sorted(int(each) for each in records.split(","))
        chosen: list[str] = [way for way in WAYS if way in ways.split(",")]
        figures = _run(console, sizes, keys, chosen, seed, output)
    except (MillpondError, RunFailed, ValueError) as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        sys.exit(1)
    show(console, figures)
    console.print(f"Written to {output}")


def _run(console: Console, sizes: list[int], keys: int, ways: list[str], seed: int, output: Path) -> list[Figure]:
    build = Path("build/bench-bootstrap")
    shutil.rmtree(build, ignore_errors=True)
    java = find_jdk() / "bin" / "java"
    classpath = paths("kafka-streams")
    classes = compile_java(_JAVA, build / "classes", java.parent, classpath)
    figures: list[Figure] = []
    with EmbeddedBroker(heap_mb=1024, properties=BROKER, jvm_options=JVM) as broker:
        _create(broker.bootstrap_servers)
        fill = _filler(broker.bootstrap_servers, keys, seed)
        there = 0
        for size in sizes:
            with Progress(console=console, transient=True) as progress:
                task = progress.add_task(f"Filling the changelog up to {size:,} records", total=size - there)
                fill(size - there, partial(progress.advance, task))
            there = size
            for way in ways:
                state, snapshots = build / "state", build / "snapshots"
                shutil.rmtree(state, ignore_errors=True)
                arguments = to_arguments(
                    application=APPLICATION, bootstrap=broker.bootstrap_servers, input=INPUT, state=state
                )
                log = build / "logs" / f"{way}-{size}.log"
                module = [sys.executable, "-m"]
                if way == "replay_kafka_streams":
                    jars = ":".join(map(str, (classes, *classpath)))
                    command = [str(java), *JVM, "-cp", jars, "KafkaStreamsRestore", *arguments]
                elif way == "snapshot_job":
                    command = [*module, "bench.bootstrap.snapshot", *arguments, f"snapshots={snapshots}"]
                else:
                    command = [*module, "bench.bootstrap.worker", *arguments]
                    command += [f"snapshots={snapshots}"] if way == "ingestion" else []
                took = measure(command, log, _TIMEOUT_S, until_ready=way != "snapshot_job")
                if way == "ingestion" and "ingested" not in took.log.read_text(errors="replace"):
                    console.print(
                        f"{size:,} records, ingestion: the worker chose to replay, which it expected to be faster."
                    )
                    continue
                figures.append(Figure(size, way, took.seconds, took.cpu_s, took.peak_mb))
                write(output, figures)
                console.print(f"{size:,} records, {way}: {took.seconds:.1f} s", highlight=False)
    return figures


def _create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    # Compacted like a changelog, but not during this run: every way has to read the same records.
    changelog = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0", "min.compaction.lag.ms": "86400000"}
    topics = [
        NewTopic(INPUT, num_partitions=PARTITIONS, replication_factor=1),
        NewTopic(CHANGELOG, num_partitions=PARTITIONS, replication_factor=1, config=changelog),
    ]
    for each in admin.create_topics(topics).values():
        each.result(_TOPIC_TIMEOUT_S)


def _filler(bootstrap: str, keys: int, seed: int) -> Callable[[int, Callable[[int], object]], None]:
    """Return what appends so many records to the changelog."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,  # this client outlives the broker
            "compression.type": "none",
        }
    )
    chosen = random.Random(seed)
    value = chosen.randbytes(_VALUE_BYTES // 2).hex().encode()

    def fill(count: int, on_progress: Callable[[int], object]) -> None:
        for number in range(count):
            key = chosen.randrange(keys)
            while True:
                try:
                    producer.produce(CHANGELOG, value, b"key-%012d" % key, key % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 20_000 == 0:
                producer.poll(0)
                on_progress(20_000)
        producer.flush()

    return fill


if __name__ == "__main__":
    main()
