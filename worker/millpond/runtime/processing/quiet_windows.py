"""Logs final results that wait while the input is quiet: windows close by stream time, which only records move.

Nothing is done for a record. A pause at night is no fault, so the level is INFO, all partitions share a line, and a
store has at most one line per hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .drop_log import moment

__all__ = ("QUIET_MS", "QuietInput", "QuietLog", "Waiting")

log: logging.Logger = logging.getLogger(__name__)

QUIET_MS = 300_000
"""How long a task processes no record until its input is quiet, in milliseconds."""

_GATHER_MS = 60_000
"""How long a line waits for other partitions that become quiet, in milliseconds."""

_REPEAT_MS = 3_600_000
"""Time between two lines about a store, in milliseconds: a topic with a record every ten minutes is often quiet."""

_SHOWN = 10


class Waiting(NamedTuple):
    """Final results of one store of a task that wait. Times are epoch ms."""

    results: int
    due: int
    """The stream time at which the first of them is sent."""
    stream_time: int
    """The stream time now; -1 if unknown."""


#: Returns the final results that wait in one store of a task; None without any.
Look = Callable[[], tuple[int, int, int] | None]


class QuietInput:
    """Whether the input of one task is quiet."""

    __slots__ = ("_log", "_processed", "_since_ms", "looks", "partition", "told")

    def __init__(self, quiet_log: QuietLog, partition: int, looks: Sequence[tuple[str, Look]]) -> None:
        """Begin to watch.

        Args:
            quiet_log: the log of the worker.
            partition: the partition of the task.
            looks: functions that return what waits, with the name of the store.
        """
        self._log = quiet_log
        self._processed = -1
        self._since_ms = 0
        self.partition: int = partition
        self.looks: Sequence[tuple[str, Look]] = looks
        self.told: bool = False

    def check(self, processed: int, buffered: bool, now_ms: int) -> None:  # noqa: FBT001 - one call per turn
        """Tell the log if the input has just become quiet, or is no longer.

        Args:
            processed: the number of records that the task has processed since it was created.
            buffered: whether it has records to process.
            now_ms: wall-clock time, epoch ms.
        """
        if processed != self._processed or buffered:
            self._processed, self._since_ms = processed, now_ms
            if self.told:
                self.forget()
        elif not self.told and now_ms - self._since_ms >= QUIET_MS:
            self.told = True
            self._log.add(self, now_ms)
        if self._log.due_ms is not None and now_ms >= self._log.due_ms:
            self._log.report(now_ms)

    def forget(self) -> None:
        """Tell the log that the input is no longer quiet, or that the task closes."""
        self.told = False
        self._log.remove(self)


class QuietLog:
    """The log lines of one worker about final results that wait.

    Attributes:
        due_ms: when to call `report`, in epoch milliseconds; None if nothing is to be told.
    """

    def __init__(self) -> None:
        self.due_ms: int | None = None
        self._pending: list[QuietInput] = []
        self._next_ms: dict[str, int] = {}

    def add(self, quiet: QuietInput, now_ms: int) -> None:
        """Add a task whose input has become quiet."""
        self._pending.append(quiet)
        if self.due_ms is None:
            self.due_ms = now_ms + _GATHER_MS

    def remove(self, quiet: QuietInput) -> None:
        """Remove a task whose input is no longer quiet."""
        if quiet in self._pending:
            self._pending.remove(quiet)

    def report(self, now_ms: int) -> None:
        """Log what waits in the tasks that have become quiet since the last call."""
        found: dict[str, list[tuple[int, Waiting]]] = {}
        for quiet in self._pending:
            for store, look in quiet.looks:
                waiting = look()
                if waiting is not None:
                    found.setdefault(store, []).append((quiet.partition, Waiting(*waiting)))
        self._pending.clear()
        self.due_ms = None
        for store, tasks in found.items():
            if now_ms >= self._next_ms.get(store, 0):
                self._next_ms[store] = now_ms + _REPEAT_MS
                log.info("%s", _line(store, tasks))


def _line(store: str, tasks: Sequence[tuple[int, Waiting]]) -> str:
    count = sum(waiting.results for _, waiting in tasks)
    partitions = sorted(partition for partition, _ in tasks)
    shown = ", ".join(map(str, partitions[:_SHOWN])) + (", …" if len(partitions) > _SHOWN else "")
    partition, first = min(tasks, key=lambda task: task[1].due)
    results = "a final result waits" if count == 1 else f"{count} final results wait"
    where = f"partition{'' if len(tasks) == 1 else 's'} {shown}"
    when = moment(max(first.due, first.stream_time))
    return (
        f"store '{store}': {results} in {where}, where no record was processed for {QUIET_MS // 60_000} minutes. Only "
        f"records move stream time, and windows close by it: the first result is sent when partition {partition} gets "
        f"a record of {when} or later; its stream time is {moment(first.stream_time)}. The guide 'Time and late "
        f"records' answers 'How do I close windows when no more records come?'."
    )
