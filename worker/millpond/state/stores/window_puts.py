"""The hot path of the window store: functions that read and put one key of one window, with local names for speed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from millpond.serdes import Long, Serde
from millpond.state.backend import Backend

from .staged_store import Headers, StagedStore
from .window_changes import keeping_records

__all__ = ("Dirty", "Entry", "Window", "WindowPuts")

K = TypeVar("K")
V = TypeVar("V")

Entry = tuple[Any, int]
Dirty = dict[bytes, Any]
"""Raw key -> encoded value, None for one not encoded yet; when caching, its `Change`, in the order of last puts."""
Window = tuple[dict[bytes, Entry], Dirty, bool]
"""Entries by raw key; the dirty ones; whether the entries include all of this window's rows in the backend."""


class WindowPuts(StagedStore[K, V]):
    """The entries by window start and key, with the functions for operators. `StagedWindows` adds the others."""

    entry: Callable[[bytes, int], tuple[V | None, int]]
    """Returns value and timestamp (ms), (None, -1) when absent, of a serialised key and a window start in ms."""

    forwarded: Callable[[bytes, int], tuple[V | None, int]]
    """As `entry`, but as of the last flush of a caching store: the value that it has forwarded."""

    stage: Callable[[bytes, int, K, V | None, int, V | None], None]
    """Puts a value (None deletes): serialised key, window start, key, value, timestamp, value before; times in ms."""

    stage_count: Callable[[bytes, int, K, V | None, int, V | None], None]
    """As `stage`, for an integer from 0 to 2**63-1: a store of `Long` encodes it at the flush, once per key."""

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        caching: bool,
        changelog_topic: str | None,
    ) -> None:
        super().__init__(name, partition, backend, key, value, caching=caching, changelog_topic=changelog_topic)
        self._windows: dict[int, Window] = {}
        # Windows with dirty entries, in the order of the first; expired windows stay until they are flushed.
        self._touched: list[tuple[int, Window]] = []
        self._dirty_headers: dict[tuple[int, bytes], Headers] = {}
        self._dirty_origins: dict[tuple[int, bytes], Any] = {}
        # The order of puts while several windows are dirty: the number of the last put of a key in a window.
        self._order: dict[tuple[int, bytes], int] = {}
        self._puts = count()

    def _load(self, raw_key: bytes, start: int) -> Entry:
        raise NotImplementedError

    def _open(self, start: int) -> Window:
        raise NotImplementedError

    def _bind(self) -> None:
        self.entry = self._immutable_entry() if self.value_serde.immutable else self._copied_entry()
        self.forwarded = self._forwarded_entry() if self.caching else self.entry
        self.stage = self._immutable_stage() if self.value_serde.immutable else self._copied_stage()
        self.stage_count = self._counting_stage() if self.value_serde is Long else self.stage
        if self.caching and self._context is not None:
            origins = self._dirty_origins if self._keeps_origins else None
            self.stage, self.stage_count = (
                keeping_records(each, self._context, self._dirty_headers, origins)
                for each in (self.stage, self.stage_count)
            )

    def keep_origins(self) -> None:
        """See `StagedStore`."""
        super().keep_origins()
        self._bind()

    def _immutable_entry(self) -> Callable[[bytes, int], tuple[V | None, int]]:
        window_at, load = self._windows.get, self._load

        def entry(raw_key: bytes, start: int, /) -> tuple[V | None, int]:
            window = window_at(start)
            if window is not None:
                found = window[0].get(raw_key)
                if found is not None:
                    return found
            return load(raw_key, start)

        return entry

    def _copied_entry(self) -> Callable[[bytes, int], tuple[V | None, int]]:
        window_at, load, decode = self._windows.get, self._load, self.value_serde.deserialize

        def entry(raw_key: bytes, start: int, /) -> tuple[V | None, int]:
            window = window_at(start)
            found = None if window is None else window[0].get(raw_key)
            data, timestamp = load(raw_key, start) if found is None else found
            return (None if data is None else decode(data)), timestamp

        return entry

    def _forwarded_entry(self) -> Callable[[bytes, int], tuple[V | None, int]]:
        window_at, entry = self._windows.get, self.entry
        decode = None if self.value_serde.immutable else self.value_serde.deserialize

        def forwarded(raw_key: bytes, start: int, /) -> tuple[V | None, int]:
            window = window_at(start)
            change = None if window is None else window[1].get(raw_key)
            if change is None:
                return entry(raw_key, start)
            value = change[1]
            return (value if value is None or decode is None else decode(value)), change[5]

        return forwarded

    def _immutable_stage(self) -> Callable[[bytes, int, K, V | None, int, V | None], None]:  # hot
        window_at, opened, touched, caching = self._windows.get, self._open, self._touched, self.caching
        load = self._load
        encode, encoded = self.value_serde.serialize, self._encoded
        as_decoded, stable = self._as_decoded, self._stable_types
        puts, order = self._puts.__next__, self._order

        def stage(  # noqa: PLR0913  # the hot path
            raw_key: bytes, start: int, key: K, value: V | None, timestamp: int, old: V | None, /
        ) -> None:
            data = None
            if value is not None:
                if type(value) in stable:
                    try:
                        data = encode(value)
                    except Exception:  # noqa: BLE001  # the serde is the user's
                        data = encoded(key, value)
                else:
                    data = encoded(key, value)
                    value = as_decoded(value, data)
            window = window_at(start) or opened(start)
            entries, dirty = window[0], window[1]
            if not dirty:
                touched.append((start, window))
            if caching:
                # Removed and inserted again, so that changes are forwarded in the order of the last puts.
                held = dirty.pop(raw_key, None)
                if held is None:
                    before, since = old, -1 if old is None else (entries.get(raw_key) or load(raw_key, start))[1]
                else:
                    before, since = held[1], held[5]
                dirty[raw_key] = (key, before, data, value, timestamp, since)
                if len(touched) > 1:
                    order[start, raw_key] = puts()
            else:
                dirty[raw_key] = data
            entries[raw_key] = (value, timestamp)

        return stage

    def _counting_stage(self) -> Callable[[bytes, int, K, V | None, int, V | None], None]:
        """Return a `stage` like `_immutable_stage`, for values that are always encodable: the flush encodes them."""
        window_at, opened, touched, caching = self._windows.get, self._open, self._touched, self.caching
        puts, order, load = self._puts.__next__, self._order, self._load

        def stage(  # noqa: PLR0913  # the hot path
            raw_key: bytes, start: int, key: K, value: V | None, timestamp: int, old: V | None, /
        ) -> None:
            window = window_at(start) or opened(start)
            entries, dirty = window[0], window[1]
            if not dirty:
                touched.append((start, window))
            if caching:
                held = dirty.pop(raw_key, None)
                if held is None:
                    before, since = old, -1 if old is None else (entries.get(raw_key) or load(raw_key, start))[1]
                else:
                    before, since = held[1], held[5]
                dirty[raw_key] = (key, before, None, value, timestamp, since)
                if len(touched) > 1:
                    order[start, raw_key] = puts()
            else:
                dirty[raw_key] = None
            entries[raw_key] = (value, timestamp)

        return stage

    def _copied_stage(self) -> Callable[[bytes, int, K, V | None, int, V | None], None]:
        window_at, opened, touched, caching = self._windows.get, self._open, self._touched, self.caching
        load, encoded, puts, order = self._load, self._encoded, self._puts.__next__, self._order

        def stage(  # noqa: PLR0913  # the hot path
            raw_key: bytes, start: int, key: K, value: V | None, timestamp: int, old: V | None, /
        ) -> None:
            data = None if value is None else encoded(key, value)
            window = window_at(start) or opened(start)
            entries, dirty = window[0], window[1]
            if not dirty:
                touched.append((start, window))
            if caching:
                held = dirty.pop(raw_key, None)
                # `old` may be the object that user code has just changed in place into `value`; the entry's bytes are
                # not.
                before, since = (entries.get(raw_key) or load(raw_key, start)) if held is None else (held[1], held[5])
                dirty[raw_key] = (key, before, data, data, timestamp, since)
                if len(touched) > 1:
                    order[start, raw_key] = puts()
            else:
                dirty[raw_key] = data
            entries[raw_key] = (data, timestamp)

        return stage
