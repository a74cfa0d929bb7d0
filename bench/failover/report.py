"""The output of a run: a table and a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.failover.analysis import (
    DEATHS,
    Correctness,
    Fault,
    Gap,
    Headline,
    Kind,
    Move,
    Spread,
    Summary,
    headline,
    summarise,
)
from bench.sides import SideName

AGAIN_TARGET_MS: Final = 1500
PLANNED_TARGET_MS: Final = 200

_SIDES: Final[dict[SideName, str]] = {"millpond": "millpond", "kafka_streams": "Kafka Streams"}
_KINDS: Final[dict[Kind, str]] = {
    "quiet": "nothing (3 s at a time)",
    "kill_known": "SIGKILL, reported at once",
    "kill_silent": "SIGKILL, found out",
    "freeze": "SIGSTOP, session timeout",
    "thaw": "SIGCONT: a zombie",
    "leave": "a worker is drained",
    "join": "it gets tasks again",
    "restart": "SIGTERM and a new start",
    "grow": "a new, empty worker",
    "shrink": "SIGTERM to it",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurements of one side's run."""

    side: SideName
    faults: Sequence[Fault]
    moves: Sequence[Move]
    gaps: Sequence[Gap]
    correctness: Correctness
    records: int
    input_gap_ms: float
    """The longest pause of the generator."""
    broker_stalls_ms: Sequence[int] = ()
    """Stalls of the broker: see `broker_log.parse_stall`."""
    failure: str | None = None
    """Why it ended before all faults. Records that were not processed then count as lost."""

    @property
    def lines(self) -> list[Summary]:
        """Return the side's lines of the table."""
        return summarise(self.faults, self.moves, self.gaps)

    @property
    def headline(self) -> Headline:
        """Return the measurements with a target."""
        return headline(self.faults, self.moves)

    def to_json(self) -> dict[str, Any]:
        """Return the object of this side in `bench-failover.json`."""
        head = self.headline
        return {
            "side": self.side,
            "failure": self.failure,
            "records": self.records,
            **asdict(self.correctness),
            "input_gap_ms": round(self.input_gap_ms, 1),
            "broker_stalls_ms": list(self.broker_stalls_ms),
            "again": None if head.again is None else head.again.to_json(),
            "planned": None if head.planned is None else head.planned.to_json(),
            "lines": [line.to_json() for line in self.lines],
            "pauses": [
                {
                    "partition": move.after.partition,
                    "from": move.before.owner,
                    "to": move.after.owner,
                    "at_us": move.after.processed_us,
                    "pause_ms": round(move.pause_ms, 1),
                }
                for move in sorted(self.moves, key=lambda move: move.after.processed_us)
            ],
            "gaps": [
                {"partition": gap.partition, "end_us": gap.end_us, "length_ms": round(gap.length_us / 1000, 1)}
                for gap in sorted(self.gaps, key=lambda gap: gap.end_us)
                if gap.length_us >= PLANNED_TARGET_MS * 1000
            ],
            "faults": [asdict(fault) for fault in self.faults],
        }


def write(outcomes: Sequence[Outcome], setting: dict[str, Any], path: Path) -> None:
    """Write `bench-failover.json`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {**setting, "sides": [outcome.to_json() for outcome in outcomes]}
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def show(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print the table, violations of exactly-once, and whether the targets were met."""
    console.print(_table(outcomes))
    for outcome in outcomes:
        found = outcome.correctness
        style = "green" if found.holds else "red"
        console.print(
            f"[bold]{_SIDES[outcome.side]}[/bold]: {outcome.records:,} records, [{style}]{found.lost} lost, "
            f"{found.twice} twice, {found.wrong} with a wrong count[/]; the longest pause of the input was "
            f"{outcome.input_gap_ms:.0f} ms"
        )
        if outcome.broker_stalls_ms:
            stalls = ", ".join(f"{stall:,}" for stall in outcome.broker_stalls_ms)
            console.print(f"  [yellow]the broker stalled for {stalls} ms[/]: a busy disk? See --directory")
        if outcome.failure is not None:
            console.print(f"  [red]ended early:[/] {outcome.failure}", highlight=False)
        head = outcome.headline
        _target(console, "death known → processing", head.again, AGAIN_TARGET_MS)
        _target(console, "planned migration, pause", head.planned, PLANNED_TARGET_MS)


def _target(console: Console, what: str, found: Spread | None, limit_ms: int) -> None:
    if found is not None:
        style = "green" if found.p99 <= limit_ms else "red"
        console.print(f"  {what}: p99 [{style}]{found.p99:,.0f} ms[/], target {limit_ms:,} ms")


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(
        title="Cost of a fault for each affected task, milliseconds: p50 / p99 / max",
        caption=(
            "pause: last record of the old owner to first of the new one. again: from the known death to that record; "
            "visible: to its result at a read_committed reader. late: from sending to result, first record of the new "
            "owner. others: longest gap of any task that did not move. Definitions: docs/benchmarks.md."
        ),
    )
    for name in ("fault", "side"):
        table.add_column(name, no_wrap=True)
    for name in ("faults", "tasks", "pause", "again", "visible", "late", "others"):
        table.add_column(name, justify="right", no_wrap=True)
    by_line = {
        (line.kind, line.failover, outcome.side): line for outcome in outcomes for line in outcome.lines
    }  # fmt: skip
    for kind, title in _KINDS.items():
        for failover in (True, False):
            mine = [line for (each, over, _), line in by_line.items() if each == kind and over == failover]
            if not mine:
                continue
            for number, side in enumerate(outcome.side for outcome in outcomes):
                line = by_line.get((kind, failover, side))
                name = title if failover == (kind in DEATHS) else "… and moved without need"
                cells = _cells(line) if line is not None else ["-"] * 7
                table.add_row(name if number == 0 else "", _SIDES[side], *cells)
            table.add_section()
    return table


def _cells(line: Summary) -> list[str]:
    spreads = (line.pause, line.again, line.visible, line.late, line.others)
    return [str(line.faults), str(line.tasks), *map(_spread, spreads)]


def _spread(spread: Spread | None) -> str:
    return "-" if spread is None else " / ".join(f"{value:,.0f}" for value in spread)
