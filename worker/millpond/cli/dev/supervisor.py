"""Which workers run: starts, restarts, drains and stops them, and the coordinator with them.

Everything here happens in one event loop. Each worker has a task that keeps its process running for as long as the
worker is wanted; commands only change what is wanted.
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

from millpond.backoff import Backoff
from millpond.errors import ConfigError, MillpondError
from millpond.protocol import Role, View

from .children import Child, Leash, ProcessLog
from .coordinator import CoordinatorAway, CoordinatorFailed, CoordinatorProcess, UnknownWorker
from .remote import RESTART_AFTER_S, CommandFailed
from .status import SessionEvent, WorkerPhase
from .worker import Launch, WorkerProcess

__all__ = ("COORDINATOR", "Fleet", "WorkersFail")

log: logging.Logger = logging.getLogger("millpond.cli")

COORDINATOR = "coordinator"
"""What the coordinator is called where a worker's name could stand."""

_BACKOFF = Backoff(timedelta(seconds=RESTART_AFTER_S), timedelta(seconds=30))
_STEADY_S = 10.0  # a worker that ran for so long did not fail at once
_LOOK_S = 0.05
_GONE_PATIENCE_S = 2.0
_DRAIN_PATIENCE_S = 120.0
_EVENTS = 200
_STATUS_USAGE = 2


class WorkersFail(MillpondError):
    """No worker comes up."""


class Fleet:
    """The workers of a session and their coordinator.

    Attributes:
        workers: by id.
        coordinator: theirs.
        events: what happened lately.
        wanted: how many workers there should be.
        deaths: workers whose process ended unplanned, and when (monotonic); for who looks after their tasks.
        died: set when there are new ones.
        ran: whether any worker has come to process its tasks.
    """

    def __init__(self, launch: Launch, count: int, held_by: Leash) -> None:
        self.launch = launch
        self._leash = held_by
        self.coordinator: CoordinatorProcess = CoordinatorProcess(launch.config, launch.directory, held_by)
        self.workers: dict[str, WorkerProcess] = {}
        self.wanted: int = count
        self.events: deque[SessionEvent] = deque(maxlen=_EVENTS)
        self.deaths: deque[tuple[str, float]] = deque()
        self.died: asyncio.Event = asyncio.Event()
        self.ran = False
        self._numbers = itertools.count(1)
        self._begun = time.monotonic()
        self._failure: BaseException | None = None
        self._over = asyncio.Event()
        self._coordinator_pause_s = RESTART_AFTER_S
        self._last_error = ""
        self._background: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start everything, and keep it running until `stop`.

        Raises:
            MillpondError: it cannot run.
        """
        try:
            await self.coordinator.start()
            self._do(self._keep_coordinator())
            self.scale(self.wanted)
            await self._bury_others()
            await self._over.wait()
        finally:
            await self._stop_all()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask `run` to stop everything and to return."""
        self._over.set()

    @property
    def stopping(self) -> bool:
        """Whether it was asked to."""
        return self._over.is_set()

    def kill_all(self) -> None:
        """Leave no process behind, now."""
        for child in (self.coordinator.child, *(worker.child for worker in self.workers.values())):
            if child is not None:
                child.send(signal.SIGKILL)

    def tell(self, text: str, level: int = logging.INFO, **more: Any) -> None:
        """Something happened; `more` are further fields of the `SessionEvent`."""
        self.events.append(
            SessionEvent(number=next(self._numbers), at_s=time.monotonic() - self._begun, text=text, **more)
        )
        log.log(level, "%s", text)

    # Commands -------------------------------------------------------------------------------------------------

    def scale(self, count: int) -> str:
        """Have so many workers: start those with the lowest ordinals that are missing, drain the highest ones."""
        if count < 1:
            raise CommandFailed("there must be at least one worker; Ctrl-C ends the session.")
        staying = sorted(
            (worker for worker in self.workers.values() if not worker.leaving), key=lambda worker: worker.ordinal
        )
        self.wanted = count
        leaving = staying[count:]
        for worker in leaving:
            self._begin_drain(worker)
        started: list[str] = []
        ordinals = itertools.count()
        while len(staying) + len(started) < count:
            ordinal = next(ordinals)
            found = self.workers.get(f"w{ordinal}")
            if found is None or found.leaving:
                started.append(self._have(ordinal))
        if started:
            return f"starting {', '.join(started)}"
        return f"draining {', '.join(worker.id for worker in leaving)}" if leaving else f"there are {count} already"

    def kill(self, name: str, restart_after_s: float | None = RESTART_AFTER_S) -> str:
        """SIGKILL for a worker, or for the coordinator.

        Args:
            name: whose process.
            restart_after_s: how long it stays away; None: until `scale` wants it back.

        Raises:
            Refused: there is no such process.
        """
        if name == COORDINATOR:
            child = self.coordinator.child
            if child is None:
                raise CommandFailed("the coordinator is not running now; it is started again in a moment.")
            self._coordinator_pause_s = RESTART_AFTER_S if restart_after_s is None else restart_after_s
        else:
            worker = self._find(name)
            child = worker.child
            if child is None:
                raise CommandFailed(f"{name} has no process now: it is {worker.phase}.")
            worker.wanted = restart_after_s is not None
            worker.restart_after_s = restart_after_s or 0.0
            if not worker.wanted:
                self.wanted = max(0, self.wanted - 1)
        child.send(signal.SIGKILL)
        self.tell(f"kill -9 {child.pid}: {name}", logging.WARNING)
        return f"killed {name}, pid {child.pid}"

    def drain(self, name: str) -> str:
        """Have a worker's tasks moved to others, then stop it.

        Raises:
            Refused: there is no such worker, or it is the last one.
        """
        worker = self._find(name)
        if worker.leaving:
            raise CommandFailed(f"{name} is {worker.phase} already.")
        if all(other.leaving for other in self.workers.values() if other is not worker):
            raise CommandFailed(f"{name} is the last worker: nobody could take its tasks; start another one first.")
        self.wanted = max(0, self.wanted - 1)
        self._begin_drain(worker)
        return f"draining {name}, which then ends"

    def pause(self, name: str) -> str:
        """SIGSTOP: the worker stays and says nothing.

        Raises:
            Refused: it does not run.
        """
        worker = self._find(name)
        if worker.child is None or worker.leaving:
            raise CommandFailed(f"{name} cannot be paused: it is {worker.phase}.")
        worker.child.send(signal.SIGSTOP)
        worker.phase = WorkerPhase.PAUSED
        self.tell(f"kill -STOP {worker.child.pid}: {name}", logging.WARNING)
        return f"paused {name}, pid {worker.child.pid}"

    def resume(self, name: str) -> str:
        """SIGCONT after `pause`.

        Raises:
            Refused: it is not paused.
        """
        worker = self._find(name)
        if worker.child is None or worker.phase is not WorkerPhase.PAUSED:
            raise CommandFailed(f"{name} is not paused: it is {worker.phase}.")
        worker.child.send(signal.SIGCONT)
        worker.phase = WorkerPhase.RUNNING
        self.tell(f"kill -CONT {worker.child.pid}: {name}")
        return f"{name} goes on"

    def _find(self, name: str) -> WorkerProcess:
        worker = self.workers.get(name)
        if worker is None:
            raise CommandFailed(f"there is no worker '{name}'; there are {', '.join(self.workers)}.")
        return worker

    # One worker -----------------------------------------------------------------------------------------------

    def _have(self, ordinal: int) -> str:
        """A worker that is to run from now on."""
        name = f"w{ordinal}"
        worker = self.workers.get(name)
        if worker is None or worker.keeper is None or worker.keeper.done():
            worker = WorkerProcess(ordinal, ProcessLog(self.launch.directory / f"{name}.log"))
            worker.log.new_process()
            self.workers[name] = worker
            self.workers = dict(sorted(self.workers.items(), key=lambda each: each[1].ordinal))
            worker.keeper = self._do(self._keep(worker))
            return name
        # It is on its way out: it stays, or comes back as soon as it is out.
        if worker.drainer is not None:
            worker.drainer.cancel()
        worker.wanted, worker.restart_after_s = True, 0.0
        if worker.phase is WorkerPhase.DRAINING:
            worker.phase, worker.note = WorkerPhase.RUNNING, ""
            self._do(self._undrain(worker))
        return name

    async def _keep(self, worker: WorkerProcess) -> None:
        """Keep a worker's process running for as long as it is wanted."""
        while worker.wanted:
            self._do(self._undrain(worker))
            worker.log.new_process()
            worker.phase, worker.note, worker.restart_after_s = WorkerPhase.STARTING, "", None
            worker.since = time.monotonic()
            worker.restarts += 1
            command = self.launch.command(worker.ordinal, self.coordinator.url)
            worker.child = await Child.start(command, worker.log.path, self._leash)
            pid = worker.child.pid
            log.debug("%s is started, pid %d", worker.id, pid)
            status = await worker.child.wait()
            ended = time.monotonic()
            worker.child = None
            if self._over.is_set():
                return
            if worker.phase is not WorkerPhase.STOPPING:
                self.deaths.append((worker.id, ended))
                self.died.set()
            await self._gone(worker.id)
            if worker.phase is WorkerPhase.STOPPING:
                continue
            worker.log.look()
            await self._between(worker, pid, status, ended - worker.since)
        worker.phase = WorkerPhase.DOWN if worker.restart_after_s is not None else worker.phase
        if worker.phase is not WorkerPhase.DOWN:
            self.workers.pop(worker.id, None)

    async def _between(self, worker: WorkerProcess, pid: int, status: int, lasted_s: float) -> None:
        """Wait before the next start, longer each time that it fails."""
        if worker.restart_after_s is not None:
            pause_s, worker.phase, worker.failures = worker.restart_after_s, WorkerPhase.KILLED, 0
            worker.note = f"starts again in {pause_s:g} s" if worker.wanted else ""
        else:
            worker.phase = WorkerPhase.FAILED
            worker.failures = 1 if lasted_s > _STEADY_S else worker.failures + 1
            pause_s = _BACKOFF.wait_s(worker.failures)
            worker.note = worker.log.error or _ending(status)
            again = "the same error" if worker.note == self._last_error else worker.note
            self._last_error = worker.note
            self.tell(
                f"{worker.id} (pid {pid}) {_ending(status)}: {again}  log: {worker.log.path}  "
                f"It starts again in {pause_s:g} s.",
                logging.ERROR,
            )
            if not self.ran and status > 0:
                self._failure = self._first_failure(worker, status)
                self.stop()
                return
        if worker.wanted and pause_s:
            worker.hurry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.hurry.wait(), pause_s)

    def _first_failure(self, worker: WorkerProcess, status: int) -> MillpondError:
        """Nothing has ever run: most likely the application or its settings are wrong, as all workers would say."""
        if worker.log.error:
            return ConfigError(worker.log.error) if status == _STATUS_USAGE else WorkersFail(worker.log.error)
        return WorkersFail(f"worker {worker.id} {_ending(status)}; its log ends:\n{worker.log.end()}")

    def _begin_drain(self, worker: WorkerProcess) -> None:
        if worker.child is None:
            # Between two starts: there is nothing to wait for.
            worker.wanted = False
            worker.phase = WorkerPhase.STOPPING
            worker.restart_after_s = None
            worker.hurry.set()
            return
        if worker.phase is WorkerPhase.PAUSED:
            worker.child.send(signal.SIGCONT)
        worker.phase = WorkerPhase.DRAINING
        worker.drainer = self._do(self._drain(worker))

    async def _drain(self, worker: WorkerProcess) -> None:
        """Wait until others have its tasks, then stop it."""
        self.tell(f"draining {worker.id}")
        begun = time.monotonic()
        asked = False
        while worker.child is not None and time.monotonic() - begun < _DRAIN_PATIENCE_S:
            try:
                if not asked:
                    await self.coordinator.drain(worker.id)
                    asked = True
                left = _processed_by(await self.coordinator.view(), worker.id)
            except UnknownWorker:
                break
            except CoordinatorAway as error:
                log.debug("%s", error)
            else:
                worker.note = f"{len(left)} tasks to hand over" if left else ""
                if not left:
                    break
            await asyncio.sleep(_LOOK_S)
        worker.phase, worker.wanted, worker.note = WorkerPhase.STOPPING, False, ""
        if worker.child is not None:
            status = await worker.child.stop(self._patience_s)
            took = time.monotonic() - begun
            self.tell(f"{worker.id} is drained and stopped after {took:.1f} s" if status == 0 else
                      f"{worker.id} {_ending(status)} while it was stopping; log: {worker.log.path}")  # fmt: skip

    @property
    def _patience_s(self) -> float:
        """How long a worker may take to stop: what it gives itself, and a little."""
        return self.launch.config.shutdown_timeout_ms / 1000 + 5

    # The coordinator ------------------------------------------------------------------------------------------

    async def _keep_coordinator(self) -> None:
        while True:
            status = await self.coordinator.wait()
            if self._over.is_set():
                return
            self.tell(f"the coordinator {_ending(status)}; workers go on with what they own", logging.WARNING)
            await asyncio.sleep(self._coordinator_pause_s)
            self._coordinator_pause_s = RESTART_AFTER_S
            try:
                await self.coordinator.start()
            except CoordinatorFailed as error:
                self._failure = error
                self.stop()
                return
            self.tell("the coordinator is back")

    async def _gone(self, name: str) -> None:
        """Tell the coordinator of a death at once; if it cannot be told, its session timeout finds out."""
        deadline = time.monotonic() + _GONE_PATIENCE_S
        while time.monotonic() < deadline:
            try:
                return await self.coordinator.gone(name)
            except UnknownWorker:
                return None
            except CoordinatorAway as error:
                log.debug("%s", error)
                await asyncio.sleep(_LOOK_S)

    async def _bury_others(self) -> None:
        """Workers of an earlier session with more of them: nobody has to wait for their time-out."""
        with contextlib.suppress(CoordinatorAway):
            view = await self.coordinator.view()
            for name in {member.worker for member in view.members} | {*view.owners.values(), *view.active.values()}:
                if name not in self.workers:
                    await self._gone(name)

    async def _undrain(self, worker: WorkerProcess) -> None:
        """A worker of that name may have been drained before. As soon as the coordinator can be told, this one is not."""
        while not worker.leaving:
            try:
                return await self.coordinator.undrain(worker.id)
            except UnknownWorker:
                return None
            except CoordinatorAway as error:
                log.debug("%s", error)
                await asyncio.sleep(_LOOK_S)

    # The end --------------------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        """SIGTERM for all workers at once, then for the coordinator."""
        self._over.set()
        for worker in self.workers.values():
            worker.wanted = False
            worker.hurry.set()
            if worker.drainer is not None:
                worker.drainer.cancel()
            if worker.child is not None:
                worker.phase = WorkerPhase.STOPPING
                worker.child.send(signal.SIGCONT)
        running = [worker for worker in self.workers.values() if worker.child is not None]
        stopping = [worker.child.stop(self._patience_s) for worker in running if worker.child is not None]
        for worker, status in zip(running, await asyncio.gather(*stopping), strict=True):
            if status != 0:
                self.tell(f"{worker.id} {_ending(status)} while it was stopping; log: {worker.log.path}")
        left = list(self._background)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for worker in self.workers.values():  # one that was just being started
            if worker.child is not None and worker.child.running:
                await worker.child.stop(0)
        await self.coordinator.stop()

    def _do(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine beside everything else; if it fails, the session ends with its error."""

        def ended(task: asyncio.Task[None]) -> None:
            self._background.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failure = self._failure or error
                self.stop()

        task = asyncio.create_task(what)
        self._background.add(task)
        task.add_done_callback(ended)
        return task


def _processed_by(view: View, name: str) -> list[str]:
    """Active tasks that a worker has not handed over."""
    held = {
        task
        for member in view.members
        if member.worker == name and member.alive
        for task, report in member.tasks.items()
        if report.role is Role.ACTIVE
    }
    return sorted(held | {task for task, owner in view.owners.items() if owner == name})


def _ending(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
