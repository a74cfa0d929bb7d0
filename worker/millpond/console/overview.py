"""The parts of an `ApplicationOverview` that follow from the coordinator's view, as pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from millpond.protocol import Brokers, Member, Role, TaskReport, TaskState, View
from millpond.protocol.load_rates import InputRates, TaskRates
from millpond.protocol.overview import (
    CopyOverview,
    EdgeOverview,
    MoveOverview,
    TaskOverview,
    TopologyOverview,
    WorkerOverview,
)

__all__ = ("Figures", "WorkerFacts", "figures_of", "moves_of", "tasks_of", "topology_of", "workers_of")


@dataclass(frozen=True)
class WorkerFacts:
    """What is known of a worker from elsewhere than the coordinator."""

    state: str = ""
    """`WorkerOverview.state`; "" for that of the coordinator."""
    node: str = ""
    revision: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Figures:
    """The sums over the tasks of an application; None while they are unknown."""

    running: int = 0
    total: int = 0
    records_per_second: float | None = None
    lag: int | None = None
    lag_seconds: float | None = None


def tasks_of(view: View) -> tuple[TaskOverview, ...]:
    """Return all tasks of the topology, in their order."""
    members = {member.worker: member for member in view.members if member.alive}
    holders: dict[str, str] = {}
    for name, member in members.items():
        for task, report in member.tasks.items():
            # While a task moves, the next owner looks it up although the last one still holds it.
            if report.role is Role.ACTIVE and (
                task not in holders or _rank(report) > _rank(members[holders[task]].tasks[task])
            ):
                holders[task] = name
    parts = view.topology.subtopologies if view.topology is not None else ()
    ids = [f"{part.id}_{partition}" for part in parts for partition in range(part.partitions)]
    return tuple(_task(task, view, members, holders.get(task)) for task in ids)


def _rank(report: TaskReport) -> int:
    return (TaskState.ACQUIRING, TaskState.RESTORING, TaskState.RELEASING, TaskState.RUNNING).index(report.state)


def _task(task: str, view: View, members: Mapping[str, Member], holder: str | None) -> TaskOverview:
    member = members[holder] if holder is not None else None
    report = member.tasks[task] if member is not None else None
    rates = _rates(member, task)
    lag = rates.lag if rates is not None else None
    rate = rates.records_per_second if rates is not None else None
    return TaskOverview(
        task=task,
        worker=holder or view.active.get(task, ""),
        owner=view.owners.get(task, ""),
        state=report.state.value if report is not None else "",
        records_per_second=rate,
        lag=lag,
        lag_seconds=_seconds(lag, rate),
        restoring=report.lag if report is not None and report.state is TaskState.RESTORING else None,
        standbys=tuple(_copy(task, name, members) for name in view.standby.get(task, ())),
        warm_ups=tuple(_copy(task, name, members) for name in view.warm_up.get(task, ())),
        note=view.waiting.get(task, ""),
    )


def _rates(member: Member | None, task: str) -> TaskRates | None:
    return member.rates.tasks.get(task) if member is not None and member.rates is not None else None


def _seconds(lag: int | None, rate: float | None) -> float | None:
    """Return how long a lag takes at a rate; None if that is unknown or nothing is processed."""
    if lag == 0:
        return 0.0
    return lag / rate if lag is not None and rate else None


def _copy(task: str, worker: str, members: Mapping[str, Member]) -> CopyOverview:
    member = members.get(worker)
    report = member.tasks.get(task) if member is not None else None
    if report is None or report.role is Role.ACTIVE:
        return CopyOverview(worker=worker)
    return CopyOverview(worker=worker, state=report.state.value, lag=report.lag)


def moves_of(view: View) -> tuple[MoveOverview, ...]:
    """Return the tasks that are on their way to another worker, in the order of tasks."""
    members = {member.worker: member for member in view.members if member.alive}
    moves = []
    for task, reason in sorted(view.waiting.items(), key=lambda each: task_order(each[0])):
        source = view.owners.get(task, "")
        target = view.goals.get(task, "")
        if not target or target == source:
            continue
        member = members.get(target)
        report = member.tasks.get(task) if member is not None else None
        lag = report.lag if report is not None else None
        moves.append(MoveOverview(task=task, source=source, target=target, reason=reason, lag=lag))
    return tuple(moves)


def task_order(task: str) -> tuple[int, int]:
    """Return a key that sorts task ids by their numbers."""
    part, _, partition = task.partition("_")
    return (int(part), int(partition)) if part.isdecimal() and partition.isdecimal() else (-1, -1)


def workers_of(view: View | None, facts: Mapping[str, WorkerFacts]) -> tuple[WorkerOverview, ...]:
    """Return the workers, by name and number.

    Args:
        view: the coordinator's view; None if there is none yet.
        facts: what else is known of workers; those that the coordinator does not know are added.
    """
    members = {member.worker: member for member in view.members} if view is not None else {}
    names = sorted({*members, *facts}, key=_natural)
    return tuple(_worker(name, members.get(name), facts.get(name, WorkerFacts())) for name in names)


def _natural(name: str) -> tuple[str, int, str]:
    number = name[len(name.rstrip("0123456789")) :]
    return (name.removesuffix(number), int(number[:18] or 0), name)


def _worker(name: str, member: Member | None, facts: WorkerFacts) -> WorkerOverview:
    if member is None:
        state = facts.state or "starting"
        return WorkerOverview(worker=name, state=state, node=facts.node, revision=facts.revision, trouble=facts.trouble)
    held = member.tasks if member.alive else {}
    rates, load = member.rates, member.load
    trouble = facts.trouble or (member.trouble.message if member.trouble is not None else "")
    if not trouble and member.alive and member.brokers is Brokers.LOST:
        trouble = "The brokers do not answer this worker."
    lags = [each.lag for each in rates.tasks.values()] if rates is not None else []
    known = [lag for lag in lags if lag is not None]
    return WorkerOverview(
        worker=name,
        state=facts.state or _state(member),
        active=sum(each.role is Role.ACTIVE for each in held.values()),
        standby=sum(each.role is Role.STANDBY for each in held.values()),
        warm_up=sum(each.role is Role.WARM_UP for each in held.values()),
        records_per_second=rates.records_per_second if rates is not None else None,
        utilisation=rates.utilisation if rates is not None else None,
        lag=sum(known) if lags and len(known) == len(lags) else None,
        restoring=sum(each.state is TaskState.RESTORING for each in held.values()),
        silent_ms=member.silent_ms,
        node=facts.node,
        revision=facts.revision or member.revision,
        volume_used=1 - load.volume_free_bytes / load.volume_bytes if load is not None and load.volume_bytes else None,
        trouble=trouble,
    )


def _state(member: Member) -> str:
    if not member.alive:
        return "starting" if member.trouble is not None else "gone"
    return "draining" if member.draining else "alive"


def figures_of(tasks: Iterable[TaskOverview]) -> Figures:
    """Return the sums over tasks. A lag of which a part is unknown is unknown."""
    tasks = tuple(tasks)
    rates = [task.records_per_second for task in tasks if task.records_per_second is not None]
    lags = [task.lag for task in tasks if task.lag is not None]
    seconds = [task.lag_seconds for task in tasks if task.lag_seconds is not None]
    whole = bool(tasks) and len(lags) == len(tasks)
    return Figures(
        running=sum(task.state == TaskState.RUNNING for task in tasks),
        total=len(tasks),
        records_per_second=sum(rates) if rates else None,
        lag=sum(lags) if whole else None,
        lag_seconds=max(seconds) if whole and len(seconds) == len(tasks) else None,
    )


def topology_of(view: View) -> TopologyOverview | None:
    """Return the drawn topology with the rates and lags of its inputs; None while no worker has sent it."""
    if view.graph is None:
        return None
    figures: dict[tuple[int, str], list[InputRates]] = defaultdict(list)
    for member in view.members:
        if not member.alive or member.rates is None:
            continue
        for task, rates in member.rates.tasks.items():
            for topic, each in rates.inputs.items():
                figures[task_order(task)[0], topic].append(each)
    parts = {node.name: node.subtopology for node in view.graph.nodes}

    def with_figures(edge: EdgeOverview) -> EdgeOverview:
        part = parts.get(edge.target)
        found = figures.get((-1 if part is None else part, edge.topic), [])
        speeds = [each.records_per_second for each in found if each.records_per_second is not None]
        lags = [each.lag for each in found if each.lag is not None]
        return msgspec.structs.replace(
            edge,
            records_per_second=sum(speeds) if found and len(speeds) == len(found) else None,
            lag=sum(lags) if found and len(lags) == len(found) else None,
        )

    return msgspec.structs.replace(view.graph, edges=tuple(map(with_figures, view.graph.edges)))
