"""A driver whose stores remember nothing that is committed, so that each read of it goes to RocksDB.

The driver commits after each record. Without it, a case would read nearly all rows from its stores' memory.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from millpond.state import MemoryBackend
from millpond.state.backend import Row, Rows, Written
from millpond.state.formats import PARTITION_LENGTH, partition_prefix
from millpond.state.provenance import Provenance
from millpond.state.rocksdb.state_file import StateFile
from millpond.state.stores.outer_join import OuterJoinStore
from millpond.testing import TopologyTestDriver

__all__ = ("PressedDriver",)

_MEMORY = Path("/dev/shm")
_NO_ROOM = -(2**50)
"""A limit below zero, since stores evict by an estimate of their size."""
_NEVER = 2**63 - 1


class PressedDriver(TopologyTestDriver):
    """A `TopologyTestDriver` whose stores evict all entries at each commit, and are in RocksDB."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for store in self._stores():
            store.cache_limit = _NO_ROOM
            if isinstance(store, OuterJoinStore):
                _send_as_with_memory(store)

    def backend_reads(self) -> int:
        """Return how many single reads of all stores went to the backend."""
        return sum(store.backend_reads for store in self._stores())

    def _stores(self) -> list[Any]:
        return [*self._task.stores.values(), *(each.store for each in self._globals.values())]

    def _open_backend(self) -> Any:
        return _state_file().backend_of_a_case()


def _send_as_with_memory(store: OuterJoinStore[Any]) -> None:
    """Let a join look for due records when it would with all waiting records in memory; see rules.SENT_SOONER."""
    next_min_time = store._next_min_time

    def with_all_rows(last_closed: bytes | None, read_below: int) -> int:
        store._read_below(_NEVER)
        return next_min_time(last_closed, read_below)

    store._next_min_time = with_all_rows  # type: ignore[method-assign]


class _Shared:
    """A state file for all cases of a process, since opening one takes longer than a case.

    Each case has a partition of its own, and uses the column families from the first one on.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(
            prefix="millpond-differential-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None
        )
        self._file = StateFile(self._directory.name)
        self._cases = 0

    def backend_of_a_case(self) -> _CaseBackend:
        self._cases += 1
        return _CaseBackend(self._file, self._cases)


_state_file = functools.cache(_Shared)


class _CaseBackend:
    """The backend of one case. Stores that keep an order are in memory, as in a worker, and all others in RocksDB."""

    last_used_ms: int | None = None

    def __init__(self, file: StateFile, partition: int) -> None:
        self._file = file
        self._partition = partition
        self._prefix = partition_prefix(partition)
        self._bounds = {partition_prefix(each): partition_prefix(partition + each) for each in (0, 1)}
        self._memory = MemoryBackend()
        self._ordered: set[str] = set()
        self._families: dict[str, str] = {}
        self._written: dict[tuple[str, int], Written] = {}
        self._provenances: dict[tuple[str, int], Provenance] = {}

    def _family(self, store: str) -> str:
        return self._families.setdefault(store, f"store-{len(self._families)}")

    def _moved(self, key: bytes) -> bytes:
        return self._bounds[key[:PARTITION_LENGTH]] + key[PARTITION_LENGTH:]

    def keep_order(self, store: str) -> Callable[[int], list[bytes]]:
        self._ordered.add(store)
        return self._memory.keep_order(store)

    def reader(self, store: str) -> Callable[[bytes], bytes | None]:
        if store in self._ordered:
            return self._memory.reader(store)
        read = self._file.reader(self._family(store))
        return lambda key: read(self._moved(key))

    def range(self, store: str, low: bytes, high: bytes | None, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if store in self._ordered:
            return self._memory.range(store, low, high, reverse)
        end = partition_prefix(self._partition + 1) if high is None else self._moved(high)
        found = self._file.range(self._family(store), self._moved(low), end, reverse)
        first = partition_prefix(0)
        return ((first + key[PARTITION_LENGTH:], value) for key, value in found)

    def write(
        self,
        groups: Iterable[tuple[str, int, list[Row]]],
        offsets: Mapping[tuple[str, int], Written] | None = None,
        provenances: Mapping[tuple[str, int], Provenance] | None = None,
    ) -> None:
        for store, partition, rows in groups:
            if store in self._ordered:
                self._memory.write([(store, partition, rows)])
                continue
            ranges = [(self._moved(low), self._moved(high)) for low, high in getattr(rows, "ranges", ())]
            moved = Rows([(self._moved(key), value) for key, value in rows], ranges)
            self._file.write([(self._family(store), self._partition, moved)])
        self._written.update(offsets or {})
        self._provenances.update(provenances or {})

    def offset(self, store: str, partition: int) -> int | None:
        return self._written.get((store, partition), (None, b""))[0]

    def metadata(self, store: str, partition: int) -> bytes:
        return self._written.get((store, partition), (None, b""))[1]

    def provenance(self, store: str, partition: int) -> Provenance | None:
        return self._provenances.get((store, partition))

    def close(self) -> None:
        """Keep the file for the next case, whose rows are in another partition."""
