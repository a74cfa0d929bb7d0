"""Runs a worker in this process, with signals and a display."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from millpond.cli.session import Session
from millpond.runtime.config.model import Config
from millpond.runtime.worker.memory.malloc import keep_few_arenas
from millpond.runtime.worker.worker import Worker
from millpond.topology import Topology

from .worker_display import WorkerView

__all__ = ("run_worker",)

log: logging.Logger = logging.getLogger("millpond.cli")


def run_worker(  # noqa: PLR0913 - the parts of a worker and of its display
    topology: Topology,
    config: Config,
    session: Session,
    *,
    title: str,
    footer: str = "",
    take_over: bool = False,
    on_created: Callable[[Worker], None] | None = None,
) -> bool:
    """Run one worker until a signal or another thread stops it; return whether it was a signal.

    At SIGTERM and SIGINT the worker commits the processed records and ends, within `shutdown.timeout.ms`. A second
    SIGINT ends it at once; records since the last commit are processed again.

    Args:
        topology: the application.
        config: its configuration.
        session: the session of the command line, which shows the worker.
        title: the application's name in displays.
        footer: further text for the last line of the display, such as the broker's address.
        take_over: whether to take over the tasks of other workers.
        on_created: gets the worker before it runs.

    Raises:
        MillpondError: the worker failed.
        click.Abort: the worker was interrupted twice.
    """
    keep_few_arenas()
    view = WorkerView(title, config, footer)
    worker = Worker(topology, config, view, take_over=take_over)
    if on_created is not None:
        on_created(worker)
    with _stopped_by_signals(worker) as received, view.showing(worker, session):
        worker.run()
    return bool(received)


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[list[int]]:
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise click.Abort
        received.append(number)
        log.info("%s received: committing and stopping", signal.Signals(number).name)
        worker.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
