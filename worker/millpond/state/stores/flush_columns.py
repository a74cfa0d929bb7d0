"""The changes that a cache forwards at a flush, as columns: a few C loops instead of one call for each change.

A node that accepts columns sets an attribute, `take_columns`, on the function that it returns from `bind`. A node that
only passes records on uses its child's attribute. `take_columns` either forwards all changes, with the same effects as
one call per change, or does nothing: then the caller makes those calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    "windows_of",
    "with_columns",
)

F = TypeVar("F", bound=Callable[..., None])

Change = tuple[Any, ...]
"""The change of one key since the last flush: key, value at the last flush, encoded value (None when it is not encoded
yet), value as the store keeps it, timestamp in ms, timestamp of the value at the last flush. A value of None is a
deletion."""

new_of: itemgetter[int] = itemgetter(3)
timestamp_of: itemgetter[int] = itemgetter(4)
_MAX_LONG = 2**63 - 1
_key_of, _data_of = itemgetter(0), itemgetter(2)


def encoded_changes(changes: Collection[Change], serde: Serde[Any]) -> list[bytes | None]:
    """Return the encoded value of each change, None for a deletion."""
    return encode_missing(list(map(_data_of, changes)), list(map(new_of, changes)), serde.serialize)


def windows_of(starts: Iterable[int], size_ms: int) -> Iterator[tuple[int, int]]:
    """Return start and end of each window; as in Kafka Streams, no window ends after the highest timestamp."""
    return ((start, min(start + size_ms, _MAX_LONG)) for start in starts)


class Columns:
    """The changes of one store, in order; none of them is a deletion, and none has headers or an origin.

    Attributes:
        raw_keys: serialised keys, without the window.
        key_serde: the serde of the keys.
        data: serialised values.
        value_serde: the serde of the values.
        timestamps: epoch ms.
        window: start and end of the window that all keys are in, epoch ms; None without a window.
        starts: start of the window of each key, epoch ms; None without windows, or with one for all keys.
    """

    __slots__ = (
        "_changes",
        "_size_ms",
        "data",
        "key_serde",
        "raw_keys",
        "starts",
        "timestamps",
        "value_serde",
        "window",
    )

    def __init__(  # noqa: PLR0913  # the columns, once per flush
        self,
        raw_keys: Sequence[bytes],
        changes: Collection[Change],
        data: Sequence[bytes],
        timestamps: Sequence[int],
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        window: tuple[int, int] | None = None,
        starts: Sequence[int] | None = None,
        size_ms: int = 0,
    ) -> None:
        self._changes, self._size_ms = changes, size_ms
        self.raw_keys: Sequence[bytes] = raw_keys
        self.data: Sequence[bytes] = data
        self.timestamps: Sequence[int] = timestamps
        self.key_serde: Serde[Any] = key_serde
        self.value_serde: Serde[Any] = value_serde
        self.window: tuple[int, int] | None = window
        self.starts: Sequence[int] | None = starts

    def keys(self) -> list[Any]:
        """Return the keys as objects; with a window, as `Windowed`."""
        keys = list(map(_key_of, self._changes))
        if self.starts is not None:
            windows = windows_of(self.starts, self._size_ms)
            return [Windowed(key, *window) for key, window in zip(keys, windows, strict=True)]
        return keys if self.window is None else [Windowed(key, *self.window) for key in keys]

    def values(self) -> list[Any]:
        """Return the values as objects."""
        serde = self.value_serde
        return list(map(new_of, self._changes)) if serde.immutable else list(map(serde.deserialize, self.data))


TakeColumns = Callable[[Columns], bool]
"""Forwards all changes and returns True, or does nothing and returns False."""


def with_columns(forward: F, take: TakeColumns | None) -> F:
    """Return `forward` with its function for columns; None if it accepts no columns. `forward` must not be shared."""
    if take is not None:
        forward.take_columns = take  # type: ignore[attr-defined]
    return forward


def columns_taker(forward: Callable[..., None]) -> TakeColumns | None:
    """Return the function for columns of `forward`; None if it accepts no columns."""
    take: TakeColumns | None = getattr(forward, "take_columns", None)
    return take
