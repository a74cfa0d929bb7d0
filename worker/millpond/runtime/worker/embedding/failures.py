"""What follows an error that ends a worker's loop: its uncaught exception handler (KIP-671), and errors of store()."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from millpond.backoff import Backoff
from millpond.checks import check_function
from millpond.errors import WorkerStateError
from millpond.queries.catalog import StoreCatalog
from millpond.runtime.states import WorkerState

__all__ = ("StreamThreadExceptionResponse", "UncaughtExceptionHandler", "UncaughtExceptions", "readable_catalog")

log: logging.Logger = logging.getLogger(__name__)

#: The wait before a replacement, if the worker has committed nothing since the last one.
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=10))


class StreamThreadExceptionResponse(enum.Enum):
    """The answer of an uncaught exception handler (KIP-671)."""

    REPLACE_THREAD = "replace_thread"
    """The worker starts again from its last commit, in the same thread."""
    SHUTDOWN_CLIENT = "shutdown_client"
    """The worker ends with the exception. Other workers of the application continue."""
    SHUTDOWN_APPLICATION = "shutdown_application"
    """The same as SHUTDOWN_CLIENT. Workers cannot end other workers: the owner of the application stops them."""


UncaughtExceptionHandler: TypeAlias = Callable[[Exception], StreamThreadExceptionResponse]
"""f(exception) -> the response. The worker's thread calls it, before it closes its tasks and clients."""


class UncaughtExceptions:
    """The responses to the exceptions of one worker.

    Args:
        worker_id: the worker, for messages.

    Attributes:
        handler: the application's handler; None ends the worker.
    """

    def __init__(self, worker_id: str) -> None:
        self.handler: UncaughtExceptionHandler | None = None
        self._worker_id = worker_id
        self._replacements = 0

    def set(self, handler: UncaughtExceptionHandler) -> None:
        """Use a handler; raise TopologyError if it cannot be called with an exception."""
        check_function("set_uncaught_exception_handler()", handler, "exception")
        self.handler = handler

    def response(self, error: BaseException) -> StreamThreadExceptionResponse:
        """Return the handler's response; SHUTDOWN_CLIENT without a handler, or if the handler raises itself."""
        shutdown = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
        if self.handler is None or not isinstance(error, Exception):
            return shutdown
        try:
            response: object = self.handler(error)
        except Exception:
            log.exception("worker %s: the uncaught exception handler failed; shutting down", self._worker_id)
            return shutdown
        if not isinstance(response, StreamThreadExceptionResponse):
            log.error(
                "worker %s: the uncaught exception handler returned %r, which is not a StreamThreadExceptionResponse; "
                "shutting down",
                self._worker_id, response,
            )  # fmt: skip
            return shutdown
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            log.error(
                "worker %s: SHUTDOWN_APPLICATION ends this worker only; stop the other workers of the application too",
                self._worker_id,
            )
        return response

    def wait_s(self, *, committed: bool) -> float:
        """Return the time to wait before a replacement, in seconds: none, unless replacements fail in a row.

        Args:
            committed: whether the worker that failed has committed.
        """
        self._replacements = 1 if committed else self._replacements + 1
        return 0.0 if self._replacements == 1 else _BACKOFF.wait_s(self._replacements - 1)


def readable_catalog(
    worker: str, catalog: StoreCatalog | None, state: WorkerState, exception: BaseException | None, *, own_thread: bool
) -> StoreCatalog:
    """Return the stores of a worker, if a program may read them now.

    Args:
        worker: the worker's id.
        catalog: its stores; None before it has started.
        state: its state.
        exception: the error that ended it, or None.
        own_thread: whether its own thread asks.

    Raises:
        WorkerStateError: the worker has not started, has ended or has failed, or its own thread asks.
    """
    if exception is not None or state in (WorkerState.PENDING_ERROR, WorkerState.ERROR):
        cause = "" if exception is None else f": {str(exception).removesuffix('.') or type(exception).__name__}"
        raise WorkerStateError(
            f"store() was called on worker '{worker}', but the worker has failed{cause}; make a new one."
        ) from exception
    if catalog is None or state.has_ended():
        raise WorkerStateError(
            f"store() was called on worker '{worker}', which is {state.value}: stores can be read while it runs; call "
            "wait_for(WorkerState.RUNNING) first."
        )
    if own_thread:
        raise WorkerStateError(
            f"store() was called in the thread of worker '{worker}' itself, which would wait for itself: a processor "
            "uses context.get_state_store(), and a listener asks another thread."
        )
    return catalog
