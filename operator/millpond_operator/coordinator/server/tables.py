"""The assignment and the members as text tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from millpond.protocol import Member, Role, TaskReport, TaskState, View

__all__ = ("assignment_table", "members_table")


def assignment_table(view: View) -> str:
    """Return a table of all tasks: the present worker of each, its target, and the reason why it waits."""
    term, number = view.epoch
    alive = {member.worker: member for member in view.members if member.alive}
    heading = (
        f"{view.application} . epoch {term}.{number} . {_count(len(alive), 'worker')} . "
        f"{_count(_tasks_of(view), 'task')}\n\n"
    )
    tasks = sorted({*view.active, *view.owners, *view.standby, *view.warm_up}, key=_order)
    if not tasks:
        return heading + "No tasks are assigned yet.\n"
    rows = [("TASK", "ACTIVE", "STATE", "LAG", "STANDBYS", "WARMING UP", "NOTE")]
    for task in tasks:
        worker, owner = view.active.get(task), view.owners.get(task)
        report = _report(alive, worker, task)
        rows.append(
            (
                task,
                worker or "-",
                report.state.value if report is not None and report.role is Role.ACTIVE else "-",
                _lag(report),
                _copies(alive, view.standby.get(task, ()), task),
                _copies(alive, view.warm_up.get(task, ()), task),
                _note(view, task, worker, owner, alive),
            )
        )
    return heading + _table(rows)


def members_table(members: Iterable[Member]) -> str:
    """Return a table of all workers: the state of each, and the numbers of its tasks."""
    rows = [("WORKER", "STATE", "ACTIVE", "STANDBY", "WARMING UP", "SILENT", "CLOCK", "ADDRESS")]
    members = sorted(members, key=lambda each: each.worker)
    for member in members:
        roles = Counter(report.role for report in member.tasks.values()) if member.alive else Counter[Role]()
        rows.append(
            (
                member.worker,
                _state(member),
                str(roles[Role.ACTIVE]),
                str(roles[Role.STANDBY]),
                str(roles[Role.WARM_UP]),
                f"{member.silent_ms / 1000:.1f} s",
                _skew(member.clock_skew_ms),
                member.address or "-",
            )
        )
    troubles = [f"{member.worker}: {member.trouble.message}\n" for member in members if member.trouble is not None]
    return _table(rows) + "".join(troubles) if len(rows) > 1 else "No worker has sent a heartbeat yet.\n"


def _state(member: Member) -> str:
    if member.alive:
        return "draining" if member.draining else "alive"
    return "gone" if member.trouble is None else "starting"


def _tasks_of(view: View) -> int:
    return sum(each.partitions for each in view.topology.subtopologies) if view.topology is not None else 0


def _note(view: View, task: str, worker: str | None, owner: str | None, alive: dict[str, Member]) -> str:
    if task in view.waiting:
        return view.waiting[task]
    if worker is None:
        return "no worker can run it"
    if owner is None:
        return "no owner yet"
    if owner not in alive:
        return f"to be taken over from {owner}, which is dead"
    return f"moves from {owner}" if owner != worker else ""


def _report(alive: dict[str, Member], worker: str | None, task: str) -> TaskReport | None:
    member = alive.get(worker or "")
    return member.tasks.get(task) if member is not None else None


def _copies(alive: dict[str, Member], workers: Sequence[str], task: str) -> str:
    shown = []
    for worker in workers:
        report = _report(alive, worker, task)
        shown.append(f"{worker} ({_lag(report)})" if report is not None else f"{worker} (-)")
    return ", ".join(shown) or "-"


def _lag(report: TaskReport | None) -> str:
    if report is None or report.lag is None or (report.role is Role.ACTIVE and report.state is TaskState.RUNNING):
        return "-"
    return f"{report.lag:,}"


def _skew(milliseconds: int) -> str:
    """Return the clock skew; below the time that a heartbeat may take, it is "ok"."""
    return f"{milliseconds / 1000:+,.0f} s" if abs(milliseconds) >= 2_000 else "ok"


def _order(task: str) -> tuple[int, ...]:
    return tuple(int(part) for part in task.split("_"))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"
