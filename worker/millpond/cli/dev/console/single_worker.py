"""The console and the status of a session with one worker in this process.

A thread serves them, since the worker's loop has its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator

from millpond.cli.dev.control_server import serving_session
from millpond.cli.dev.single import WorkerSwitch
from millpond.cli.dev.status import SessionStatus, WorkerPhase, WorkerStatus
from millpond.console import figures_of, tasks_of, topology_of, workers_of
from millpond.drawing import digest
from millpond.drops import is_dropped
from millpond.protocol import View
from millpond.protocol.loads import WorkerLoad
from millpond.protocol.overview import ApplicationOverview, ApplicationSummary
from millpond.runtime.config.model import Config
from millpond.runtime.states import WorkerState
from millpond.runtime.worker.worker import Worker

from .server import SessionConsole, serving_console

__all__ = ("WorkerConsole", "worker_console")

log: logging.Logger = logging.getLogger("millpond.cli")

_OBSERVE_INTERVAL_S = 1.0
_ANSWER_TIMEOUT_S = 1.0
_RATES_OVER = 6
"""Rates are over so many of the last loads, which are a second apart."""


class WorkerConsole:
    """The console of one worker.

    Args:
        config: the worker's configuration.
        title: the application's name.
        source: gets what the worker does.
        target: the application, as ``MODULE:ATTRIBUTE``.

    Attributes:
        url: the URL of the console.
        queries: the URL at which the worker answers queries; empty while it does not.
        switch: whether the worker is to run.
    """

    def __init__(self, config: Config, title: str, source: SessionConsole, target: str) -> None:
        self.url: str = ""
        self.queries: str = ""
        self.switch: WorkerSwitch = WorkerSwitch()
        self._title = title
        self._target = target
        self._config = config
        self._worker: Worker | None = None
        self._loads: deque[WorkerLoad] = deque(maxlen=_RATES_OVER)
        self._seen: ApplicationOverview | None = None
        source.observe = lambda: self._seen

    def attach(self, worker: Worker) -> None:
        """Show this worker from now on."""
        self._worker = worker
        self.switch.stop = worker.stop
        if not self.switch.wanted:  # since the command came between two workers
            worker.stop()

    def detach(self) -> None:
        """Show no worker any more, since it has stopped."""
        self._worker, self._seen, self.queries = None, None, ""
        self._loads.clear()

    def status(self) -> SessionStatus:
        """Return the status of the session, as that of a session with several workers."""
        config, worker, seen = self._config, self._worker, self._seen
        tasks = () if seen is None else seen.tasks
        running = {each.task: config.worker_id for each in tasks if each.state == "running"}
        metrics = None if worker is None else worker.metrics.http.url
        trouble = None if worker is None else worker.waiting.trouble()
        row = WorkerStatus(
            worker=config.worker_id,
            phase=WorkerPhase.RUNNING if worker and worker.state is WorkerState.RUNNING else WorkerPhase.STARTING,
            pid=os.getpid(),
            active=tuple(each.task for each in tasks),
            records_per_second=None if seen is None else seen.summary.records_per_second,
            processed=0 if worker is None else worker.metrics.records_processed,
            dropped=0 if worker is None else _sum(worker, "millpond_task_dropped_records"),
            dead_letters=0 if worker is None else _sum(worker, "millpond_task_dead_letters"),
            lag=None if seen is None else seen.summary.lag,
            metrics=f"{metrics}/metrics" if metrics else "",
            queries=self.queries,
            note="" if trouble is None else trouble.message,
        )
        return SessionStatus(
            application=config.application_id,
            title=self._title,
            guarantee=config.processing_guarantee,
            bootstrap_servers=config.bootstrap_servers,
            directory="",
            state_dir=str(config.state_dir.absolute()),
            in_process=True,
            target=self._target,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name or "",
            console=self.url,
            wanted=int(self.switch.wanted),
            workers=() if worker is None else (row,),
            dead_letters=row.dead_letters,
            tasks=len(tasks),
            running=running,
            details=tasks,
        )

    async def run(self) -> None:
        """Observe the worker until cancelled."""
        while True:
            worker = self._worker
            if worker is not None and worker.state in (WorkerState.RESTORING, WorkerState.RUNNING):
                answer = worker.view(self._loads[0] if self._loads else None)
                with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
                    async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                        view = await asyncio.wrap_future(answer)
                    load = view.members[0].load
                    if load is not None and (not self._loads or load is not self._loads[-1]):
                        self._loads.append(load)
                    self._seen = _overview(view, worker, self._config)
                    if self.queries != (found := view.members[0].address or ""):
                        self.queries = found
                        log.info("queries: %s", found)
            await asyncio.sleep(_OBSERVE_INTERVAL_S)


def _overview(view: View, worker: Worker, config: Config) -> ApplicationOverview:
    tasks, topology = tasks_of(view), topology_of(view)
    figures = figures_of(tasks)
    complete = 0 < figures.total == figures.running
    return ApplicationOverview(
        summary=ApplicationSummary(
            name=config.application_id,
            phase="Running" if complete else "Restoring" if worker.state is WorkerState.RESTORING else "Starting",
            ready=complete,
            workers_ready=int(worker.state is WorkerState.RUNNING),
            workers_wanted=1,
            tasks_running=figures.running,
            tasks_total=figures.total,
            records_per_second=figures.records_per_second,
            lag=figures.lag,
            lag_seconds=figures.lag_seconds,
        ),
        application_id=config.application_id,
        guarantee=config.processing_guarantee,
        workers=workers_of(view, {}),
        tasks=tasks,
        topology=topology,
        drawing=digest(topology) if topology is not None else "",
        at_ms=int(time.time() * 1000),
    )


@contextlib.contextmanager
def worker_console(config: Config, title: str, port: int, target: str) -> Iterator[WorkerConsole]:
    """Serve the console and the status of one worker in a thread while the block runs.

    Args:
        config: the worker's configuration.
        title: the application's name.
        port: the port; 0 for a free one.
        target: the application, as ``MODULE:ATTRIBUTE``.

    Raises:
        ConfigError: the port is in use.
    """
    source = SessionConsole(config.application_id)
    console = WorkerConsole(config, title, source, target)
    started: concurrent.futures.Future[str] = concurrent.futures.Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with (
                serving_console(source, port) as url,
                serving_session(
                    config.application_id,
                    console.status,
                    console.switch.perform,
                    servers=config.bootstrap_servers,
                    registry=config.schema_registry_url,
                ),
            ):
                observing = asyncio.create_task(console.run())
                started.set_result(url)
                await stop.wait()
                observing.cancel()
                await asyncio.gather(observing, return_exceptions=True)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            if not started.done():
                started.set_exception(error)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="console", daemon=True)
    thread.start()
    try:
        console.url = started.result()
        yield console
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def _sum(worker: Worker, metric: str) -> int:
    """Return the sum of a counter of the worker's tasks."""
    families = (each for each in worker.metrics.families() if each.name == metric)
    samples = (sample for family in families for sample in family.samples)
    counted = (each for each in samples if is_dropped(each.labels.get("reason", "")))
    return int(sum(sample.value for sample in counted if not sample.name.endswith("_created")))
