"""The hot path of the session store: functions that find and put the sessions of one key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, TypeVar

from millpond.serdes import Long, Serde
from millpond.state.backend import Backend
from millpond.state.formats import (
    ROW_PREFIX_LENGTH,
    segment_interval,
    segment_prefix,
    session_suffix,
    split_session_key,
)
from millpond.state.rows import first_live_segment

from .staged_store import Headers, StagedStore

__all__ = ("ABOVE", "Put", "Session", "SessionPuts", "Stage")

K = TypeVar("K")
V = TypeVar("V")

_MAX_LONG = 2**63 - 1

ABOVE: bytes = session_suffix(_MAX_LONG, _MAX_LONG) + b"\0"
"""Bytes after a key that are above those of all its sessions."""

Session = tuple[int, int, Any]
"""End (ms, inclusive), start (ms) and value of a session. In memory the value is encoded unless it is immutable."""

Put = tuple[Any, int, int, Any, bytes | None, Any, int]
"""Key, start, end, value at the last flush, encoded value (None when it is not encoded yet), value as the store keeps
it, timestamp in ms. A value of None is a deletion."""

Stage = Callable[[bytes, K, int, int, V | None, int], None]
"""Puts a value (None deletes): serialised key, key, session start, session end, value, timestamp; times in ms."""


class SessionPuts(StagedStore[K, V]):
    """The sessions of each key, with the functions for operators. `StagedSessions` adds the others."""

    persistent: bool
    backend_reads: int

    expired_puts: int
    """The number of puts rejected because their session had expired, since the store was built."""
    incomplete_until: int
    """The time in epoch ms up to which brokers had deleted changelog records before a restore; -1 if they had not."""

    stage: Stage[K, V]
    """Puts the value of a session; see `Stage`."""

    stage_count: Stage[K, V]
    """As `stage`, for an integer from 0 to 2**63-1: a store of `Long` encodes it at the flush, once per session."""

    _observed: int
    _floor: int
    """The largest session end that has expired."""
    _visible: int
    """The smallest session end that reads return."""
    _applied: int
    """The largest session end flushed, which is the stream time of the store below Kafka Streams' cache."""
    _known_from: int
    """The first segment of which the sessions of all keys that are not in memory are known: they have none."""

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        retention_ms: int,
        persistent: bool = True,
        caching: bool = False,
        changelog_topic: str | None = None,
    ) -> None:
        super().__init__(name, partition, backend, key, value, caching=caching, changelog_topic=changelog_topic)
        self.persistent = persistent
        self.retention_ms = retention_ms
        self.expired_puts = 0
        self.incomplete_until = -1
        self._interval = segment_interval(retention_ms)
        # The sessions of each key that was read or put, in the order of their ends: all that the key has.
        self._sessions: dict[bytes, list[Session]] = {}
        self._dirty: dict[bytes, Put] = {}  # by changelog key, in the order of the last puts
        self._dirty_headers: dict[bytes, Headers] = {}
        self._dirty_origins: dict[bytes, Any] = {}

    def keep_origins(self) -> None:
        """See `StagedStore`."""
        super().keep_origins()
        self._bind()

    def entry(self, raw_key: bytes, start: int, end: int) -> V | None:
        """Return the value of a session of a serialised key; None when absent."""
        held = self._sessions.get(raw_key)
        if held is None:
            held = self._load(raw_key)
        at = bisect_left(held, (end, start))
        if at == len(held) or held[at][:2] != (end, start) or end < self._visible:
            return None
        kept = held[at][2]
        value: V = kept if self.value_serde.immutable else self.value_serde.deserialize(kept)
        return value

    def forwarded(self, raw_key: bytes, start: int, end: int) -> V | None:
        """As `entry`, but as of the last flush of a caching store: the value that it has forwarded."""
        put = self._dirty.get(raw_key + session_suffix(end, start)) if self.caching else None
        if put is None:
            return self.entry(raw_key, start, end)
        before = put[3]
        return before if before is None or self.value_serde.immutable else self.value_serde.deserialize(before)

    def find(self, raw_key: bytes, earliest_end: int, latest_start: int) -> list[Session]:
        """Return the sessions of a serialised key that end at or after a time, and start at or before one, by end."""
        held = self._sessions.get(raw_key)
        if held is None:
            held = self._load(raw_key)
        if not held:
            return []
        if held[0][0] < self._visible:
            held = self._sessions[raw_key] = held[bisect_left(held, (self._visible,)) :]
        found = [session for session in held if session[0] >= earliest_end and session[1] <= latest_start]
        if found and not self.value_serde.immutable:
            decode = self.value_serde.deserialize
            found = [(end, start, decode(data)) for end, start, data in found]
        return found

    def _bind(self) -> None:
        self.stage = self._staging(counting=False)
        self.stage_count = self._staging(counting=True) if self.value_serde is Long else self.stage
        if self.caching and self._context is not None:
            self.stage, self.stage_count = self._keeping(self.stage), self._keeping(self.stage_count)

    def _staging(self, *, counting: bool) -> Stage[K, V]:  # noqa: C901  # the hot path
        sessions, load, dirty, suffix, caching = self._sessions, self._load, self._dirty, session_suffix, self.caching
        encode, immutable, as_decoded = self._encoded, self.value_serde.immutable, self._as_decoded
        plain, stable = self.value_serde.serialize, self._stable_types

        def stage(  # noqa: C901, PLR0913  # the hot path
            raw_key: bytes, key: K, start: int, end: int, value: V | None, timestamp: int, /
        ) -> None:
            data: bytes | None = None
            kept: Any = value
            if value is not None and not counting:
                if immutable and type(value) in stable:
                    try:
                        data = plain(value)
                    except Exception:  # noqa: BLE001  # the serde is the user's
                        data = encode(key, value)
                else:
                    data = encode(key, value)
                    kept = as_decoded(value, data) if immutable else data
            held = sessions.get(raw_key)
            if held is None:
                held = load(raw_key)
            at = bisect_left(held, (end, start))
            before = None
            if at < len(held) and held[at][0] == end and held[at][1] == start:
                before = held[at][2]
                if kept is None:
                    del held[at]
                else:
                    held[at] = (end, start, kept)
            elif kept is not None:
                held.insert(at, (end, start, kept))
            place = raw_key + suffix(end, start)
            # Removed and inserted again, so that changes are in the order of the last puts.
            prior = dirty.pop(place, None)
            if prior is not None:
                before = prior[3]
            if end > self._observed:
                self._advance(end)
            elif end <= self._floor and kept is not None and self._expired(end):
                self.expired_puts += 1
            if caching and kept is None and before is None and self._listener is not None:
                return  # created and deleted between two flushes: neither logged nor forwarded
            dirty[place] = (key, start, end, before, data, kept, timestamp)

        return stage

    def _keeping(self, stage: Stage[K, V]) -> Stage[K, V]:
        """Return a `stage` that also keeps the headers of the putting record, and its origin if origins are kept."""
        context, headers = self._context, self._dirty_headers
        origins = self._dirty_origins if self._keeps_origins else None
        assert context is not None

        def stage_and_keep(  # noqa: PLR0913  # the hot path
            raw_key: bytes, key: K, start: int, end: int, value: V | None, timestamp: int, /
        ) -> None:
            stage(raw_key, key, start, end, value, timestamp)
            if context.headers:
                headers[raw_key + session_suffix(end, start)] = context.headers
            elif headers:
                headers.pop(raw_key + session_suffix(end, start), None)
            if origins is not None:
                origin = context.message if context.origin is None else context.origin
                origins[raw_key + session_suffix(end, start)] = origin

        return stage_and_keep

    def _load(self, raw_key: bytes) -> list[Session]:
        """Return the sessions of a key that is not in memory, after reading them."""
        self._check_open()
        found = self._sessions[raw_key] = []
        first = self._visible
        # Nothing ended above the observed time, and sessions in the newest segments were all put since they began.
        last = min(self._observed // self._interval, self._known_from - 1)
        decode = self.value_serde.deserialize if self.value_serde.immutable else None
        for segment in range(first // self._interval, last + 1):
            self.backend_reads += 1
            low = segment_prefix(self.partition, segment) + raw_key
            for row, data in self._backend.range(self.name, low + session_suffix(first, 0), low + ABOVE):
                key, end, start = split_session_key(row, ROW_PREFIX_LENGTH)
                # Longer keys that begin with this one may be between its sessions.
                if key == raw_key:
                    found.append((end, start, data if decode is None else decode(data)))
        return found

    def _advance(self, observed: int) -> None:
        # Most records advance the stream time, so nothing is called here.
        self._observed = observed
        self._floor = floor = observed - self.retention_ms
        self._visible = floor + 1 if floor >= 0 else 0

    def _expired(self, end: int) -> bool:
        """Return whether a put of a session that ends then is rejected."""
        return end < self._oldest_kept()

    def _oldest_kept(self) -> int:
        """Return the smallest end of a session that can be put."""
        if self.persistent or self.caching:
            return self._first_live_segment() * self._interval
        return self._floor + 1

    def _first_live_segment(self) -> int:
        return first_live_segment(self._observed, self.retention_ms)
