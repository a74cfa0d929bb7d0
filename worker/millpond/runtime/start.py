"""The start of a worker: which tasks are its own, and how Kafka and the coordinator learn that it is back."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from millpond.errors import OwnershipError
from millpond.protocol import Brokers, Heartbeat, RefusalCode
from millpond.topology import TaskId

from .config import Config
from .ownership import tasks_by_claim
from .plan import Plan, summary
from .registrar import Registrar
from .task_manager import TaskManager
from .waiting import Waiting

if TYPE_CHECKING:
    from millpond.protocol.client import CoordinatorClient

__all__ = ("announce", "await_admission", "claim_everything", "make_client", "tell_trouble")

_TELL_S = 1.0
#: A coordinator that does not say whether the worker may begin is waited for so long.
_ADMISSION_TIMEOUT_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_UNDECIDED = frozenset({RefusalCode.CLAIM_PENDING, RefusalCode.CLAIM_REFUSED})


def claim_everything(registrar: Registrar, config: Config, tasks: Sequence[TaskId], *, take_over: bool) -> None:
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


def announce(manager: TaskManager, config: Config, producer: Producer, tasks: Sequence[TaskId]) -> None:
    """Write this worker's new epochs beside the offsets of its tasks, in a transaction of its own.

    Raises:
        OwnershipError: another process uses this worker's transactional id.
    """
    offsets = manager.announcement(manager.registrar.looked_up(tasks))
    if not offsets:
        return
    try:
        manager.registrar.announce(producer if config.exactly_once else None, offsets)
    except OwnershipError as error:
        raise OwnershipError(
            f"another process runs as worker '{config.worker_id}' of '{config.application_id}' (it fenced this one "
            f"while it started). Give each worker its own 'worker.id'."
        ) from error


def make_client(
    config: Config,
    plan: Plan | None,
    url: str,
    address: str | None,
    incarnation: str,
    waiting: Waiting,
    brokers: Callable[[], Brokers] = lambda: Brokers.ANSWERING,
    kafka_cluster: Callable[[], str] = lambda: "",
    credentials_changed: Callable[[], bool] = lambda: False,
) -> CoordinatorClient:
    """What keeps the worker in touch with the coordinator.

    Args:
        config: the worker's.
        plan: of the application; None while it is not known yet, for `tell_trouble`.
        url: where the coordinator is.
        address: where the worker's own HTTP interface is, None when it has none.
        incarnation: of this start of the process.
        waiting: knows what the worker waits for.
        brokers: whether Kafka answers the worker.
        kafka_cluster: the id of the Kafka cluster that it reaches.
        credentials_changed: whether the files with its credentials are other ones by now.

    Raises:
        ConfigError: the certificates cannot be read.
    """
    from millpond.protocol.client import CoordinatorClient  # aiohttp: only where there is a coordinator

    topology = summary(plan) if plan is not None else None
    rack = config.consumer.get("client.rack")
    heartbeat = Heartbeat(
        application=config.application_id,
        worker=config.worker_id,
        incarnation=incarnation,
        sequence=0,
        topology_hash=topology.hash if topology is not None else "",
        revision=config.revision,
        address=config.application_server or address,
        tags=dict(config.tags),
        rack=None if rack is None else str(rack),
    )
    return CoordinatorClient(
        url,
        heartbeat,
        topology,
        token_file=config.coordinator_token_file,
        ca_file=config.coordinator_ca_file,
        trouble=waiting.trouble,
        brokers=brokers,
        kafka_cluster=kafka_cluster,
        credentials_changed=credentials_changed,
    )


def await_admission(
    ask: Callable[[], bool], client: CoordinatorClient, waiting: Waiting, stop: threading.Event
) -> bool:
    """Wait until the coordinator lets the application work on the Kafka cluster that this worker reaches.

    The application's id may be another one's there, and whoever makes its topics or initialises its transactional ids
    disturbs that one. Without a coordinator the worker goes on, unless one has refused it already.

    Args:
        ask: posts one heartbeat of `client`; returns whether the coordinator answered or refused it.
        client: tells the cluster's id.
        waiting: told why the worker waits.
        stop: ends the waiting.

    Returns:
        Whether there is a coordinator.

    Raises:
        OwnershipError: the worker is to stop, and was not let in.
    """
    until = time.monotonic() + _ADMISSION_TIMEOUT_S
    pause_s = _FIRST_PAUSE_S
    refused: OwnershipError | None = None
    while True:
        answered = ask()
        refusal = client.refusal if answered else None
        if refusal is not None and refusal.code in _UNDECIDED:
            refused = OwnershipError(refusal.message)
            waiting.begins("admission", refused)
        elif (answered and refusal is None) or (refused is None and time.monotonic() >= until):
            waiting.ends("admission")
            return answered
        if stop.wait(pause_s):
            raise refused or OwnershipError("The worker was stopped before a coordinator let it in: start it again.")
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


async def tell_trouble(client: CoordinatorClient, waiting: Waiting) -> None:
    """While the worker does not know its tasks, tell the coordinator what it waits for. Ends when it is cancelled."""
    while True:
        await asyncio.sleep(_TELL_S)
        if waiting.trouble() is not None:
            await client.once()
