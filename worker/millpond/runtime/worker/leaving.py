"""The end of a worker, and its withdrawal: tasks are handed over, committed, and dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

from confluent_kafka import KafkaException

from millpond.errors import OwnershipError
from millpond.runtime.commit.pipeline import CommitFailed

from .parts import COMMIT_POLL_S, WorkerParts
from .recovery import Recovery

__all__ = ("Leaving",)

log: logging.Logger = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 2.0


class Leaving:
    """Lets a worker's tasks go.

    Args:
        parts: of the worker.
        recovery: takes the worker back to its last commit.
    """

    def __init__(self, parts: WorkerParts, recovery: Recovery) -> None:
        self._parts = parts
        self._recovery = recovery

    def hand_over(self, turn: Callable[[], None]) -> None:
        """Hand the tasks over, where there is a worker to take them, within `shutdown.timeout.ms`.

        Args:
            turn: one turn of the loop.
        """
        parts, coordination = self._parts, self._parts.coordination
        if coordination is None:
            return
        deadline = time.monotonic() + parts.config.shutdown_timeout_ms / 1000
        parts.leave_until = deadline
        coordination.leave()
        while not (coordination.may_leave and coordination.may_write()) and time.monotonic() < deadline:
            turn()
        if coordination.rejected and not coordination.admitted_once:
            self.withdraw()

    def withdraw(self) -> None:
        """Drop all tasks, since the coordinator rejects what this worker runs.

        What it processed is committed if it was ever admitted, and aborted if not.
        """
        executor, coordination = self._parts.executor, self._parts.coordination
        if not executor.held:
            return
        log.warning("dropping all tasks: the coordinator rejects this worker's topology")
        executor.keep_all()
        if coordination is not None and coordination.admitted_once:
            self.commit()
            executor.globals.reread()
        executor.drop(list(executor.held))
        self._recovery.go_back()

    def commit(self) -> None:
        """Commit what is processed, within `shutdown.timeout.ms`. What cannot be committed is processed again later."""
        parts = self._parts
        if not parts.may_write():
            log.warning(
                "no last commit: other workers may own the tasks by now; they process again what is not committed"
            )
            return
        deadline = time.monotonic() + parts.config.shutdown_timeout_ms / 1000
        committer = parts.committer
        try:
            idle = committer.finish(deadline, COMMIT_POLL_S)
            if idle and committer.needed():
                parts.collector.drain()
                committer.begin()
                idle = committer.finish(deadline, COMMIT_POLL_S)
        except (CommitFailed, KafkaException, OwnershipError) as error:
            log.warning("the last commit failed (%s); the next start processes its records again", error)
            return
        if not idle:
            log.warning("the last commit was not confirmed in time; the next start reads whether it is complete")

    def sign_off(self) -> None:
        """Report the end to the coordinator, so that it need not wait for the session timeout."""
        parts = self._parts
        if parts.client is None or parts.heartbeats is None or parts.coordination is None:
            return
        parts.coordination.leave()
        parts.heartbeats.cancel()
        try:
            parts.metrics.http.spawn(parts.client.leave()).result(_LEAVE_TIMEOUT_S)
        except (RuntimeError, TimeoutError, CancelledError) as error:
            log.info("the end was not reported to the coordinator: %r", error)
