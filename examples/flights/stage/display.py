"""The display: redrawn on a terminal, plain lines elsewhere; and the comparison at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.stage.truth import AirportDifference, Comparison
from millpond.cli.dev.status import SessionStatus
from millpond.cli.dev.view import table as workers

__all__ = ("Display", "Progress")

_LINE_INTERVAL_S = 2.0
_NAMES = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}


@dataclass
class Progress:
    """The current progress."""

    total: int = 0
    played: int = 0
    committed: int = 0
    results: int = 0
    kills: int = 0
    workers: str = "starting"
    """Which workers run, in a few words."""
    killed: bool = False
    """Whether tasks of a killed worker are not processed yet."""
    day: str = ""
    session: SessionStatus | None = None
    """The status of the session, for the table of workers."""

    @property
    def lag(self) -> int:
        """Records sent but not committed."""
        return max(0, self.played - self.committed)


@dataclass
class Display:
    """Shows progress and events while the `with` block runs.

    Args:
        console: where to print.
    """

    console: Console
    progress: Progress = field(default_factory=Progress)
    _started_at: float = field(default_factory=time.monotonic)
    _next_line: float = 0.0
    _live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            self._live = Live(self, console=self.console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    def event(self, text: str, style: str = "") -> None:
        """Print an event as a line that stays."""
        line = Text(f"{self.seconds:6.1f} s  ", style="dim").append(text, style=f"not dim {style}".strip())
        self.console.print(line, soft_wrap=self._live is None)

    def update(self) -> None:
        """Print the progress periodically where nothing is redrawn."""
        if self._live is None and self.progress.total and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_INTERVAL_S
            now = self.progress
            self.console.print(
                f"{self.seconds:6.1f} s  {now.day}   in {now.played:,}   committed {now.committed:,}   "
                f"results {now.results:,}   lag {now.lag:,}   kills {now.kills}",
                soft_wrap=True,
            )

    def __rich__(self) -> RenderableType:
        now = self.progress
        if not now.total:
            return Text(f"{self.seconds:6.1f} s  starting …", style="dim")
        state = Text(now.workers, style="bold red" if now.killed else "green")
        head = Text.assemble(" flights", (" . exactly_once . ", "dim"), state, (f" . {self.seconds:.0f} s", "dim"))
        table = Table.grid(padding=(0, 2))
        table.add_row(" records in", ProgressBar(now.total, now.played, width=32), f"{now.played:>9,}", now.day)
        table.add_row(
            " committed", ProgressBar(now.total, now.committed, width=32), f"{now.committed:>9,}", f"lag {now.lag:,}"
        )
        table.add_row(" results", "airport hours, final", f"{now.results:>9,}", f"kills {now.kills}")
        return Group(Text(), head, table, *([workers(now.session)] if now.session is not None else []))

    def comparison(self, found: Comparison) -> None:
        """Print the output and its differences by airport."""
        everything = found.total
        table = Table(box=box.SIMPLE_HEAD, show_footer=True, padding=(0, 0, 0, 1), pad_edge=False)
        table.add_column("airport", "all", no_wrap=True)
        for heading, footer in zip(_COLUMNS, _figures(everything), strict=True):
            table.add_column(heading, footer, justify="right", no_wrap=True)
        for each in found.airports:
            table.add_row(f"{each.airport} {_NAMES.get(each.airport, '')}".strip(), *_figures(each))
        self.console.print(table)
        minutes, airline, airport, start_ms = found.longest
        hour = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=start_ms)
        self.console.print(
            f"The longest delay: {minutes:,} minutes, {airline}, {airport}, {hour:%Y-%m-%d %H}h UTC.", soft_wrap=True
        )
        if found.equal:
            self.console.print(
                f"IDENTICAL: {everything.hours_read:,} results from {everything.flights_read:,} flights, every hour "
                f"once, through {self.progress.kills} kill -9.",
                style="bold green",
                soft_wrap=True,
            )
        else:
            self.console.print(
                "DIFFERENT: the output is not equal to that of a plain loop over the same data.",
                style="bold red",
                soft_wrap=True,
            )


_COLUMNS = ("hours", "flights", "departed", "mean delay", "missing", "wrong", "twice")


def _figures(airport: AirportDifference) -> tuple[str, ...]:
    mean = f"{airport.minutes / airport.departures:.2f} min" if airport.departures else ""
    counts = (airport.hours_read, airport.flights_read, airport.departures)
    differences = (airport.missing, airport.wrong, airport.repeated)
    return (*(f"{count:,}" for count in counts), mean, *(f"{count:,}" for count in differences))
