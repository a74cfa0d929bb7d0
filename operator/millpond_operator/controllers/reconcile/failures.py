"""What a pass that failed leaves behind: a condition of its StreamApp, so that nobody has to look for the cause in a log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from millpond.errors import MillpondError
from millpond_operator.controllers.pass_context import Key, Memory, ReconcilePass
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus
from millpond_operator.coordinator import StoreError
from millpond_operator.kubernetes import ApiError, Cache, Forbidden, Invalid, LeadershipLost, kinds
from millpond_operator.resources import InvalidStreamApp, without_spec

from .status_writer import Reporter

__all__ = ("Failures", "rejected")

log = logging.getLogger(__name__)

#: Conflicts, and an API server that is busy, are over in a moment.
_PASSES_IN = timedelta(seconds=5)


class Failures:
    """Turns exceptions of passes into conditions.

    Args:
        cache: has the StreamApps.
        reporter: writes their statuses.
        clock: the time of day.
    """

    def __init__(self, cache: Cache, reporter: Reporter, clock: Callable[[], datetime]) -> None:
        self._cache = cache
        self._reporter = reporter
        self._clock = clock
        self._since: dict[Key, datetime] = {}
        """Since when all passes of a StreamApp have failed."""

    async def tell(self, key: Key, memory: Memory, error: Exception) -> None:
        """Write down why a pass failed; what passes by itself, only when it has failed every pass for a while.

        Args:
            key: of the StreamApp.
            memory: of the StreamApp. Later passes read there what to say until one of them succeeds.
            error: that the pass ended with.

        Raises:
            LeadershipLost: this operator does not lead any more.
        """
        now = self._clock()
        lasting = now - self._since.setdefault(key, now) >= _PASSES_IN
        raw = self._cache.get(kinds.STREAM_APP, *key)
        if raw is None or (_passes_by_itself(error) and not lasting):
            return
        if memory.rejected is None or not isinstance(error, (Invalid, Forbidden)):  # else it is told already
            memory.rejected = _problem(error)
        work = ReconcilePass(without_spec(raw), AppStatus.of(raw.get("status")), now, memory)
        try:
            await self._reporter.refuse(work, memory.rejected)
        except LeadershipLost:
            raise
        except MillpondError as failure:
            log.warning(
                "StreamApp %s: the condition %s cannot be written: %s", work.name, memory.rejected.reason, failure
            )

    def over(self, key: Key) -> None:
        """Forget the failures of a StreamApp: a pass succeeded, or it is gone."""
        self._since.pop(key, None)


def rejected(error: ApiError) -> Problem:
    """Return what to tell of an object that the API server does not take."""
    if isinstance(error, Forbidden):
        cure = "Change what in the namespace forbids it (a quota, a policy, the operator's rights), or the StreamApp."
    else:
        cure = "Correct the field of the StreamApp that it is made of."
    return Problem("Rejected", f"{error} {cure}", settled=True)


def _passes_by_itself(error: Exception) -> bool:
    return isinstance(error, (ApiError, StoreError)) and not isinstance(error, (Invalid, Forbidden))


def _problem(error: Exception) -> Problem:
    if isinstance(error, InvalidStreamApp):
        return Problem("SpecificationInvalid", str(error), settled=True)
    what = str(error) if isinstance(error, MillpondError) else f"{type(error).__name__}: {error}."
    return Problem(
        "ReconcileFailed",
        f"{what} The operator cannot go on with this StreamApp, and tries again: see its log if the cause is not the StreamApp.",
        settled=True,
    )
