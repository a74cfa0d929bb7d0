"""The start of a worker: which tasks are its own, and how Kafka learns that it is back."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from millpond.errors import OwnershipError
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import tasks_by_claim
from millpond.runtime.ownership.lookups import OwnershipLookups
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.topology import TaskId

__all__ = ("announce", "claim_everything")


def claim_everything(registrar: OwnershipLookups, config: Config, tasks: Sequence[TaskId], *, take_over: bool) -> None:
    """Without a coordinator every task is this worker's.

    Raises:
        OwnershipError: a task is another worker's, or another claimed it at the same moment.
    """
    worker = config.worker_id
    _, unowned, foreign = tasks_by_claim(worker, registrar.surveyed(tasks))
    if foreign and not take_over:
        other, theirs = next(iter(foreign.items()))
        raise OwnershipError(
            f"{len(theirs)} task{'s' if len(theirs) > 1 else ''} of '{config.application_id}' (first: {theirs[0]}) "
            f"belong to worker '{other}', and this one is '{worker}'. Start it with --worker-id {other} to go on with "
            f"that worker's state, or, once that worker is gone, with `millpond run --take-over`, which takes its tasks."
        )
    orders: dict[str | None, list[TaskId]] = {None: unowned} if unowned else {}
    orders.update(foreign)
    for previous, wanted in orders.items():
        for task, owner in registrar.taken_over(previous, dict.fromkeys(wanted, worker)).owners.items():
            if owner != worker:
                raise OwnershipError(
                    f"task {task} was claimed by worker '{owner}' at the same time; start again, with `millpond run "
                    f"--take-over` once that worker is gone."
                )


def announce(executor: TaskExecutor, config: Config, producer: Producer, tasks: Sequence[TaskId]) -> None:
    """Write this worker's new epochs beside the offsets of its tasks, in a transaction of its own.

    Raises:
        OwnershipError: another process uses this worker's transactional id.
    """
    offsets = executor.claims.announcement(executor.registrar.looked_up(tasks))
    if not offsets:
        return
    try:
        executor.registrar.announce(producer if config.exactly_once else None, offsets)
    except OwnershipError as error:
        raise OwnershipError(
            f"another process runs as worker '{config.worker_id}' of '{config.application_id}' (it fenced this one "
            f"while it started). Give each worker its own 'worker.id'."
        ) from error
