"""A store that a processor can read but not write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from millpond.errors import TopologyError

__all__ = ("ReadOnlyStore",)

_WRITING = frozenset(
    {
        "attach", "clear", "close", "committed", "delete", "detach", "evict_while", "flush", "init", "keep_origins",
        "on_flush", "put", "put_all", "put_if_absent", "put_raw", "remove", "restore", "revert", "seal", "shrink",
        "stage",
    }
)  # fmt: skip
"""All methods that change a store; the others read."""


class ReadOnlyStore:
    """A store that is filled from a topic, for the processors that do not fill it: what they wrote would not be in the
    topic, and so be lost when the store is restored, and missing on other workers.
    """

    __slots__ = ("_store",)

    def __init__(self, store: Any) -> None:
        object.__setattr__(self, "_store", store)

    def __getattr__(self, name: str) -> Any:
        if name not in _WRITING:
            return getattr(self._store, name)

        def reject(*_arguments: object, **_options: object) -> NoReturn:
            raise self._rejected(f"{name}() cannot be called on")

        return reject

    def __setattr__(self, name: str, value: object) -> None:
        raise self._rejected(f"{name} cannot be set on")

    def __delattr__(self, name: str) -> None:
        raise self._rejected(f"{name} cannot be deleted from")

    def __setitem__(self, key: Any, value: object) -> None:
        raise self._rejected("an item cannot be set on")

    def __delitem__(self, key: Any) -> None:
        raise self._rejected("an item cannot be deleted from")

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, item: object) -> bool:
        return item in self._store

    def __getitem__(self, key: Any) -> Any:
        return self._store[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store)

    def __bool__(self) -> bool:
        return bool(self._store)

    def _rejected(self, what: str) -> TopologyError:
        return TopologyError(
            f"{what} store '{self._store.name}' here, because only the processor that fills it from its topic may "
            "change it; send a record to that topic instead."
        )
