"""The processes of a session: starts, restarts, drains and stops the workers and the coordinator.

Everything here runs in one event loop. Each worker has an asyncio task that keeps its process running while the worker
is wanted; commands only change which workers are wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import time
from collections import deque
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from millpond.backoff import Backoff
from millpond.errors import ConfigError, MillpondError
from millpond.protocol import Role, View

from .child_processes import Child, ChildReaper, ending
from .coordinator import CoordinatorFailed, CoordinatorProcess, CoordinatorUnavailable, UnknownWorker
from .process_log import ProcessLog
from .remote import RESTART_AFTER_S, CommandFailed
from .status import SessionEvent, WorkerPhase
from .worker import STEADY_S, Launch, WorkerProcess

__all__ = ("COORDINATOR", "Fleet", "WorkersFail")

log: logging.Logger = logging.getLogger("millpond.cli")

COORDINATOR = "coordinator"
"""The name of the coordinator in commands that take a worker."""

_RESTART_BACKOFF = Backoff(timedelta(seconds=RESTART_AFTER_S), timedelta(seconds=30))
_POLL_S = 0.05
_REPORT_TIMEOUT_S = 2.0
_DRAIN_TIMEOUT_S = 120.0
_STOP_WITHOUT_BROKER_S = 2.0
_EVENTS_KEPT = 200
_STATUS_USAGE = 2


class WorkersFail(MillpondError):
    """No worker of the session can start."""


class Fleet:
    """The workers of a session and their coordinator.

    Attributes:
        workers: the workers by id.
        coordinator: their coordinator.
        events: the latest events.
        wanted: the number of workers that should run.
        usual: the latest such number that was not 0.
        deaths: workers whose process ended unexpectedly, and the time (monotonic seconds); the observer consumes them.
        died: set when there are new deaths.
        started_at: the start of the session, in monotonic seconds.
        ran: whether any worker has ever been in state RUNNING.
        broker_ended: whether the session's broker has ended, so that workers cannot commit when they stop.
    """

    def __init__(
        self, launch: Launch, count: int, reaper: ChildReaper, *, patient: bool = False, coordinator_port: int = 0
    ) -> None:
        """Create the fleet, without processes.

        Args:
            launch: the options of workers.
            count: the number of workers.
            reaper: kills the processes when this process dies.
            patient: whether to start workers again that have never run. A person at a terminal sees the reason, and
                mends the application; otherwise the session ends with it.
            coordinator_port: the port of the coordinator; 0 for a free one.
        """
        self.launch = launch
        self._patient = patient
        self._reaper = reaper
        self.coordinator: CoordinatorProcess = CoordinatorProcess(
            launch.config, launch.directory, reaper, coordinator_port
        )
        self.workers: dict[str, WorkerProcess] = {}
        self.wanted: int = count
        self.usual: int = count
        self.events: deque[SessionEvent] = deque(maxlen=_EVENTS_KEPT)
        self.deaths: deque[tuple[str, float]] = deque()
        self.died: asyncio.Event = asyncio.Event()
        self.ran = False
        self.broker_ended = False
        self._ports: dict[str, int] = {}  # by worker: the port on which it served last
        self._numbers = itertools.count(1)
        self.started_at: float = time.monotonic()
        self._failure: BaseException | None = None
        self._stopping = asyncio.Event()
        self._coordinator_pause_s = RESTART_AFTER_S
        self._last_error = ""
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start the coordinator and the workers, and keep them running until `stop`.

        Raises:
            MillpondError: the coordinator or all workers cannot start.
        """
        try:
            await self.coordinator.start()
            log.info("coordinator: %s, which redirects queries to a worker that runs", self.coordinator.url)
            self._in_background(self._keep_coordinator())
            self.scale(self.wanted)
            await self._report_missing_workers()
            await self._stopping.wait()
        finally:
            await self._stop_all()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Make `run` stop everything and return."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def kill_all(self) -> None:
        """Kill all processes at once."""
        for child in (self.coordinator.child, *(worker.child for worker in self.workers.values())):
            if child is not None:
                child.send(signal.SIGKILL)

    def add_event(self, text: str, level: int = logging.INFO, **fields: Any) -> None:
        """Record and log an event; `fields` are further fields of the `SessionEvent`."""
        self.events.append(
            SessionEvent(number=next(self._numbers), at_s=time.monotonic() - self.started_at, text=text, **fields)
        )
        log.log(level, "%s", text)

    # Commands

    def scale(self, count: int) -> str:
        """Set the number of workers: start missing ones with the lowest ordinals, or drain those with the highest.

        Raises:
            CommandFailed: the number is negative.
        """
        if count < 0:
            raise CommandFailed("there is no worker left to remove; Ctrl-C ends the session.")
        staying = sorted((each for each in self.workers.values() if not each.leaving), key=lambda each: each.ordinal)
        self.wanted, self.usual = count, count or self.usual
        leaving = staying[count:]
        for worker in leaving:
            self._begin_drain(worker)
        if not count:  # no worker is left to hand tasks over to
            for worker in self.workers.values():
                if worker.draining is not None and worker.child is not None:
                    worker.draining.cancel()
                    worker.draining = self._in_background(self._stop(worker))
        started: list[str] = []
        ordinals = itertools.count()
        while len(staying) + len(started) < count:
            ordinal = next(ordinals)
            found = self.workers.get(f"w{ordinal}")
            if found is None or found.leaving:
                started.append(self._start(ordinal))
        if started:
            return f"starting {', '.join(started)}"
        if not count:
            return "stopping all workers; the broker keeps running" if leaving else "no worker runs"
        ids = ", ".join(each.id for each in leaving)
        return f"draining {ids}" if ids else f"{count} worker{'s run' if count > 1 else ' runs'} already"

    def kill(self, name: str, restart_after_s: float | None = RESTART_AFTER_S) -> str:
        """Send SIGKILL to a worker or the coordinator.

        Args:
            name: the worker, or `COORDINATOR`.
            restart_after_s: the pause before the restart, in seconds; None to keep it stopped until `scale` needs it.

        Raises:
            CommandFailed: the worker does not exist, or has no process now.
        """
        if name == COORDINATOR:
            child = self.coordinator.child
            if child is None:
                raise CommandFailed("the coordinator is not running; it is being started again.")
            self._coordinator_pause_s = RESTART_AFTER_S if restart_after_s is None else restart_after_s
        else:
            worker = self._find(name)
            child = worker.child
            if child is None:
                raise CommandFailed(f"{name} has no process to kill: it is {worker.phase}.")
            worker.wanted = restart_after_s is not None
            worker.restart_after_s = restart_after_s or 0.0
            if not worker.wanted:
                self.wanted = max(0, self.wanted - 1)
        child.send(signal.SIGKILL)
        self.add_event(f"kill -9 {child.pid}: {name}", logging.WARNING)
        return f"killed {name}, pid {child.pid}"

    def drain(self, name: str) -> str:
        """Move a worker's tasks to other workers, then stop it.

        Raises:
            CommandFailed: the worker does not exist, is stopping already, or is the last worker.
        """
        worker = self._find(name)
        if worker.leaving:
            raise CommandFailed(f"{name} is already {worker.phase}.")
        if all(other.leaving for other in self.workers.values() if other is not worker):
            raise CommandFailed(
                f"{name} is the last worker, so no other one can take its tasks: start another one first."
            )
        self.wanted = max(0, self.wanted - 1)
        self._begin_drain(worker)
        return f"draining {name}; then it stops"

    def pause(self, name: str) -> str:
        """Send SIGSTOP to a worker, which then stays alive but does not respond.

        Raises:
            CommandFailed: the worker does not exist, or does not run.
        """
        worker = self._find(name)
        if worker.child is None or worker.leaving:
            raise CommandFailed(f"{name} cannot be paused: it is {worker.phase}.")
        worker.child.send(signal.SIGSTOP)
        worker.phase = WorkerPhase.PAUSED
        self.add_event(f"kill -STOP {worker.child.pid}: {name}", logging.WARNING)
        return f"paused {name}, pid {worker.child.pid}"

    def resume(self, name: str) -> str:
        """Send SIGCONT to a paused worker.

        Raises:
            CommandFailed: the worker does not exist, or is not paused.
        """
        worker = self._find(name)
        if worker.child is None or worker.phase is not WorkerPhase.PAUSED:
            raise CommandFailed(f"{name} is not paused: it is {worker.phase}.")
        worker.child.send(signal.SIGCONT)
        worker.phase = WorkerPhase.RUNNING
        self.add_event(f"kill -CONT {worker.child.pid}: {name}")
        return f"resumed {name}"

    def _find(self, name: str) -> WorkerProcess:
        worker = self.workers.get(name)
        if worker is None:
            raise CommandFailed(f"worker '{name}' does not exist; the workers are {', '.join(self.workers)}.")
        return worker

    # One worker

    def _start(self, ordinal: int) -> str:
        """Start a worker, or keep or restart one that is stopping; return its id."""
        name = f"w{ordinal}"
        worker = self.workers.get(name)
        if worker is None or worker.keep_running is None or worker.keep_running.done():
            worker = WorkerProcess(ordinal, ProcessLog(self.launch.directory / f"{name}.log"))
            worker.log.new_process()
            self.workers[name] = worker
            self.workers = dict(sorted(self.workers.items(), key=lambda each: each[1].ordinal))
            worker.keep_running = self._in_background(self._keep_running(worker))
            return name
        # It is stopping: a draining worker stays, another one is started again as soon as it has stopped.
        if worker.draining is not None:
            worker.draining.cancel()
        worker.wanted, worker.restart_after_s = True, 0.0
        if worker.phase is WorkerPhase.DRAINING:
            worker.phase, worker.note = WorkerPhase.RUNNING, ""
            self._in_background(self._undrain(worker))
        return name

    async def _keep_running(self, worker: WorkerProcess) -> None:
        """Keep a worker's process running while the worker is wanted."""
        while worker.wanted:
            self._in_background(self._undrain(worker))
            worker.log.new_process()
            worker.phase, worker.note, worker.restart_after_s = WorkerPhase.STARTING, "", None
            worker.started_at = time.monotonic()
            worker.restarts += 1
            command = self.launch.command(worker.ordinal, self.coordinator.url, self._ports.get(worker.id, 0))
            worker.child = await Child.start(command, worker.log.path, self._reaper)
            pid = worker.child.pid
            log.debug("%s started, pid %d", worker.id, pid)
            status = await worker.child.wait()
            ended = time.monotonic()
            worker.child = None
            worker.log.read()
            self._ports[worker.id] = urlsplit(worker.log.metrics).port or self._ports.get(worker.id, 0)
            if self._stopping.is_set():
                return
            if worker.phase is not WorkerPhase.STOPPING:
                self.deaths.append((worker.id, ended))
                self.died.set()
            await self._report_gone(worker.id)
            if worker.phase is WorkerPhase.STOPPING:
                continue
            await self._pause_before_restart(worker, pid, status, ended - worker.started_at)
        worker.phase = WorkerPhase.DOWN if worker.restart_after_s is not None else worker.phase
        if worker.phase is not WorkerPhase.DOWN:
            self.workers.pop(worker.id, None)

    async def _pause_before_restart(self, worker: WorkerProcess, pid: int, status: int, lasted_s: float) -> None:
        """Wait before the next start; the wait grows with each consecutive failure."""
        if worker.restart_after_s is not None:
            pause_s, worker.phase, worker.failures = worker.restart_after_s, WorkerPhase.KILLED, 0
            worker.note = f"restarting in {pause_s:g} s" if worker.wanted else ""
            worker.last_error = ""
        else:
            worker.phase = WorkerPhase.FAILED
            worker.failures = 1 if lasted_s > STEADY_S else worker.failures + 1
            pause_s = _RESTART_BACKOFF.wait_s(worker.failures)
            # Nothing that a worker logs is the reason of a SIGKILL.
            error = "" if status == -signal.SIGKILL else worker.log.error
            worker.note = error or ending(status)
            worker.last_error = "" if status == -signal.SIGKILL else worker.note
            reason = f": {'the same error' if error == self._last_error else error.removesuffix('.')}" if error else ""
            self._last_error = error or self._last_error
            self.add_event(
                f"{worker.id} (pid {pid}) {ending(status)}{reason}; restarting in {pause_s:g} s; "
                f"log: {worker.log.path}",
                logging.ERROR,
            )
            if not self.ran and not self._patient and status > 0:
                self._failure = self._first_failure(worker, status)
                self.stop()
                return
        if worker.wanted and pause_s:
            worker.restart_now.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await worker.restart_now.wait()

    def _first_failure(self, worker: WorkerProcess, status: int) -> MillpondError:
        """Return the error of a session in which no worker has ever run: usually of the application or a setting."""
        if worker.log.error:
            return ConfigError(worker.log.error) if status == _STATUS_USAGE else WorkersFail(worker.log.error)
        return WorkersFail(f"worker {worker.id} {ending(status)}; the last lines of its log:\n{worker.log.tail()}")

    def _begin_drain(self, worker: WorkerProcess) -> None:
        if worker.child is None:
            # Between two starts it has no tasks.
            worker.wanted = False
            worker.phase = WorkerPhase.STOPPING
            worker.restart_after_s = None
            worker.restart_now.set()
            return
        if worker.phase is WorkerPhase.PAUSED:
            worker.child.send(signal.SIGCONT)
        worker.phase = WorkerPhase.DRAINING
        worker.draining = self._in_background(self._drain(worker))

    async def _drain(self, worker: WorkerProcess) -> None:
        """Wait until other workers have a worker's tasks, then stop the worker."""
        self.add_event(f"draining {worker.id}")
        started_at = time.monotonic()
        requested = False
        while worker.child is not None and time.monotonic() - started_at < _DRAIN_TIMEOUT_S:
            try:
                if not requested:
                    await self.coordinator.drain(worker.id)
                    requested = True
                left = _not_handed_over(await self.coordinator.view(), worker.id)
            except UnknownWorker:
                break
            except CoordinatorUnavailable as error:
                log.debug("%s", error)
            else:
                worker.note = f"{len(left)} tasks to hand over" if left else ""
                if not left:
                    break
            await asyncio.sleep(_POLL_S)
        await self._stop(worker, "drained and stopped")

    async def _stop(self, worker: WorkerProcess, done: str = "stopped") -> None:
        """Stop a worker; it is not started again."""
        started_at = time.monotonic()
        worker.phase, worker.wanted, worker.note = WorkerPhase.STOPPING, False, ""
        if worker.child is not None:
            status = await worker.child.stop(self._stop_timeout_s)
            took = time.monotonic() - started_at
            self.add_event(f"{worker.id} {done} in {took:.1f} s" if status == 0 else
                      f"{worker.id} {ending(status)} while stopping; log: {worker.log.path}")  # fmt: skip

    @property
    def _stop_timeout_s(self) -> float:
        """The time that a worker may take to stop, in seconds: `shutdown.timeout.ms` and some seconds more."""
        if self.broker_ended:
            return _STOP_WITHOUT_BROKER_S
        return self.launch.config.shutdown_timeout_ms / 1000 + 5

    # The coordinator

    async def _keep_coordinator(self) -> None:
        while True:
            status = await self.coordinator.wait()
            if self._stopping.is_set():
                return
            self.add_event(
                f"the coordinator {ending(status)}; workers continue with the tasks that they own", logging.WARNING
            )
            await asyncio.sleep(self._coordinator_pause_s)
            self._coordinator_pause_s = RESTART_AFTER_S
            try:
                await self.coordinator.start()
            except CoordinatorFailed as error:
                self._failure = error
                self.stop()
                return
            self.add_event("the coordinator runs again")

    async def _report_gone(self, name: str) -> None:
        """Report a worker's death to the coordinator at once; otherwise it waits for the session timeout."""
        deadline = time.monotonic() + _REPORT_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                return await self.coordinator.report_gone(name)
            except UnknownWorker:
                return None
            except CoordinatorUnavailable as error:
                log.debug("%s", error)
                await asyncio.sleep(_POLL_S)

    async def _report_missing_workers(self) -> None:
        """Report that surplus workers of an earlier session are dead, instead of waiting for their session timeout."""
        with contextlib.suppress(CoordinatorUnavailable):
            view = await self.coordinator.view()
            for name in {member.worker for member in view.members} | {*view.owners.values(), *view.active.values()}:
                if name not in self.workers:
                    await self._report_gone(name)

    async def _undrain(self, worker: WorkerProcess) -> None:
        """Let the coordinator assign tasks to this worker: an earlier worker of the same name may have been drained."""
        while not worker.leaving:
            try:
                return await self.coordinator.undrain(worker.id)
            except UnknownWorker:
                return None
            except CoordinatorUnavailable as error:
                log.debug("%s", error)
                await asyncio.sleep(_POLL_S)

    # The end

    async def _stop_all(self) -> None:
        """Send SIGTERM to all workers at once, then to the coordinator."""
        self._stopping.set()
        for worker in self.workers.values():
            worker.wanted = False
            worker.restart_now.set()
            if worker.draining is not None:
                worker.draining.cancel()
            if worker.child is not None:
                worker.phase = WorkerPhase.STOPPING
                worker.child.send(signal.SIGCONT)
        running = [worker for worker in self.workers.values() if worker.child is not None]
        stopping = [worker.child.stop(self._stop_timeout_s) for worker in running if worker.child is not None]
        for worker, status in zip(running, await asyncio.gather(*stopping), strict=True):
            if status != 0 and not self.broker_ended:
                self.add_event(f"{worker.id} {ending(status)} while stopping; log: {worker.log.path}")
        background = list(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for worker in self.workers.values():  # one whose start was cancelled
            if worker.child is not None and worker.child.running:
                await worker.child.stop(0)
        await self.coordinator.stop()

    def _in_background(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background; if it fails, end the session with its error."""

        def ended(task: asyncio.Task[None]) -> None:
            self._background.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failure = self._failure or error
                self.stop()

        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(ended)
        return task


def _not_handed_over(view: View, name: str) -> list[str]:
    """Return the active tasks that a worker has not handed over."""
    held = {
        task
        for member in view.members
        if member.worker == name and member.alive
        for task, report in member.tasks.items()
        if report.role is Role.ACTIVE
    }
    return sorted(held | {task for task, owner in view.owners.items() if owner == name})
