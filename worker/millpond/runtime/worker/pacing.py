"""The number of records per turn of the loop, and whether turns are too slow to keep a transaction open meanwhile.

The broker aborts a transaction that is open for longer than `transaction.timeout.ms`. So no record, punctuator or flush
of a cache that takes longer may run while one is open. Usually turns take milliseconds, and records are sent while the
next ones are processed. After a slow turn, the worker processes only while no transaction is open: output waits in
memory for the commit, and the next turn waits for the end of the commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from millpond.runtime.config.model import Config
from millpond.runtime.processing.stream_task import StreamTask

__all__ = ("POLL_RECORDS", "BatchPacing")

log: logging.Logger = logging.getLogger(__name__)

#: The maximum of records per poll and per task in a turn of the loop, which usually takes milliseconds.
POLL_RECORDS = 2_000
#: Turns that take longer get fewer records, since commits, punctuators and `stop()` are handled between turns.
_LONGEST_TURN_S = 0.25
_FIRST_TURN_RECORDS = 100
#: The part of the transaction timeout that a turn may take: a transaction is open for up to two turns and a commit.
_SHARE_OF_TRANSACTION = 4
#: After a slow turn, turns count as slow for this multiple of its duration.
_SLOW_FACTOR = 20.0
_WARNING_INTERVAL_S = 60.0


class BatchPacing:
    """The number of records per turn, adapted to the time that they take. Only the worker's loop may use it.

    Args:
        config: the worker's configuration.
        stood_still: returns for how long the process stood still since a time, in monotonic seconds.

    Attributes:
        limit: the maximum number of records to poll, and to process per task, in a turn.
        processing_s: the time that tasks took in the last turn, in seconds; at most the intended time of a turn.
    """

    def __init__(self, config: Config, stood_still: Callable[[float], float] = lambda _: 0.0) -> None:
        self.limit: int = _FIRST_TURN_RECORDS
        self.processing_s: float = 0.0
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._slow_s = self._timeout_s / _SHARE_OF_TRANSACTION if config.exactly_once else float("inf")
        self._stood_still = stood_still
        self._slow_until = 0.0
        self._next_warning = 0.0
        self._longest: tuple[float, int, StreamTask] | None = None

    def processed_task(self, task: StreamTask, records: int, seconds: float) -> None:
        """Record the time that a task took in a turn, with its punctuators."""
        if seconds >= self._slow_s and (self._longest is None or seconds > self._longest[0]):
            self._longest = seconds, records, task

    def processed(self, records: int, limit: int, seconds: float) -> None:
        """Record the time that all tasks took in a turn.

        Args:
            records: the number of processed records, of all tasks.
            limit: the maximum per task in this turn.
            seconds: the time that the records took.
        """
        if records and seconds > _LONGEST_TURN_S:
            self.limit = max(1, min(limit, int(records * _LONGEST_TURN_S / seconds)))
        elif records and seconds < _LONGEST_TURN_S / 2:
            self.limit = min(POLL_RECORDS, self.limit * 2)
        self.processing_s = min(seconds, _LONGEST_TURN_S)
        longest, self._longest = self._longest, None
        self._check_slow(seconds, "" if longest is None else _described(longest))

    def flushed(self, seconds: float) -> None:
        """Record the time that the commit took in a turn, with flushes of caches and writes of state."""
        self._check_slow(seconds, "flushing the caches and writing the state")

    def _check_slow(self, seconds: float, what: str) -> None:
        if seconds < self._slow_s:
            return
        now = time.monotonic()
        if seconds - self._stood_still(now - seconds) < self._slow_s:
            # Once more without a transaction: a call that holds the GIL and computes nothing looks the same.
            self._slow_until = max(self._slow_until, now + seconds)
            return
        self._slow_until = now + _SLOW_FACTOR * seconds
        if now >= self._next_warning:
            self._next_warning = now + _WARNING_INTERVAL_S
            log.warning(
                "%s took %.1f s, and the broker aborts a transaction after 'transaction.timeout.ms' (%.1f s): "
                "processing only between transactions for %.0f s. "
                "Raise 'transaction.timeout.ms' to four times what a record takes; a function that waits for a service "
                "is quicker as an async def in map_values_async().",
                what or "one turn of all tasks", seconds, self._timeout_s, _SLOW_FACTOR * seconds,
            )  # fmt: skip

    @property
    def slow(self) -> bool:
        """Whether turns may take so long that no transaction may be open meanwhile."""
        return bool(self._slow_until) and time.monotonic() < self._slow_until


def _described(longest: tuple[float, int, StreamTask]) -> str:
    """Describe the task that took longest, with its record if there was only one."""
    _, records, task = longest
    places = ", ".join(
        f"{queue.topic}-{task.id.partition} offset {queue.position - 1}" for queue in task.inputs.values()
    )
    if records == 1 and len(task.inputs) == 1:
        return f"task {task.id}: the record at {places}"
    return f"task {task.id}: a turn of {records} records up to {places}"
