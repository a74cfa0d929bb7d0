"""Reports failed passes in conditions of the StreamApp, so that their cause is visible without the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from millpond.errors import MillpondError
from millpond_operator.controllers.pass_context import AppMemory, Key, ReconcilePass
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus
from millpond_operator.coordinator import StoreError
from millpond_operator.kubernetes import ApiError, Cache, Forbidden, Invalid, LeadershipLost, kinds
from millpond_operator.resources import InvalidStreamApp, without_spec

from .status_writer import StatusWriter

__all__ = ("Failures", "rejected")

log = logging.getLogger(__name__)

#: How long transient errors, such as conflicts or a busy API server, last before they are reported.
_TRANSIENT_FOR = timedelta(seconds=5)


class Failures:
    """Turns exceptions of passes into conditions.

    Args:
        cache: the known objects.
        status_writer: writes statuses.
        clock: returns the current time.
    """

    def __init__(self, cache: Cache, status_writer: StatusWriter, clock: Callable[[], datetime]) -> None:
        self._cache = cache
        self._status_writer = status_writer
        self._clock = clock
        self._since: dict[Key, datetime] = {}
        """Since when all passes of each StreamApp have failed."""

    async def report(self, key: Key, memory: AppMemory, error: Exception) -> None:
        """Report why a pass failed; a transient error only after all passes have failed for a while.

        Args:
            key: the StreamApp.
            memory: its memory, where later passes find what to report until one succeeds.
            error: the exception of the pass.

        Raises:
            LeadershipLost: this operator does not lead any more.
        """
        now = self._clock()
        lasting = now - self._since.setdefault(key, now) >= _TRANSIENT_FOR
        raw = self._cache.get(kinds.STREAM_APP, *key)
        if raw is None or (_is_transient(error) and not lasting):
            return
        if memory.rejection is None or not isinstance(error, (Invalid, Forbidden)):  # else the pass has reported it
            memory.rejection = _problem(error)
        work = ReconcilePass(without_spec(raw), AppStatus.of(raw.get("status")), now, memory)
        try:
            await self._status_writer.reject(work, memory.rejection)
        except LeadershipLost:
            raise
        except MillpondError as failure:
            log.warning("StreamApp %s: cannot write condition %s: %s", work.name, memory.rejection.reason, failure)

    def forget(self, key: Key) -> None:
        """Forget the failures of a StreamApp after a successful pass or its deletion."""
        self._since.pop(key, None)


def rejected(error: ApiError) -> Problem:
    """Return the problem to report for an object that the API server rejects."""
    if isinstance(error, Forbidden):
        cure = "Correct the quota, the policy or the operator's rights in the namespace, or change the StreamApp."
    else:
        cure = "Correct the field of the StreamApp that it comes from."
    return Problem("Rejected", f"{error} {cure}", persistent=True)


def _is_transient(error: Exception) -> bool:
    return isinstance(error, (ApiError, StoreError)) and not isinstance(error, (Invalid, Forbidden))


def _problem(error: Exception) -> Problem:
    if isinstance(error, InvalidStreamApp):
        return Problem("SpecificationInvalid", str(error), persistent=True)
    what = str(error) if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}."
    return Problem(
        "ReconcileFailed",
        f"{what} The operator cannot reconcile this StreamApp and retries: check the StreamApp, then the operator's "
        "log.",
        persistent=True,
    )
