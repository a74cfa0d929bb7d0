"""The catalog of queryable stores of an application, the same on every worker."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import murmur2

from millpond.serdes import Serde
from millpond.state.formats import (
    SEGMENT_LENGTH,
    TIMESTAMP_LENGTH,
    session_key,
    split_session_key,
    split_window_key,
    unpack_timestamp,
    window_key,
)

from .failures import FailureReason, QueryFailed

__all__ = ("OnDisk", "QueryableKind", "StoreCatalog", "StoreInfo")

_MAX_LONG = 2**63 - 1


class QueryableKind(enum.StrEnum):
    """The kind of a store, which decides which queries the store supports."""

    KEY_VALUE = "key_value"
    WINDOW = "window"
    SESSION = "session"
    VERSIONED = "versioned"


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """A queryable store of the application."""

    name: str
    kind: QueryableKind
    partitions: int
    """Number of partitions; 1 for a global store."""
    key: Serde[Any]
    value: Serde[Any]
    timestamped: bool = True
    """Whether a row's value begins with a timestamp."""
    persistent: bool = True
    """Whether committed rows are in the state file; False: in memory."""
    subtopology: int | None = None
    """The sub-topology whose tasks have the store; None for a global store, which is complete on every worker."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """Partition count of each topic that its tasks read, by real name. A position may name only these topics."""
    window_size_ms: int = 0
    retention_ms: int = 0
    """How long windows and sessions are kept; for versioned stores the history retention."""
    segment_ms: int = 1
    """Length of a segment, in milliseconds of window starts, session ends or ends of versions."""

    @property
    def asks_registry(self) -> bool:
        """Whether its serdes may send requests to a schema registry."""
        return self.key.specialize is not None or self.value.specialize is not None

    def partition_of(self, raw_key: bytes) -> int:
        """Return the partition of a key by the producer's murmur2: of its bytes, or of the inner key if windowed."""
        if self.subtopology is None:
            return 0
        partition_by = self.key.partition_by
        return murmur2(raw_key if partition_by is None else partition_by(raw_key), self.partitions)

    def row_key(self, raw_key: bytes, start: int = 0, end: int = 0) -> bytes:
        """Return the key of a row without its partition.

        Args:
            raw_key: the serialised key.
            start: the start of the window or session, or the timestamp of the version, in ms.
            end: the end of the session, in ms.
        """
        match self.kind:
            case QueryableKind.KEY_VALUE:
                return raw_key
            case QueryableKind.VERSIONED:
                return raw_key + start.to_bytes(TIMESTAMP_LENGTH, "big")
            case QueryableKind.WINDOW:
                return self._segment(start) + window_key(raw_key, start)
            case QueryableKind.SESSION:
                return self._segment(end) + session_key(raw_key, start, end)

    def _segment(self, time: int) -> bytes:
        return (time // self.segment_ms).to_bytes(SEGMENT_LENGTH, "big", signed=True)

    def split(self, row_key: bytes, row: bytes) -> tuple[bytes, tuple[int, int] | None, bytes, int | None]:
        """Split a row into raw key, window or session (start and end, ms), raw value, and timestamp (ms).

        For a version, the second part is its timestamp and the time at which the next one begins; -1 for the latest.
        """
        timestamp: int | None = None
        if self.timestamped:
            (timestamp,) = unpack_timestamp(row)
            row = row[TIMESTAMP_LENGTH:]
        if self.kind is QueryableKind.KEY_VALUE:
            return row_key, None, row, timestamp
        if self.kind is QueryableKind.VERSIONED:
            time = int.from_bytes(row_key[-TIMESTAMP_LENGTH:], "big")
            (valid_to,) = unpack_timestamp(row)
            return row_key[:-TIMESTAMP_LENGTH], (time, valid_to), row[TIMESTAMP_LENGTH:], time
        if self.kind is QueryableKind.SESSION:
            raw_key, end, start = split_session_key(row_key, SEGMENT_LENGTH)
            return raw_key, (start, end), row, timestamp
        raw_key, start, _ = split_window_key(row_key, SEGMENT_LENGTH)
        return raw_key, (start, min(start + self.window_size_ms, _MAX_LONG)), row, timestamp


class OnDisk(NamedTuple):
    """A store in the state file that has a changelog, queryable or not."""

    name: str
    subtopology: int
    """The sub-topology whose tasks have the store."""
    partitions: int


class StoreCatalog(Mapping[str, StoreInfo]):
    """The queryable stores, by name.

    Attributes:
        on_disk: the stores whose raw rows can be read.
        others: the stores that do not answer queries; the reason of each, a clause whose subject is the store.
    """

    def __init__(
        self,
        application: str,
        stores: Iterable[StoreInfo],
        on_disk: Iterable[OnDisk] = (),
        others: Mapping[str, str] | None = None,
    ) -> None:
        self.application = application
        self.others: Mapping[str, str] = others or {}
        self.on_disk: tuple[OnDisk, ...] = tuple(on_disk)
        self._stores = {each.name: each for each in stores}

    def __getitem__(self, name: str) -> StoreInfo:
        """Return the store with a name.

        Raises:
            QueryFailed: no store has that name, or the store does not answer queries.
        """
        found = self._stores.get(name)
        if found is None and name in self.others:
            raise QueryFailed(FailureReason.UNKNOWN_QUERY_TYPE, f"store '{name}' {self.others[name]}.")
        if found is None:
            known = ", ".join(f"'{each}'" for each in sorted(self._stores)) or "none that can be queried"
            raise QueryFailed(
                FailureReason.DOES_NOT_EXIST,
                f"application '{self.application}' has no store '{name}' to query; it has {known}.",
            )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._stores

    def __iter__(self) -> Any:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)
