"""Finds workers that run anywhere, by their reports in Kafka (`runtime/ownership/presence.py`). Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership.presence import PERIOD_S, Presence, presence_group

from .cluster import Cluster

__all__ = ("RunningWorkers",)

#: How long a worker that reported no end may be silent until it counts as ended, in seconds: three reports.
_SILENT_S = 3 * PERIOD_S + 1
_POLL_S = 0.25

_Reports = Mapping[Partition, tuple[int, Presence]]


class RunningWorkers:
    """The search for running workers. Reports of workers that have ended are remembered, so it waits only once.

    Args:
        cluster: the Kafka clients.
        tell: called with a line about what is waited for.
    """

    def __init__(self, cluster: Cluster, tell: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._tell = tell
        self._silent: dict[Partition, tuple[int, Presence]] = {}

    def signs(self) -> tuple[str, ...]:
        """Return a part of a sentence for each running worker; wait for the reports of those that may run.

        The clocks of other machines are not trusted: a worker runs if its report changes, not if it is young.

        Raises:
            BrokerError: Kafka answered with an error, or did not answer in time.
        """
        first = self._reports()
        began = time.monotonic()
        told = False
        while first:
            # The time is read before the reports: one that is made in time must not be missed.
            waited = time.monotonic() - began
            later = self._reports()
            running = {str(each) for place, (at, each) in later.items() if place not in first or at != first[place][0]}
            if running:
                return tuple(f"{each} has just reported that it runs" for each in sorted(running))
            if not later or waited >= _SILENT_S:
                self._silent.update(later)
                break
            if not told:
                told = True
                workers = sorted({str(each) for _, each in later.values()})
                self._tell(
                    f"Waiting up to {_SILENT_S:.0f} s for a sign of life of {', '.join(workers)}: it did not report "
                    "its end, as a worker that was killed."
                )
            time.sleep(_POLL_S)
        return ()

    def _reports(self) -> _Reports:
        """Return the reports of workers that did not report their end, and are not known to be silent."""
        if presence_group(self._cluster.config.application_id) not in self._cluster.groups():
            return {}
        return {
            place: report
            for place, report in self._cluster.presences().items()
            if not report[1].ended and self._silent.get(place) != report
        }
