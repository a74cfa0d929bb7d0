"""The staged entries of a session store: the sessions of each key, over segments of session ends that expire together.

A session is a start and an end, both inclusive. Its segment spans max(retention / 2, 60 s) of ends, as in Kafka
Streams' RocksDB store. Expiry deletes whole segments. Reads are stricter: they never return a session that ended before
stream time - retention + 1. Sessions between the two bounds may still be put, but are not returned. Kafka Streams'
in-memory store rejects those puts; so does this one when it is not persistent. Stream time here is the largest session
end ever put.

With a cache, Kafka Streams returns an expired session for as long as the cache happens to have it. Here no store
returns it: results do not depend on the cache's size or on restarts, and `suppress` has sent it as a final result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from millpond.serdes import Serde, Windowed
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    ROW_PREFIX_LENGTH,
    SESSION_SUFFIX_LENGTH,
    segment_prefix,
    split_session_key,
)
from millpond.state.rows import session_rows

from .encoding import Produced
from .merge import merge
from .session_puts import ABOVE, Put, Session, SessionPuts
from .staged_store import ChangelogRecord, StoreContext, forward_changes

__all__ = ("Session", "StagedSessions")

K = TypeVar("K")
V = TypeVar("V")

_MAX_LONG = 2**63 - 1


class StagedSessions(SessionPuts[K, V]):
    """The sessions of each key, with the functions for operators and for the runtime."""

    incomplete_until: int
    _swept: int
    _forgotten: int
    """The first segment whose sessions may still be in memory."""
    _flushed_metadata: bytes
    _sealed_metadata: bytes

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
        super().__init__(
            name,
            partition,
            backend,
            key,
            value,
            retention_ms=retention_ms,
            persistent=persistent,
            caching=caching,
            changelog_topic=changelog_topic,
        )
        self._load_metadata()
        self._bind()

    @property
    def observed_stream_time(self) -> int:
        """The largest session end put so far, in epoch ms; -1 before the first put."""
        return self._observed

    @property
    def restored_incomplete(self) -> bool:
        """Whether sessions may be missing that had not expired, since brokers had deleted them from the changelog."""
        return self.incomplete_until >= max(0, self._observed - self.retention_ms)

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task; a caching store then forwards with the headers of the last put."""
        super().attach(context)
        self._bind()

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn staged writes into rows and changelog records (appended to `out`); call a cache's listener."""
        if self._dirty:
            puts = self._dirty.copy()  # a listener may put
            self._dirty.clear()
            headers, origins = self._dirty_headers.copy(), self._dirty_origins.copy()
            self._dirty_headers.clear()
            self._dirty_origins.clear()
            self._entry_size.sample(islice(self._sessions.items(), 16))
            written = len(self._flushed)
            applied = self._apply(puts, out)
            self._row_size.sample(self._flushed[written : written + 16])
            if self._listener is not None:
                serde = self.value_serde
                records = None
                if headers or origins:
                    records = [(headers.get(place), origins.get(place)) for place, _ in applied]
                forward_changes(
                    self._listener,
                    self._context,
                    [(Windowed(key, start, end), old, new, end) for _, (key, start, end, old, _, new, _) in applied],
                    records,
                    None if serde.immutable else serde.deserialize,
                )
        # Later puts, which may advance stream time, belong to the next commit.
        self._sweep(self._flushed)
        self._flushed_metadata = self._encode_metadata()

    def _apply(self, puts: dict[bytes, Put], out: list[Produced]) -> list[tuple[bytes, Put]]:
        """Write the changelog records and the rows of staged puts; return those to forward, with their old values."""
        topic, partition, interval, caching = self.changelog_topic, self.partition, self._interval, self.caching
        encode, flushed = self.value_serde.serialize, self._flushed
        forwarding = caching and self._listener is not None
        prefixes: dict[int, bytes] = {}
        oldest = self._oldest_kept()
        applied: list[tuple[bytes, Put]] = []
        for place, put in puts.items():
            if caching:
                put = self._as_seen(put)
            _, _, end, old, data, new, timestamp = put
            # A cache neither forwards nor logs the deletion of what nobody has seen.
            unseen = forwarding and new is None and old is None
            if forwarding and not unseen:
                applied.append((place, put))
            if data is None and new is not None:
                data = encode(new)
            if topic is not None and not unseen:
                # Rejected puts are logged, too, as in Kafka Streams, whose restore rejects them again.
                out.append((topic, data, place, partition, None, None, timestamp))
            if end < oldest:
                continue
            segment = end // interval
            prefix = prefixes.get(segment)
            if prefix is None:
                prefix = prefixes[segment] = segment_prefix(partition, segment)
            flushed.append((prefix + place, data))
        return applied

    def _as_seen(self, put: Put) -> Put:
        """Return a put with the old value that Kafka Streams' store below the cache returns; advance its stream time.

        It returns none for a session that has expired.
        """
        key, start, end, old, data, new, timestamp = put
        hidden = old is not None and end <= self._applied - self.retention_ms
        if end > self._applied:
            self._applied = end
        return (key, start, end, None, data, new, timestamp) if hidden else put

    def seal(self) -> Rows:
        """Return the rows flushed since the last seal, and the deletions of segments that expired until then."""
        self._sealed_metadata = self._flushed_metadata
        return super().seal()

    def committed(self) -> None:
        """Confirm that the rows of the last `seal` are in the backend; forget sessions in segments that expired."""
        super().committed()
        if self._swept > self._forgotten:
            self._forgotten = self._swept
            self._forget_expired()

    def _forget_expired(self) -> None:
        visible, kept = self._visible, self._uncommitted_keys()
        for raw_key, held in list(self._sessions.items()):
            if raw_key in kept:
                continue
            if held and held[0][0] < visible:
                held = self._sessions[raw_key] = held[bisect_left(held, (visible,)) :]
            if not held:
                del self._sessions[raw_key]

    def _uncommitted_keys(self) -> set[bytes]:
        """Return the serialised keys with writes that may not be in the backend yet."""
        keys = {place[:-SESSION_SUFFIX_LENGTH] for place in self._dirty}
        keys.update(row[ROW_PREFIX_LENGTH:-SESSION_SUFFIX_LENGTH] for row in self._uncommitted_rows())
        return keys

    def _sweep(self, rows: Rows) -> None:
        live = self._first_live_segment()
        if live > self._swept:
            partition = self.partition
            rows.ranges.append((segment_prefix(partition, self._swept), segment_prefix(partition, live)))
            self._swept = live

    def metadata(self) -> bytes:
        """Return the stream time as of the last `seal` or `restore`, encoded."""
        return self._sealed_metadata

    def _encode_metadata(self) -> bytes:
        metadata = {"observed_stream_time": self._observed}
        if self.incomplete_until >= 0:
            metadata["incomplete_until"] = self.incomplete_until
        return msgspec.msgpack.encode(metadata)

    def _load_metadata(self) -> None:
        written = self._backend.metadata(self.name, self.partition)
        metadata = msgspec.msgpack.decode(written, type=dict[str, int]) if written else {}
        self.incomplete_until = max(self.incomplete_until, metadata.get("incomplete_until", -1))
        self._advance(metadata.get("observed_stream_time", -1))
        self._applied = self._observed
        # The commit that wrote this stream time deleted the segments below this one.
        self._swept = self._forgotten = self._first_live_segment()
        self._forget_absent_keys()
        self._flushed_metadata = self._sealed_metadata = self._encode_metadata()

    def _forget_absent_keys(self) -> None:
        """From now on, a key that is not in memory may have sessions in the backend up to the present segment."""
        self._known_from = max(0, self._observed // self._interval + 1)

    def revert(self) -> None:
        """Go back to the backend's rows and stream time."""
        self._discard_entries()
        self._flushed = Rows()
        self._sealed = Rows()
        self._load_metadata()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys.

        Stream time is taken from the whole batch first, so that segments that have expired by its end are not restored.
        Live segments keep expired sessions, which reads do not return. So the rows do not depend on the batches of
        records.
        """
        self._discard_entries()
        split = [
            (key, split_session_key(key)[1], value, timestamp)
            for key, value, timestamp, _ in records
            if key is not None
        ]
        newest = max((end for _, end, _, _ in split), default=-1)
        if newest > self._observed:
            self._advance(newest)
        self._applied = self._observed
        row = session_rows(self.partition, self.retention_ms)
        oldest = self._first_live_segment() * self._interval
        rows = Rows([row(key, value, timestamp, None) for key, end, value, timestamp in split if end >= oldest])
        self._sweep(rows)
        self._forgotten = self._swept
        self._forget_absent_keys()
        self._flushed_metadata = self._sealed_metadata = self._encode_metadata()
        return rows

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._discard_entries()

    def _discard_entries(self) -> None:
        self._sessions.clear()
        self._dirty.clear()
        self._dirty_headers.clear()
        self._dirty_origins.clear()

    def _evict(self, count: int) -> None:
        kept = self._uncommitted_keys()
        victims = list(islice((key for key in self._sessions if key not in kept), count))
        for key in victims:
            del self._sessions[key]
        if victims:
            self._forget_absent_keys()

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _entry_count(self) -> int:
        return len(self._sessions)

    def _some_entries(self) -> Iterable[object]:
        return self._sessions.items()

    # Reading in the order of the rows' keys: segment by segment

    def _staged_rows(self) -> dict[bytes, bytes | None]:
        """Return the values of uncommitted puts, by full row key."""
        staged: dict[bytes, bytes | None] = dict(self._sealed)
        staged.update(self._flushed)
        encode = self.value_serde.serialize
        for place, (_, _, end, _, data, new, _) in self._dirty.items():
            row = segment_prefix(self.partition, end // self._interval) + place
            staged[row] = encode(new) if data is None and new is not None else data
        return staged

    def _scan(  # noqa: PLR0913  # queries call it, too
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        reverse: bool,  # noqa: FBT001  # always given
        latest_end: int = _MAX_LONG,
    ) -> Iterator[tuple[bytes, int, int, bytes]]:
        """Return raw key, end, start and encoded value of the sessions of a range of keys (inclusive), as of now."""
        self._check_open()
        if key_from is not None and key_to is not None and key_from > key_to:
            return iter(())
        partition, interval = self.partition, self._interval
        first = max(earliest_end, self._visible)
        segments = range(first // interval, min(latest_end, self._observed) // interval + 1)
        found: list[Iterator[tuple[bytes, bytes]]] = []
        for segment in reversed(segments) if reverse else segments:
            prefix = segment_prefix(partition, segment)
            high = segment_prefix(partition, segment + 1)
            if key_to is not None and key_from == key_to:
                high = prefix + key_to + ABOVE
            low = prefix if key_from is None else prefix + key_from
            found.append(self._backend.range(self.name, low, high, reverse=reverse))
        committed = (row for rows in found for row in rows)
        rows = merge(committed, self._staged_rows(), reverse=reverse)
        return _matching(rows, key_from, key_to, first, latest_start, latest_end)


def _matching(  # noqa: PLR0913  # the bounds
    rows: Iterator[tuple[bytes, bytes | None]],
    key_from: bytes | None,
    key_to: bytes | None,
    earliest_end: int,
    latest_start: int,
    latest_end: int,
) -> Iterator[tuple[bytes, int, int, bytes]]:
    for row, data in rows:
        if data is None:
            continue
        raw_key, end, start = split_session_key(row, ROW_PREFIX_LENGTH)
        if (
            (key_from is None or raw_key >= key_from)
            and (key_to is None or raw_key <= key_to)
            and earliest_end <= end <= latest_end
            and start <= latest_start
        ):
            yield raw_key, end, start, data
