"""The table of a session's workers: redrawn on a terminal, printed once by `millpond dev status`."""

from __future__ import annotations

from urllib.parse import urlsplit

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .status import Restoring, SessionStatus, WorkerPhase, WorkerStatus

__all__ = ("table",)

_MAX_BARS = 2
_MAX_WARNINGS = 3
_BAR_WIDTH = 9
_HEADINGS = {" worker": 7, "active": 6, "standby": 7, "records/s": 9, "commit p99": 10, "lag": 10}
"""The columns and their minimum widths."""
_DROPPED = {"dropped": 9}
"""A column after them, once a worker has dropped records."""
_PROCESS = {"pid": 7, "port": 5}
"""Columns after the worker on wide screens: the process, and the port of queries and metrics."""
_WIDE = 110
_WIDEST = 1_000  # beyond this it is no terminal: a pipe or a file has no right edge to align with

_COLOURS = {
    WorkerPhase.RUNNING: "green",
    WorkerPhase.STARTING: "yellow",
    WorkerPhase.PAUSED: "yellow",
    WorkerPhase.DRAINING: "cyan",
    WorkerPhase.STOPPING: "cyan",
    WorkerPhase.KILLED: "bold red",
    WorkerPhase.FAILED: "bold red",
    WorkerPhase.DOWN: "red",
}


def table(status: SessionStatus, *footer: str) -> RenderableType:
    """Return the table of a session, with one row per worker.

    Args:
        status: the status of the session.
        footer: further lines below the table.
    """
    head = _Head(status)
    if status.stopping:
        return head
    parts: list[RenderableType] = [head, _Workers(status)]
    parts += [
        Text(f" {worker.worker}: ", style="red")
        .append(worker.note)
        .append(f"  log: {worker.log}" if worker.log else "", style="dim not red")
        for worker in status.workers
        if _failed(worker)
    ]
    parts += [Text(" warning: ", "yellow").append(each, "default") for each in status.warnings[:_MAX_WARNINGS]]
    if letters := status.dead_letters:
        how = f": millpond consume {status.dead_letter_topic}"
        how += f" --application {status.target}" if status.target else ""
        # Those of aborted transactions count, and the last ones of a killed worker may not: the topic has the truth.
        text = Text(f" about {letters:,} dead letter{'s' if letters > 1 else ''}", "yellow")
        parts.append(text.append(how if status.dead_letter_topic else "", "dim not yellow"))
    if status.coordinator_note:
        where = f"  log: {status.directory}/coordinator.log"
        parts.append(Text(" coordinator: ", "red").append(status.coordinator_note).append(where, "dim not red"))
    if not status.wanted and not any(worker.pid for worker in status.workers):
        again = f"{status.usual} worker{'' if status.usual == 1 else 's'} again"
        parts.append(Text(f" no worker runs: `millpond dev scale {status.usual}` starts {again}", style="dim"))
        return Group(*parts, *map(_footer, footer))
    parts += [Text(f" {task} waits: {why}", style="dim") for task, why in sorted(status.waiting.items())[:_MAX_BARS]]
    return Group(*parts, *map(_footer, footer))


def _footer(line: str) -> RenderableType:
    """Return a line below the table, which takes several lines of a narrow terminal: addresses are never cut."""
    return Padding(Text(line, style="dim"), (0, 0, 0, 1))


class _Head:
    """The first line: as wide as the terminal, and without a gap elsewhere."""

    def __init__(self, status: SessionStatus) -> None:
        self._status = status

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        head = Table.grid(expand=options.max_width <= _WIDEST, padding=(0, 1))
        head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        head.add_column(justify="right", no_wrap=True)
        head.add_row(_headline(self._status), _freshness(self._status))
        yield head


class _Workers:
    """The rows of the workers; with process ids and ports where there is room for them."""

    def __init__(self, status: SessionStatus) -> None:
        self._status = status

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _WIDE
        drops = any(worker.dropped for worker in self._status.workers)
        headings = {" worker": _HEADINGS[" worker"], **(_PROCESS if wide else {}), **_HEADINGS}
        headings |= _DROPPED if drops else {}
        rows = Table.grid(padding=(0, 2, 0, 0), pad_edge=False, expand=options.max_width <= _WIDEST)
        for number, (heading, width) in enumerate(headings.items()):
            width = max([width, *(len(each.worker) + 1 for each in self._status.workers)]) if not number else width
            rows.add_column(heading, width=width, justify="right" if number else "left", no_wrap=True)
        rows.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        rows.add_row(*(Text(each, style="dim") for each in (*headings, "")))
        for worker in self._status.workers:
            name, *figures = _cells(worker, drops=drops)
            process = [str(worker.pid or ""), _port(worker.queries or worker.metrics)] if wide else []
            rows.add_row(name, *process, *figures)
        yield rows


def _port(url: str) -> str:
    return str(urlsplit(url).port or "")


def _headline(status: SessionStatus) -> Text:
    count = sum(worker.pid > 0 for worker in status.workers)
    workers = f"{count} worker{'s' if count != 1 else ''}"
    if status.stopping:
        workers = f"stopping {workers}" if count else "stopped"
    elif count != status.wanted:
        workers = f"{count} of {status.wanted} workers"
    text = Text(" ").append(status.title, style="bold")
    text.append(f" . {status.guarantee} . {workers}")
    if status.stopping:
        return text
    if status.tasks:
        text.append(f" . {status.tasks} task{'s' if status.tasks != 1 else ''}")
    if not status.coordinator and not status.in_process:
        text.append(" . no coordinator", style="bold red")
    return text


def _freshness(status: SessionStatus) -> Text:
    ago = status.committed_s_ago
    shown = "" if status.in_process else "nothing committed yet"
    if ago is not None:
        shown = f"committed {ago * 1000:.0f} ms ago" if ago < 1 else f"committed {ago:.0f} s ago"
    stopped = max(0, status.tasks - len(status.running))
    text = Text(shown, style="dim")
    if status.tasks and not status.stopping:
        text.append(" . ").append(f"{stopped} tasks not running ", style="not dim bold red" if stopped else "dim")
    return text


def _cells(worker: WorkerStatus, *, drops: bool) -> list[str | Text]:
    name = Text(f" {worker.worker}", style=_COLOURS[worker.phase])
    if not worker.pid:
        return [name, *([""] * (len(_HEADINGS) - 1 + drops)), _remarks(worker)]
    standby = f"{len(worker.standby)}" + (f" + {len(worker.warm_up)}" if worker.warm_up else "")
    return [
        name,
        str(len(worker.active)),
        standby,
        _number(worker.records_per_second),
        "" if worker.commit_p99_ms is None else f"{worker.commit_p99_ms:,.0f} ms",
        _number(worker.lag),
        *([Text(_number(worker.dropped or None), style="yellow")] if drops else []),
        _remarks(worker),
    ]


def _remarks(worker: WorkerStatus) -> Text:
    """Return the last column: the phase, the restore progress, or the reason why the worker does not run."""
    remarks = []
    if worker.phase is not WorkerPhase.RUNNING:
        remarks.append(Text(worker.phase.value, style=_COLOURS[worker.phase]))
    remarks += map(_bar, worker.restoring[:_MAX_BARS])
    if len(worker.restoring) > _MAX_BARS:
        remarks.append(Text(f"and {len(worker.restoring) - _MAX_BARS} more", style="dim"))
    if worker.note and not _failed(worker):  # errors have their own line below the table
        remarks.append(Text(worker.note, style="dim"))
    elif worker.restarts and not remarks:
        remarks.append(Text(f"restarts {worker.restarts}", style="dim"))
    return Text(" . ").join(remarks)


def _bar(restoring: Restoring) -> Text:
    share = restoring.done / restoring.total if restoring.total else 1.0
    full = int(share * _BAR_WIDTH)
    text = Text("█" * full, style="cyan").append("░" * (_BAR_WIDTH - full), style="dim")
    return text.append(f" {share:.0%} ", style="not dim default").append(
        f"{restoring.store} {restoring.partition}", "dim"
    )


def _failed(worker: WorkerStatus) -> bool:
    """Return whether the note of a worker is an error. Notes of phases that a command began are none."""
    return worker.phase is WorkerPhase.FAILED or (
        worker.phase in (WorkerPhase.STARTING, WorkerPhase.RUNNING) and bool(worker.note)
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
