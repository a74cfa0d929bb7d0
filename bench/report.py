"""The table of a bench run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.statistics import Latency, Throughput

GUARANTEE_NAMES: Final = {"at_least_once": "at least once", "exactly_once": "exactly once"}


def show(console: Console, throughputs: Sequence[Throughput], latencies: Sequence[Latency]) -> None:
    """Print one table of throughput and one of latency."""
    if throughputs:
        console.print(_throughput_table(throughputs))
    if latencies:
        console.print(_latency_table(latencies))


def _throughput_table(throughputs: Sequence[Throughput]) -> Table:
    table = Table(
        title="millpond and Kafka Streams 4.1 (Java, one thread), medians",
        caption="ratio: records/s of millpond divided by Kafka Streams', median. CPU: seconds per million records.",
    )
    table.add_column("workload")
    table.add_column("guarantee")
    table.add_column("partitions", justify="right")
    table.add_column("keys", justify="right")
    for side in ("millpond", "Kafka Streams"):
        table.add_column(f"{side}\nrecords/s", justify="right", no_wrap=True)
        table.add_column("\nCPU s", justify="right")
        table.add_column("\npeak MB", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("CPU\nratio", justify="right")
    table.add_column("pairs", justify="right")
    before = None
    for each in throughputs:
        case = each.case
        if before not in {None, case.workload}:
            table.add_section()
        before = case.workload
        cells = [case.workload, GUARANTEE_NAMES[case.guarantee], str(case.partitions), f"{case.keys:,}"]
        for drain in (each.middle("millpond"), each.middle("kafka_streams")):
            cells += [f"{drain.rps:,.0f}", f"{drain.cpu_s_per_million:.2f}", f"{drain.rss_mb:,.0f}"]
        style = "green" if each.ratio >= 1 else "red"
        table.add_row(*cells, f"[{style}]{each.ratio:.2f}", f"{each.cpu_ratio:.2f}", str(len(each.pairs)))
    return table


def _latency_table(latencies: Sequence[Latency]) -> Table:
    rate = latencies[0].rate
    table = Table(
        title=f"End-to-end latency at {rate:,} records/s, milliseconds",
        caption="From sending a record until a read_committed consumer receives its result.",
    )
    table.add_column("workload")
    table.add_column("guarantee")
    table.add_column("commit every", justify="right")
    for side in ("millpond", "Kafka Streams"):
        for number, percent in enumerate(("p50", "p95", "p99")):
            table.add_column(f"{side if number == 0 else ''}\n{percent}", justify="right")
    table.add_column("p99\nratio", justify="right")
    for each in latencies:
        case = each.case
        cells = [case.workload, GUARANTEE_NAMES[case.guarantee], f"{case.commit_ms} ms"]
        for percentiles in (each.percentiles("millpond"), each.percentiles("kafka_streams")):
            cells += [f"{value:.0f}" for value in percentiles.values()]
        style = "green" if each.ratio <= 1 else "red"
        table.add_row(*cells, f"[{style}]{each.ratio:.2f}")
    return table
