"""Reads of the stores that this worker holds, for its own queries and for other workers.

Committed rows of persistent stores are read in other threads than the worker's loop, in pieces, each within
`StateFile.shared()`. Committed rows of in-memory stores, and uncommitted rows, are read by the loop itself.
Each piece checks before and after its read that the partition may be read. So rows of a task that was closed meanwhile
are never returned, even if the worker holds the task again: its rows were dropped in between.
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
from millpond.state.rocksdb.state_file import MAX_ITERATOR_AGE_S
from millpond.texts import said
from millpond.topology import TaskId

from .catalog import StoreCatalog, StoreInfo
from .failures import FailureReason, QueryFailed
from .messages import Head, Read, Row, RowsEnd
from .rows import committed_rows, resume_after, staged_rows

__all__ = ("HeldStores", "LocalReader", "LocalScan", "LocalState")

T = TypeVar("T")

#: The limits of a piece, in rows and bytes: some milliseconds of work, during which the loop may have to wait.
PIECE_ROWS = 1_000
PIECE_BYTES = 256 * 1024
_BACKOFF = Backoff(timedelta(milliseconds=2), timedelta(milliseconds=20))
_NOT_A_SNAPSHOT = RowsEnd(snapshot=False)
_READABLE = (TaskState.RUNNING, TaskState.RELEASING)


class HeldStores(Protocol):
    """A task that the worker holds, at one moment."""

    @property
    def role(self) -> Role: ...
    @property
    def state(self) -> TaskState: ...
    @property
    def stores(self) -> Mapping[str, Any]: ...
    @property
    def positions(self) -> Mapping[str, int]:
        """Next offsets by `topic-partition`: all input below them is in the committed rows."""

    @property
    def caught_up_at(self) -> float | None: ...
    @property
    def lag(self) -> int | None: ...


class LocalState(Protocol):
    """The state that the worker shows to other threads. Thread-safe.

    Before the rows of a task are dropped or rebuilt, the task is no longer held or no longer readable.
    """

    def holding(self, task: TaskId) -> HeldStores | None:
        """Return a task; None when the worker does not hold it."""

    def globals_ready(self) -> bool:
        """Return whether the global stores have all records that were in their topics when the worker started."""

    def call(self, function: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Run a function in the worker's loop, between two turns of it."""

    def backend_of_store(self, store: str) -> Any:
        """Return the backend with the store's committed rows."""


class Readable(NamedTuple):
    """Partitions that may be read now."""

    head: Head
    """The position and staleness of rows read from now on."""
    instances: tuple[Any, ...]
    """The instance of the store in each partition; a new one after the task was closed and activated again."""


class LocalReader:
    """The reader of the stores that this worker holds."""

    def __init__(
        self, worker: str, state: LocalState, catalog: StoreCatalog, executor: concurrent.futures.Executor
    ) -> None:
        """Create the reader.

        Args:
            worker: the name of this worker, for messages.
            state: the tasks and stores that it holds.
            catalog: the stores of the application.
            executor: the threads that read persistent stores.
        """
        self.worker = worker
        self.state = state
        self.catalog = catalog
        self.executor = executor

    def readable(self, read: Read, partition: int) -> bool:
        """Return whether a partition can be read here, now or once the position is reached."""
        failed = self.rejection(read, partition)
        return failed is None or _waits(failed, read)

    def rejection(self, read: Read, partition: int) -> QueryFailed | None:
        """Return the reason why a partition cannot be read here now; None if it can be read."""
        info = self.catalog[read.store]
        return self._rejection(read, info, partition, self.held(info, partition))

    def check(self, read: Read) -> Readable:
        """Check that all partitions of the request may be read now.

        Raises:
            QueryFailed: a partition may not be read.
        """
        info = self.catalog[read.store]
        position: dict[str, int] = {}
        instances: list[Any] = []
        oldest: float | None = None
        now = time.monotonic()
        for partition in read.partitions:
            held = self.held(info, partition)
            failed = self._rejection(read, info, partition, held)
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
        """Wait until the active tasks have reached the position of the request.

        Raises:
            QueryFailed: the tasks did not reach the position in time, or a partition may not be read here.
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

    def held(self, info: StoreInfo, partition: int) -> HeldStores | None:
        """Return the task with a partition of a store; None when this worker does not hold it."""
        if info.subtopology is not None:
            return self.state.holding(TaskId(info.subtopology, partition))
        # A worker reads its global stores like those of an active task.
        offset = self.state.backend_of_store(info.name).offset
        offsets = {
            f"{topic}-{each}": offset(info.name, each) for topic, count in info.inputs.items() for each in range(count)
        }
        state = TaskState.RUNNING if self.state.globals_ready() else TaskState.RESTORING
        return _GlobalStore(state, {name: each for name, each in offsets.items() if each is not None})

    def _rejection(  # noqa: C901 - a flat list of conditions, each with its message
        self, read: Read, info: StoreInfo, partition: int, holding: HeldStores | None
    ) -> QueryFailed | None:
        where = (
            f"partition {partition} of store '{read.store}'"
            if info.subtopology is not None
            else f"store '{read.store}'"
        )

        def rejected(reason: FailureReason, why: str) -> QueryFailed:
            return QueryFailed(reason, f"worker '{self.worker}' {why}.", (partition,))

        if holding is None:
            return rejected(FailureReason.NOT_PRESENT, f"does not have {where}")
        if _is_active(holding):
            behind = _behind(read, info, partition, holding.positions)
            return rejected(FailureReason.NOT_UP_TO_BOUND, f"has {where} up to {behind}") if behind else None
        held = f"has {where} as {holding.role.value.replace('_', '-')} ({holding.state.value})"
        if read.bound:
            return rejected(FailureReason.NOT_ACTIVE, f"{held}, but only the active task can prove a position")
        if not read.committed:
            return rejected(FailureReason.NOT_ACTIVE, f"{held}, but only the active task has uncommitted rows")
        if not read.stale:
            return rejected(FailureReason.NOT_ACTIVE, f"{held}, but the query does not allow stale answers")
        if read.max_staleness_ms is not None:
            at = holding.caught_up_at
            if at is None:
                return rejected(FailureReason.NOT_UP_TO_BOUND, f"{held}, which has not been caught up yet")
            age = int((time.monotonic() - at) * 1000)
            if age > read.max_staleness_ms:
                return rejected(FailureReason.NOT_UP_TO_BOUND, f"{held}, which was last caught up {age} ms ago")
        if read.max_lag is not None and (holding.lag is None or holding.lag > read.max_lag):
            lag = "unknown" if holding.lag is None else f"{holding.lag} records"
            return rejected(FailureReason.NOT_UP_TO_BOUND, f"{held}, whose lag is {lag}")
        return None


@dataclass(frozen=True)
class _GlobalStore:
    """A global store, shown as the store of an active task."""

    state: TaskState
    positions: Mapping[str, int]
    role: Role = Role.ACTIVE
    stores: Mapping[str, Any] = field(default_factory=dict)
    caught_up_at: float | None = None
    lag: int | None = None


def _is_active(holding: HeldStores) -> bool:
    return holding.role is Role.ACTIVE and holding.state in _READABLE


def _waits(failed: QueryFailed, read: Read) -> bool:
    """Return whether the active task has not reached the position yet, so that waiting helps."""
    return bool(read.bound) and failed.reason is FailureReason.NOT_UP_TO_BOUND


def _behind(read: Read, info: StoreInfo, partition: int, positions: Mapping[str, int]) -> str:
    """Return a description of the offsets below the bound; empty if the partition has reached the bound."""
    missing = []
    for name, wanted in read.bound.items():
        topic, _, number = name.rpartition("-")
        # A task reads one partition of each input; a global store reads all of them.
        relevant = topic in info.inputs and (info.subtopology is None or number == str(partition))
        if relevant and positions.get(name, -1) < wanted:
            missing.append(f"offset {positions.get(name, 'none')} of {name}, but {wanted} is required")
    return "; ".join(missing)


class LocalScan:
    """The reader of one request's rows from this worker's stores, piece by piece.

    Attributes:
        head: the position and staleness of the rows; None before the first piece.
        done: whether all pieces were returned.
        store: the store.
        opened_at: when the iterator was opened, in monotonic seconds.
        end: whether the rows returned so far are of one moment.
    """

    def __init__(self, reader: LocalReader, read: Read) -> None:
        self.head: Head | None = None
        self.done: bool = False
        self.end: RowsEnd = RowsEnd()
        self._reader = reader
        self._read = read
        self._info = reader.catalog[read.store]
        self._backend = reader.state.backend_of_store(read.store)
        self._resume = read.resume
        self._remaining = read.limit
        self._rows: Iterator[Row] | None = None
        self._instances: tuple[Any, ...] = ()
        self._generation = -1
        self.store: str = read.store
        self.opened_at: float = 0.0

    async def piece(self) -> list[Row]:
        """Return the next rows; an empty list only when `done`.

        Raises:
            QueryFailed: the partitions may no longer be read, or reading failed.
        """
        if self.head is None and self._read.bound:
            await self._reader.wait(self._read)
        try:
            rows = await self._fetch()
        except QueryFailed:
            raise
        except Exception as error:
            raise self._failed(error) from error
        return self._taken(rows)

    def piece_here(self) -> list[Row]:
        """Return the next rows, as `piece`, for a thread that may wait. The position of the request does not count.

        Raises:
            QueryFailed: as of `piece`.
        """
        read = self._read
        try:
            if read.committed and self._info.persistent:
                rows = self._from_file()
            else:
                called = self._reader.state.call(self._from_memory if read.committed else self._staged)
                rows = called.result(read.timeout_ms / 1000)
        except QueryFailed:
            raise
        except concurrent.futures.CancelledError:
            raise self._not_active(f"{self._worker} is shutting down.") from None
        except concurrent.futures.TimeoutError:
            raise self._too_slow() from None
        except Exception as error:
            raise self._failed(error) from error
        return self._taken(rows)

    def _failed(self, error: Exception) -> QueryFailed:
        # A store that is closed or dropped during a read raises many kinds of errors. If so, report that it moved.
        self._check()
        text = said(error) or type(error).__name__
        return QueryFailed(
            FailureReason.STORE_EXCEPTION, f"cannot read store '{self._info.name}': {text}", self._read.partitions
        )

    def _not_active(self, why: str) -> QueryFailed:
        return QueryFailed(FailureReason.NOT_ACTIVE, why, self._read.partitions)

    def _too_slow(self) -> QueryFailed:
        return self._not_active(f"the loop of {self._worker} did not answer within {self._read.timeout_ms} ms.")

    @property
    def _worker(self) -> str:
        return f"worker '{self._reader.worker}'"

    def _taken(self, rows: list[Row]) -> list[Row]:
        if rows:
            self._resume = resume_after(self._read.partitions, rows[-1], reverse=self._read.reverse)
        if self._remaining is not None:
            self._remaining -= len(rows)
            self.done = self.done or self._remaining <= 0
        return rows

    async def _fetch(self) -> list[Row]:
        loop = asyncio.get_running_loop()
        if not self._read.committed:
            return await self._in_loop(self._staged)
        if not self._info.persistent:
            return await self._in_loop(self._from_memory)
        if self._read.exact:
            # Few rows: passing them to another thread and back would take longer than the read.
            return self._from_file()
        return await loop.run_in_executor(self._reader.executor, self._from_file)

    async def _in_loop(self, function: Callable[[], list[Row]]) -> list[Row]:
        called = self._reader.state.call(function)
        try:
            async with asyncio.timeout(self._read.timeout_ms / 1000):
                return await asyncio.wrap_future(called)
        except TimeoutError:
            raise self._not_active(
                f"the loop of {self._worker} did not answer within {self._read.timeout_ms} ms."
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._not_active(f"{self._worker} is shutting down.") from None

    def _from_file(self) -> list[Row]:
        backend = self._backend
        with backend.shared():
            self._check()
            if self._needs_iterator(backend.generation):
                if self._info.name not in backend.stores():
                    self.done = True
                    return []
                self._rows = committed_rows(self._info, backend, self._read, self._resume)
                self._generation = backend.generation
                self.opened_at = time.monotonic()
                backend.hold(self)
            assert self._rows is not None
            rows = self._take(self._rows)
            if self.done:
                self._rows = None
        self._check()
        return rows

    def _needs_iterator(self, generation: int) -> bool:
        if self._generation < 0:
            return True
        if (
            self._rows is not None
            and generation == self._generation
            and time.monotonic() - self.opened_at < MAX_ITERATOR_AGE_S
        ):
            return False
        self.end = _NOT_A_SNAPSHOT
        return True

    def _from_memory(self) -> list[Row]:
        self._check()
        return self._take_first(committed_rows(self._info, self._backend, self._read, self._resume))

    def _staged(self) -> list[Row]:
        self._check()
        stores = {}
        for partition in self._read.partitions:
            held = self._reader.held(self._info, partition)
            assert held is not None
            stores[partition] = held.stores[self._info.name]
        return self._take_first(staged_rows(self._info, stores, self._read, self._resume))

    def _take_first(self, found: Iterator[Row]) -> list[Row]:
        """Read one piece. The next piece needs a new iterator, which shows another moment."""
        rows = self._take(found)
        if not self.done:
            self.end = _NOT_A_SNAPSHOT
        return rows

    def _check(self) -> None:
        head, instances = self._reader.check(self._read)
        if self.head is None:
            self.head, self._instances = head, instances
        elif any(now is not before for now, before in zip(instances, self._instances, strict=True)):
            worker, store = self._reader.worker, self._info.name
            why = f"worker '{worker}' closed and reopened store '{store}' during the read: retry."
            raise QueryFailed(FailureReason.NOT_PRESENT, why, self._read.partitions)

    def _take(self, found: Iterator[Row]) -> list[Row]:
        rows: list[Row] = []
        size = 0
        limit = PIECE_ROWS if self._remaining is None else min(self._remaining, PIECE_ROWS)
        for row in islice(found, limit):
            rows.append(row)
            size += len(row[0]) + len(row[2])
            if size >= PIECE_BYTES:
                return rows
        self.done = len(rows) < limit or limit == self._remaining
        return rows

    def end_iterator(self) -> None:
        """Let go of the iterator; the next piece opens another one, which shows another moment."""
        self._rows = None

    def close(self) -> None:
        """Close the iterator."""
        self._rows = None
