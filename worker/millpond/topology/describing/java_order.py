"""The iteration orders of Java's hash and tree sets, which `describe()` needs.

Kafka Streams keeps names in hash sets, and neighbours in tree sets whose sort key changes while they are filled. It
prints them in iteration order, so only the same order gives the same text, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ("TreeSet", "hash_order")

T = TypeVar("T")

_DEFAULT_CAPACITY = 16
_LOAD_FACTOR = 0.75


def hash_order(names: Iterable[str], *, copied: bool = False) -> list[str]:
    """Return the distinct names in the iteration order of a Java HashSet, or of a HashMap with these keys.

    Args:
        names: in the order of their insertion.
        copied: whether the set was made from a collection at once, which fixes the size of its table in advance.
    """
    distinct = list(dict.fromkeys(names))
    capacity = _DEFAULT_CAPACITY
    if copied:
        while capacity < int(len(distinct) / _LOAD_FACTOR) + 1:
            capacity *= 2
    while len(distinct) > capacity * _LOAD_FACTOR:
        capacity *= 2
    # Names that share a bucket stay in the order of insertion, also when the table grows.
    return sorted(distinct, key=lambda name: _spread(_string_hash(name)) & (capacity - 1))


def _string_hash(text: str) -> int:
    value = 0
    encoded = text.encode("utf-16-be")
    for at in range(0, len(encoded), 2):
        value = (31 * value + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    return value


def _spread(value: int) -> int:
    return value ^ (value >> 16)


class _Entry(Generic[T]):
    __slots__ = ("item", "left", "parent", "red", "right")

    def __init__(self, item: T, parent: _Entry[T] | None) -> None:
        self.item = item
        self.parent = parent
        self.left: _Entry[T] | None = None
        self.right: _Entry[T] | None = None
        self.red = False


class TreeSet(Generic[T]):
    """A red-black tree with insertion only.

    Items are compared only when they are inserted: if their order changes later, they stay where they are. This is how
    Java's TreeSet behaves, and a sorted list does not.
    """

    def __init__(self, compare: Callable[[T, T], int]) -> None:
        self._compare = compare
        self._root: _Entry[T] | None = None

    def __iter__(self) -> Iterator[T]:
        yield from self._walk(self._root)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _walk(self, entry: _Entry[T] | None) -> Iterator[T]:
        if entry is not None:
            yield from self._walk(entry.left)
            yield entry.item
            yield from self._walk(entry.right)

    def add(self, item: T) -> None:
        """Insert an item, unless it compares equal to one on its path."""
        parent: _Entry[T] | None = None
        at = self._root
        order = 0
        while at is not None:
            parent = at
            order = self._compare(item, at.item)
            if order == 0:
                return
            at = at.left if order < 0 else at.right
        entry = _Entry(item, parent)
        if parent is None:
            self._root = entry
            return
        if order < 0:
            parent.left = entry
        else:
            parent.right = entry
        entry.red = True
        self._rebalance(entry)

    def _rebalance(self, entry: _Entry[T]) -> None:
        at = entry
        while (parent := at.parent) is not None and parent.red and (grand := parent.parent) is not None:
            on_left = grand.left is parent
            uncle = grand.right if on_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                at = grand
                continue
            if (parent.right if on_left else parent.left) is at:
                self._rotate(parent, left=on_left)
                at, parent = parent, at
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not on_left)
        if self._root is not None:
            self._root.red = False

    def _rotate(self, entry: _Entry[T], *, left: bool) -> None:
        rising = entry.right if left else entry.left
        if rising is None:
            return
        if left:
            entry.right = inner = rising.left
            rising.left = entry
        else:
            entry.left = inner = rising.right
            rising.right = entry
        if inner is not None:
            inner.parent = entry
        rising.parent = entry.parent
        if entry.parent is None:
            self._root = rising
        elif entry.parent.left is entry:
            entry.parent.left = rising
        else:
            entry.parent.right = rising
        entry.parent = rising
