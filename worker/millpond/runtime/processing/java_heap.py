"""The heap of Java's PriorityQueue: what it returns first of items of equal time is the same as in Java."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

__all__ = ("JavaHeap",)

T = TypeVar("T")


class JavaHeap(Generic[T]):
    """Items by time. The time of the first one may change, if that one is removed next.

    Args:
        time_of: returns the time of an item.
    """

    __slots__ = ("_items", "_time_of")

    def __init__(self, time_of: Callable[[T], int]) -> None:
        self._items: list[T] = []
        self._time_of: Callable[[T], int] = time_of

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def first(self) -> T | None:
        """Return the item with the smallest time; None without one."""
        return self._items[0] if self._items else None

    def offer(self, item: T) -> None:
        """Add an item."""
        heap, time_of = self._items, self._time_of
        heap.append(item)
        at, time = len(heap) - 1, time_of(item)
        while at > 0:
            parent = (at - 1) >> 1
            if time >= time_of(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = item

    def poll(self) -> None:
        """Remove the first item."""
        heap, time_of = self._items, self._time_of
        moved = heap.pop()
        if not heap:
            return
        size, at, time = len(heap), 0, time_of(moved)
        while at < size >> 1:
            child = 2 * at + 1
            if child + 1 < size and time_of(heap[child]) > time_of(heap[child + 1]):
                child += 1
            if time <= time_of(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = moved
