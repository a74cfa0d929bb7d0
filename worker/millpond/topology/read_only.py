"""A store that a processor can read but not write."""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.errors import TopologyError

__all__ = ("ReadOnlyStore",)

_WRITING = frozenset(
    {
        "attach", "close", "committed", "delete", "detach", "evict_while", "flush", "keep_origins", "on_flush", "put",
        "put_all", "put_if_absent", "put_raw", "remove", "restore", "revert", "seal", "shrink", "stage",
    }
)  # fmt: skip
"""All methods that change a store; the others read."""


class ReadOnlyStore:
    """A store that is filled from a topic, for the processors that do not fill it: what they wrote would not be in the
    topic, and so be lost when the store is restored, and missing on other workers.
    """

    __slots__ = ("_store",)

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name not in _WRITING:
            return getattr(self._store, name)

        def reject(*_arguments: object, **_options: object) -> NoReturn:
            raise TopologyError(
                f"{name}() cannot be called on store '{self._store.name}' here, because only the processor that "
                "fills it from its topic may change it; send a record to that topic instead."
            )

        return reject
