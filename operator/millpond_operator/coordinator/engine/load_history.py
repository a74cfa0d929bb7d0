"""The reports about a worker's load that its rates need: the newest one, and one that is about ten seconds older."""

from __future__ import annotations

from millpond.protocol.load_rates import WorkerRates, rates
from millpond.protocol.loads import WorkerLoad

__all__ = ("LoadHistory",)

#: A report is kept for comparison when it is this much newer than the one kept before, so rates are over 6 to 12 s.
_STEP_MS = 6_000
#: A worker whose heartbeats carry no report for this long does not measure: its loop hangs.
_VALIDITY_MS = 15_000


class LoadHistory:
    """The load of one process. Times are in monotonic milliseconds of the engine."""

    __slots__ = ("_kept", "_latest", "_older", "_reported_ms")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all reports: another process runs under the worker's id."""
        self._latest: WorkerLoad | None = None
        self._kept: WorkerLoad | None = None
        self._older: WorkerLoad | None = None
        self._reported_ms = 0

    def add(self, load: WorkerLoad | None, now_ms: int) -> None:
        """Take in the load of a heartbeat; None if it has none."""
        if load is None or (self._latest is not None and load.measured_ms <= self._latest.measured_ms):
            return
        self._latest, self._reported_ms = load, now_ms
        if self._kept is None or load.measured_ms - self._kept.measured_ms >= _STEP_MS:
            self._older, self._kept = self._kept, load

    def load(self, heard_ms: int) -> WorkerLoad | None:
        """Return the load, unless it is out of date.

        Args:
            heard_ms: when the last heartbeat arrived.
        """
        return self._latest if heard_ms - self._reported_ms <= _VALIDITY_MS else None

    def rates(self, heard_ms: int) -> WorkerRates | None:
        """Return the rates up to the load; None before the second report."""
        after, before = self.load(heard_ms), self._older or self._kept
        if after is None or before is None or after.measured_ms <= before.measured_ms:
            return None
        return rates(before, after)
