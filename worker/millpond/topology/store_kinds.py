"""The class of a store that a processor expects."""

from __future__ import annotations

from typing import Any, get_origin

from millpond.checks import kind_of
from millpond.errors import TopologyError

__all__ = ("check_kind",)


def check_kind(where: str, name: str, store: object, kind: Any) -> None:
    """Check that a store is of a class.

    Args:
        where: the processor, for messages.
        name: the store's name.
        store: the store.
        kind: the class, with or without its type arguments.

    Raises:
        TopologyError: the store is of another class, or `kind` is no class.
    """
    expected = get_origin(kind) or kind
    if not isinstance(expected, type):
        raise TopologyError(
            f"{where} gets store '{name}' with {kind_of(kind)} as its kind; give a class such as mp.KeyValueStore."
        )
    if not isinstance(store, expected):
        raise TopologyError(
            f"{where} gets store '{name}' as a {expected.__name__}, but it is a {type(store).__name__}; give that."
        )
