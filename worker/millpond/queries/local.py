"""Answers from what this worker holds: who may be read, for how long one look at the store lasts, and in which thread.

Committed rows of persistent stores are read beside the worker's loop, in pieces, each within `StateFile.shared()`.
Committed rows of in-memory stores, and everything uncommitted, is read by the loop itself, between two of its turns.
Whether the partition may be read is looked at before and after each piece, so rows of a task that left meanwhile are
never given out, even if the task is back: its rows were dropped in between.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from millpond.backoff import Backoff
from millpond.protocol import Role, TaskState
from millpond.topology import TaskId

from .catalog import StoreCatalog, StoreInfo
from .failures import FailureReason, QueryFailed
from .messages import Head, Read, Row, RowsEnd
from .rows import committed_rows, resume_after, staged_rows

__all__ = ("HeldStores", "LocalReader", "LocalScan", "LocalState")

T = TypeVar("T")

#: A piece is so many rows, or so many bytes of them: some milliseconds of work, and of the loop's patience.
PIECE_ROWS = 1_000
PIECE_BYTES = 256 * 1024
#: One look at the store keeps RocksDB from dropping what was overwritten since: after so long another one is taken.
LONGEST_LOOK_S = 30.0
_BACKOFF = Backoff(timedelta(milliseconds=2), timedelta(milliseconds=20))
_NOT_A_SNAPSHOT = RowsEnd(snapshot=False)
_READABLE = (TaskState.RUNNING, TaskState.RELEASING)


class HeldStores(Protocol):
    """A task that the worker holds, as of a moment."""

    @property
    def role(self) -> Role: ...
    @property
    def state(self) -> TaskState: ...
    @property
    def stores(self) -> Mapping[str, Any]: ...
    @property
    def positions(self) -> Mapping[str, int]:
        """Next offsets by `topic-partition`: everything below is in the committed rows."""

    @property
    def caught_up_at(self) -> float | None: ...
    @property
    def lag(self) -> int | None: ...


class LocalState(Protocol):
    """What the worker shows to other threads.

    All of it may be asked for from any thread. A task is not held any more, or not readable, before its rows are dropped
    or rebuilt.
    """

    def holding(self, task: TaskId) -> HeldStores | None:
        """A task; None when the worker does not hold it."""

    def globals_ready(self) -> bool:
        """Whether the global stores have all that was in their topics when the worker started."""

    def call(self, function: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Run a function in the worker's loop, between two turns."""

    def backend_of_store(self, store: str) -> Any:
        """Where the store's committed rows are."""


class Readable(NamedTuple):
    """Partitions that may be read at this moment."""

    head: Head
    """What can be said of rows that are read from here on."""
    instances: tuple[Any, ...]
    """The store's instance in each partition: another one when the task left and came back."""


class LocalReader:
    """Reads the stores of this worker."""

    def __init__(
        self, worker: str, state: LocalState, catalog: StoreCatalog, executor: concurrent.futures.Executor
    ) -> None:
        """Args:
        worker: its name, for messages.
        state: what it shows.
        catalog: the stores of the application.
        executor: where pieces of persistent stores are read.
        """
        self.worker = worker
        self.state = state
        self.catalog = catalog
        self.executor = executor

    def readable(self, read: Read, partition: int) -> bool:
        """Whether a partition can be read here, now or as soon as the position is reached."""
        failed = self.refusal(read, partition)
        return failed is None or _waits(failed, read)

    def refusal(self, read: Read, partition: int) -> QueryFailed | None:
        """Why a partition cannot be read here now, None when it can."""
        info = self.catalog[read.store]
        return self._refusal(read, info, partition, self._held(info, partition))

    def check(self, read: Read) -> Readable:
        """Make sure that all partitions of the request may be read.

        Raises:
            QueryFailed: one may not.
        """
        info = self.catalog[read.store]
        position: dict[str, int] = {}
        instances: list[Any] = []
        oldest: float | None = None
        now = time.monotonic()
        for partition in read.partitions:
            held = self._held(info, partition)
            failed = self._refusal(read, info, partition, held)
            if failed is not None:
                raise failed
            assert held is not None
            position.update(held.positions)
            instances.append(held.stores.get(info.name))
            if not _is_active(held) and held.caught_up_at is not None:
                oldest = min(held.caught_up_at, now if oldest is None else oldest)
        head = Head(position=position, staleness_ms=None if oldest is None else int((now - oldest) * 1000))
        return Readable(head, tuple(instances))

    async def wait(self, read: Read) -> None:
        """Wait until the active tasks are up to the position asked for.

        Raises:
            QueryFailed: they are not in time, or something may not be read here.
        """
        deadline = time.monotonic() + read.timeout_ms / 1000
        waits = iter(_BACKOFF)
        while True:
            try:
                self.check(read)
            except QueryFailed as failed:
                if not _waits(failed, read) or time.monotonic() >= deadline:
                    raise
            else:
                return
            await asyncio.sleep(next(waits))

    def _held(self, info: StoreInfo, partition: int) -> HeldStores | None:
        if info.subtopology is not None:
            return self.state.holding(TaskId(info.subtopology, partition))
        # A global store is on every worker what an active task's store is on one.
        offset = self.state.backend_of_store(info.name).offset
        found = {
            f"{topic}-{each}": offset(info.name, each) for topic, count in info.inputs.items() for each in range(count)
        }
        state = TaskState.RUNNING if self.state.globals_ready() else TaskState.RESTORING
        return _Everywhere(state, {name: each for name, each in found.items() if each is not None})

    def _refusal(self, read: Read, info: StoreInfo, partition: int, holding: HeldStores | None) -> QueryFailed | None:
        where = (
            f"partition {partition} of store '{read.store}'"
            if info.subtopology is not None
            else f"store '{read.store}'"
        )

        def refused(reason: FailureReason, why: str) -> QueryFailed:
            return QueryFailed(reason, f"worker '{self.worker}' {why}.", (partition,))

        if holding is None:
            return refused(FailureReason.NOT_PRESENT, f"does not have {where}")
        if _is_active(holding):
            behind = _behind(read, info, partition, holding.positions)
            return refused(FailureReason.NOT_UP_TO_BOUND, f"has {where} up to {behind}") if behind else None
        held = f"has {where} as {holding.role.value.replace('_', '-')} ({holding.state.value})"
        if read.bound:
            return refused(FailureReason.NOT_ACTIVE, f"{held}, and only the active task can prove a position")
        if not read.committed:
            return refused(FailureReason.NOT_ACTIVE, f"{held}, and only the active task has what is not committed")
        if not read.stale:
            return refused(FailureReason.NOT_ACTIVE, f"{held}, and the query does not allow for stale answers")
        if read.max_staleness_ms is not None:
            at = holding.caught_up_at
            if at is None:
                return refused(FailureReason.NOT_UP_TO_BOUND, f"{held}, which was never up to date yet")
            age = int((time.monotonic() - at) * 1000)
            if age > read.max_staleness_ms:
                return refused(FailureReason.NOT_UP_TO_BOUND, f"{held}, which was last up to date {age} ms ago")
        if read.max_lag is not None and (holding.lag is None or holding.lag > read.max_lag):
            lag = "an unknown number of" if holding.lag is None else holding.lag
            return refused(FailureReason.NOT_UP_TO_BOUND, f"{held}, which is {lag} records behind")
        return None


@dataclass(frozen=True)
class _Everywhere:
    """What a worker holds of a global store."""

    state: TaskState
    positions: Mapping[str, int]
    role: Role = Role.ACTIVE
    stores: Mapping[str, Any] = field(default_factory=dict)
    caught_up_at: float | None = None
    lag: int | None = None


def _is_active(holding: HeldStores) -> bool:
    return holding.role is Role.ACTIVE and holding.state in _READABLE


def _waits(failed: QueryFailed, read: Read) -> bool:
    """Whether time helps here: the active task has not reached the position yet."""
    return bool(read.bound) and failed.reason is FailureReason.NOT_UP_TO_BOUND


def _behind(read: Read, info: StoreInfo, partition: int, positions: Mapping[str, int]) -> str:
    """What the partition lacks of the bound, in words; empty when nothing."""
    lacking = []
    for name, wanted in read.bound.items():
        topic, _, number = name.rpartition("-")
        # What other partitions have read is nothing to this one. A global store is read from all of them.
        concerned = topic in info.inputs and (info.subtopology is None or number == str(partition))
        if concerned and positions.get(name, -1) < wanted:
            lacking.append(f"offset {positions.get(name, 'none')} of {name}, but {wanted} is asked for")
    return "; ".join(lacking)


class LocalScan:
    """One request's rows, piece by piece.

    Attributes:
        head: what can be said of the rows, once there was a piece.
        done: whether the last piece was the last one.
        end: what can be said of the rows given so far.
    """

    def __init__(self, reader: LocalReader, read: Read) -> None:
        self.head: Head | None = None
        self.done = False
        self.end = RowsEnd()
        self._reader = reader
        self._read = read
        self._info = reader.catalog[read.store]
        self._backend = reader.state.backend_of_store(read.store)
        self._resume = read.resume
        self._left = read.limit
        self._rows: Iterator[Row] | None = None
        self._instances: tuple[Any, ...] = ()
        self._generation = -1
        self._opened = 0.0

    async def piece(self) -> list[Row]:
        """The next rows; none when `done`.

        Raises:
            QueryFailed: the partitions may not be read any more, or cannot be.
        """
        if self.head is None and self._read.bound:
            await self._reader.wait(self._read)
        try:
            rows = await self._fetched()
        except QueryFailed:
            raise
        except Exception as error:
            # A store that is closed, or dropped, under a reader fails in many ways: what matters is that it left.
            self._check()
            text = str(error) or type(error).__name__
            raise QueryFailed(
                FailureReason.STORE_EXCEPTION,
                f"reading store '{self._info.name}' failed: {text}",
                self._read.partitions,
            ) from error
        if rows:
            self._resume = resume_after(self._read.partitions, rows[-1], self._read.reverse)
        if self._left is not None:
            self._left -= len(rows)
            self.done = self.done or self._left <= 0
        return rows

    async def _fetched(self) -> list[Row]:
        loop = asyncio.get_running_loop()
        if not self._read.committed:
            return await self._in_worker(self._staged)
        if not self._info.persistent:
            return await self._in_worker(self._from_memory)
        if self._read.exact:
            # A few rows: the way to another thread and back would take longer.
            return self._from_file()
        return await loop.run_in_executor(self._reader.executor, self._from_file)

    async def _in_worker(self, function: Callable[[], list[Row]]) -> list[Row]:
        worker, partitions = self._reader.worker, self._read.partitions
        called = self._reader.state.call(function)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(called), self._read.timeout_ms / 1000)
        except TimeoutError:
            why = f"the loop of worker '{worker}' did not answer within {self._read.timeout_ms} ms."
            raise QueryFailed(FailureReason.NOT_ACTIVE, why, partitions) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise QueryFailed(FailureReason.NOT_ACTIVE, f"worker '{worker}' ends.", partitions) from None

    def _from_file(self) -> list[Row]:
        backend = self._backend
        with backend.shared():
            self._check()
            if self._read_anew(backend.generation):
                if self._info.name not in backend.stores():
                    self.done = True
                    return []
                self._rows = committed_rows(self._info, backend, self._read, self._resume)
                self._generation = backend.generation
                self._opened = time.monotonic()
            assert self._rows is not None
            rows = self._taken(self._rows)
        self._check()
        return rows

    def _read_anew(self, generation: int) -> bool:
        if self._rows is None:
            return True
        if generation == self._generation and time.monotonic() - self._opened < LONGEST_LOOK_S:
            return False
        self.end = _NOT_A_SNAPSHOT
        return True

    def _from_memory(self) -> list[Row]:
        self._check()
        return self._once(committed_rows(self._info, self._backend, self._read, self._resume))

    def _staged(self) -> list[Row]:
        self._check()
        stores = {}
        for partition in self._read.partitions:
            held = self._reader._held(self._info, partition)
            assert held is not None
            stores[partition] = held.stores[self._info.name]
        return self._once(staged_rows(self._info, stores, self._read, self._resume))

    def _once(self, found: Iterator[Row]) -> list[Row]:
        rows = self._taken(found)
        if not self.done:
            self.end = _NOT_A_SNAPSHOT
        return rows

    def _check(self) -> None:
        head, instances = self._reader.check(self._read)
        if self.head is None:
            self.head, self._instances = head, instances
        elif any(now is not before for now, before in zip(instances, self._instances, strict=True)):
            why = f"worker '{self._reader.worker}' lost store '{self._info.name}' and got it back while it was read: ask again."
            raise QueryFailed(FailureReason.NOT_PRESENT, why, self._read.partitions)

    def _taken(self, found: Iterator[Row]) -> list[Row]:
        rows: list[Row] = []
        size = 0
        limit = PIECE_ROWS if self._left is None else min(self._left, PIECE_ROWS)
        for row in islice(found, limit):
            rows.append(row)
            size += len(row[0]) + len(row[2])
            if size >= PIECE_BYTES:
                return rows
        self.done = len(rows) < limit or limit == self._left
        return rows

    def close(self) -> None:
        """Let go of the store."""
        self._rows = None
