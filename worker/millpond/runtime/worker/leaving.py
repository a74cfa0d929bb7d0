"""The end of a worker: its tasks are handed over, committed, and dropped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

from confluent_kafka import KafkaException

from millpond.errors import OffsetsLost, OwnershipError
from millpond.runtime.all_steps import take_all
from millpond.runtime.commit.pipeline import CommitFailed

from .parts import COMMIT_POLL_S, WorkerParts
from .recovery import Recovery

__all__ = ("Leaving",)

log: logging.Logger = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S = 2.0
#: The share of `shutdown.timeout.ms` for handing tasks over; the last commit has the rest.
_HAND_OVER_SHARE = 0.75


class Leaving:
    """The end of a worker, or its rejection: hands over, commits or drops its tasks.

    Args:
        parts: the parts of the worker.
        recovery: takes the worker back to its last commit.
    """

    def __init__(self, parts: WorkerParts, recovery: Recovery) -> None:
        self._parts = parts
        self._recovery = recovery
        self._commit_until: float | None = None

    def hand_over(self, turn: Callable[[], None]) -> None:
        """Hand the tasks over, if another worker can own them, within a share of `shutdown.timeout.ms`.

        Args:
            turn: one turn of the loop.
        """
        parts, coordination = self._parts, self._parts.coordination
        if coordination is None:
            return
        now, timeout_s = time.monotonic(), parts.config.shutdown_timeout_ms / 1000
        self._commit_until = now + timeout_s
        parts.leave_until = deadline = now + timeout_s * _HAND_OVER_SHARE
        coordination.leave()
        while not (coordination.may_leave and coordination.may_write()) and time.monotonic() < deadline:
            turn()
        if coordination.rejected and not coordination.ever_admitted:
            self.withdraw()

    def withdraw(self) -> None:
        """Drop all tasks, since the coordinator rejects this worker's topology.

        A worker that was ever admitted commits the processed records first; otherwise they are not committed.
        """
        executor, coordination = self._parts.executor, self._parts.coordination
        if not executor.held:
            return
        log.warning(
            "worker %s: dropping all tasks, since the coordinator rejects its topology", self._parts.config.worker_id
        )
        executor.keep_all()
        if coordination is not None and coordination.ever_admitted:
            self.commit()
            executor.globals.reread()
        executor.drop(list(executor.held))
        self._recovery.go_back()

    def commit(self) -> None:
        """Commit the processed records, within `shutdown.timeout.ms` from the beginning of the hand-over, if any.

        Uncommitted records are processed again.
        """
        parts = self._parts
        if not parts.may_write():
            log.warning(
                "worker %s: no last commit, since other workers may own the tasks by now; they process uncommitted "
                "records again",
                parts.config.worker_id,
            )
            return
        deadline = self._commit_until or time.monotonic() + parts.config.shutdown_timeout_ms / 1000
        committer = parts.committer
        try:
            idle = committer.finish(deadline, COMMIT_POLL_S)
            if idle and committer.needed():
                parts.collector.drain()
                committer.begin()
                idle = committer.finish(deadline, COMMIT_POLL_S)
        except (CommitFailed, KafkaException, OwnershipError) as error:
            log.warning("last commit: failed (%s); the next start reads from Kafka what is committed", error)
            return
        if not idle:
            log.warning("last commit: not confirmed in time; the next start reads from Kafka whether it is complete")

    def close(self, _: object, failure: BaseException | None, __: object) -> None:
        """Close all parts of the worker. An error of that must not hide the one that ended the worker.

        Args:
            failure: the error that ended the worker; None without one.
        """
        parts = self._parts
        try:
            take_all(
                (
                    # Of workers that leave, the coordinator forgets the commits that brokers have, or may have, lost.
                    lambda: self.sign_off(
                        leave=parts.controls.leave_group
                        and not isinstance(failure, OffsetsLost)
                        and not parts.assembly.offsets.marks.rejecting
                    ),
                    parts.close_offset_sink,
                    parts.client_errors.close,
                    parts.contact.close,
                    parts.assembly.close,
                )
            )
        except Exception:
            if failure is None:
                raise
            log.exception("worker %s: cannot close everything after its failure", parts.config.worker_id)

    def sign_off(self, *, leave: bool = True) -> None:
        """End the heartbeats, and report the end to the coordinator, which then does not wait for the session timeout.

        Args:
            leave: whether to report it to the coordinator. In Kafka it is always reported.
        """
        parts = self._parts
        parts.presence.close()
        if parts.client is None or parts.heartbeats is None or parts.coordination is None:
            return
        if not leave:
            parts.heartbeats.cancel()
            return
        parts.coordination.leave()
        parts.heartbeats.cancel()
        try:
            parts.metrics.http.spawn(parts.client.leave()).result(_LEAVE_TIMEOUT_S)
        except (RuntimeError, TimeoutError, CancelledError) as error:
            log.info("worker %s: cannot report its end to the coordinator: %r", parts.config.worker_id, error)
