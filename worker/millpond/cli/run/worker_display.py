"""The display of a running worker: redrawn on a terminal, periodic log lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millpond.cli.session import Session
from millpond.drops import is_dropped
from millpond.runtime.listeners import CommitStats, WorkerListener
from millpond.runtime.states import WorkerState

if TYPE_CHECKING:
    from millpond.runtime.config.model import Config
    from millpond.runtime.worker.worker import Worker

__all__ = ("WorkerView",)

log: logging.Logger = logging.getLogger("millpond.cli")

_REDRAWS_PER_SECOND = 4
_COMMITS_KEPT = 500
_RATE_WINDOW_S = 5.0
_MAX_BARS = 6
_RESTORE_LINE_INTERVAL_S = 5.0


class WorkerView(WorkerListener):
    """The display of one worker: collects its events and shows them.

    Args:
        title: the application's name.
        config: the configuration of the worker.
        footer: further text for the last line, such as the broker's address.
    """

    def __init__(self, title: str, config: Config, footer: str = "") -> None:
        self._title = title
        self._config = config
        self._footer = footer
        self._worker: Worker | None = None
        self._state = WorkerState.CREATED
        self._restoring: dict[tuple[str, int], tuple[int, int]] = {}
        self._restored = 0
        self._commits: deque[float] = deque(maxlen=_COMMITS_KEPT)
        self._last_commit: float | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._next_line = 0.0
        self._summary = (time.monotonic(), 0)

    @contextmanager
    def showing(self, worker: Worker, session: Session) -> Iterator[None]:
        """Show the worker while the block runs: redrawn on a terminal, in log lines elsewhere."""
        self._worker = worker
        if not session.live:
            yield
            return
        with Live(self, console=session.err, refresh_per_second=_REDRAWS_PER_SECOND, transient=False):
            yield

    # Events of the worker, called from its loop

    def state_changed(self, state: WorkerState) -> None:
        """Remember the state; once the worker runs, nothing is being restored."""
        self._state = state
        if state is WorkerState.RUNNING:
            self._restoring.clear()
            self._samples.clear()

    def restore_progress(self, store: str, partition: int, done: int, total: int) -> None:
        """Remember the progress of a store partition, and log it periodically."""
        if done >= total:
            self._restored += self._restoring.pop((store, partition), None) is not None or total > 0
            return
        self._restoring[store, partition] = (done, total)
        now = time.monotonic()
        if self._worker is not None and now >= self._next_line:
            self._next_line = now + _RESTORE_LINE_INTERVAL_S
            log.debug("store %s, partition %d: restored %d of %d records", store, partition, done, total)

    def committed(self, stats: CommitStats) -> None:
        """Remember the commit, and log a summary periodically."""
        now = time.monotonic()
        self._commits.append(stats.seconds)
        self._last_commit = now
        every = self._config.log_summary_interval_ms / 1000
        since, records = self._summary
        if every > 0 and now - since >= every:
            self._summary = (now, stats.records)
            log.info(
                "processed %d records in %.0f s (%.0f/s), commits p99 %.0f ms",
                stats.records - records, now - since, (stats.records - records) / (now - since), self._p99_ms(),
            )  # fmt: skip

    # Drawing

    def __rich__(self) -> RenderableType:
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        head.add_column(justify="right", no_wrap=True)
        head.add_row(self._headline(), self._freshness())
        parts: list[RenderableType] = [head]
        if self._restoring:
            parts.append(self._bars())
        elif self._state is WorkerState.RUNNING:
            parts.append(self._figures())
        if self._state in (WorkerState.NOT_RUNNING, WorkerState.PENDING_ERROR, WorkerState.ERROR):
            return head
        if below := "   ".join(filter(None, (self._footer, self._metrics_address()))):
            parts.append(Text(f" {below}", style="dim"))
        return Group(*parts)

    def _headline(self) -> Text:
        config = self._config
        colour = {
            WorkerState.RUNNING: "green",
            WorkerState.RESTORING: "yellow",
            WorkerState.PENDING_ERROR: "red",
            WorkerState.ERROR: "red",
        }
        text = Text(" ")
        text.append(self._title, style="bold")
        text.append(f" . {config.processing_guarantee} . worker {config.worker_id} . ")
        tasks = self._tasks()
        if tasks:
            text.append(f"{tasks} task{'s' if tasks != 1 else ''} . ")
        shown = {
            WorkerState.PENDING_SHUTDOWN: "stopping",
            WorkerState.NOT_RUNNING: "stopped",
            WorkerState.PENDING_ERROR: "failed",
            WorkerState.ERROR: "failed",
        }
        text.append(shown.get(self._state, self._state.value), style=colour.get(self._state, "cyan"))
        return text

    def _metrics_address(self) -> str:
        port = self._worker.metrics.port if self._worker is not None else 0
        serves = "queries and metrics" if self._config.query_port < 0 else "metrics"
        return f"{serves} http://{self._config.http_host}:{port}" if port else ""

    def _freshness(self) -> Text:
        if self._last_commit is None:
            return Text("nothing committed yet ", style="dim")
        ago = time.monotonic() - self._last_commit
        shown = f"{ago * 1000:.0f} ms" if ago < 1 else f"{ago:.0f} s"
        return Text(f"committed {shown} ago ", style="dim")

    def _figures(self) -> Table:
        total, rate = self._rate()
        table = Table.grid(padding=(0, 3))
        table.add_row(
            Text(" records/s ", style="dim").append(f"{rate:,.0f}", style="bold not dim"),
            Text("processed ", style="dim").append(f"{total:,}", style="not dim"),
            Text("commit p99 ", style="dim").append(
                f"{self._p99_ms():.0f} ms" if self._commits else "none", style="not dim"
            ),
            Text("dropped ", style="dim").append(
                f"{self._dropped():,}", style="not dim yellow" if self._dropped() else "not dim"
            ),
        )
        return table

    def _bars(self) -> Table:
        table = Table.grid(padding=(0, 1))
        rows = sorted(self._restoring.items())
        for (store, partition), (done, total) in rows[:_MAX_BARS]:
            share = done / total if total else 1.0
            table.add_row(
                Text(" restoring", style="dim"), f"{store} {partition}", ProgressBar(total or 1, done, width=24),
                f"{share:4.0%}", Text(f"{done:,} of {total:,}", style="dim"),
            )  # fmt: skip
        if len(rows) > _MAX_BARS:
            table.add_row("", Text(f"and {len(rows) - _MAX_BARS} more", style="dim"))
        return table

    # Metrics

    def _rate(self) -> tuple[int, float]:
        """Return the number of records since the start, and the records per second in the last few seconds."""
        total = self._worker.metrics.records_processed if self._worker is not None else 0
        now = time.monotonic()
        samples = self._samples
        samples.append((now, total))
        while now - samples[0][0] > _RATE_WINDOW_S and len(samples) > 2:
            samples.popleft()
        since, before = samples[0]
        return total, (total - before) / (now - since) if now - since > 0.2 else 0.0

    def _p99_ms(self) -> float:
        ordered = sorted(self._commits)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000 if ordered else 0.0

    def _tasks(self) -> int:
        return len(self._samples_of("millpond_task_processed_records"))

    def _dropped(self) -> int:
        return int(sum(self._samples_of("millpond_task_dropped_records")))

    def _samples_of(self, family: str) -> list[float]:
        if self._worker is None:
            return []
        return [
            sample.value
            for found in self._worker.metrics.families()
            if found.name == family
            for sample in found.samples
            if not sample.name.endswith("_created") and is_dropped(sample.labels.get("reason", ""))
        ]
