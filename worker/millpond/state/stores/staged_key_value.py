"""The staged entries of a key-value store: one dict over the backend, with every entry that was staged or read.

Values of an immutable serde are kept as objects; others as bytes, so that no code changes a staged value in place. Both
are encoded when they are put: a value that cannot be encoded is then the error of the record that puts it. An entry is
a tuple (value, timestamp); (None, timestamp) is a deletion or a key known to be absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, TypeVar

from millpond.serdes import Long, Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import (
    PARTITION_LENGTH,
    TIMESTAMP_LENGTH,
    partition_prefix,
    unpack_timestamp,
)
from millpond.state.rows import key_value_rows, timestamped_key_value_rows

from .encoding import Produced, encode_entries, encode_missing
from .flush_columns import encoded_changes, timestamp_of
from .merge import merge
from .staged_store import (
    ABSENT,
    ChangelogRecord,
    Headers,
    StagedStore,
    StoreContext,
    changed_since_flush,
    forward_changes,
)

__all__ = ("StagedKeyValues",)

K = TypeVar("K")
V = TypeVar("V")

Entry = tuple[Any, int]

_value, _timestamp = itemgetter(0), itemgetter(1)


class _NoHeaders:
    """The context of a store without a task."""

    headers = None


class StagedKeyValues(StagedStore[K, V]):
    """The entries by key, with the functions for operators and the runtime. Subclasses add the methods for users."""

    timestamped: bool = False
    backend_reads: int

    entry: Callable[[bytes], tuple[V | None, int]]
    """Returns the value and timestamp (ms) of a serialised key; (None, -1) when absent.

    The value is a fresh or immutable object, as of the last `stage`. The timestamp is meaningless in a store without
    timestamps.
    """

    peek: Callable[[bytes], tuple[V | None, int]]
    """As `entry`, for queries: it does not count as a use of the entry, where uses count."""

    forwarded: Callable[[bytes], tuple[V | None, int]]
    """As `entry`, but as of the last flush of a caching store: the value that it has forwarded."""

    stage: Callable[[bytes, K, V | None, int, V | None], None]
    """Puts a value, or with None deletes: serialised key, key, value, timestamp in ms, the value before this put."""

    stage_count: Callable[[bytes, K, V | None, int, V | None], None]
    """As `stage`, for an integer from 0 to 2**63-1: a store of `Long` encodes it at the flush, once per key."""

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        caching: bool = False,
        changelog_topic: str | None = None,
    ) -> None:
        super().__init__(name, partition, backend, key, value, caching=caching, changelog_topic=changelog_topic)
        self._entries: dict[bytes, Entry] = {}
        # Raw key -> encoded value, None for one that is not encoded yet; when caching, its `Change`, in the order of
        # the last put.
        self._dirty: dict[bytes, Any] = {}
        self._dirty_headers: dict[bytes, Headers] = {}
        self._dirty_origins: dict[bytes, Any] = {}
        self._low, self._high = partition_prefix(partition), partition_prefix(partition + 1)
        # Whether every row of the backend is in memory, too (an empty backend at first): then a miss need not read it.
        self._complete = next(backend.range(name, self._low, self._high), None) is None
        self._bind()

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task; a caching store then forwards with the headers of the last put."""
        super().attach(context)
        self._bind()

    # The hot path: plain functions over local names, specialised once

    def _bind(self) -> None:
        self.entry = self.peek = self._immutable_entry() if self.value_serde.immutable else self._copied_entry()
        self.forwarded = self._forwarded_entry() if self.caching else self.entry
        self.stage = self._immutable_stage() if self.value_serde.immutable else self._copied_stage()
        if self.caching and self._context is not None and not self.value_serde.immutable:
            self.stage = self._with_headers(self.stage, self._context)
        self.stage_count = self._counting_stage() if self.value_serde is Long else self.stage
        if self._keeps_origins and self._context is not None:
            self.stage, self.stage_count = (
                self._with_origins(each, self._context) for each in (self.stage, self.stage_count)
            )

    def keep_origins(self) -> None:
        """See `StagedStore`."""
        super().keep_origins()
        self._bind()

    def _immutable_entry(self) -> Callable[[bytes], tuple[V | None, int]]:
        held, load = self._entries.get, self._load

        def entry(raw_key: bytes, /) -> tuple[V | None, int]:
            found = held(raw_key)
            return load(raw_key) if found is None else found

        return entry

    def _copied_entry(self) -> Callable[[bytes], tuple[V | None, int]]:
        held, load, decode = self._entries.get, self._load, self.value_serde.deserialize

        def entry(raw_key: bytes, /) -> tuple[V | None, int]:
            found = held(raw_key)
            data, timestamp = load(raw_key) if found is None else found
            return (None if data is None else decode(data)), timestamp

        return entry

    def _forwarded_entry(self) -> Callable[[bytes], tuple[V | None, int]]:
        changed, entry = self._dirty.get, self.entry
        decode = None if self.value_serde.immutable else self.value_serde.deserialize

        def forwarded(raw_key: bytes, /) -> tuple[V | None, int]:
            change = changed(raw_key)
            if change is None:
                return entry(raw_key)
            value = change[1]
            return (value if value is None or decode is None else decode(value)), change[5]

        return forwarded

    def _immutable_stage(self) -> Callable[[bytes, K, V | None, int, V | None], None]:  # noqa: C901  # two hot paths
        entries, dirty, take, load = self._entries, self._dirty, self._dirty.pop, self._load
        encode, encoded = self.value_serde.serialize, self._encoded
        as_decoded, stable = self._as_decoded, self._stable_types

        def stage(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
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
            entries[raw_key] = (value, timestamp)
            dirty[raw_key] = data

        if not self.caching:
            return stage
        context, kept = self._context or _NoHeaders(), self._dirty_headers

        def stage_for_flush(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
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
            # Removed and inserted again, so that changes are forwarded in the order of the last puts.
            held = take(raw_key, None)
            if held is None:
                before, since = old, -1 if old is None else (entries.get(raw_key) or load(raw_key))[1]
            else:
                before, since = held[1], held[5]
            entries[raw_key] = (value, timestamp)
            dirty[raw_key] = (key, before, data, value, timestamp, since)
            if context.headers:
                kept[raw_key] = context.headers
            elif kept:
                kept.pop(raw_key, None)

        return stage_for_flush

    def _counting_stage(self) -> Callable[[bytes, K, V | None, int, V | None], None]:
        """Return a `stage` like `_immutable_stage`, for values that are always encodable: the flush encodes them."""
        entries, dirty, take, load = self._entries, self._dirty, self._dirty.pop, self._load
        if not self.caching:

            def stage(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
                entries[raw_key] = (value, timestamp)
                dirty[raw_key] = None

            return stage
        context, kept = self._context or _NoHeaders(), self._dirty_headers

        def stage_for_flush(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
            held = take(raw_key, None)
            if held is None:
                before, since = old, -1 if old is None else (entries.get(raw_key) or load(raw_key))[1]
            else:
                before, since = held[1], held[5]
            entries[raw_key] = (value, timestamp)
            dirty[raw_key] = (key, before, None, value, timestamp, since)
            if context.headers:
                kept[raw_key] = context.headers
            elif kept:
                kept.pop(raw_key, None)

        return stage_for_flush

    def _copied_stage(self) -> Callable[[bytes, K, V | None, int, V | None], None]:
        entries, dirty, caching, load = self._entries, self._dirty, self.caching, self._load
        encoded, take = self._encoded, self._dirty.pop

        def stage(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
            data = None if value is None else encoded(key, value)
            if not caching:
                dirty[raw_key] = data
            else:
                held = take(raw_key, None)
                # `old` may be the object that user code has just changed in place into `value`; the entry's bytes are
                # not.
                before, since = (entries.get(raw_key) or load(raw_key)) if held is None else (held[1], held[5])
                dirty[raw_key] = (key, before, data, data, timestamp, since)
            entries[raw_key] = (data, timestamp)

        return stage

    def _with_headers(
        self, stage: Callable[[bytes, K, V | None, int, V | None], None], context: StoreContext
    ) -> Callable[[bytes, K, V | None, int, V | None], None]:
        kept = self._dirty_headers

        def stage_with_headers(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
            stage(raw_key, key, value, timestamp, old)
            if context.headers:
                kept[raw_key] = context.headers
            elif kept:
                kept.pop(raw_key, None)

        return stage_with_headers

    def _with_origins(
        self, stage: Callable[[bytes, K, V | None, int, V | None], None], context: StoreContext
    ) -> Callable[[bytes, K, V | None, int, V | None], None]:
        kept = self._dirty_origins

        def stage_with_origins(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
            stage(raw_key, key, value, timestamp, old)
            kept[raw_key] = context.message if context.origin is None else context.origin

        return stage_with_origins

    def _load(self, raw_key: bytes) -> Entry:
        """Return the entry of a key that is not in memory, as bytes or object like the entries in memory."""
        self._check_open()
        if self._complete:
            return ABSENT
        self.backend_reads += 1
        data = self._read(self._prefix + raw_key)
        found = self._entries[raw_key] = ABSENT if data is None else self._decode_row(data)
        return found

    def stored(self, raw_key: bytes) -> bytes | None:
        """Return the encoded value of a serialised key as the last commit has it, whichever type wrote it, or None."""
        self._check_open()
        data = self._read(self._prefix + raw_key)
        return data[TIMESTAMP_LENGTH:] if self.timestamped and data is not None else data

    def _decode_row(self, data: bytes) -> Entry:
        timestamp = -1
        if self.timestamped:
            (timestamp,) = unpack_timestamp(data)
            data = data[TIMESTAMP_LENGTH:]
        return (self.value_serde.deserialize(data) if self.value_serde.immutable else data), timestamp

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn staged writes into rows and changelog records (appended to `out`); call a cache's listener."""
        if not self._dirty:
            return
        if self.caching:
            self._flush_forwarding(out)
        else:
            raw_keys, data = list(self._dirty), list(self._dirty.values())
            self._dirty.clear()
            found = list(map(self._entries.__getitem__, raw_keys))
            self._entry_size.sample(zip(raw_keys, found, strict=True))
            data = encode_missing(data, list(map(_value, found)), self.value_serde.serialize)
            self._encode(out, raw_keys, data, list(map(_timestamp, found)))

    def _encode(
        self, out: list[Produced], raw_keys: Sequence[bytes], data: list[bytes | None], timestamps: list[int]
    ) -> None:
        rows = self._flushed
        encode_entries(
            raw_keys,
            data,
            timestamps,
            timestamped=self.timestamped,
            topic=self.changelog_topic,
            partition=self.partition,
            prefix=self._prefix,
            suffix=b"",
            out=out,
            rows=rows,
        )
        self._row_size.sample(rows)

    def _flush_forwarding(self, out: list[Produced]) -> None:
        changes = changed_since_flush(self._dirty, has_listener=self._listener is not None)
        headers, origins = self._dirty_headers.copy(), self._dirty_origins.copy()
        self._dirty_headers.clear()
        self._dirty_origins.clear()
        serde, changed = self.value_serde, changes.values()
        data, timestamps = encoded_changes(changed, serde), list(map(timestamp_of, changed))
        self._entry_size.sample((raw_key, change[3:5]) for raw_key, change in changes.items())
        self._encode(out, list(changes), data, timestamps)
        if self._listener is not None:
            if not headers and not origins and self._forward_columns(list(changes), changes.values(), data, timestamps):
                return
            forward_changes(
                self._listener,
                self._context,
                [(key, old, new, timestamp) for key, old, _, new, timestamp, _ in changed],
                [(headers.get(raw_key), origins.get(raw_key)) for raw_key in changes] if headers or origins else None,
                None if serde.immutable else serde.deserialize,
            )

    def revert(self) -> None:
        """Discard staged, flushed and sealed writes, and so go back to the backend's rows."""
        self._discard_entries()
        self._dirty.clear()
        self._dirty_headers.clear()
        self._dirty_origins.clear()
        self._flushed = Rows()
        self._sealed = Rows()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys."""
        self._discard_entries()
        row = (timestamped_key_value_rows if self.timestamped else key_value_rows)(self.partition)
        return Rows(
            [row(key, value, timestamp, headers) for key, value, timestamp, headers in records if key is not None]
        )

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._discard_entries()
        self._dirty.clear()

    def _discard_entries(self) -> None:
        self._entries.clear()
        self._complete = False

    def _evict(self, count: int) -> None:
        entries, dirty, prefix = self._entries, self._dirty, self._prefix
        uncommitted = self._uncommitted_rows()
        clean = (key for key in entries if key not in dirty and prefix + key not in uncommitted)
        victims = list(islice(clean, count))
        for key in victims:
            del entries[key]
        if victims:
            self._complete = False

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _entry_count(self) -> int:
        return len(self._entries)

    def _some_entries(self) -> Iterable[object]:
        return self._entries.items()

    # Reading in key order

    def _scan(  # queries call it, too
        self,
        low: bytes,
        high: bytes | None,
        reverse: bool,  # noqa: FBT001  # always given
    ) -> Iterator[tuple[bytes, Entry]]:
        """Return raw keys and live entries with low <= raw key < high, as of now."""
        self._check_open()
        prefix = self._prefix
        first, last = prefix + low, self._high if high is None else prefix + high
        keys = self._uncommitted_rows()
        keys.update(prefix + key for key in self._dirty)
        entries = self._entries
        staged = {key: entries[key[PARTITION_LENGTH:]] for key in keys if first <= key < last}
        return self._live(merge(self._backend.range(self.name, first, last, reverse=reverse), staged, reverse=reverse))

    def _live(self, rows: Iterator[tuple[bytes, bytes | Entry]]) -> Iterator[tuple[bytes, Entry]]:
        decode, immutable = self.value_serde.deserialize, self.value_serde.immutable
        for key, row in rows:
            value, timestamp = self._decode_row(row) if isinstance(row, bytes) else row
            if value is not None:
                yield key[PARTITION_LENGTH:], (value if immutable else decode(value), timestamp)
