"""Short notations for situations."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.protocol import Role, TaskState, parse_task
from millpond.topology import TaskId
from millpond_operator.assignment import AssignableWorker, Copy, Placement, Situation, Task

ACTIVE = Copy(Role.ACTIVE, TaskState.RUNNING, None, 100_000)


def copy(lag: int | None, role: Role = Role.STANDBY, *, end: int = 100_000, followed: bool = True) -> Copy:
    """A copy with so much lag, and whether it was caught up once."""
    state = TaskState.RUNNING if followed and lag is not None else TaskState.RESTORING
    return Copy(role, state, lag, end - lag if lag is not None else 0)


def restoring(lag: int, end: int = 100_000) -> Copy:
    """An active task that still restores."""
    return Copy(Role.ACTIVE, TaskState.RESTORING, lag, end - lag)


def tasks(stateful: int, stateless: int = 0, subtopologies: int = 1) -> dict[TaskId, Task]:
    """Tasks of so many sub-topologies of each kind."""
    made = {}
    for i in range(stateful):
        id_ = TaskId(i % subtopologies, i // subtopologies)
        made[id_] = Task(id_, stateful=True)
    for i in range(stateless):
        id_ = TaskId(subtopologies + i % subtopologies, i // subtopologies)
        made[id_] = Task(id_, stateful=False)
    return made


def workers(*ids: str, **tags: str) -> dict[str, AssignableWorker]:
    """Equal workers."""
    return {id_: AssignableWorker(id_, tags) for id_ in ids}


def settled(placement: Placement, known: Mapping[TaskId, Task], live: Mapping[str, AssignableWorker]) -> Situation:
    """The situation when everything is as in `placement`; dead workers report nothing."""
    copies: dict[str, dict[TaskId, Copy]] = {id_: {} for id_ in live}
    for task, worker in placement.active.items():
        if worker in live:
            copies[worker][task] = ACTIVE
    for task, holders in placement.standby.items():
        for worker in holders:
            if worker in live:
                copies[worker][task] = copy(0)
    return Situation(known, live, copies, {}, dict(placement.active))


def unknown(known: Mapping[TaskId, Task], live: Mapping[str, AssignableWorker]) -> Situation:
    """A first start: all workers have reported, and hold nothing."""
    return Situation(known, live, {id_: {} for id_ in live}, {}, dict.fromkeys(known))


def one(
    live: Mapping[str, AssignableWorker],
    copies: Mapping[str, Copy],
    *,
    owner: str | None,
    disk: Mapping[str, int] | None = None,
    stateful: bool = True,
) -> Situation:
    """A situation with the one task 0_0 and its reported copies; all workers have reported."""
    id_ = parse_task("0_0")
    return Situation(
        {id_: Task(id_, stateful)},
        live,
        {worker: {id_: copies[worker]} if worker in copies else {} for worker in live},
        {worker: {id_: offset} for worker, offset in (disk or {}).items()},
        {id_: owner},
    )


T = parse_task("0_0")
