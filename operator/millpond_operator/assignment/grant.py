"""The instructions for each worker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from millpond.protocol import Role, TakeOver
from millpond.topology import TaskId

from .model import Instructions, Placement, Situation

__all__ = ("grant",)


def grant(refined: Placement, situation: Situation) -> Mapping[str, Instructions]:
    """Return the instructions for every live worker. No task goes to a new owner before its owner releases it.

    - A task is active on its owner in Kafka and nowhere else, for as long as the owner lives. If `refined` has it
      elsewhere, the owner has to hand it over, and the next owner keeps a copy meanwhile.
    - Tasks of a dead worker are moved by one executor, the live worker that gets most of them; so are tasks without an
      owner, and tasks of unknown owner. Their next owners have a copy until that is done.
    - A worker that reports to run a task of unknown owner continues: it is about to read the owner.
    """
    tasks = _copies(refined, situation)
    release: defaultdict[str, dict[TaskId, str]] = defaultdict(dict)
    orphans: defaultdict[str | None, dict[TaskId, str]] = defaultdict(dict)
    for task, known in situation.tasks.items():
        owner = situation.owners.get(task)
        if owner is not None and owner in situation.workers:
            tasks[owner][task] = Role.ACTIVE
        chosen = refined.active.get(task)
        if chosen is None or chosen == owner or chosen not in situation.workers:
            continue
        if known.stateful:
            tasks[chosen][task] = Role.WARM_UP
        if owner is not None and owner in situation.workers:
            release[owner][task] = chosen
        else:
            orphans[owner][task] = chosen
    _keep_running(tasks, situation)
    orders = _take_overs(orphans)
    return {
        worker: Instructions(tasks[worker], release.get(worker, {}), tuple(orders.get(worker, ())))
        for worker in sorted(situation.workers)
    }


def _copies(refined: Placement, situation: Situation) -> dict[str, dict[TaskId, Role]]:
    """Return the standbys and warm-ups of each live worker."""
    tasks: dict[str, dict[TaskId, Role]] = {worker: {} for worker in situation.workers}
    for copies, role in ((refined.standby, Role.STANDBY), (refined.warm_up, Role.WARM_UP)):
        for task, workers in copies.items():
            for worker in workers:
                if worker in tasks:
                    tasks[worker][task] = role
    return tasks


def _keep_running(tasks: dict[str, dict[TaskId, Role]], situation: Situation) -> None:
    """Let workers continue tasks of unknown owner that they report to run."""
    for worker, reports in situation.copies.items():
        for task, copy in reports.items():
            if (
                copy.role is Role.ACTIVE
                and task in situation.tasks
                and task not in situation.owners
                and worker in tasks
            ):
                tasks[worker][task] = Role.ACTIVE


def _take_overs(orphans: Mapping[str | None, Mapping[TaskId, str]]) -> Mapping[str, list[TakeOver]]:
    """Return the take-overs of each executor: of several next owners, the one that gets most of the tasks."""
    orders: defaultdict[str, list[TakeOver]] = defaultdict(list)
    for previous in sorted(orphans, key=lambda owner: (owner is not None, owner or "")):
        next_owners = orphans[previous]
        shares = Counter(next_owners.values())
        executor = min(shares, key=lambda worker: (-shares[worker], worker))
        orders[executor].append(TakeOver(previous, {str(task): next_owners[task] for task in sorted(next_owners)}))
    return orders
