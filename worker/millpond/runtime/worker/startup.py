"""The start of a worker: it connects, finds the tasks that it owns, and announces them in Kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack

from confluent_kafka import KafkaException, Producer

from millpond.errors import BrokerError, MillpondError, OwnershipError, StateCorrupted
from millpond.protocol import Role
from millpond.protocol.topology_overview import topology_overview
from millpond.runtime.config.model import Config
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.kafka.reconnect import WorkerClient, answers
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.metadata import tasks_by_claim
from millpond.runtime.ownership.lookups import OwnershipLookups
from millpond.runtime.restoring.changelog_reader import ChangelogReader, Restoration
from millpond.runtime.states import WorkerState
from millpond.runtime.tasks.coordination import Coordination
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.topology import TaskId
from millpond.topology.settings.unnamed import warn_of_names

from .assembly import assemble
from .dispatch import Dispatcher
from .load_meter import LoadMeter
from .parts import WorkerParts
from .producers import Producers
from .recovery import FENCED_PAUSE_S

__all__ = ("Startup", "announce", "claim_everything", "rejected_by_kafka")


log: logging.Logger = logging.getLogger(__name__)

#: How long a worker waits for the coordinator to admit or reject it before it continues with the tasks that it owns.
_ADMISSION_TIMEOUT_S = 2.0
#: The same if the coordinator did not answer a moment ago.
_SILENT_ADMISSION_TIMEOUT_S = 0.5
#: For so long, others may take over the tasks of this worker's earlier process, which fences a worker that starts.
_TAKE_OVERS_S = 5.0


class Startup:
    """The start of a worker, up to its first turn.

    Args:
        parts: the parts of the worker.
        producers: makes its producer.
        take_over: whether to take over tasks of other workers.
    """

    def __init__(self, parts: WorkerParts, producers: Producers, *, take_over: bool) -> None:
        self._parts = parts
        self._producers = producers
        self._take_over = take_over

    def assemble(self, at_end: ExitStack) -> None:
        """Connect to Kafka, plan the tasks, and open the state.

        Args:
            at_end: closes the state, however the start and the run end.

        Raises:
            MillpondError: no broker answers, a topic is missing or has the wrong shape, or the state cannot be opened.
        """
        parts = self._parts
        parts.become(WorkerState.STARTING)
        warn_of_names(parts.topology.unnamed)
        with parts.admission.reporting_trouble():
            parts.assembly = assemble(
                parts.topology,
                parts.config,
                reader=ChangelogReader(self._restore_progress, parts.listener),
                stopping=self._producers.gives_up,
                on_error=parts.client_errors.on_error,
                fencing=self._producers.fencing,
                blockers=parts.blockers,
                admit=parts.admission.await_admission,
                at_end=at_end,
            )
        assembly = parts.assembly
        parts.load = LoadMeter(
            parts.metrics,
            lambda: assembly.executor.running,
            assembly.consumer,
            assembly.cluster,
            parts.config.directory,
            assembly.environment.now_ms,
        )
        parts.admission.load = lambda: parts.load.latest
        parts.dispatcher = Dispatcher(parts.executor, parts.client_errors.suspect_topics, parts.access)
        parts.admission.kafka_cluster = lambda: parts.assembly.cluster.id

    def _restore_progress(self, restoration: Restoration) -> None:
        if restoration.following:
            return  # a copy: the reader has told the listener of it
        store = restoration.store
        done = restoration.position - restoration.start
        self._parts.listener.restore_progress(store.name, store.partition, done, done + restoration.remaining)

    def start(self) -> None:
        """Find this worker's tasks, and activate them.

        Raises:
            MillpondError: the brokers do not answer, or without a coordinator another worker owns a task.
        """
        parts, config, executor = self._parts, self._parts.config, self._parts.executor
        tasks = list(parts.assembly.plan.tasks)
        parts.presence.start()
        if config.coordinator_url is not None:
            graph = topology_overview(parts.topology, parts.assembly.environment.real_topic)
            parts.client = parts.admission.client(config.coordinator_url, parts.assembly.plan, graph)
            parts.coordination = Coordination(
                executor, parts.client, config, tasks, parts.contact, parts.assembly.watch.hurry
            )
        own = self._own_tasks(tasks)
        self._watch_clients()
        parts.become(WorkerState.RESTORING)
        self._create_global_stores()
        executor.hold(own, Role.ACTIVE)
        if parts.coordination is not None:
            parts.coordination.start()

    def _own_tasks(self, tasks: Sequence[TaskId]) -> Sequence[TaskId]:
        """Return the tasks to start with, after announcing them in Kafka."""
        parts, config, executor = self._parts, self._parts.config, self._parts.executor
        began = time.monotonic()
        while True:
            self._producers.start()
            try:
                if parts.coordination is None:
                    claim_everything(executor.registrar, config, tasks, take_over=self._take_over)
                    own = tasks
                else:
                    # Tasks that are handed over to this worker from now on come with the coordinator's answers.
                    own = self._admitted(parts.coordination, executor.registrar.tasks_naming(config.worker_id, tasks))
                announce(executor, config, parts.collector.producer, own)
                parts.blockers.remove("start")
                return own
            except (OwnershipError, KafkaException) as error:
                # With a coordinator, another worker may be taking over from this worker's previous incarnation.
                fenced, lasted_s = isinstance(error, OwnershipError), time.monotonic() - began
                if isinstance(error, KafkaException) and kind_of(error.args[0]) is Kind.FORBIDDEN:
                    raise self._rejected(error) from error
                final = fenced and config.coordinator_url is None
                if final or parts.stop.is_set() or lasted_s >= config.task_timeout_ms / 1000:
                    raise
                if fenced and lasted_s < _TAKE_OVERS_S:
                    log.info(
                        "worker %s: fenced during its start, as by a worker that takes over the tasks of its earlier "
                        "process; trying again in %.1f s", config.worker_id, FENCED_PAUSE_S,
                    )  # fmt: skip
                else:
                    log.warning(
                        "worker %s: start failed (%s); retrying in %.1f s", config.worker_id, error, FENCED_PAUSE_S
                    )
                parts.blockers.add("start", error if isinstance(error, MillpondError) else self._rejected(error))
                parts.close_offset_sink()
                parts.stop.wait(FENCED_PAUSE_S)

    def _rejected(self, error: KafkaException) -> BrokerError:
        return rejected_by_kafka(error, self._parts.access)

    def _admitted(self, coordination: Coordination, own: Sequence[TaskId]) -> Sequence[TaskId]:
        """Return the tasks to start with: none if the coordinator rejects this worker's topology."""
        parts = self._parts
        coordination.begin(own)
        if parts.heartbeats is None:
            assert parts.client is not None
            parts.heartbeats = parts.metrics.http.spawn(parts.client.run())
            silent = parts.admission.coordinator_silent
            parts.client.heard.wait(_SILENT_ADMISSION_TIMEOUT_S if silent else _ADMISSION_TIMEOUT_S)
        coordination.learn_marks()
        return () if coordination.rejected else own

    def _create_global_stores(self) -> None:
        executor = self._parts.executor
        while True:
            try:
                executor.globals.create()
            except StateCorrupted as error:
                if error.store is None:
                    raise
                executor.globals.close()
                executor.stores.rebuild(error)
            else:
                return

    def _watch_clients(self) -> None:
        parts, assembly = self._parts, self._parts.assembly
        topic = next(iter(assembly.plan.partitions))
        parts.client_errors.watch(
            {
                WorkerClient.READER: lambda timeout_s: answers(assembly.consumer, topic, timeout_s),
                WorkerClient.COPIER: lambda timeout_s: answers(assembly.copier, topic, timeout_s),
                WorkerClient.PRODUCER: lambda timeout_s: answers(parts.collector.producer, topic, timeout_s),
            },
            lambda timeout_s: assembly.cluster.answers(topic, timeout_s),
        )


def claim_everything(registrar: OwnershipLookups, config: Config, tasks: Sequence[TaskId], *, take_over: bool) -> None:
    """Claim all tasks: without a coordinator, one worker runs all of them.

    Raises:
        OwnershipError: another worker owns a task, or claimed it at the same moment.
    """
    worker = config.worker_id
    _, unowned, foreign = tasks_by_claim(worker, registrar.survey(tasks))
    if foreign and not take_over:
        other, theirs = next(iter(foreign.items()))
        several = len(theirs) > 1
        raise OwnershipError(
            f"{len(theirs)} task{'s' if several else ''} of '{config.application_id}' (first: {theirs[0]}) "
            f"belong{'' if several else 's'} to worker '{other}', and this one is '{worker}'. "
            f"When that worker has stopped, start this one with --worker-id {other} to continue with its state, or "
            "with --take-over (in a program: Worker(…, take_over=True)) to take its tasks over. When it runs, several "
            "workers share the tasks only through "
            "a coordinator: run `millpond dev --workers 2` on one machine, or set 'coordinator.url', as a "
            "StreamApp on Kubernetes does."
        )
    orders: dict[str | None, list[TaskId]] = {None: unowned} if unowned else {}
    orders.update(foreign)
    for previous, wanted in orders.items():
        for task, owner in registrar.take_over_now(previous, dict.fromkeys(wanted, worker)).owners.items():
            if owner != worker:
                raise OwnershipError(
                    f"task {task} was claimed by worker '{owner}' at the same time. When that worker has stopped, "
                    "start this one with --take-over (in a program: Worker(…, take_over=True))."
                )


def announce(executor: TaskExecutor, config: Config, producer: Producer, tasks: Sequence[TaskId]) -> None:
    """Write this worker's new epochs into the offset metadata of its tasks, in a separate transaction.

    Raises:
        OwnershipError: another process uses this worker's transactional id.
    """
    answer = executor.registrar.look_up_now(tasks)
    offsets = executor.claims.announcement(answer)
    if not offsets:
        return
    try:
        read = {each: known for lookup in answer.tasks.values() for each, known in lookup.committed.items()}
        expected = {each: read[each] for each in offsets}
        executor.registrar.announce(producer if config.exactly_once else None, offsets, expected)
    except OwnershipError as error:
        raise OwnershipError(
            f"another process runs as worker '{config.worker_id}' of '{config.application_id}' (it fenced this one "
            f"while it started). Give each worker its own 'worker.id'."
        ) from error


def rejected_by_kafka(error: KafkaException, access: Access) -> BrokerError:
    """Return the error that a user sees when a client cannot continue."""
    return BrokerError(f"Kafka rejected a request: {access.explained(error.args[0])}")
