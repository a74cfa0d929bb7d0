"""Running a worker in this process: signals, display, and how it ends."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from millpond.runtime.config.model import Config
from millpond.runtime.worker.malloc import keep_few_arenas
from millpond.runtime.worker.worker import Worker
from millpond.topology import Topology

from .session import Session
from .worker_display import WorkerView

__all__ = ("run_worker",)

log: logging.Logger = logging.getLogger("millpond.cli")


def run_worker(
    topology: Topology, config: Config, session: Session, title: str, more: str = "", *, take_over: bool = False
) -> None:
    """Run one worker until it is told to stop.

    SIGTERM and SIGINT make it commit what it has processed and end, within `shutdown.timeout.ms`; the second SIGINT
    ends it at once, which costs nothing but the work since the last commit.

    Args:
        topology: what to run.
        config: how.
        session: where to show it.
        title: the application's name in displays.
        more: shown beside it.
        take_over: whether tasks that belong to other workers are taken from them.

    Raises:
        MillpondError: the worker cannot go on.
        click.Abort: it was interrupted twice.
    """
    keep_few_arenas()
    view = WorkerView(title, config, more)
    worker = Worker(topology, config, view, take_over=take_over)
    with _stopped_by_signals(worker), view.showing(worker, session):
        worker.run()


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[None]:
    asked = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise click.Abort
        asked = True
        log.info("%s: committing and stopping", signal.Signals(number).name)
        worker.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
