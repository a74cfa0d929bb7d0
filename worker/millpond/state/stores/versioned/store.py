"""The versioned key-value store (KIP-889): each key has a history of values, by timestamp.

Versions of keys that are put no more are deleted by a sweep, which looks at a part of the rows with each flush.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from millpond.serdes import Serde
from millpond.state.backend import Backend, Rows
from millpond.state.formats import PARTITION_LENGTH, partition_prefix
from millpond.state.stores.encoding import Produced
from millpond.state.stores.staged_store import ChangelogRecord, StagedStore
from millpond.state.values import no_key

from .history import (
    DELETED,
    VERSION_LENGTH,
    Version,
    history_of,
    in_expired_segment,
    pack_version,
    put_version,
    row_of,
    select_versions,
    take_expired,
    valid_to,
    version_as_of,
)

__all__ = (
    "IS_LATEST",
    "NOT_PUT",
    "VersionedKeyValueStore",
    "VersionedRecord",
)

K = TypeVar("K")
V = TypeVar("V")

IS_LATEST = -1
"""The result of a put whose version is the latest of its key."""

NOT_PUT = -(2**63)
"""The result of a put that is rejected because its timestamp is older than the history retention."""

_PART = 500
"""Rows that a sweep looks at with each flush."""


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[V]):
    """A value of a versioned store, and the time in which it is valid, in epoch milliseconds."""

    value: V
    timestamp: int
    """The time from which the value is valid."""

    valid_to: int | None = None
    """The time at which the next version begins; None for the latest value, and for reads that do not return it."""


class VersionedKeyValueStore(StagedStore[K, V]):
    """A store of the values that a key had at each time of the history retention (KIP-889).

    Writes are visible to the task at once, and durable with the task's next commit.
    """

    backend_reads: int

    expired_puts: int
    """The number of puts rejected because they were older than the history retention, since the store was built."""

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: Backend,
        key: Serde[K],
        value: Serde[V],
        *,
        history_retention_ms: int,
        segment_interval_ms: int,
        changelog_topic: str | None = None,
    ) -> None:
        super().__init__(name, partition, backend, key, value, caching=False, changelog_topic=changelog_topic)
        self.history_retention_ms = history_retention_ms
        self.expired_puts = 0
        self._interval = segment_interval_ms
        # The versions of each key that was read or put, ascending by timestamp.
        self._histories: dict[bytes, list[Version]] = {}
        self._changes: list[tuple[bytes, bytes | None, int]] = []  # for the changelog, in the order of the puts
        self._dirty: dict[bytes, bytes | None] = {}  # rows, by full key
        self._observed: int = -1
        # The first live segment when the last sweep began, and the full key at which it goes on; None after its end.
        self._swept: int = 0
        self._sweep_from: bytes | None = None
        self._load_metadata()

    @property
    def observed_stream_time(self) -> int:
        """The largest timestamp put so far, in epoch ms; -1 before the first put."""
        return self._observed

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Set the value of a key from a time on, until the next version; None deletes it.

        Args:
            key: the key.
            value: the value.
            timestamp: the time from which the value is valid, in epoch ms. A version of the same time is replaced.

        Returns:
            the time until which the value is valid, in epoch ms; `IS_LATEST` (-1) for the latest version; `NOT_PUT`
            (-2**63) if the timestamp is older than the history retention, and so nothing was put.

        Raises:
            SerializationError: the key is None, or the value cannot be encoded.
        """
        self._check_open()
        if key is None:
            raise no_key(self.name, "put")
        return self.put_raw(self.serialize_key(key), None if value is None else self._encoded(key, value), timestamp)

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete the value of a key from a time on, in epoch ms; return the value of that time, None without one.

        Raises:
            SerializationError: the key is None.
        """
        self._check_open()
        if key is None:
            raise no_key(self.name, "delete")
        raw_key = self.serialize_key(key)
        before = None
        if timestamp >= self._observed - self.history_retention_ms:
            before = self._valid_at(raw_key, timestamp)
        self.put_raw(raw_key, None, timestamp)
        return None if before is None else VersionedRecord(before.value, before.timestamp)

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the latest value of a key, or the value at a time; None without one.

        Args:
            key: the key.
            as_of: the time, in epoch ms. Beyond the history retention only the latest value is found.

        Raises:
            SerializationError: the key is None.
        """
        if key is None:
            raise no_key(self.name, "get")
        raw_key = self.serialize_key(key)
        found = self._latest(raw_key) if as_of is None else self._valid_at(raw_key, as_of)
        return None if found is None else VersionedRecord(found.value, found.timestamp)

    def versions(
        self, key: K, from_ms: int | None = None, to_ms: int | None = None, *, descending: bool = False
    ) -> Iterator[VersionedRecord[V]]:
        """Return the values that were valid at any time of a range (inclusive), with the times of their validity.

        Args:
            key: the key.
            from_ms: the start of the range in epoch ms; None is no bound.
            to_ms: the end of the range in epoch ms; None is no bound.
            descending: whether the latest version comes first.

        Raises:
            SerializationError: the key is None.
        """
        if key is None:
            raise no_key(self.name, "versions")
        history = self._history(self.serialize_key(key))
        selected = select_versions(history, from_ms, to_ms, self._observed, self.history_retention_ms, self._interval)
        decode = self.value_serde.deserialize
        found = [VersionedRecord(decode(data), timestamp, valid_to) for timestamp, valid_to, data in selected]
        return iter(found[::-1] if descending else found)

    # For operators

    def entry(self, raw_key: bytes) -> tuple[V | None, int]:
        """Return the latest value and its timestamp (ms) of a serialised key; (None, -1) when absent."""
        found = self._latest(raw_key)
        return (None, -1) if found is None else (found.value, found.timestamp)

    def stored(self, raw_key: bytes) -> bytes | None:
        """Return the latest encoded value of a serialised key, whichever type wrote it, or None."""
        history = self._history(raw_key)
        return history[-1][1] if history else None

    def entry_as_of(self, raw_key: bytes, as_of: int) -> tuple[V | None, int]:
        """Return the value and its timestamp (ms) of a serialised key at a time (ms); (None, -1) when absent."""
        found = self._valid_at(raw_key, as_of)
        return (None, -1) if found is None else (found.value, found.timestamp)

    def stage(self, raw_key: bytes, key: K, value: V | None, timestamp: int, _old: V | None) -> int:
        """Put a value, None for a deletion; see `put`. It has the arguments of the other stores' `stage`."""
        self._check_open()
        return self.put_raw(raw_key, None if value is None else self._encoded(key, value), timestamp)

    def put_raw(self, raw_key: bytes, data: bytes | None, timestamp: int) -> int:
        """Put an encoded value; see `put`."""
        # Rejected puts are logged, too: the changelog has the bytes of Kafka Streams, whose restore rejects them again.
        self._changes.append((raw_key, data, timestamp))
        return self._apply(raw_key, data, timestamp, self._dirty)

    # The history of a key

    def _apply(self, raw_key: bytes, data: bytes | None, timestamp: int, rows: dict[bytes, bytes | None]) -> int:
        """Put a version into memory and its row into `rows`, with the deletions of versions that expired."""
        if timestamp < self._observed - self.history_retention_ms:
            self.expired_puts += 1
            return NOT_PUT
        self._observed = max(self._observed, timestamp)
        history = self._history(raw_key)
        prefix = self._prefix + raw_key
        if not put_version(history, timestamp, data):
            rows[prefix + pack_version(timestamp)] = None
            return IS_LATEST
        rows[prefix + pack_version(timestamp)] = row_of((timestamp, data))
        until = valid_to(history, timestamp)
        for expired in self._take_expired(history):
            rows[prefix + pack_version(expired)] = None
        return IS_LATEST if until is None else until

    def _take_expired(self, history: list[Version]) -> list[int]:
        return take_expired(history, self._observed, self.history_retention_ms, self._interval)

    def _expired(self, ended: int) -> bool:
        return in_expired_segment(ended, self._observed, self.history_retention_ms, self._interval)

    def _sweep(self) -> list[bytes]:
        """Return the full keys of expired rows in the next part of the store; a sweep begins with each segment."""
        if self._sweep_from is None:
            live = max(0, self._observed - self.history_retention_ms) // self._interval
            if live <= self._swept:
                return []
            self._swept, self._sweep_from = live, self._prefix
        rows = self._backend.range(self.name, self._sweep_from, partition_prefix(self.partition + 1))
        part = list(islice(rows, _PART))
        self._sweep_from = part[-1][0] + b"\0" if len(part) == _PART else None
        seen: set[bytes] = set()
        ended: dict[bytes, None] = {}  # keys with a version that has ended in an expired segment
        for full_key, row in part:
            raw_key = full_key[PARTITION_LENGTH:-VERSION_LENGTH]
            if (row == DELETED or raw_key in seen) and self._expired(int.from_bytes(full_key[-VERSION_LENGTH:], "big")):
                ended[raw_key] = None
            seen.add(raw_key)
        expired: list[bytes] = []
        for raw_key in ended:
            # A key with uncommitted versions is in memory, and the backend's versions are not the whole of it.
            history = self._histories.get(raw_key)
            if history is None:
                history = history_of(self._backend, self.name, self.partition, raw_key, self._observed)
            expired += [self._prefix + raw_key + pack_version(timestamp) for timestamp in self._take_expired(history)]
        return expired

    def _latest(self, raw_key: bytes) -> VersionedRecord[V] | None:
        history = self._history(raw_key)
        timestamp, data = history[-1] if history else (-1, None)
        return None if data is None else VersionedRecord(self.value_serde.deserialize(data), timestamp)

    def _valid_at(self, raw_key: bytes, as_of: int) -> VersionedRecord[V] | None:
        history = self._history(raw_key)
        at = version_as_of(history, as_of, self._observed - self.history_retention_ms)
        if at is None:
            return None
        timestamp, data = history[at]
        return None if data is None else VersionedRecord(self.value_serde.deserialize(data), timestamp)

    def _history(self, raw_key: bytes) -> list[Version]:
        self._check_open()
        history = self._histories.get(raw_key)
        if history is None:
            self.backend_reads += 1
            history = self._histories[raw_key] = history_of(
                self._backend, self.name, self.partition, raw_key, self._observed
            )
        return history

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn staged writes into rows and changelog records (appended to `out`)."""
        if self._changes:
            topic, partition = self.changelog_topic, self.partition
            if topic is not None:
                out += [(topic, data, key, partition, None, None, timestamp) for key, data, timestamp in self._changes]
            self._changes.clear()
        if self._dirty:
            self._entry_size.sample(islice(self._histories.items(), 16))
            rows = Rows(self._dirty.items())
            self._dirty.clear()
            self._row_size.sample(rows[:16])
            rows += [(full_key, None) for full_key in self._sweep()]
            self._flushed += rows
        # Later puts, which may advance stream time, belong to the next commit.
        self._flushed_metadata = self._encode_metadata()

    def seal(self) -> Rows:
        """Return the rows flushed since the last seal, for the backend; see `StagedStore`."""
        self._sealed_metadata = self._flushed_metadata
        return super().seal()

    def metadata(self) -> bytes:
        """Return the stream time as of the last `seal` or `restore`, encoded."""
        return self._sealed_metadata

    def _encode_metadata(self) -> bytes:
        return msgspec.msgpack.encode({"observed_stream_time": self._observed})

    def _load_metadata(self) -> None:
        written = self._backend.metadata(self.name, self.partition)
        metadata = msgspec.msgpack.decode(written, type=dict[str, int]) if written else {}
        self._observed = metadata.get("observed_stream_time", -1)
        self._swept, self._sweep_from = 0, None
        self._flushed_metadata = self._sealed_metadata = self._encode_metadata()

    def revert(self) -> None:
        """Discard staged, flushed and sealed writes, and so go back to the backend's rows and stream time."""
        self._discard()
        self._flushed = Rows()
        self._sealed = Rows()
        self._load_metadata()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys.

        Records are put in their order, so records of puts that were rejected are rejected again.
        """
        self._discard()
        rows: dict[bytes, bytes | None] = {}
        for key, value, timestamp, _ in records:
            if key is not None:
                self._apply(key, value, timestamp, rows)
        rows.update(dict.fromkeys(self._sweep()))
        self._discard()
        self._flushed_metadata = self._sealed_metadata = self._encode_metadata()
        return Rows(rows.items())

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._discard()

    def _discard(self) -> None:
        self._histories.clear()
        self._dirty.clear()
        self._changes.clear()

    def _evict(self, count: int) -> None:
        uncommitted = {row[PARTITION_LENGTH:-VERSION_LENGTH] for row in (*self._uncommitted_rows(), *self._dirty)}
        for key in list(islice((key for key in self._histories if key not in uncommitted), count)):
            del self._histories[key]

    def _dirty_count(self) -> int:
        return len(self._dirty)

    def _entry_count(self) -> int:
        return len(self._histories)

    def _some_entries(self) -> Iterable[object]:
        return self._histories.items()
