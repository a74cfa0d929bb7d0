"""Reads of the stores that a worker holds, from other threads of its process (Kafka Streams' `KafkaStreams.store`).

Each call reads all partitions that the worker has at that moment, as the composite stores of Kafka Streams do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, get_origin, overload

from millpond.checks import kind_of
from millpond.errors import BrokerError, MillpondError, SerializationError, TopologyError
from millpond.queries.catalog import QueryableKind, StoreCatalog, StoreInfo
from millpond.queries.failures import FailureReason, QueryFailed
from millpond.queries.local import HeldStores, LocalReader, LocalScan, LocalState
from millpond.queries.messages import Read, Row
from millpond.queries.rendering import registry_unavailable
from millpond.serdes import Serde, Windowed
from millpond.serdes.fail_fast import failing_fast
from millpond.state import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    ValueAndTimestamp,
    VersionedKeyValueStore,
    VersionedRecord,
    WindowStore,
)
from millpond.state.reversed_ranges import warn_of_reversed_query
from millpond.state.unreadable_rows import cure_of

__all__ = (
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyVersionedStore",
    "ReadOnlyWindowStore",
    "StoreOptions",
    "open_store",
)

K = TypeVar("K")
V = TypeVar("V")

_MAX_LONG = 2**63 - 1
_KINDS: dict[type, tuple[QueryableKind, bool]] = {
    KeyValueStore: (QueryableKind.KEY_VALUE, False),
    TimestampedKeyValueStore: (QueryableKind.KEY_VALUE, True),
    WindowStore: (QueryableKind.WINDOW, False),
    TimestampedWindowStore: (QueryableKind.WINDOW, True),
    SessionStore: (QueryableKind.SESSION, False),
    VersionedKeyValueStore: (QueryableKind.VERSIONED, False),
}


class StoreOptions(TypedDict, total=False):
    """The options of `Worker.store`."""

    partition: int | None
    """The only partition to read; None, the default, reads all that the worker has."""
    stale: bool
    """Whether to read copies and stores that are being restored, too, whose rows may be old; default: False."""
    committed: bool
    """Whether to read committed rows only, the default. False also reads what the next commit will write, which may yet
    be undone."""


class _Reading(NamedTuple):
    """How a store is read."""

    reader: LocalReader
    info: StoreInfo
    partition: int | None
    """The only partition to read; None for all that the worker has."""
    committed: bool
    with_timestamps: bool
    """Whether values are `ValueAndTimestamp`."""

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions that can be read now.

        Raises:
            QueryFailed: the worker has none, or not the one that was asked for.
        """
        wanted = range(self.info.partitions) if self.partition is None else (self.partition,)
        read = Read(application="", store=self.info.name, partitions=(), committed=self.committed)
        rejected: QueryFailed | None = None
        found = []
        for each in wanted:
            failed = self.reader.rejection(read, each)
            if failed is None:
                found.append(each)
            elif rejected is None or rejected.reason is FailureReason.NOT_PRESENT:
                rejected = failed
        if found or rejected is None:
            return tuple(found)
        raise rejected

    def rows(self, **bounds: Any) -> Iterator[Row]:
        """Return rows of all partitions, by key and partition. The first ones are read at once."""
        read = Read(
            application="", store=self.info.name, partitions=self.partitions(), committed=self.committed, **bounds
        )
        scan = LocalScan(self.reader, read)
        first = scan.piece_here()

        def rest() -> Iterator[Row]:
            try:
                yield from first
                while not scan.done:
                    yield from scan.piece_here()
            finally:
                scan.close()

        return rest()

    def raw_key(self, key: Any) -> bytes:
        """Return the bytes of a key.

        Raises:
            SerializationError: the store's serde cannot encode it.
            QueryFailed: a schema registry does not answer.
        """
        serde = self.info.key
        try:
            return failing_fast(serde.serialize, key)
        except BrokerError as error:
            raise self._failed(error, serde) from error
        except Exception as error:
            raise SerializationError(
                f"a key of store '{self.info.name}' is {serde.name}: {serde.encoding_failed(key, error)}"
            ) from error

    def key(self, raw: bytes) -> Any:
        """Return the key of a row; raises as `value`."""
        try:
            return failing_fast(self.info.key.deserialize, raw)
        except Exception as error:
            raise self._failed(error, self.info.key, raw) from error

    def value(self, raw: bytes, timestamp: int | None) -> Any:
        """Return the value of a row, with its timestamp if that was asked for.

        Raises:
            QueryFailed: the store's serde cannot decode it, or a schema registry does not answer.
        """
        try:
            value = failing_fast(self.info.value.deserialize, raw)
        except Exception as error:
            raise self._failed(error, self.info.value, raw) from error
        return ValueAndTimestamp(value, timestamp or 0) if self.with_timestamps else value

    def _failed(self, error: Exception, serde: Serde[Any], raw: bytes = b"") -> QueryFailed:
        if isinstance(error, BrokerError):
            return registry_unavailable(self.info, error)
        shown = error if isinstance(error, MillpondError) else serde.decoding_failed(raw, error)
        cure = cure_of(error)
        older = f", because it was written as another type: {cure}" if cure else ""
        return QueryFailed(FailureReason.STORE_EXCEPTION, f"cannot read store '{self.info.name}': {shown}{older}")

    def bounds(self, key_from: Any, key_to: Any) -> dict[str, Any]:
        """Return the bounds of a range of keys, both inclusive; None is no bound."""
        low = b"" if key_from is None else self.raw_key(key_from)
        high = None if key_to is None else self.raw_key(key_to)
        if high is not None and low > high:
            warn_of_reversed_query(self.info.name, key_from, key_to)
        high = None if high is None else high + b"\0"
        return {"low": low, "high": high}


class ReadOnlyKeyValueStore(Generic[K, V]):
    """The partitions of a key-value store that a worker has, from `Worker.store`. Any thread may use it.

    Every method raises QueryFailed while the worker cannot answer: it has no partition of the store, or the partition
    moves away during the read, or a schema registry does not answer. Ask again then; `failure.reason` says why, and
    `failure.passing` whether that may help.
    """

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    def get(self, key: K) -> V | None:
        """Return the value of a key; None without one in the partitions that this worker has."""
        reading = self._reading
        for row_key, _, row in reading.rows(low=reading.raw_key(key), exact=True):
            _, _, raw, timestamp = reading.info.split(row_key, row)
            value: V = reading.value(raw, timestamp)
            return value
        return None

    def range(self, key_from: K | None = None, key_to: K | None = None) -> Iterator[tuple[K, V]]:
        """Return the keys and values of a range, both ends inclusive, by the bytes of the keys; None is no bound."""
        return self._pairs(self._reading.bounds(key_from, key_to))

    def reverse_range(self, key_from: K | None = None, key_to: K | None = None) -> Iterator[tuple[K, V]]:
        """Return the keys and values of a range, descending. See `range`."""
        return self._pairs({**self._reading.bounds(key_from, key_to), "reverse": True})

    def all(self) -> Iterator[tuple[K, V]]:
        """Return all keys and values, by the bytes of the keys."""
        return self.range()

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Return all keys and values, descending."""
        return self.reverse_range()

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        """Return the keys and values whose keys begin with these bytes."""
        return self._pairs({"low": prefix, "high": _after_prefix(prefix)})

    def approximate_num_entries(self) -> int:
        """Return the number of keys. It reads all of them."""
        return sum(1 for _ in self._reading.rows())

    def _pairs(self, bounds: dict[str, Any]) -> Iterator[tuple[K, V]]:
        reading = self._reading
        decode, split = reading.key, reading.info.split
        found = reading.rows(**bounds)

        def pairs() -> Iterator[tuple[K, V]]:
            for row_key, _, row in found:
                raw_key, _, raw, timestamp = split(row_key, row)
                yield decode(raw_key), reading.value(raw, timestamp)

        return pairs()


class ReadOnlyWindowStore(Generic[K, V]):
    """The partitions of a window store that a worker has, from `Worker.store`. See `ReadOnlyKeyValueStore`.

    Times are window starts in epoch ms, both ends of a range inclusive.
    """

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    @overload
    def fetch(self, key: K, from_ms: int) -> V | None: ...

    @overload
    def fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]: ...

    def fetch(self, key: K, from_ms: int, to_ms: int | None = None) -> V | Iterator[tuple[int, V]] | None:
        """Return the value of the window that starts at `from_ms`, None without one; or, with `to_ms`, the windows of a
        key that start in a range, by their starts: (start, value).
        """
        if to_ms is not None:
            return self._of_key(key, from_ms, to_ms, reverse=False)
        return next((value for _, value in self._of_key(key, from_ms, from_ms, reverse=False)), None)

    def backward_fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]:
        """Return the windows of a key that start in a range, the latest first."""
        return self._of_key(key, from_ms, to_ms, reverse=True)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, from_ms: int, to_ms: int
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of keys in a range, both inclusive, that start in a range; None is no bound."""
        return self._windows(self._reading.bounds(key_from, key_to), from_ms, to_ms)

    def fetch_all(self, from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return the windows of all keys that start in a range."""
        return self._windows({}, from_ms, to_ms)

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Return all windows that have not expired."""
        return self._windows({}, 0, _MAX_LONG)

    def _of_key(self, key: K, from_ms: int, to_ms: int, *, reverse: bool) -> Iterator[tuple[int, V]]:
        bounds = {"low": self._reading.raw_key(key), "exact": True, "reverse": reverse}
        found = self._split(bounds, from_ms, to_ms)
        return ((start, value) for _, (start, _), value in found)

    def _windows(self, bounds: dict[str, Any], from_ms: int, to_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        decode = self._reading.key
        found = self._split(bounds, from_ms, to_ms)
        return ((Windowed(decode(raw_key), *window), value) for raw_key, window, value in found)

    def _split(self, bounds: dict[str, Any], from_ms: int, to_ms: int) -> Iterator[tuple[bytes, tuple[int, int], V]]:
        reading = self._reading
        found = reading.rows(first=from_ms, last=to_ms, **bounds)

        def each() -> Iterator[tuple[bytes, tuple[int, int], V]]:
            for row_key, _, row in found:
                raw_key, window, raw, timestamp = reading.info.split(row_key, row)
                yield raw_key, window or (0, 0), reading.value(raw, timestamp)

        return each()


class ReadOnlySessionStore(Generic[K, V]):
    """The partitions of a session store that a worker has, from `Worker.store`. See `ReadOnlyKeyValueStore`.

    A session is a `Windowed` key with its start and end in epoch ms, both inclusive.
    """

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Return the value of the session with exactly this start and end; None without one."""
        bounds = {"low": self._reading.raw_key(key), "exact": True, "session": (start_ms, end_ms)}
        return next((value for _, value in self._sessions(bounds)), None)

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key, by their ends."""
        return self._sessions({"low": self._reading.raw_key(key), "exact": True})

    def backward_fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key, the latest first."""
        return self._sessions({"low": self._reading.raw_key(key), "exact": True, "reverse": True})

    def fetch_range(self, key_from: K | None, key_to: K | None) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of keys in a range, both inclusive; None is no bound."""
        return self._sessions(self._reading.bounds(key_from, key_to))

    def find_sessions(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key that end at or after a time and start at or before one."""
        bounds = {"low": self._reading.raw_key(key), "exact": True}
        return self._sessions({**bounds, "first": earliest_end_ms, "last": latest_start_ms})

    def _sessions(self, bounds: dict[str, Any]) -> Iterator[tuple[Windowed[K], V]]:
        reading = self._reading
        decode, split = reading.key, reading.info.split
        found = reading.rows(**bounds)

        def sessions() -> Iterator[tuple[Windowed[K], V]]:
            for row_key, _, row in found:
                raw_key, window, raw, timestamp = split(row_key, row)
                start, end = window or (0, 0)
                yield Windowed(decode(raw_key), start, end), reading.value(raw, timestamp)

        return sessions()


class ReadOnlyVersionedStore(Generic[K, V]):
    """The partitions of a versioned store that a worker has, from `Worker.store`. See `ReadOnlyKeyValueStore`."""

    def __init__(self, reading: _Reading) -> None:
        self._reading = reading

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the latest value of a key, or the value at a time (epoch ms) within the history retention."""
        at = _MAX_LONG if as_of is None else as_of
        return next(self._versions({"as_of": at}, key), None)

    def versions(
        self, key: K, from_ms: int | None = None, to_ms: int | None = None, *, descending: bool = False
    ) -> Iterator[VersionedRecord[V]]:
        """Return the values that were valid at any time of a range (epoch ms, inclusive); None is no bound."""
        times = {"first": 0 if from_ms is None else from_ms, "last": _MAX_LONG if to_ms is None else to_ms}
        return self._versions({**times, "reverse": descending}, key)

    def _versions(self, bounds: dict[str, Any], key: K) -> Iterator[VersionedRecord[V]]:
        reading = self._reading
        found = reading.rows(low=reading.raw_key(key), exact=True, **bounds)

        def versions() -> Iterator[VersionedRecord[V]]:
            for row_key, _, row in found:
                _, window, raw, timestamp = reading.info.split(row_key, row)
                valid_to = -1 if window is None else window[1]
                yield VersionedRecord(reading.value(raw, None), timestamp or 0, None if valid_to < 0 else valid_to)

        return versions()


class _StaleReader(LocalReader):
    """A reader that accepts every copy with open stores, also one that is being restored."""

    def _rejection(self, read: Read, info: StoreInfo, partition: int, holding: HeldStores | None) -> QueryFailed | None:
        if read.committed and holding is not None and (info.subtopology is None or info.name in holding.stores):
            return None
        return super()._rejection(read, info, partition, holding)


def open_store(
    worker: str, state: LocalState, catalog: StoreCatalog, name: str, kind: Any, **options: Unpack[StoreOptions]
) -> Any:
    """Return the store `name` to read; see `Worker.store`.

    Raises:
        TopologyError: the kind or the partition cannot be used.
        QueryFailed: there is no such store, it is of another kind, or the worker has no partition of it.
    """
    expected = _KINDS.get(get_origin(kind) or kind)
    if expected is None:
        known = ", ".join(f"mp.{each.__name__}" for each in _KINDS)
        raise TopologyError(f"store() needs the kind of store '{name}' as one of {known}, not {_shown(kind)}.")
    info = catalog[name]
    if (info.kind is not expected[0]) or (expected[1] and not info.timestamped):
        found = next(
            each.__name__
            for each, (of, stamped) in reversed(_KINDS.items())
            if of is info.kind and (info.timestamped or not stamped)
        )
        raise QueryFailed(
            FailureReason.UNKNOWN_QUERY_TYPE, f"store '{name}' is a {found}, and was asked for as {_shown(kind)}."
        )
    partition, stale = options.get("partition"), options.get("stale", False)
    if partition is not None and (type(partition) is not int or not 0 <= partition < info.partitions):
        raise QueryFailed(
            FailureReason.DOES_NOT_EXIST,
            f"store '{name}' has no partition {partition!r}; its partitions are 0 to {info.partitions - 1}.",
        )
    make: Callable[..., LocalReader] = _StaleReader if stale else LocalReader
    reading = _Reading(make(worker, state, catalog, None), info, partition, options.get("committed", True), expected[1])
    reading.partitions()
    return _VIEWS[info.kind](reading)


_VIEWS: dict[QueryableKind, Any] = {
    QueryableKind.KEY_VALUE: ReadOnlyKeyValueStore,
    QueryableKind.WINDOW: ReadOnlyWindowStore,
    QueryableKind.SESSION: ReadOnlySessionStore,
    QueryableKind.VERSIONED: ReadOnlyVersionedStore,
}


def _shown(kind: Any) -> str:
    return getattr(get_origin(kind) or kind, "__name__", kind_of(kind))


def _after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest bytes above all that begin with a prefix; None if there are none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
