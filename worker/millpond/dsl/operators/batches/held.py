"""The records that an operator keeps until the task has processed what it has at hand.

Nothing is kept over a commit: the task ends its batch before punctuations and before each commit. Each record is
forwarded with its own timestamp, headers, source position and stream time, as if it had never waited.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from millpond.topology import Forward, NodeContext

__all__ = ("HeldRecord", "HeldRecords")


class HeldRecord(NamedTuple):
    """A record that waits for the end of the batch."""

    key: Any
    value: Any
    timestamp: int
    """Epoch ms."""
    headers: Any
    message: Any
    origin: Any
    """Its source position, as the task's context has it."""
    stream_time: int
    """The task's stream time when it came, epoch ms."""
    time: int
    """The task's current time when it came, epoch ms."""
    released: bool
    """See `TaskContext.released`."""


class HeldRecords:
    """The records that a node of one task holds.

    Args:
        node: the node.

    Attributes:
        records: the records, in the order in which they came.
    """

    def __init__(self, node: NodeContext) -> None:
        self.records: list[HeldRecord] = []
        self._task: Any = node.task
        self._failed = node.failed

    def add(self, key: Any, value: Any, timestamp: int) -> int:
        """Hold a record, with the context of the task; return how many are held."""
        task = self._task
        context = task.headers, task.message, task.origin, task.stream_time, task.timestamp, task.released
        self.records.append(HeldRecord(key, value, timestamp, *context))
        return len(self.records)

    def take(self) -> list[HeldRecord]:
        """Return the held records, which are held no more."""
        taken, self.records = self.records, []
        return taken

    def run(self, record: HeldRecord, function: Forward, *arguments: Any) -> None:
        """Call a function in the context of a record that was held."""
        task = self._task
        before = task.headers, task.message, task.origin, task.stream_time, task.timestamp, task.released
        task.headers, task.message, task.origin = record.headers, record.message, record.origin
        task.stream_time, task.timestamp, task.released = record.stream_time, record.time, record.released
        try:
            function(*arguments)
        finally:
            task.headers, task.message, task.origin, task.stream_time, task.timestamp, task.released = before

    def failed(self, record: HeldRecord, error: Exception) -> None:
        """Give the error of a held record to the processing exception handler."""
        self.run(record, self._failed, error, record.key, record.value, record.timestamp)
