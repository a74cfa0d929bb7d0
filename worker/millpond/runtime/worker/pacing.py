"""How many records a turn of the loop takes, and whether turns are too slow to leave a transaction open meanwhile.

The broker aborts a transaction that is open for longer than `transaction.timeout.ms`. A record that takes longer, or a
punctuator, or what a cache forwards at a commit, must therefore not run while one is open. Usually turns take milliseconds, and
the transaction is filled while records are processed. After a slow turn, the worker processes only while no transaction is open:
output waits in memory for the commit, and the next turn for the commit's end.
"""

from __future__ import annotations

import logging
import time

from millpond.runtime.config.model import Config
from millpond.runtime.processing.stream_task import StreamTask

__all__ = ("POLL_RECORDS", "BatchPacing")

log: logging.Logger = logging.getLogger(__name__)

#: The most records per poll and per task in a turn of the loop, which then takes milliseconds.
POLL_RECORDS = 2_000
#: A turn takes fewer records when these take longer: commits, time and `stop()` are looked at between turns.
_LONGEST_TURN_S = 0.25
_FIRST_TURN_RECORDS = 100
#: A transaction is open for up to two turns and a commit.
_SHARE_OF_TRANSACTION = 4
#: Turns count as slow for so many times as long as the slow one took.
_REMEMBERED = 20.0
_TOLD_EVERY_S = 60.0


class BatchPacing:
    """Adapts to how long records take. Belongs to the worker's loop.

    Args:
        config: the worker's.

    Attributes:
        limit: the most records to poll, and to process per task, in a turn.
        processing_s: how long tasks took in the last turn, in seconds; no more than a turn should take.
    """

    def __init__(self, config: Config) -> None:
        self.limit: int = _FIRST_TURN_RECORDS
        self.processing_s: float = 0.0
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._slow_s = self._timeout_s / _SHARE_OF_TRANSACTION if config.exactly_once else float("inf")
        self._slow_until = 0.0
        self._next_word = 0.0
        self._longest: tuple[float, int, StreamTask] | None = None

    def processed_task(self, task: StreamTask, records: int, seconds: float) -> None:
        """A task processed so many records in a turn, and ran its punctuators."""
        if seconds >= self._slow_s and (self._longest is None or seconds > self._longest[0]):
            self._longest = seconds, records, task

    def processed(self, records: int, limit: int, seconds: float) -> None:
        """A turn processed so many records of all tasks, each of which might have taken `limit`."""
        if records and seconds > _LONGEST_TURN_S:
            self.limit = max(1, min(limit, int(records * _LONGEST_TURN_S / seconds)))
        elif records and seconds < _LONGEST_TURN_S / 2:
            self.limit = min(POLL_RECORDS, self.limit * 2)
        self.processing_s = min(seconds, _LONGEST_TURN_S)
        longest, self._longest = self._longest, None
        self._took(seconds, "" if longest is None else _described(longest))

    def flushed(self, seconds: float) -> None:
        """A commit's share of a turn took so long: caches forward what they held back, and state is written."""
        self._took(seconds, "forwarding what caches held back, and writing the state,")

    def _took(self, seconds: float, what: str) -> None:
        if seconds < self._slow_s:
            return
        now = time.monotonic()
        self._slow_until = now + _REMEMBERED * seconds
        if now >= self._next_word:
            self._next_word = now + _TOLD_EVERY_S
            log.warning(
                "%s took %.1f s, and the broker aborts a transaction after 'transaction.timeout.ms' (%.1f s): processing "
                "only between transactions for %.0f s. Raise 'transaction.timeout.ms' to four times what a record takes.",
                what or "processing the tasks' records once", seconds, self._timeout_s, _REMEMBERED * seconds,
            )  # fmt: skip

    @property
    def slow(self) -> bool:
        """Whether turns may take so long that no transaction is to be open meanwhile."""
        return bool(self._slow_until) and time.monotonic() < self._slow_until


def _described(longest: tuple[float, int, StreamTask]) -> str:
    """The task that took longest; with the record, where it was one."""
    _, records, task = longest
    places = ", ".join(
        f"{queue.topic}-{task.id.partition} offset {queue.position - 1}" for queue in task.inputs.values()
    )
    if records == 1 and len(task.inputs) == 1:
        return f"task {task.id}: the record at {places}"
    return f"task {task.id}: a turn of {records} records, up to {places},"
