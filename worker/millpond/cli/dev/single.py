"""A session with one worker in its own process: commands stop it and start it again, while the broker keeps running."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from .remote import Command, CommandFailed

__all__ = ("WorkerSwitch", "run_switched")

log: logging.Logger = logging.getLogger("millpond.cli")

_POLL_S = 0.2


class WorkerSwitch:
    """Whether the worker of a session is to run. Commands change it from another thread.

    Attributes:
        stop: stops the worker that runs now.
        stopped: whether a command has stopped a worker whose end was not noticed yet.
        over: whether the session is to end.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], None] = lambda: None
        self.stopped: bool = False
        self.over: bool = False
        self._wanted = threading.Event()
        self._wanted.set()

    @property
    def wanted(self) -> bool:
        """Whether the worker is to run."""
        return self._wanted.is_set()

    def perform(self, command: Command) -> str:
        """Perform `scale 0` or `scale 1`; return the result as a part of a sentence.

        Raises:
            CommandFailed: the command needs workers that are processes of their own.
        """
        if command.do != "scale" or command.workers > 1:
            what = f"scale {command.workers}" if command.do == "scale" else command.do
            raise CommandFailed(
                f"'{what}' needs a session with workers of their own: start `millpond dev` with --workers N."
            )
        if command.workers:
            if self.wanted:
                return "1 worker runs already"
            self._wanted.set()
            return "starting the worker, with the application as its files are now"
        if not self.wanted:
            return "no worker runs"
        self._wanted.clear()
        self.stopped = True
        self.stop()
        return "stopping the worker; the broker keeps running"

    def park(self) -> None:
        """Let the worker not run until the next command, as after `scale 0`."""
        self._wanted.clear()
        self.stopped = True

    def end(self) -> None:
        """Stop the worker, and let the session end, since its broker has."""
        self.over = True
        self._wanted.clear()
        self.stop()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the worker is to run, for some seconds; return whether it is."""
        return self._wanted.wait(timeout_s)


def run_switched(run: Callable[[], bool], switch: WorkerSwitch, parked: Callable[[], None]) -> None:
    """Run a worker, again after each stop by a command, until a signal or `WorkerSwitch.end` ends the session.

    Args:
        run: runs a worker until it ends; returns whether a signal stopped it.
        switch: whether the worker is to run.
        parked: called when the worker has stopped and is not to run for now.
    """
    with _signals() as received:
        while not run() and switch.stopped and not switch.over:
            switch.stopped = False
            if not switch.wanted:
                parked()
            # Short waits: an endless one in this thread could not be interrupted by a signal that sets the event.
            while not received and not switch.over and not switch.wait(_POLL_S):
                pass
            if received or switch.over:
                return


@contextmanager
def _signals() -> Iterator[list[int]]:
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        log.info("%s received: ending the session", signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
