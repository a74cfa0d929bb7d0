"""The stored state of an application, and how a later coordinator reads it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from millpond.protocol import Epoch, Mark, Member, TopologySummary, View
from millpond.protocol.overview import TopologyOverview
from millpond.topology import TaskId
from millpond_operator.assignment import Placement

from .admission import Starting
from .members import Membership

__all__ = ("members_of", "placement_of", "view_of")


def view_of(  # noqa: PLR0913 - the parts of a view
    *,
    application: str,
    epoch: Epoch,
    topology: TopologySummary | None,
    members: Mapping[str, Membership],
    starting: Mapping[str, Starting],
    names: Mapping[TaskId, str],
    owners: Mapping[TaskId, str],
    placement: Placement,
    goal: Placement,
    committed: Mapping[str, Mark],
    graph: TopologyOverview | None,
    now_ms: int | None,
) -> View:
    """Return the state of an application; with None as the time, only the part that is stored."""
    return View(
        application=application,
        epoch=epoch,
        topology=topology,
        members=_members(members, starting if now_ms is not None else {}, now_ms),
        owners={names[task]: owner for task, owner in owners.items()},
        active={names[task]: worker for task, worker in placement.active.items()},
        standby={names[task]: workers for task, workers in placement.standby.items()},
        warm_up={names[task]: workers for task, workers in placement.warm_up.items()},
        committed=dict(committed),
        waiting={names[task]: why for task, why in placement.waiting.items()},
        goals={names[task]: goal.active[task] for task in placement.waiting if task in goal.active}
        if now_ms is not None
        else {},
        graph=graph if now_ms is not None else None,
    )


def _members(
    members: Mapping[str, Membership], starting: Mapping[str, Starting], now_ms: int | None
) -> tuple[Member, ...]:
    """Return members and starting workers, by id."""
    infos = {worker: each.info(now_ms) for worker, each in members.items()}
    for worker, each in starting.items():
        before = infos.get(worker, Member(worker, alive=False))
        if not before.alive:
            infos[worker] = msgspec.structs.replace(
                before,
                address=each.address,
                incarnation=each.incarnation,
                silent_ms=0,
                revision=each.revision,
                trouble=each.trouble,
            )
    return tuple(each for _, each in sorted(infos.items()))


def members_of(view: View, now_ms: int) -> dict[str, Membership]:
    """Return the members of a view, as if each had just sent a heartbeat."""
    return {
        each.worker: Membership(
            each.worker,
            each.incarnation,
            now_ms,
            alive=each.alive,
            draining=each.draining,
            replaced=each.replaced,
            address=each.address,
            tags=dict(each.tags),
            rack=each.rack,
        )
        for each in view.members
    }


def placement_of(view: View, tasks: Mapping[str, TaskId]) -> Placement:
    """Return the placement in a view, for the tasks that still exist."""
    return Placement(
        {tasks[task]: worker for task, worker in view.active.items() if task in tasks},
        {tasks[task]: workers for task, workers in view.standby.items() if task in tasks},
        {tasks[task]: workers for task, workers in view.warm_up.items() if task in tasks},
    )
