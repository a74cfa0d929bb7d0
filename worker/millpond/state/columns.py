"""What a cache forwards at a flush, column by column: thousands of changes in a few C loops instead of one call for each.

A node that can take columns gives the function it returns from `bind` an attribute, `take_columns`; a node that only passes
records on hands on its child's. Whoever takes columns takes all of them, with the effects that one call per change
would have, or none: then the caller makes those calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from millpond.serdes import Serde, Windowed

from .encoding import encode_missing

__all__ = (
    "Change",
    "Columns",
    "TakeColumns",
    "columns_taker",
    "encoded_changes",
    "new_of",
    "timestamp_of",
    "with_columns",
)

F = TypeVar("F", bound=Callable[..., None])

Change = tuple[Any, ...]
"""Of one key since the last flush: key, value at the last flush, encoded value (None when it is still to be encoded), value as
the store keeps it, timestamp in ms. A value of None is a deletion."""

new_of, timestamp_of = itemgetter(3), itemgetter(4)
_key_of, _data_of = itemgetter(0), itemgetter(2)


def encoded_changes(changes: Collection[Change], serde: Serde[Any]) -> list[bytes | None]:
    """Return the encoded value of each change, None for a deletion."""
    return encode_missing(list(map(_data_of, changes)), list(map(new_of, changes)), serde.serialize)


class Columns:
    """Changes of one store, in order; none of them is a deletion, and none has headers or an origin.

    Attributes:
        raw_keys: serialised keys, without the window.
        key_serde: what serialised them.
        data: serialised values.
        value_serde: what serialised them.
        timestamps: epoch ms.
        window: start and end of the window that all keys are in, epoch ms; None when there is none.
    """

    __slots__ = ("_changes", "data", "key_serde", "raw_keys", "timestamps", "value_serde", "window")

    def __init__(
        self,
        changes: Mapping[bytes, Change],
        data: Sequence[bytes],
        timestamps: Sequence[int],
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        window: tuple[int, int] | None = None,
    ) -> None:
        self._changes = changes.values()
        self.raw_keys = list(changes)
        self.data = data
        self.timestamps = timestamps
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.window = window

    def keys(self) -> list[Any]:
        """The keys as objects, `Windowed` when there is a window."""
        keys = list(map(_key_of, self._changes))
        return keys if self.window is None else [Windowed(key, *self.window) for key in keys]

    def values(self) -> list[Any]:
        """The values as objects."""
        serde = self.value_serde
        return list(map(new_of, self._changes)) if serde.immutable else list(map(serde.deserialize, self.data))


TakeColumns = Callable[[Columns], bool]
"""Forwards all changes and returns True, or does nothing and returns False."""


def with_columns(forward: F, take: TakeColumns | None) -> F:
    """Return `forward`, a function of its own, with what takes columns in its place; None when nothing does."""
    if take is not None:
        forward.take_columns = take  # type: ignore[attr-defined]
    return forward


def columns_taker(forward: Callable[..., None]) -> TakeColumns | None:
    """Return what takes columns in the place of `forward`, None when nothing does."""
    found: TakeColumns | None = getattr(forward, "take_columns", None)
    return found
