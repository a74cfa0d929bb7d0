"""The screen of `millpond status`, and the list of applications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from millpond.protocol.overview import (
    ApplicationOverview,
    ApplicationSummary,
    ConditionOverview,
    EventOverview,
    MoveOverview,
    TaskOverview,
    WorkerOverview,
)

from .wording import GROWS, STATE_STYLES, ago, behind, number, share, span

__all__ = ("applications_table", "grid", "notes", "screen")

_WIDE = 120
"""Columns from which the table of workers has all its columns."""
_FEW, _EVENTS = 6, 5
"""Moves and events that are shown unless the screen has more room."""
_GOOD = {"Ready": "True", "StandbysCaughtUp": "True"}
"""The status of a condition that is no news; False for other types."""


def screen(
    overview: ApplicationOverview,
    progress: Sequence[str] = (),
    missing: Sequence[str] = (),
    *,
    width: int,
    height: int | None = None,
) -> RenderableType:
    """Return the screen about one application.

    Args:
        overview: the application.
        progress: changes in progress, one sentence each.
        missing: figures that are missing and why, one sentence each.
        width: columns of the terminal.
        height: lines of the terminal; None to show all workers and moves.
    """
    parts: list[RenderableType] = [_headline(overview), *notes(missing)]
    parts.extend(Text(line, style="cyan") for line in progress)
    if overview.autoscaling is not None:
        parts.append(_autoscaling(overview))
    most = None if height is None else max(3, height - 22)
    parts += [Text(), _workers(overview, wide=width >= _WIDE, most=most)]
    if overview.moves:
        parts += [Text(), *_moves(overview.moves, None if height is None else _FEW)]
    if overview.conditions:
        parts += [Text(), _conditions(overview.conditions, overview.at_ms)]
    if overview.events:
        parts += [Text(), _events(overview.events[:_EVENTS], overview.at_ms)]
    return Group(*parts)


def applications_table(
    applications: Sequence[ApplicationSummary], missing: Sequence[str] = (), *, namespaces: bool
) -> RenderableType:
    """Return the list of applications.

    Args:
        applications: the rows.
        missing: figures that are missing and why, one sentence each.
        namespaces: whether to show the namespaces.
    """
    names = ["namespace"] if namespaces else []
    table = grid(*names, "name", "phase", "workers>", "tasks>", "records/s>", "lag>", "behind>")
    rows: list[RenderableType] = []
    for each in applications:
        table.add_row(
            *([Text(each.namespace)] if namespaces else []),
            Text(each.name, style="bold"),
            Text(each.phase or "-", style=_style(each)),
            f"{each.workers_ready}/{each.workers_wanted}",
            f"{each.tasks_running}/{each.tasks_total}",
            number(each.records_per_second),
            number(each.lag),
            _lag_time(each),
        )
        if each.message and (each.degraded or not each.ready):
            problem = f"{each.degraded}: " if each.degraded else ""
            rows.append(Text(f"{each.name}: ").append(problem, style="red").append(each.message, style=_style(each)))
    return Group(table, *([Text(), *rows] if rows else []), *notes(missing))


def grid(*columns: str) -> Table:
    """Return a table without lines.

    Args:
        columns: the headings; one with ">" at its end is aligned to the right, one with "+" is never shortened but
            takes several lines, and the last column takes the rest.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        whole = index == len(columns) - 1 or name.endswith("+")
        table.add_column(
            name.rstrip(">+"),
            justify="right" if name.endswith(">") else "left",
            no_wrap=not whole,
            overflow="fold" if whole else "ellipsis",
        )
    return table


def notes(missing: Iterable[str]) -> list[RenderableType]:
    """Return sentences about missing figures."""
    return [Text(each, style="yellow") for each in missing]


def _headline(overview: ApplicationOverview) -> RenderableType:
    each = overview.summary
    text = Text(each.name, style="bold")
    if each.namespace:
        text.append(f" in {each.namespace}", style="not bold dim")
    text.append(" . ", style="not bold").append(each.phase or "no status yet", style=f"not bold {_style(each)}")
    parts = [
        f"{each.workers_ready} of {each.workers_wanted} workers",
        f"{each.tasks_running} of {each.tasks_total} tasks",
    ]
    if each.records_per_second is not None:
        parts.append(f"{number(each.records_per_second)} records/s")
    if each.lag is not None:
        time = _lag_time(each)
        parts.append(f"lag {number(each.lag)}" + (f" ({time})" if time != "-" else ""))
    if overview.guarantee:
        parts.append(overview.guarantee)
    text.append("".join(f" . {part}" for part in parts), style="not bold")
    return text


def _style(each: ApplicationSummary) -> str:
    return "red" if each.degraded else "green" if each.ready else "yellow"


def _lag_time(each: ApplicationSummary) -> str:
    return (
        GROWS
        if each.lag and each.lag_seconds is None and each.records_per_second is not None
        else span(each.lag_seconds)
    )


def _autoscaling(overview: ApplicationOverview) -> Text:
    found = overview.autoscaling
    assert found is not None
    does = "runs" if found.mode == "Auto" else "recommends"
    count = found.recommended or found.current
    text = f"Autoscaling ({found.mode}) {does} {count} workers"
    if found.current != count:
        text += f", now {found.current}"
    if found.rescales_left is not None:
        text += f", {found.rescales_left} rescales left today"
    return Text(f"{text}: {found.reason}" if found.reason else f"{text}.", style="cyan")


def _workers(overview: ApplicationOverview, *, wide: bool, most: int | None) -> RenderableType:
    tasks: Mapping[str, list[TaskOverview]] = defaultdict(list)
    for task in overview.tasks:
        tasks[task.worker].append(task)
    if wide:
        table = grid("worker", "node", "active>", "standby>", "warm-up>", "records/s>", "busy>", "lag>", "behind>",
                     "restoring>", "volume>", "state")  # fmt: skip
    else:
        table = grid("worker", "node", "act/std/warm>", "records/s>", "busy>", "lag>", "behind>", "rest.>", "state")
    # Workers with a problem come first when there is no room for all.
    shown = list(overview.workers)
    if most is not None and len(shown) > most:
        shown = sorted(shown, key=lambda each: each.state == "alive" and not each.trouble)[:most]
    for each in shown:
        counts = (each.active, each.standby, each.warm_up)
        own = tasks[each.worker]
        table.add_row(
            Text(each.worker, style=STATE_STYLES.get(each.state, "")),
            Text(each.node or "-", style="dim"),
            *(map(str, counts) if wide else ["/".join(map(str, counts))]),
            number(each.records_per_second),
            share(each.utilisation),
            number(each.lag),
            behind(own),
            str(each.restoring) if each.restoring else "-",
            *([share(each.volume_used)] if wide else []),
            _state(each),
        )
    left = len(overview.workers) - len(shown)
    return Group(
        table,
        *(Text(f"{each.worker}: ").append(each.trouble, style="red") for each in shown if each.trouble),
        *([Text(f"and {left} more workers", style="dim")] if left else []),
    )


def _state(each: WorkerOverview) -> Text:
    text = Text(each.state, style=STATE_STYLES.get(each.state, ""))
    if each.silent_ms >= 3_000:
        text.append(f", silent {span(each.silent_ms / 1000)}", style="yellow")
    return text


def _moves(moves: Sequence[MoveOverview], most: int | None) -> list[RenderableType]:
    table = grid("moves", "from", "to", "lag>", "waits for")
    for each in moves[:most]:
        table.add_row(
            each.task, each.source or "-", each.target or "-", number(each.lag), Text(each.reason, style="dim")
        )
    left = len(moves) - len(moves[:most])
    return [table, Text(f"and {left} more: millpond tasks --waiting shows them", style="dim")] if left else [table]


def _conditions(conditions: Iterable[ConditionOverview], now_ms: int) -> Table:
    table = grid("condition", "", "reason", "since>", "message")
    for each in conditions:
        good = each.status == _GOOD.get(each.type, "False")
        style = "dim" if good else "red" if each.type in {"Degraded", "Stalled"} else "yellow"
        status = Text(each.status, style="green" if good and each.status == "True" else style)
        table.add_row(
            Text(each.type), status, Text(each.reason, style=style), ago(each.since_ms, now_ms),
            Text(each.message, style=style),
        )  # fmt: skip
    return table


def _events(events: Iterable[EventOverview], now_ms: int) -> Table:
    table = grid("event", "ago>", "times>", "message")
    for each in events:
        style = "red" if each.warning else ""
        count = str(each.count) if each.count > 1 else ""
        table.add_row(Text(each.reason, style=style), ago(each.at_ms, now_ms), count, Text(each.text))
    return table
