"""The base of all stores: writes are staged in memory, flushed to the changelog, sealed, and then committed.

    stage ──> dirty ──flush()──> flushed rows ──seal()──> sealed rows ──backend.write()──> committed()

A commit flushes (changelog records are produced), seals, commits the transaction, and only then writes the sealed rows
to the backend. So the backend never has uncommitted rows. Processing may continue between `seal` and `committed`: what
it stages meanwhile belongs to the next commit. `revert` discards everything that the backend does not have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from millpond.errors import BrokerError, SerializationError, StateError
from millpond.serdes import Long, Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import partition_prefix
from millpond.state.reversed_ranges import shown_key, warn_of_reversed_range

from .flush_columns import Change, Columns, TakeColumns, columns_taker, new_of
from .memory_estimates import DICT_SLOT, LIST_SLOT, PAIR, Average

__all__ = ("ABSENT", "ChangelogRecord", "Headers", "StagedStore", "StoreContext")

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

Headers = list[tuple[str, bytes | None]]

ChangelogRecord = tuple[bytes | None, bytes | None, int, Headers | None]
"""Key, value, timestamp in ms and headers of a changelog record, as `restore` takes them."""

FlushListener = Callable[[Any, Any, Any, int], None]
"""A function that is called at a flush with key, new value, value at the last flush, timestamp in ms."""

_NOTHING = type(None)

ABSENT: tuple[None, int] = (None, -1)
"""The entry of a key that is not in the store."""

DEFAULT_CACHE_LIMIT = 10 * 1024 * 1024


def changed_since_flush(dirty: dict[P, Change], *, has_listener: bool) -> dict[P, Change]:
    """Empty `dirty`; return a copy of its changes, since a listener may put into the store.

    For a listener, keys that were created and deleted between two flushes are left out.
    """
    changes = dirty.copy()
    dirty.clear()
    if has_listener and _NOTHING in set(map(type, map(new_of, changes.values()))):
        changes = {raw: change for raw, change in changes.items() if change[1] is not None or change[3] is not None}
    return changes


def forward_changes(
    listener: FlushListener,
    context: StoreContext | None,
    changes: Iterable[tuple[Any, Any, Any, int]],
    records: Iterable[tuple[Headers | None, Any]] | None,
    decode: Callable[[bytes], Any] | None,
) -> None:
    """Call the listener for each change.

    Args:
        listener: the listener to call.
        context: the context of the task; its headers and its origin are set for each change.
        changes: the key, old value, new value and timestamp in ms of each change.
        records: the headers and the origin of the record that put each change; None if no record has either.
        decode: decodes values that are kept as bytes; None for objects.
    """
    if decode is not None:
        changes = (
            (key, None if old is None else decode(old), None if new is None else decode(new), timestamp)
            for key, old, new, timestamp in changes
        )
    if records is None or context is None:
        for key, old, new, timestamp in changes:
            listener(key, new, old, timestamp)
        return
    try:
        for (key, old, new, timestamp), (context.headers, context.origin) in zip(changes, records, strict=True):
            listener(key, new, old, timestamp)
    finally:
        context.headers = context.origin = None


class StoreContext(Protocol):
    """The part of a task's context that a store uses."""

    headers: Headers | None
    """The headers of the record being processed."""

    timestamp: int
    """The timestamp of the record being processed, in epoch milliseconds."""

    message: Any
    """The consumed record being processed; None without one."""

    origin: Any
    """The source of the record being processed, when it is not `message`: a consumed record or a `RecordContext`."""

    def now_ms(self) -> int:
        """Return the wall clock in epoch milliseconds."""


class StagedStore(Generic[K, V]):
    """The rows of one store partition between staging and commit. Subclasses keep the entries."""

    name: str
    partition: int
    changelog_topic: str | None
    """The changelog that `flush` produces to; None when the store is not logged. Set before the first flush."""

    caching: bool
    """True: changes are forwarded at flush, through the listener. False: the operator forwards each one itself."""

    cache_limit: int | None
    """The bytes that all entries of this store, clean and staged, may take; enforced in `committed`. None in a worker,
    where all stores share one limit (`row_cache`)."""

    serialize_key: Callable[[K], bytes]

    of_topic: bool
    """Whether the rows are those of an input topic, which the store has in place of a changelog."""

    backend_reads: int
    """Single reads that went to the backend."""

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
        self.name = name
        self.partition = partition
        self.caching = caching
        self.changelog_topic = changelog_topic
        self.cache_limit = DEFAULT_CACHE_LIMIT
        self.key_serde = key
        self.value_serde = value
        self.serialize_key = self.key_serde.serialize
        self._backend = backend
        self._prefix = partition_prefix(partition)
        self._read = backend.reader(name)
        self._listener: FlushListener | None = None
        self._take_columns: TakeColumns | None = None
        self._context: StoreContext | None = None
        self._flushed = Rows()
        self._sealed = Rows()
        self._closed = False
        self.of_topic = False
        self.backend_reads = 0
        self._keeps_origins = False
        self._told_of_reversed_range = False
        #: Types of values whose type is the same after encoding and decoding.
        self._stable_types: set[type] = set()
        self._entry_size = Average()
        self._row_size = Average()

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return not self._closed

    @property
    def of_user(self) -> Any:
        """What processors get as the store."""
        return self

    def attach(self, context: StoreContext) -> None:
        """Attach the store to its task, for the timestamp and headers of the current record.

        Call it right after building the store: operators keep references to its functions.
        """
        self._context = context

    def detach(self) -> None:
        """Go back to the backend's rows, as a store whose task has ended and which follows its changelog now."""
        self.revert()

    def revert(self) -> None:
        """Discard staged, flushed and sealed writes, and so go back to the backend's rows."""
        raise NotImplementedError

    def on_flush(self, listener: FlushListener) -> None:
        """Set the function that a flush of a `caching` store calls with each change.

        A key that was created and deleted since the last flush is neither forwarded nor logged, as in Kafka Streams.

        Args:
            listener: called with key, new value, value at the last flush, timestamp in ms.
        """
        self._listener = listener
        self._take_columns = columns_taker(listener)

    def _forward_columns(  # noqa: PLR0913  # the columns, once per flush
        self,
        raw_keys: Sequence[bytes],
        changes: Collection[Change],
        data: list[bytes | None],
        timestamps: list[int],
        window: tuple[int, int] | None = None,
        starts: Sequence[int] | None = None,
        size_ms: int = 0,
    ) -> bool:
        """Forward the changes as columns; return False if that is impossible, so that the caller calls the listener."""
        take = self._take_columns
        if take is None or _NOTHING in set(map(type, data)):
            return False
        values = cast("list[bytes]", data)
        keys, own = self.key_serde, self.value_serde
        return take(Columns(raw_keys, changes, values, timestamps, keys, own, window, starts, size_ms))

    def keep_origins(self) -> None:
        """Keep the origin of each key's last put for the flush, because a downstream node reads the origin.

        Call it before operators take references to the store's functions.
        """
        self._keeps_origins = self.caching

    def _encoded(self, key: K, value: V, serde: Serde[Any] | None = None) -> bytes:
        """Encode a value at its put, so that an error belongs to the record that puts it.

        Args:
            key: the key, for the error's message.
            value: the value.
            serde: the value's serde; None is `value_serde`.

        Raises:
            SerializationError: the serde cannot encode the value.
        """
        serde = self.value_serde if serde is None else serde
        try:
            return serde.serialize(value)
        except BrokerError:
            raise  # a schema registry that does not answer is no error of the value
        except SerializationError as error:
            cause: Exception = error
        except Exception as error:  # noqa: BLE001  # the serde is the user's
            cause = serde.encoding_failed(value, error)
        raise SerializationError(
            f"store '{self.name}' cannot keep a value for key {shown_key(key)}: {cause}"
        ) from cause

    def _as_decoded(self, value: V, data: bytes) -> V:
        """Return the value to keep for an immutable serde: itself if decoding returns its type, else the decoded one.

        So a store returns the same before and after a restart, and keeps nothing that user code could change in place.
        """
        decoded = self.value_serde.deserialize(data)
        if type(decoded) is not type(value):
            return decoded
        self._stable_types.add(type(value))
        return value

    def seal(self) -> Rows:
        """Return the rows flushed since the last seal, for the backend; later flushes belong to the next commit.

        Rows of the last seal without a call of `committed` are returned again, before the others.
        """
        self._sealed = self._join(self._sealed, self._flushed)
        self._flushed = Rows()
        return self._sealed

    def metadata(self) -> bytes:
        """Return the metadata to write with the offset of the rows that `seal` or `restore` returned last."""
        return b""

    def committed(self) -> None:
        """Confirm that the rows of the last `seal` are in the backend; evict entries above `cache_limit`."""
        self._sealed = Rows()
        if self.cache_limit is not None:
            self.shrink(self.cache_limit)

    def shrink(self, limit: int) -> None:
        """Evict entries whose rows are in the backend, so that the store takes about `limit` bytes."""
        excess = self.cache_bytes() - limit
        if excess > 0 and self._entry_size.value:
            self._evict(int(excess / (self._entry_size.value + DICT_SLOT)) + 1)

    def staged_bytes(self) -> int:
        """Return the approximate memory, in bytes, of writes that the backend does not have yet."""
        rows = len(self._flushed) + len(self._sealed)
        return self.dirty_bytes() + int(rows * (self._row_size.value + LIST_SLOT))

    def dirty_bytes(self) -> int:
        """Return the approximate memory, in bytes, of writes since the last flush: a caching store's record cache."""
        # Entries that are objects have an encoded value, too: about as large as a row. Counts are encoded at the flush.
        encoded = self._row_size.value if self.value_serde.immutable and self.value_serde is not Long else 0
        return int(self._dirty_count() * (self._entry_size.value + encoded + DICT_SLOT + PAIR))

    def cache_bytes(self) -> int:
        """Return the approximate memory, in bytes, of all entries, staged or only read, and of rows not yet written."""
        count = self._entry_count()
        if count and not self._entry_size.value:
            self._entry_size.sample(self._some_entries())
        return int(count * (self._entry_size.value + DICT_SLOT)) + self.staged_bytes()

    def close(self) -> None:
        """Discard everything in memory; nothing is written. Idempotent."""
        self._closed = True
        self._flushed = Rows()
        self._sealed = Rows()

    def _evict(self, count: int) -> None:
        """Evict about `count` entries whose rows are in the backend, the oldest first."""
        raise NotImplementedError

    def _dirty_count(self) -> int:
        raise NotImplementedError

    def _entry_count(self) -> int:
        raise NotImplementedError

    def _some_entries(self) -> Iterable[object]:
        raise NotImplementedError

    def _uncommitted_rows(self) -> set[bytes]:
        """Return the full keys of flushed rows that may not be in the backend yet."""
        keys = {key for key, _ in self._flushed}
        keys.update(key for key, _ in self._sealed)
        return keys

    def _timestamp(self) -> int:
        """Return the current record's timestamp, for writes without one; without a record, the wall-clock time."""
        context = self._context
        timestamp = -1 if context is None else context.timestamp
        return timestamp if timestamp >= 0 else self._now()

    def _now(self) -> int:
        """Return the wall clock in epoch ms."""
        return int(time.time() * 1000) if self._context is None else self._context.now_ms()

    def _check_range(self, low: object, high: object, raw_low: bytes | None, raw_high: bytes | None) -> None:
        """Warn once of a range of keys whose lower bound is above the upper one: it has no rows."""
        reversed_range = raw_low is not None and raw_high is not None and raw_low > raw_high
        if reversed_range and not self._told_of_reversed_range:
            self._told_of_reversed_range = True
            warn_of_reversed_range(self.name, low, high)

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(f"store '{self.name}' is closed: its task was stopped or moved to another worker")

    @staticmethod
    def _join(first: Rows, second: Rows) -> Rows:
        return Rows([*first, *second], [*first.ranges, *second.ranges]) if first or first.ranges else second
