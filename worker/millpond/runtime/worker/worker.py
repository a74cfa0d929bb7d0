"""The worker: one process, one loop, one consumer, one producer, one state file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from confluent_kafka import KafkaException

from millpond.calls import explains_names
from millpond.errors import BrokerError, OwnershipError, StateCorrupted, WorkerStateError
from millpond.protocol import View
from millpond.protocol.loads import WorkerLoad
from millpond.queries.catalog import StoreCatalog
from millpond.runtime.blockers import Blockers
from millpond.runtime.commit.pipeline import CommitFailed
from millpond.runtime.config.model import Config, check_config
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.http.query_catalog import store_catalog
from millpond.runtime.http.query_server import query_interface
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.kafka.broker_probe import make_contact
from millpond.runtime.listeners import WorkerListener, check_listener
from millpond.runtime.loading import check_not_loading
from millpond.runtime.missing_rights import Access
from millpond.runtime.states import WorkerState
from millpond.runtime.tasks.held_tasks import TaskView
from millpond.state import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    WindowStore,
)
from millpond.topology import TaskId, Topology
from millpond.topology.settings.checking import check_startable, check_topology

from .admission import Admission
from .embedding import local_stores as reads
from .embedding.controls import CloseOptions, Controls, close_options, seconds_of
from .embedding.failures import (
    StreamThreadExceptionResponse,
    UncaughtExceptionHandler,
    UncaughtExceptions,
    readable_catalog,
)
from .embedding.metadata import LagInfo, ThreadMetadata, lags_of, tasks_of
from .embedding.thread import WorkerThread
from .leaving import Leaving
from .loop import Loop
from .memory.gc import GarbageCollector
from .own_view import own_view
from .parts import WorkerParts
from .polling import Polling
from .producers import Producers
from .recovery import Recovery
from .stalls import watch_for_stalls
from .startup import Startup, rejected_by_kafka

__all__ = ("Worker",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@explains_names
class Worker:
    """A worker, which runs tasks of an application: all tasks, or those that the coordinator assigns.

    Args:
        topology: the topology to run.
        config: the worker's configuration.
        listener: notified of states, restores and commits; None for no listener.
        take_over: whether to take over tasks of other workers; only without a coordinator.

    `run()` runs it in the caller's thread. `start()` runs it in a thread of its own, until `close()`; a `with` block
    calls both, and raises the worker's error.

    Attributes:
        exception: the error that ended the worker; None if it has not failed.
    """

    def __init__(
        self, topology: Topology, config: Config, listener: WorkerListener | None = None, *, take_over: bool = False
    ) -> None:
        check_topology("Worker", topology)
        check_config(config)
        check_startable(topology, config)
        self.topology = topology
        self.config = config
        self.exception: BaseException | None = None
        self._listener = check_listener(listener or WorkerListener())
        self._take_over = take_over
        self._controls = Controls()
        self._uncaught = UncaughtExceptions(config.worker_id)
        self._thread = WorkerThread(f"millpond-{config.worker_id}", self._run_begun, self.close)
        self._build(WorkerState.CREATED)

    def _build(self, state: WorkerState) -> None:
        """Make all parts: for the first run, or for the one after a failure."""
        config, controls = self.config, self._controls
        self._catalog: StoreCatalog | None = None
        self.metrics: WorkerMetrics = WorkerMetrics(config)
        self.waiting: Blockers = Blockers()
        self.contact: BrokerContact = make_contact(config, self.waiting, lambda: self._parts.used_topics)
        self._queries, self._query_site = query_interface(config, self.metrics.http, self.metrics.registry)
        site = self._query_site
        self._parts = parts = WorkerParts(
            topology=self.topology,
            config=config,
            listener=self._listener,
            metrics=self.metrics,
            blockers=self.waiting,
            contact=self.contact,
            admission=Admission(config, self.metrics.http, lambda: site.url, self.waiting, self.contact, controls.stop),
            garbage=GarbageCollector(),
            controls=controls,
            state=state,
        )
        producers = Producers(parts)
        self._startup = Startup(parts, producers, take_over=self._take_over)
        self._recovery = Recovery(parts, producers)
        self._leaving = Leaving(parts, self._recovery)
        polling = Polling(parts, answers_queries=lambda: site.url is not None)
        self._loop = Loop(parts, polling, self._recovery, self._leaving)

    @property
    def state(self) -> WorkerState:
        """The worker's state."""
        return self._parts.state

    @property
    def last_turn(self) -> float:
        """The start of the last turn of the loop, in monotonic seconds."""
        return self._loop.last_turn

    # In the process of a program: these may be called from any thread

    def set_uncaught_exception_handler(self, handler: UncaughtExceptionHandler) -> None:
        """Let a function decide what follows after an exception that would end the worker (KIP-671).

        Args:
            handler: f(exception) -> a `StreamThreadExceptionResponse`. Without one, the worker ends.

        Raises:
            WorkerStateError: the worker was started before.
            TopologyError: the handler cannot be called with one argument.
        """
        if self.state is not WorkerState.CREATED:
            raise WorkerStateError(
                f"worker '{self.config.worker_id}' is {self.state.value}: set the uncaught exception "
                "handler before start()."
            )
        self._uncaught.set(handler)

    def start(self) -> None:
        """Run the worker in a thread of its own, and return at once.

        The thread ends by `close()`, or when the worker fails; `exception` has the reason then. It does not keep the
        program alive: a program that ends closes the worker first.

        Raises:
            WorkerStateError: the worker was started or closed before; make a new one.
        """
        self._begin("start()")
        self._thread.start()

    def close(self, options: CloseOptions | timedelta | None = None) -> bool:
        """Commit the processed records and end the worker; a second call only waits.

        Args:
            options: a timeout, or `CloseOptions`; None waits for the end, however long it takes.

        Returns:
            Whether the worker has ended. A call from the worker's own thread does not wait.
        """
        chosen = close_options(options)
        self._controls.leave_group = chosen.leave_group
        self.stop()
        with self._controls.changed:
            if not self._controls.begun:
                self._parts.become(WorkerState.NOT_RUNNING)
                self._controls.ended.set()
        return self._thread.wait(self._controls.ended, seconds_of("close()", chosen.timeout))

    def stop(self) -> None:
        """Ask the worker to commit and end, without waiting. Safe in signal handlers."""
        self._controls.stop.set()

    def pause(self) -> None:
        """Stop processing and restoring, and keep the tasks (KIP-834). The worker continues to commit and to answer.

        A worker may be paused before it starts. Its state remains what it is; `is_paused()` tells.
        """
        self._controls.paused = True

    def resume(self) -> None:
        """Continue after `pause()`."""
        self._controls.paused = False

    def is_paused(self) -> bool:
        """Return whether `pause()` was called, and `resume()` not yet."""
        return self._controls.paused

    def wait_for(self, state: WorkerState, timeout: timedelta | None = None) -> bool:
        """Wait until the worker is in a state.

        Args:
            state: the state, such as `WorkerState.RUNNING`.
            timeout: how long to wait; None for as long as it takes.

        Returns:
            Whether the worker is in the state. False after the timeout, or when it has ended in another state.

        Raises:
            MillpondError: the worker has failed, and another state than ERROR was waited for.
        """
        controls = self._controls
        with controls.changed:
            controls.changed.wait_for(
                lambda: self.state is state or controls.ended.is_set(), seconds_of("wait_for()", timeout)
            )
        if self.state is not state and self.exception is not None:
            raise self.exception
        return self.state is state

    @overload
    def store(
        self, name: str, kind: type[KeyValueStore[K, V]], **options: Unpack[reads.StoreOptions]
    ) -> reads.ReadOnlyKeyValueStore[K, V]: ...
    @overload
    def store(
        self, name: str, kind: type[TimestampedKeyValueStore[K, V]], **options: Unpack[reads.StoreOptions]
    ) -> reads.ReadOnlyKeyValueStore[K, ValueAndTimestamp[V]]: ...
    @overload
    def store(
        self, name: str, kind: type[WindowStore[K, V]], **options: Unpack[reads.StoreOptions]
    ) -> reads.ReadOnlyWindowStore[K, V]: ...
    @overload
    def store(
        self, name: str, kind: type[TimestampedWindowStore[K, V]], **options: Unpack[reads.StoreOptions]
    ) -> reads.ReadOnlyWindowStore[K, ValueAndTimestamp[V]]: ...
    @overload
    def store(
        self, name: str, kind: type[SessionStore[K, V]], **options: Unpack[reads.StoreOptions]
    ) -> reads.ReadOnlySessionStore[K, V]: ...
    @overload
    def store(
        self, name: str, kind: type[VersionedKeyValueStore[K, V]], **options: Unpack[reads.StoreOptions]
    ) -> reads.ReadOnlyVersionedStore[K, V]: ...
    def store(self, name: str, kind: Any, **options: Unpack[reads.StoreOptions]) -> Any:
        """Return a store of this worker to read, over all partitions that it has (`StoreQueryParameters`).

        Another worker may have other partitions: `metadata_for_local_threads()` tells which ones this worker has, and
        `millpond.queries.client` reads those of all workers. Do not call it from the worker's own thread: processors
        use `get_state_store()`.

        Args:
            name: the store's name.
            kind: the store's class, such as `mp.KeyValueStore[str, int]`. Without timestamps in the kind, values of a
                timestamped store come without them.
            options: `partition=`, `stale=` and `committed=`; see `StoreOptions`.

        Raises:
            WorkerStateError: the worker has not started, has ended or has failed; or this is its own thread.
            QueryFailed: there is no such store, it is of another kind, or the worker has no partition of it now.
            TopologyError: the kind is none of these.
        """
        worker, own_thread = self.config.worker_id, self._controls.thread_id == threading.get_ident()
        catalog = readable_catalog(worker, self._catalog, self.state, self.exception, own_thread=own_thread)
        return reads.open_store(worker, self, catalog, name, kind, **options)

    def metadata_for_local_threads(self) -> tuple[ThreadMetadata, ...]:
        """Return the worker's loop with its tasks: a tuple of one; empty before the start and after the end."""
        if self._catalog is None or self.state.has_ended():
            return ()
        parts = self._parts
        tasks = tasks_of(list(parts.executor.held.values()), parts.assembly.plan.tasks, parts.load.latest)
        return (ThreadMetadata.of(self.config.worker_id, self.state, tasks),)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far each store is behind its changelog, if it has one, by store and partition (KIP-535)."""
        if self._catalog is None or self.state.has_ended():
            return {}
        return lags_of(list(self._parts.executor.held.values()))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self.exception is not None:
            raise self.exception

    # Running

    def run(self) -> None:
        """Run in this thread until `stop()`.

        Raises:
            MillpondError: the worker cannot continue. The next worker processes the uncommitted records again.
            WorkerStateError: the worker was started or closed before.
        """
        self._begin("run()")
        self._run_begun()

    def _begin(self, method: str) -> None:
        check_not_loading()
        with self._controls.changed:
            if self._controls.begun or self.state is not WorkerState.CREATED:
                raise WorkerStateError(
                    f"{method} was called on worker '{self.config.worker_id}', which is {self.state.value}: a worker "
                    "runs once, so make a new mp.Worker."
                )
            self._controls.begun = True

    def _run_begun(self) -> None:
        """Run until `stop()`, with the replacements that the uncaught exception handler asks for."""
        controls = self._controls
        controls.thread_id = threading.get_ident()
        try:
            while self._run_once():
                wait_s = self._uncaught.wait_s(committed=self.metrics.commits > 0)
                log.warning("worker %s: starting again in %.1f s", self.config.worker_id, wait_s)
                controls.stop.wait(wait_s)
                self._build(self.state)
        except BaseException as error:
            self.exception = error
            raise
        finally:
            controls.ended.set()
            with controls.changed:
                controls.changed.notify_all()

    def _run_once(self) -> bool:
        """Run until `stop()` or an error; return whether to start again."""
        parts = self._parts
        outcome: StreamThreadExceptionResponse | None = None
        stopped = False
        try:
            with self.metrics.serving(self), self._garbage(), self.waiting.waits_of_serdes(), ExitStack() as at_end:
                try:
                    self._startup.assemble(at_end)
                    at_end.push(self._leaving.close)
                    self._open()
                    self._run()
                except BaseException as error:
                    stopped = self._only_waited(error)
                    outcome = None if stopped else self._respond(error)
                    raise
        except BaseException as error:
            if outcome is StreamThreadExceptionResponse.REPLACE_THREAD:
                return True
            if not stopped:
                parts.become(WorkerState.ERROR)
                if isinstance(error, KafkaException):
                    raise _shown(error, parts.access) from error
                raise
        parts.become(WorkerState.NOT_RUNNING)
        return False

    def _garbage(self) -> AbstractContextManager[None]:
        """Return the block that takes over the interpreter's garbage collection, unless the process has other tasks."""
        return nullcontext() if self._thread.started else self._parts.garbage.in_charge()

    def _only_waited(self, error: BaseException) -> bool:
        """Return whether the worker was stopped while it waited for brokers or the coordinator."""
        parts = self._parts
        waited = isinstance(error, (BrokerError, OwnershipError)) and parts.state is WorkerState.STARTING
        if not (waited and self._controls.stop.is_set()):
            return False
        # It has nothing to commit.
        log.info("worker %s: stopped before its start was complete: %s", self.config.worker_id, error)
        parts.become(WorkerState.PENDING_SHUTDOWN)
        return True

    def _respond(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the response to an error, and report the state that it leads to."""
        response = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        if not self._controls.stop.is_set():
            response = self._uncaught.response(_shown(error, self._parts.access))
        if response is not StreamThreadExceptionResponse.REPLACE_THREAD:
            self._parts.become(WorkerState.PENDING_ERROR)
        else:
            log.error(
                "worker %s: failed, and is replaced: %s", self.config.worker_id, _shown(error, self._parts.access)
            )
        return response

    def _open(self) -> None:
        parts = self._parts
        assembly = parts.assembly
        self._catalog = store_catalog(self.topology, assembly.plan, assembly.environment)
        self._queries.open(self, self._catalog)
        self.metrics.watch(assembly.executor, assembly.state_file, assembly.watch, parts.load)
        self.contact.start()

    def _run(self) -> None:
        parts = self._parts
        self._startup.start()
        watch_for_stalls(parts, lambda: self.last_turn)
        while not parts.stop.is_set():
            self._turn_or_recover()
        parts.become(WorkerState.PENDING_SHUTDOWN)
        if self._controls.leave_group:
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


def _shown(error: BaseException, access: Access) -> BaseException:
    """Return the error that a user sees."""
    if not isinstance(error, KafkaException):
        return error
    shown = rejected_by_kafka(error, access)
    shown.__cause__ = error
    return shown
