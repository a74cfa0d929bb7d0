"""What each worker is told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from millpond.protocol import Role, TakeOver
from millpond.topology import TaskId

from .model import Instructions, Placement, Situation

__all__ = ("grant",)


def grant(refined: Placement, situation: Situation) -> Mapping[str, Instructions]:
    """The instructions for every live worker: nothing that another still owns is given away before it is released.

    - A task is active on its owner in Kafka and nowhere else, for as long as that owner lives. If `refined` wants it
      elsewhere the owner is told to release it there, and the next owner keeps a copy meanwhile.
    - What a dead worker owns is moved by one executor, the live worker that gets most of it; so is what nobody owns,
      or what nobody is known to own. Who gets it has a copy until that is done.
    - A worker that says that it runs a task of unknown owner goes on: it is about to find out.
    """
    tasks: dict[str, dict[TaskId, Role]] = {worker: {} for worker in situation.workers}
    release: defaultdict[str, dict[TaskId, str]] = defaultdict(dict)
    orphans: defaultdict[str | None, dict[TaskId, str]] = defaultdict(dict)
    for copies, role in ((refined.standby, Role.STANDBY), (refined.warm_up, Role.WARM_UP)):
        for task, workers in copies.items():
            for worker in workers:
                if worker in tasks:
                    tasks[worker][task] = role
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
    for worker, reports in situation.copies.items():
        for task, copy in reports.items():
            if (
                copy.role is Role.ACTIVE
                and task in situation.tasks
                and task not in situation.owners
                and worker in tasks
            ):
                tasks[worker][task] = Role.ACTIVE
    orders: defaultdict[str, list[TakeOver]] = defaultdict(list)
    for previous in sorted(orphans, key=lambda owner: (owner is not None, owner or "")):
        heirs = orphans[previous]
        shares = Counter(heirs.values())
        executor = min(shares, key=lambda worker: (-shares[worker], worker))
        orders[executor].append(TakeOver(previous, {str(task): heirs[task] for task in sorted(heirs)}))
    return {
        worker: Instructions(tasks[worker], release.get(worker, {}), tuple(orders.get(worker, ())))
        for worker in sorted(situation.workers)
    }
