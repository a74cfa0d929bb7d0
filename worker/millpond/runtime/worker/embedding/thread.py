"""The thread of a worker that a program starts in its own process."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

__all__ = ("WorkerThread",)

log: logging.Logger = logging.getLogger(__name__)

#: The longest wait for workers at the end of the program.
_AT_EXIT = timedelta(seconds=30)


class WorkerThread:
    """The thread of one worker.

    Args:
        name: the name of the thread.
        run: runs the worker until its end.
        close: asks for the end of the worker, and waits for it up to a timeout.
    """

    def __init__(self, name: str, run: Callable[[], None], close: Callable[[timedelta], object]) -> None:
        self._name = name
        self._target = run
        self._close = close
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether the thread was started."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread."""
        # A daemon, so that a program whose main thread fails does not hang. Its clients and its state file do not
        # survive the interpreter, so the end of the program closes the worker.
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        atexit.register(self._close_at_exit)
        self._thread.start()

    def wait(self, ended: threading.Event, timeout_s: float | None) -> bool:
        """Wait for the end of the worker, unless this is its own thread; return whether it has ended."""
        thread = self._thread
        if thread is threading.current_thread():
            return ended.is_set()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not ended.wait(timeout_s):
            return False
        if thread is not None:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return True

    def _run(self) -> None:
        try:
            self._target()
        except BaseException as error:  # noqa: BLE001 - the worker keeps it for its user
            log.error("%s: ended by an error: %s", self._name, error)
        finally:
            atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        self._close(_AT_EXIT)
