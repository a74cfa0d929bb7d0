"""Sums of counters that begin anew: those of a process that is started again, and of a task that moves."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ("Increases",)


class Increases:
    """The sum of all increases of a worker's counters, over all its processes.

    What a process counted after its last scrape is missing.

    Attributes:
        total: the sum.
    """

    def __init__(self) -> None:
        self.total: int = 0
        self._process = 0
        self._last: Mapping[str, int] = {}

    def add(self, process: int, counters: Mapping[str, int]) -> None:
        """Add the counters of one scrape.

        Args:
            process: the id of the process. Those of another one begin at 0.
            counters: the counters by name, each of them with the name of its task.
        """
        last = self._last if process == self._process else {}
        for name, value in counters.items():
            before = last.get(name, 0)
            self.total += value - before if value >= before else value
        self._process, self._last = process, counters
