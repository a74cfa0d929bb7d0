"""A store that may be read and not written: how processors of tasks see global stores."""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.errors import TopologyError

__all__ = ("ReadOnlyStore",)

#: Everything that changes a store; all else of it is for reading.
_WRITING = frozenset(
    {
        "attach", "close", "committed", "delete", "flush", "on_flush", "put", "put_all", "put_if_absent", "remove",
        "restore", "revert", "seal", "stage",
    }
)  # fmt: skip


class ReadOnlyStore:
    """A global store as a task sees it: every worker holds a copy, so what one task wrote others would not see."""

    __slots__ = ("_store",)

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name not in _WRITING:
            return getattr(self._store, name)

        def refuse(*_arguments: object, **_options: object) -> NoReturn:
            raise TopologyError(
                f"{name}() cannot be called on global store '{self._store.name}': only the processor that fills it from its "
                "topic may change it. Send a record to that topic instead."
            )

        return refuse
