"""A store of a user's own class, for processors that may only read it.

What its methods change without logging cannot be noticed. What can be, is rejected or impossible: changes that are
logged, and changes of the containers that it has as attributes.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

__all__ = ("StoreReader",)


class _SetView(AbstractSet[Any]):
    """A set that cannot be changed here."""

    def __init__(self, items: AbstractSet[Any]) -> None:
        self._items = items

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __str__(self) -> str:
        return str(self._items)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> AbstractSet[Any]:  # of the results of operators
        return set(it)


class _SequenceView(Sequence[Any]):
    """A list or deque that cannot be changed here."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __str__(self) -> str:
        return str(self._items)


def _view(found: Any) -> Any:
    """Return a view of a container that could be changed; other objects as they are."""
    match found:
        case dict():
            return MappingProxyType(found)
        case set():
            return _SetView(found)
        case list() | deque():
            return _SequenceView(found)
        case bytearray():
            return bytes(found)
        case _:
            return found


class Owner(Protocol):
    """The store that has the user's."""

    @property
    def of_user(self) -> Any:
        """The user's store."""

    def read(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method, which must not log."""


class StoreReader:
    """A user's store that may only be read: its methods must not log, and containers in its attributes are views."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        owner = self._owner
        found = owner.read(getattr, owner.of_user, name)  # a property is a method, too
        return partial(owner.read, found) if callable(found) else _view(found)

    def __len__(self) -> int:
        return int(self._call(len))

    def __contains__(self, item: object) -> bool:
        return bool(self._call(operator.contains, item))

    def __getitem__(self, key: Any) -> Any:
        return _view(self._call(operator.getitem, key))

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[Any] = self._call(iter)
        return found

    def __bool__(self) -> bool:
        return bool(self._call(bool))

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        return self._owner.read(method, self._owner.of_user, *arguments)
