"""The output of this bench: a table, a plot and a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

__all__ = ("WAYS", "Figure", "show", "write")

WAYS: Final = ("replay", "replay_kafka_streams", "snapshot_job", "ingestion")
_NAMES: Final = {
    "replay": "replay, millpond",
    "replay_kafka_streams": "replay, Kafka Streams",
    "snapshot_job": "snapshot: Spark job",
    "ingestion": "snapshot: ingestion",
}
_WIDTH: Final = 60


class Figure(NamedTuple):
    """The measurements of one way at one size."""

    records: int
    way: str
    seconds: float
    cpu_s: float
    peak_mb: float


def show(console: Console, figures: Sequence[Figure]) -> None:
    """Print the table, and a bar for each way at each size."""
    table = Table(title="Seconds from the start of the process with an empty disk until its stores are caught up")
    table.add_column("records", justify="right")
    table.add_column("way")
    for name in ("seconds", "CPU s", "peak MB", "of our replay"):
        table.add_column(name, justify="right")
    longest = max((each.seconds for each in figures), default=1.0)
    for size in sorted({each.records for each in figures}):
        of_size = {each.way: each for each in figures if each.records == size}
        replay = of_size.get("replay")
        for way in (way for way in WAYS if way in of_size):
            each = of_size[way]
            share = f"{each.seconds / replay.seconds:.2f}" if replay else ""
            table.add_row(
                f"{size:,}", _NAMES[way], f"{each.seconds:.1f}", f"{each.cpu_s:.1f}", f"{each.peak_mb:.0f}", share
            )
        table.add_section()
    console.print(table)
    for each in sorted(figures, key=lambda each: (each.records, WAYS.index(each.way))):
        bar = "█" * max(1, round(_WIDTH * each.seconds / longest))
        console.print(f"{each.records:>11,}  {_NAMES[each.way]:<22} {bar} {each.seconds:.1f} s")


def write(path: Path, figures: Sequence[Figure]) -> None:
    """Write a list of objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = [
        each._replace(seconds=round(each.seconds, 3), cpu_s=round(each.cpu_s, 2), peak_mb=round(each.peak_mb, 1))
        for each in figures
    ]
    path.write_text(json.dumps([each._asdict() for each in rounded], indent=2) + "\n")
