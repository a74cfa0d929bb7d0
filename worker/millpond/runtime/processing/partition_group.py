"""The choice of a task's next record (KIP-353), and whether to wait for an empty input (KIP-695).

The queue whose head has the smallest timestamp goes first. While an input is empty, the task waits: without limit for
records that the broker already has, and up to `max.task.idle.ms` for records that may still be produced. Then it
processes the other inputs, and counts that as enforced.
"""

from __future__ import annotations

from collections.abc import Sequence

from .record_queue import RecordQueue

__all__ = ("PartitionGroup",)


class PartitionGroup:
    """The input partitions of one task.

    Attributes:
        queues: the queues, one per input partition.
        enforced: the number of times that records were processed despite an empty input, after `max.task.idle.ms`.
    """

    __slots__ = ("_max_idle_ms", "enforced", "queues")

    def __init__(self, queues: Sequence[RecordQueue], max_idle_ms: int) -> None:
        self.queues: tuple[RecordQueue, ...] = tuple(queues)
        self._max_idle_ms = max_idle_ms
        self.enforced: int = 0

    def ready(self, now_ms: int) -> bool:
        """Return whether a record may be taken now."""
        queues = self.queues
        if len(queues) == 1:
            return bool(queues[0].chunks)
        if self._max_idle_ms < 0:
            return any(queue.chunks for queue in queues)
        some = waiting = expired = False
        for queue in queues:
            if queue.chunks:
                queue.idle_since_ms = None
                some = True
            elif not queue.at_end:
                waiting = True
            else:
                if queue.idle_since_ms is None or now_ms < queue.idle_since_ms:  # the clock may have been set back
                    queue.idle_since_ms = now_ms
                if now_ms - queue.idle_since_ms < self._max_idle_ms:
                    waiting = True
                else:
                    expired = True
        if not some or waiting:
            return False
        if expired:
            self.enforced += 1
        return True

    def next(self) -> tuple[RecordQueue, int | None]:
        """Return the queue to take records from, and the highest timestamp of the records to take.

        Call it only if `ready()`. The bound is the smallest head of the other queues; None if these are empty.
        """
        queues = self.queues
        if len(queues) == 1:
            return queues[0], None
        best: RecordQueue | None = None
        best_head = 0
        bound: int | None = None
        for queue in queues:
            if not queue.chunks:
                continue
            head = queue.head_timestamp()
            if best is None:
                best, best_head = queue, head
            elif head < best_head:
                best, best_head, bound = queue, head, best_head
            elif bound is None or head < bound:
                bound = head
        if best is None:
            raise AssertionError("next() on a group with nothing buffered")
        return best, bound

    def buffered(self) -> int:
        """Return the number of records in all queues."""
        return sum(queue.buffered for queue in self.queues)
