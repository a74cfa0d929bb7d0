"""The worker: one process, one loop, one consumer, one producer, one state file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from millpond.errors import BrokerError, MillpondError, OwnershipError, StateCorrupted
from millpond.protocol import View
from millpond.protocol.loads import WorkerLoad
from millpond.runtime.blockers import Blockers
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.config.model import Config, check_config
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.http.query_catalog import store_catalog
from millpond.runtime.http.query_server import query_interface
from millpond.runtime.kafka.broker_contact import BrokerContact, make_probe
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS
from millpond.runtime.listeners import WorkerListener, check_listener
from millpond.runtime.states import WorkerState
from millpond.runtime.tasks.held_tasks import TaskView
from millpond.topology import TaskId, Topology
from millpond.topology.topology import check_topology

from .admission import Admission
from .gc import GarbageCollector
from .leaving import Leaving
from .loop import Loop
from .own_view import own_view
from .parts import WorkerParts
from .polling import Polling
from .producers import Producers
from .recovery import Recovery
from .startup import Startup, rejected_by_kafka

__all__ = ("Worker",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")


class Worker:
    """A worker, which runs tasks of an application: all tasks, or those that the coordinator assigns.

    Args:
        topology: the topology to run.
        config: the worker's configuration.
        listener: notified of states, restores and commits; None for no listener.
        take_over: whether to take over tasks of other workers; only without a coordinator.
    """

    def __init__(
        self, topology: Topology, config: Config, listener: WorkerListener | None = None, *, take_over: bool = False
    ) -> None:
        check_topology("Worker", topology)
        check_config(config)
        self.topology = topology
        self.config = config
        self.metrics: WorkerMetrics = WorkerMetrics(config)
        self.waiting: Blockers = Blockers()
        self.contact: BrokerContact = BrokerContact(
            make_probe(dict(config.admin_settings(CLIENT_DEFAULTS))),
            config.brokers_unreachable_timeout_ms / 1000,
            self.waiting,
            config.bootstrap_servers,
        )
        self._queries, self._query_site = query_interface(config, self.metrics.http, self.metrics.registry)
        stop = threading.Event()
        self._parts = parts = WorkerParts(
            topology=topology,
            config=config,
            listener=check_listener(listener or WorkerListener()),
            metrics=self.metrics,
            blockers=self.waiting,
            contact=self.contact,
            admission=Admission(
                config, self.metrics.http, lambda: self._query_site.url, self.waiting, self.contact, stop
            ),
            garbage=GarbageCollector(),
            stop=stop,
        )
        producers = Producers(parts)
        self._startup = Startup(parts, producers, take_over=take_over)
        self._recovery = Recovery(parts, producers)
        self._leaving = Leaving(parts, self._recovery)
        polling = Polling(parts, answers_queries=lambda: self._query_site.url is not None)
        self._loop = Loop(parts, polling, self._recovery, self._leaving)

    @property
    def state(self) -> WorkerState:
        """The worker's state."""
        return self._parts.state

    @property
    def last_turn(self) -> float:
        """The start of the last turn of the loop, in monotonic seconds."""
        return self._loop.last_turn

    def stop(self) -> None:
        """Ask the worker to commit and end. Safe from any thread and from signal handlers."""
        self._parts.stop.set()

    def run(self) -> None:
        """Run until `stop()`.

        Raises:
            MillpondError: the worker cannot continue. The next worker processes the uncommitted records again.
        """
        parts = self._parts
        try:
            with self.metrics.serving(self), parts.garbage.in_charge():
                self._open()
                try:
                    self._run()
                finally:
                    self._close()
        except MillpondError as error:
            waited = isinstance(error, (BrokerError, OwnershipError)) and parts.state is WorkerState.STARTING
            if parts.stop.is_set() and waited:
                # It was stopped while it waited for brokers or the coordinator, so it has nothing to commit.
                log.info("worker %s: stopped before its start was complete: %s", self.config.worker_id, error)
                parts.become(WorkerState.PENDING_SHUTDOWN)
            else:
                parts.become(WorkerState.ERROR)
                raise
        except KafkaException as error:
            parts.become(WorkerState.ERROR)
            raise rejected_by_kafka(error) from error
        except BaseException:
            parts.become(WorkerState.ERROR)
            raise
        parts.become(WorkerState.NOT_RUNNING)

    def _open(self) -> None:
        parts = self._parts
        self._startup.assemble()
        assembly = parts.assembly
        self._queries.open(self, store_catalog(self.topology, assembly.plan, assembly.environment))
        self.metrics.watch(assembly.executor, assembly.state_file, assembly.watch, parts.load)
        self.contact.start()

    def _run(self) -> None:
        parts = self._parts
        self._startup.start()
        while not parts.stop.is_set():
            self._turn_or_recover()
        parts.become(WorkerState.PENDING_SHUTDOWN)
        self._leaving.hand_over(self._turn_or_recover)
        self._leaving.commit()

    def _turn_or_recover(self) -> None:
        try:
            self._loop.turn()
        except (CommitFailed, KafkaException) as error:
            self._recovery.recover(error)
        except StateCorrupted as error:
            if error.store is None:
                raise
            self._recovery.rebuild(error)

    def _close(self) -> None:
        parts = self._parts
        self._leaving.sign_off()
        parts.close_offset_sink()
        parts.client_errors.close()
        self.contact.close()
        parts.assembly.close()

    # For other threads

    def holding(self, task: TaskId) -> TaskView | None:
        """Return a held task; None if the worker does not hold it. Safe from any thread."""
        held = self._parts.executor.held.get(task)
        return None if held is None else held.view()

    @property
    def rejection(self) -> str | None:
        """The reason why the coordinator does not admit this worker; None if it does, or without a coordinator."""
        client = self._parts.client
        if client is None or (client.connected_at is not None and not client.rejected):
            return None
        refusal = client.refusal
        return None if refusal is None else refusal.message

    def globals_ready(self) -> bool:
        """Return whether the global stores have all records that were in their topics when the worker started."""
        return self.state is WorkerState.RUNNING and not self._parts.executor.globals.behind

    def view(self, before: WorkerLoad | None = None) -> Future[View]:
        """Return what the worker knows of its tasks, without a coordinator; answered by the loop, once it runs.

        Args:
            before: an earlier load of this worker, for rates.
        """
        return self.call(lambda: own_view(self._parts, before))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function in the loop, between two turns. Safe from any thread."""
        answer: Future[T] = Future()

        def run() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except BaseException as error:  # noqa: BLE001 - the caller gets whatever the function raises
                    answer.set_exception(error)

        self._loop.calls.put(run)
        return answer

    def backend_of_store(self, store: str) -> Any:
        """Return the backend with a store's committed rows.

        Raises:
            KeyError: the application has no such store.
        """
        return self._parts.executor.stores.backend(store)
