"""The order in which a task takes records of equal time from several inputs, in Kafka Streams' TopologyTestDriver."""

from __future__ import annotations

from millpond.runtime.processing.record_queue import RecordQueue

__all__ = ("InputOrder",)


class InputOrder:
    """The inputs that have records, as the heap of Java's PriorityQueue has them.

    Of inputs whose next records have the same time, this order decides which one is next. A worker has no such order,
    since records do not come to it in a defined one.
    """

    def __init__(self) -> None:
        self._heap: list[RecordQueue] = []

    def first(self) -> RecordQueue | None:
        """Return the input whose record is next; None if no input has records."""
        return self._heap[0] if self._heap else None

    def offer(self, queue: RecordQueue) -> None:
        """Add an input that has records now."""
        heap = self._heap
        heap.append(queue)
        at, time = len(heap) - 1, queue.head_timestamp()
        while at > 0:
            parent = (at - 1) >> 1
            if time >= heap[parent].head_timestamp():
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = queue

    def poll(self) -> None:
        """Remove the first input. It may have another record by now, and is added again then."""
        heap = self._heap
        moved = heap.pop()
        if not heap:
            return
        size, at, time = len(heap), 0, moved.head_timestamp()
        while at < size >> 1:
            child = 2 * at + 1
            if child + 1 < size and heap[child].head_timestamp() > heap[child + 1].head_timestamp():
                child += 1
            if time <= heap[child].head_timestamp():
                break
            heap[at] = heap[child]
            at = child
        heap[at] = moved
