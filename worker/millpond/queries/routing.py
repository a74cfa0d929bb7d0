"""The routing of a query: reads its partitions from the workers that have them, even while tasks move.

Each partition is read from the worker that the task directory names. When that worker rejects the request or does not
answer, the directory is refreshed and the rest of the partition is read from the worker that has it then, until the
query's deadline. The deadline limits the time without progress: it restarts with every piece of the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from millpond.backoff import Backoff
from millpond.topology import TaskId

from .directory import TaskDirectory
from .failures import FailureReason, QueryFailed
from .local import LocalReader, LocalScan
from .messages import Read, Row
from .peers import RowScan
from .rows import resume_after

__all__ = ("RoutedScan", "Router")

_BACKOFF = Backoff(timedelta(milliseconds=10), timedelta(milliseconds=100))
#: A worker that gives up at the deadline has this much time to send the reason.
_GRACE_S = 1.0
#: How specific a reason is: of several failures the most specific one is reported.
_SPECIFICITY = {FailureReason.NOT_PRESENT: 0, FailureReason.NOT_ACTIVE: 1, FailureReason.NOT_UP_TO_BOUND: 2}
#: While a worker does not answer, the directory is checked this often for a change of the partition's location.
_LOCATION_CHECK_INTERVAL_S = 0.5


class RemoteReader(Protocol):
    """The interface for reads from other workers, which `Peers` implements."""

    def scan(self, worker: str, address: str, read: Read) -> RowScan:
        """Return an object that reads rows from another worker."""


class Router:
    """The choice of workers to read partitions from: this one, or others."""

    def __init__(
        self, reader: LocalReader, directory: TaskDirectory, peers: RemoteReader, forwarded: Callable[[], None]
    ) -> None:
        """Create the router.

        Args:
            reader: reads the stores that this worker holds.
            directory: the locations of tasks on other workers.
            peers: reads from other workers.
            forwarded: called for each request to another worker.
        """
        self.reader = reader
        self.directory = directory
        self.peers = peers
        self.forwarded = forwarded

    def scan(self, read: Read) -> RoutedScan:
        """Return an object that reads the rows of a request."""
        return RoutedScan(self, read)

    def task(self, read: Read, partition: int) -> TaskId | None:
        """Return the task that has a partition of the store; None for a global store."""
        subtopology = self.reader.catalog[read.store].subtopology
        return None if subtopology is None else TaskId(subtopology, partition)

    def candidates(self, read: Read, partition: int) -> list[str]:
        """Return the workers that may answer for a partition, the best first; this worker only if it can answer now."""
        me = self.reader.worker
        found = [me] if self.reader.readable(read, partition) else []
        task = self.task(read, partition)
        if task is not None:
            places = self.directory.places(task)
            found += [each for each in places.active if each != me]
            if read.stale and read.committed and not read.bound:
                found += [each for each in places.copies if each != me]
        return found


class _Source:
    """The partitions of a query that are read from one worker."""

    def __init__(self, worker: str, partitions: tuple[int, ...], scan: RowScan) -> None:
        self.worker = worker
        self.partitions = partitions
        self.scan = scan
        self.rows: list[Row] = []
        self.last: Row | None = None

    @property
    def waiting(self) -> bool:
        return not self.rows and not self.scan.done

    async def fill(self) -> None:
        self.rows = await self.scan.piece()
        if self.rows:
            self.last = self.rows[-1]


class RoutedScan:
    """The read of one query's rows over all its partitions, in the order of the keys' bytes.

    Attributes:
        position: next offsets by `topic-partition`: all input below them is in the rows.
        staleness_ms: how long ago the most outdated copy was caught up; None when only active tasks answered.
        snapshot: whether the rows of each partition are of one moment.
        workers: the workers that answered.
    """

    def __init__(self, router: Router, read: Read) -> None:
        self.position: dict[str, int] = {}
        self.staleness_ms: int | None = None
        self.snapshot: bool = True
        self.workers: set[str] = set()
        self._router = router
        self._read = read
        self._timeout_s = read.timeout_ms / 1000
        self._deadline = time.monotonic() + self._timeout_s
        self._sources: list[_Source] = []
        self._unplaced = set(read.partitions)
        self._resume: dict[int, bytes] = dict(read.resume)
        self._tried: dict[int, set[str]] = {}
        self._failed: dict[int, QueryFailed] = {}
        self._remaining = read.limit
        self._waits = iter(_BACKOFF)

    async def batches(self) -> AsyncGenerator[list[Row], None]:
        """Yield the rows in non-empty batches.

        Raises:
            QueryFailed: rows are missing; those yielded so far are correct.
        """
        try:
            while self._unplaced or self._sources:
                await self._place()
                await self._fill()
                if self._unplaced:
                    continue
                batch = self._merged()
                if batch:
                    yield batch
                    self._deadline = time.monotonic() + self._timeout_s
                    self._waits = iter(_BACKOFF)
                self._remove_finished()
                if self._remaining == 0:
                    break
        finally:
            for source in self._sources:
                self._record_outcome(source)
                source.scan.close()

    async def _place(self) -> None:
        """Choose a worker for each partition without a source."""
        directory = self._router.directory
        while self._unplaced:
            if self._failed:
                self._check_deadline()
            chosen: dict[str, list[int]] = {}
            for partition in sorted(self._unplaced):
                worker = self._choose(partition)
                if worker is not None:
                    chosen.setdefault(worker, []).append(partition)
            for worker, partitions in chosen.items():
                self._open(worker, tuple(partitions))
            if not self._unplaced:
                return
            self._check_deadline()
            known = directory.view
            await self._until_deadline(directory.refresh_after_miss())
            if directory.view is known:
                await asyncio.sleep(min(next(self._waits), max(0.0, self._deadline - time.monotonic())))
            for partition in self._unplaced:
                self._tried.pop(partition, None)

    def _choose(self, partition: int) -> str | None:
        reader = self._router.reader
        candidates = self._router.candidates(self._read, partition)
        if reader.worker not in candidates:
            failed = reader.rejection(self._read, partition)
            if failed is not None and failed.reason is not FailureReason.NOT_PRESENT:
                self._note_failure(partition, failed)
        tried = self._tried.get(partition, ())
        return next((each for each in candidates if each not in tried), None)

    def _note_failure(self, partition: int, failed: QueryFailed) -> None:
        """Remember the failure to read a partition: the most specific one, and the last of several equal ones."""
        known = self._failed.get(partition)
        if known is None or _SPECIFICITY[failed.reason] >= _SPECIFICITY[known.reason]:
            self._failed[partition] = failed

    def _open(self, worker: str, partitions: tuple[int, ...]) -> None:
        router, me = self._router, self._router.reader.worker
        resume = {each: self._resume[each] for each in partitions if each in self._resume}
        remaining_ms = max(1, int((self._deadline - time.monotonic()) * 1000))
        read = msgspec.structs.replace(
            self._read, partitions=partitions, resume=resume, limit=self._remaining, timeout_ms=remaining_ms
        )
        scan: RowScan
        if worker == me:
            scan = LocalScan(router.reader, read)
        else:
            address = router.directory.address(worker)
            if address is None:
                return
            router.forwarded()
            scan = router.peers.scan(worker, address, read)
        self._sources.append(_Source(worker, partitions, scan))
        self._unplaced.difference_update(partitions)

    def _check_deadline(self) -> None:
        if time.monotonic() < self._deadline:
            return
        partition = min(self._unplaced)
        failed = self._failed.get(partition)
        within = f"within {self._read.timeout_ms} ms"
        where = f"partition {partition} of store '{self._read.store}'"
        if failed is None:
            why = f"no worker is known to have {where}, and none appeared {within}."
            raise QueryFailed(FailureReason.NOT_PRESENT, why, sorted(self._unplaced))
        raise QueryFailed(
            failed.reason, f"{where} could not be read {within}; last failure: {failed}", sorted(self._unplaced)
        )

    async def _until_deadline(self, refreshing: Coroutine[Any, Any, None]) -> None:
        """Wait for the directory, at most until the deadline."""
        # Not `wait_for`, which loses the cancellation of a query in the turn in which the directory answers.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                await refreshing

    async def _fill(self) -> None:
        """Get a piece from each source without rows; choose another worker for the partitions of sources that fail."""
        waiting = [source for source in self._sources if source.waiting]
        if not waiting:
            return
        outcomes = await asyncio.gather(*map(self._fill_source, waiting), return_exceptions=True)
        for source, outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, QueryFailed) and outcome.passing:
                self._drop_source(source, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _fill_source(self, source: _Source) -> None:
        """Fill a source; give up when its partitions have moved to another worker."""
        if isinstance(source.scan, LocalScan):
            await source.fill()
            return
        filling = asyncio.ensure_future(source.fill())
        try:
            while True:
                left = self._deadline + _GRACE_S - time.monotonic()
                done, _ = await asyncio.wait([filling], timeout=max(0.0, min(_LOCATION_CHECK_INTERVAL_S, left)))
                if done:
                    return filling.result()
                silent = f"worker '{source.worker}' did not answer"
                if left <= 0:
                    raise QueryFailed(FailureReason.NOT_PRESENT, f"{silent}.", source.partitions)
                await self._until_deadline(self._router.directory.refresh_after_miss())
                for partition in source.partitions:
                    if source.worker not in self._router.candidates(self._read, partition):
                        raise QueryFailed(
                            FailureReason.NOT_PRESENT,
                            f"{silent}, and partition {partition} has moved to another worker.",
                            source.partitions,
                        )
        finally:
            filling.cancel()

    def _drop_source(self, source: _Source, failed: QueryFailed) -> None:
        source.scan.close()
        self._sources.remove(source)
        if source.last is not None:
            self._record_outcome(source)
            # The remaining rows are of another moment than those read so far.
            self.snapshot = False
            self._resume.update(resume_after(source.partitions, source.last, reverse=self._read.reverse))
        for partition in source.partitions:
            self._unplaced.add(partition)
            self._tried.setdefault(partition, set()).add(source.worker)
            self._note_failure(partition, failed)

    def _merged(self) -> list[Row]:
        """Return the rows that no later row of any source can precede."""
        reverse = self._read.reverse
        sources = [source for source in self._sources if source.rows]
        if len(sources) == 1 and len(self._sources) == 1:
            batch, sources[0].rows = sources[0].rows, []
        else:
            ends = [source.rows[-1] for source in sources if not source.scan.done]
            bound = (max(ends) if reverse else min(ends)) if ends else None
            batch = []
            for source in sources:
                count = len(source.rows) if bound is None else _count_until(source.rows, bound, reverse=reverse)
                batch += source.rows[:count]
                del source.rows[:count]
            batch.sort(reverse=reverse)
        if self._remaining is not None:
            batch = batch[: self._remaining]
            self._remaining -= len(batch)
        return batch

    def _remove_finished(self) -> None:
        for source in [each for each in self._sources if each.scan.done and not each.rows]:
            self._sources.remove(source)
            self._record_outcome(source)

    def _record_outcome(self, source: _Source) -> None:
        """Add the position, staleness and worker of a source to those of the query."""
        head = source.scan.head
        self.snapshot = self.snapshot and source.scan.end.snapshot
        if head is None:
            return
        self.workers.add(source.worker)
        for name, offset in head.position.items():
            self.position[name] = min(offset, self.position.get(name, offset))
        if head.staleness_ms is not None:
            self.staleness_ms = max(head.staleness_ms, self.staleness_ms or 0)


def _count_until(rows: list[Row], bound: Row, *, reverse: bool) -> int:
    """Return the number of rows up to `bound`."""
    return len(rows) - bisect_left(rows[::-1], bound) if reverse else bisect_right(rows, bound)
