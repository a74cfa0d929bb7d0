"""The table of `millpond tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from millpond.protocol.overview import CopyOverview, MoveOverview, TaskOverview

from .view import grid, notes
from .wording import GROWS, STATE_STYLES, behind, number

__all__ = ("chosen", "tasks_table")

_WIDE = 120


def chosen(
    tasks: Iterable[TaskOverview], moves: Iterable[MoveOverview], worker: str | None, *, waiting: bool
) -> list[TaskOverview]:
    """Return the tasks that the filters admit.

    Args:
        tasks: all tasks.
        moves: the moves in progress.
        worker: only tasks that this worker runs, owns or has a copy of; None for all.
        waiting: only tasks that do not run, or wait for something.
    """
    moving = {each.task for each in moves}
    found = []
    for each in tasks:
        copies = (*each.standbys, *each.warm_ups)
        if worker is not None and worker not in {each.worker, each.owner, *(copy.worker for copy in copies)}:
            continue
        if waiting and not (each.note or each.task in moving or each.state not in {"", "running"}):
            continue
        found.append(each)
    return found


def tasks_table(
    tasks: Sequence[TaskOverview], moves: Iterable[MoveOverview], missing: Sequence[str], *, width: int
) -> RenderableType:
    """Return the table of tasks.

    Args:
        tasks: the rows.
        moves: the moves in progress.
        missing: figures that are missing and why, one sentence each.
        width: columns of the terminal.
    """
    reasons = {each.task: each.reason for each in moves}
    if not tasks:
        return Group("No tasks.", *notes(missing))
    if width >= _WIDE:
        table = grid("task", "worker", "owner", "state", "records/s>", "lag>", "behind>", "standbys", "waits")
    else:
        table = grid("task", "worker", "state", "lag>", "behind>", "standbys")
    waits: list[RenderableType] = []
    for each in tasks:
        why = Text(each.note or reasons.get(each.task, ""), style="yellow")
        copies = Text(", ".join([*map(_copy, each.standbys), *(f"{_copy(one)} warm-up" for one in each.warm_ups)]))
        state = Text(each.state or "-", style=STATE_STYLES.get(each.state, "dim"))
        if each.restoring:
            state.append(f" {number(each.restoring)}", style="dim")
        time = behind([each])
        figures: list[str | Text] = [number(each.lag), Text(time, style="red" if time == GROWS else "")]
        if width >= _WIDE:
            table.add_row(
                each.task, each.worker or "-", each.owner or "-", state, number(each.records_per_second), *figures,
                copies if copies.plain else "-", why,
            )  # fmt: skip
            continue
        worker = Text(each.worker or "-")
        if each.owner and each.owner != each.worker:
            worker.append(f" (owner {each.owner})", style="yellow")
        table.add_row(each.task, worker, state, *figures, copies if copies.plain else "-")
        if why.plain:
            # Many reasons begin with the task.
            waits.append(why if why.plain.startswith(each.task) else Text(f"{each.task}: ").append_text(why))
    return Group(table, *([Text(), *waits] if waits else []), *notes(missing))


def _copy(copy: CopyOverview) -> str:
    if copy.lag is not None:
        return f"{copy.worker} ({copy.lag:,})"
    return f"{copy.worker} ({copy.state})" if copy.state else copy.worker
