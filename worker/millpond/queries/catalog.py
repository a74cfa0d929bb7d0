"""What can be asked of which store: the stores of an application, as every worker of it knows them."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import murmur2

from millpond.serdes import Serde
from millpond.state.formats import SEGMENT_LENGTH, TIMESTAMP_LENGTH, split_window_key, unpack_timestamp, window_key

from .failures import FailureReason, QueryFailed

__all__ = ("OnDisk", "QueryableKind", "StoreCatalog", "StoreInfo")

_MAX_LONG = 2**63 - 1


class QueryableKind(enum.StrEnum):
    """Which queries a store answers."""

    KEY_VALUE = "key_value"
    WINDOW = "window"


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """One store of the application."""

    name: str
    kind: QueryableKind
    partitions: int
    """How many the store has; 1 for a global store."""
    key: Serde[Any]
    value: Serde[Any]
    timestamped: bool = True
    """Whether rows begin with a timestamp."""
    persistent: bool = True
    """Whether committed rows are in the state file; else they are in memory."""
    subtopology: int | None = None
    """The sub-topology whose tasks have the store; None for a global store, which every worker has whole."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """The topics its tasks read, by real name, with their partition counts: what a position can speak of."""
    window_size_ms: int = 0
    retention_ms: int = 0
    segment_ms: int = 1
    """How many window starts (ms) share a segment."""

    def partition_of(self, raw_key: bytes) -> int:
        """Where the producer puts a key: murmur2 of its bytes, of the inner key's for windowed keys."""
        if self.subtopology is None:
            return 0
        by = self.key.partition_by
        return murmur2(raw_key if by is None else by(raw_key), self.partitions)

    def row_key(self, raw_key: bytes, start: int = 0) -> bytes:
        """The key of a row without the partition; `start` is the window's, in ms."""
        if self.kind is QueryableKind.KEY_VALUE:
            return raw_key
        return (start // self.segment_ms).to_bytes(SEGMENT_LENGTH, "big", signed=True) + window_key(raw_key, start)

    def split(self, row_key: bytes, row: bytes) -> tuple[bytes, tuple[int, int] | None, bytes, int | None]:
        """A row as raw key, window (start and end in ms, None where there are none), raw value, timestamp (ms)."""
        timestamp: int | None = None
        if self.timestamped:
            (timestamp,) = unpack_timestamp(row)
            row = row[TIMESTAMP_LENGTH:]
        if self.kind is QueryableKind.KEY_VALUE:
            return row_key, None, row, timestamp
        raw_key, start, _ = split_window_key(row_key, SEGMENT_LENGTH)
        return raw_key, (start, min(start + self.window_size_ms, _MAX_LONG)), row, timestamp


class OnDisk(NamedTuple):
    """A store in the state file that follows a changelog, whether it can be queried or not."""

    name: str
    subtopology: int
    """The sub-topology whose tasks have it."""
    partitions: int


class StoreCatalog(Mapping[str, StoreInfo]):
    """The stores that can be queried, by name.

    Attributes:
        on_disk: the stores whose raw rows can be read.
    """

    def __init__(self, application: str, stores: Iterable[StoreInfo], on_disk: Iterable[OnDisk] = ()) -> None:
        self.application = application
        self.on_disk = tuple(on_disk)
        self._stores = {each.name: each for each in stores}

    def __getitem__(self, name: str) -> StoreInfo:
        """The store of that name.

        Raises:
            QueryFailed: there is none.
        """
        found = self._stores.get(name)
        if found is None:
            known = ", ".join(f"'{each}'" for each in sorted(self._stores)) or "none that can be queried"
            raise QueryFailed(
                FailureReason.DOES_NOT_EXIST,
                f"'{self.application}' has no store '{name}' to query; it has {known}.",
            )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._stores

    def __iter__(self) -> Any:
        return iter(self._stores)

    def __len__(self) -> int:
        return len(self._stores)
