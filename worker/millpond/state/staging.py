"""What all stores share: writes are staged in memory, flushed to the changelog, sealed, and then committed.

    stage ──> dirty ──flush()──> flushed rows ──seal()──> sealed rows ──backend.write()──> committed()

A commit flushes (changelog records go out), seals, commits the transaction, and only then writes the sealed rows to the
backend. So the backend never holds anything uncommitted. Processing may go on between `seal` and `committed`: what it
stages meanwhile belongs to the next commit. `revert` throws away everything that the backend does not have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, cast

from millpond.errors import BrokerError, SerializationError, StateError
from millpond.serdes import Long, Serde

from .backend import Backend, Rows
from .columns import Change, Columns, TakeColumns, columns_taker, new_of
from .formats import partition_prefix
from .sizing import DICT_SLOT, LIST_SLOT, PAIR, Average

__all__ = ("ABSENT", "ChangelogRecord", "Headers", "StagedStore", "StoreContext")

K = TypeVar("K")
V = TypeVar("V")

Headers = list[tuple[str, bytes | None]]

ChangelogRecord = tuple[bytes | None, bytes | None, int, Headers | None]
"""Key, value, timestamp in ms, headers: what `restore` takes."""

FlushListener = Callable[[Any, Any, Any, int], None]
"""Called at flush with key, new value, value at the last flush, timestamp in ms."""

_NOTHING = type(None)

ABSENT: tuple[None, int] = (None, -1)
"""The entry of a key that is not in the store."""

_LONGEST_KEY = 100

DEFAULT_CACHE_LIMIT = 10 * 1024 * 1024


def changed_since_flush(dirty: dict[bytes, Change], *, told: bool) -> dict[bytes, Change]:
    """Empty `dirty`; return what is worth telling of it.

    What was created and deleted between two flushes a listener need not know, if there is one (`told`). The copy lets
    listeners put into the store.
    """
    changes = dirty.copy()
    dirty.clear()
    if told and _NOTHING in set(map(type, map(new_of, changes.values()))):
        changes = {raw: change for raw, change in changes.items() if change[1] is not None or change[3] is not None}
    return changes


def tell_changes(
    listener: FlushListener,
    context: StoreContext | None,
    changes: Iterable[tuple[Any, Any, Any, int]],
    records: Iterable[tuple[Headers | None, Any]] | None,
    decode: Callable[[bytes], Any] | None,
) -> None:
    """Call the listener for each change.

    Args:
        listener: whom to tell.
        context: takes the headers and the origin a change is forwarded with.
        changes: (key, old value, new value, timestamp) of each.
        records: (headers, origin) of the record that put each, None when there is nothing to restore of any.
        decode: for values that are kept as bytes.
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
    """What a store asks of its task."""

    headers: Headers | None
    """Of the record being processed."""

    timestamp: int
    """Of the record being processed, in epoch milliseconds."""

    message: Any
    """The consumed record being processed, None without one."""

    origin: Any
    """Where the record at hand came from, when that is not `message`: a consumed record or a `RecordContext`."""

    def now_ms(self) -> int:
        """The wall clock."""


class StagedStore(Generic[K, V]):
    """Book-keeping of one store partition between staging and commit; subclasses hold the entries."""

    name: str
    partition: int
    changelog_topic: str | None
    """Where `flush` sends changes; None when the store is not logged. Set by the runtime before the first flush."""

    caching: bool
    """True: downstream hears of changes at flush, through the listener. False: the operator forwards them itself."""

    cache_limit: int
    """Bytes that clean entries may take together with the staged ones; enforced in `committed`."""

    serialize_key: Callable[[K], bytes]

    backend_reads: int
    """Single reads that went to the backend."""

    def __init__(
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
        self.backend_reads = 0
        self._keeps_origins = False
        #: Types of values that are the same after encoding and decoding.
        self._same_types: set[type] = set()
        self._entry_size = Average()
        self._row_size = Average()

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return not self._closed

    def attach(self, context: StoreContext) -> None:
        """Tell the store its task, for the timestamp and headers of the current record.

        Call it right after building the store: operators keep references to its functions.
        """
        self._context = context

    def on_flush(self, listener: FlushListener) -> None:
        """Set who hears of changes at flush when the store is `caching`: key, new, old (at the last flush), timestamp.

        A change from nothing to nothing is neither told nor logged, as in Kafka Streams.
        """
        self._listener = listener
        self._take_columns = columns_taker(listener)

    def _took_columns(
        self,
        changes: dict[bytes, Change],
        data: list[bytes | None],
        timestamps: list[int],
        window: tuple[int, int] | None = None,
    ) -> bool:
        """Whether the listener has taken the changes as columns; else it is to be told of each."""
        take = self._take_columns
        if take is None or _NOTHING in set(map(type, data)):
            return False
        given = cast("list[bytes]", data)
        return take(Columns(changes, given, timestamps, self.key_serde, self.value_serde, window))

    def keep_origins(self) -> None:
        """Restore where the last put of a key came from when the listener is told of it: somebody below asks for it.

        Call it before operators take the store's functions.
        """
        self._keeps_origins = self.caching

    def _encoded(self, key: K, value: V) -> bytes:
        """Encode a value; what cannot be encoded is the error of the record that puts it.

        Raises:
            SerializationError: the serde refuses the value.
        """
        try:
            return self.value_serde.serialize(value)
        except BrokerError:
            raise  # a schema registry that is away says nothing about the value
        except SerializationError as error:
            cause: Exception = error
        except Exception as error:
            cause = self.value_serde.encoding_failed(value, error)
        shown = repr(key)
        shown = shown if len(shown) <= _LONGEST_KEY else f"{shown[:_LONGEST_KEY]}…"
        raise SerializationError(f"store '{self.name}' cannot keep a value for key {shown}: {cause}") from cause

    def _settled(self, value: V, data: bytes) -> V:
        """What to keep of a value of an immutable serde: the object itself if decoding gives one of its type.

        So a store answers the same before and after a restart, and keeps nothing that user code could change in place.
        """
        decoded = self.value_serde.deserialize(data)
        if type(decoded) is not type(value):
            return decoded
        self._same_types.add(type(value))
        return value

    def seal(self) -> Rows:
        """The rows flushed since the last seal, for the backend; what is flushed from now on is for the next commit.

        When the rows of the last seal were never confirmed by `committed`, they are given again, first.
        """
        self._sealed = self._join(self._sealed, self._flushed)
        self._flushed = Rows()
        return self._sealed

    def metadata(self) -> bytes:
        """What to write with the offset of the rows that `seal` or `restore` gave last."""
        return b""

    def committed(self) -> None:
        """The rows of the last `seal` are in the backend: they may leave memory when `cache_limit` asks for it."""
        self._sealed = Rows()
        excess = self.cache_bytes() - self.cache_limit
        if excess > 0 and self._entry_size.value:
            self._evict(int(excess / (self._entry_size.value + DICT_SLOT)) + 1)

    def staged_bytes(self) -> int:
        """About how much memory is taken by what the backend does not have yet."""
        rows = len(self._flushed) + len(self._sealed)
        return self.dirty_bytes() + int(rows * (self._row_size.value + LIST_SLOT))

    def dirty_bytes(self) -> int:
        """About how much memory is taken by writes since the last flush: the record cache of a caching store."""
        # The encoded value too, where an entry is an object: about as much as a row. Counts are encoded at the flush.
        encoded = self._row_size.value if self.value_serde.immutable and self.value_serde is not Long else 0
        return int(self._dirty_count() * (self._entry_size.value + encoded + DICT_SLOT + PAIR))

    def cache_bytes(self) -> int:
        """About how much memory is taken by all entries, staged or only read, and by the rows not yet written."""
        count = self._entry_count()
        if count and not self._entry_size.value:
            self._entry_size.sample(self._some_entries())
        return int(count * (self._entry_size.value + DICT_SLOT)) + self.staged_bytes()

    def close(self) -> None:
        """Forget everything in memory; nothing is written. Idempotent."""
        self._closed = True
        self._flushed = Rows()
        self._sealed = Rows()

    def _evict(self, count: int) -> None:
        """Drop about `count` entries that the backend has, the oldest first."""
        raise NotImplementedError

    def _dirty_count(self) -> int:
        raise NotImplementedError

    def _entry_count(self) -> int:
        raise NotImplementedError

    def _some_entries(self) -> Iterable[object]:
        raise NotImplementedError

    def _uncommitted_rows(self) -> set[bytes]:
        """Full keys of the rows that were flushed and are not known to be in the backend."""
        keys = {key for key, _ in self._flushed}
        keys.update(key for key, _ in self._sealed)
        return keys

    def _timestamp(self) -> int:
        """The current record's, for writes that do not bring one; the wall clock where there is no record."""
        context = self._context
        timestamp = -1 if context is None else context.timestamp
        return timestamp if timestamp >= 0 else self._now()

    def _now(self) -> int:
        """The wall clock in ms."""
        return int(time.time() * 1000) if self._context is None else self._context.now_ms()

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(f"store '{self.name}' is closed: its task was stopped or moved to another worker")

    @staticmethod
    def _join(first: Rows, second: Rows) -> Rows:
        return Rows([*first, *second], [*first.ranges, *second.ranges]) if first or first.ranges else second
