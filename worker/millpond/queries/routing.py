"""One query over all partitions it needs, wherever they are, however they move while it runs.

Each partition is read where the directory says it is. When that worker refuses or vanishes, the directory is asked
again, and the rest of the partition is read from whoever has it then, until the query's deadline. The deadline is a
limit on standing still: it starts anew with every piece of the answer.
"""

from __future__ import annotations

import asyncio
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
#: A worker that gives up at the deadline is given so long to say why.
_GRACE_S = 1.0
#: What says more of why there is no answer.
_TELLING = {FailureReason.NOT_PRESENT: 0, FailureReason.NOT_ACTIVE: 1, FailureReason.NOT_UP_TO_BOUND: 2}
#: While a worker does not answer, it is looked up so often whether the partition is still there.
_SECOND_THOUGHT_S = 0.5


class RemoteReader(Protocol):
    """Reads what other workers hold: `Peers`."""

    def scan(self, worker: str, address: str, read: Read) -> RowScan:
        """Rows that a worker holds."""


class Router:
    """Knows where partitions are read: here, or at another worker."""

    def __init__(
        self, reader: LocalReader, directory: TaskDirectory, peers: RemoteReader, forwarded: Callable[[], None]
    ) -> None:
        """Args:
        reader: reads what this worker holds.
        directory: knows what others hold.
        peers: reads it.
        forwarded: called for each request to another worker.
        """
        self.reader = reader
        self.directory = directory
        self.peers = peers
        self.forwarded = forwarded

    def scan(self, read: Read) -> RoutedScan:
        """The rows of a request."""
        return RoutedScan(self, read)

    def task(self, read: Read, partition: int) -> TaskId | None:
        """The task that has a partition of the store, None for a global store."""
        subtopology = self.reader.catalog[read.store].subtopology
        return None if subtopology is None else TaskId(subtopology, partition)

    def candidates(self, read: Read, partition: int) -> list[str]:
        """Who may answer for a partition, the best first. This worker is among them only when it can."""
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
    """Some of the partitions, all read from one worker."""

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
    """The rows of one query, in the order of their keys as they lie in the store, over all its partitions.

    Attributes:
        position: everything below these offsets is in the rows, by `topic-partition`.
        staleness_ms: how far behind the oldest copy that was read may be; None when only active tasks answered.
        snapshot: whether the rows of each partition are those of one moment.
        workers: who answered.
    """

    def __init__(self, router: Router, read: Read) -> None:
        self.position: dict[str, int] = {}
        self.staleness_ms: int | None = None
        self.snapshot = True
        self.workers: set[str] = set()
        self._router = router
        self._read = read
        self._timeout_s = read.timeout_ms / 1000
        self._deadline = time.monotonic() + self._timeout_s
        self._sources: list[_Source] = []
        self._homeless = set(read.partitions)
        self._resume: dict[int, bytes] = dict(read.resume)
        self._tried: dict[int, set[str]] = {}
        self._failed: dict[int, QueryFailed] = {}
        self._left = read.limit
        self._waits = iter(_BACKOFF)

    async def batches(self) -> AsyncGenerator[list[Row], None]:
        """The rows; every batch has some.

        Raises:
            QueryFailed: they are not all; what was given so far is right.
        """
        try:
            while self._homeless or self._sources:
                await self._place()
                await self._fill()
                if self._homeless:
                    continue
                batch = self._merged()
                if batch:
                    yield batch
                    self._deadline = time.monotonic() + self._timeout_s
                    self._waits = iter(_BACKOFF)
                self._retire()
                if self._left == 0:
                    break
        finally:
            for source in self._sources:
                self._note(source)
                source.scan.close()

    # Where ----------------------------------------------------------------------------------------------------

    async def _place(self) -> None:
        """Find somebody to read each partition from that has nobody."""
        directory = self._router.directory
        while self._homeless:
            if self._failed:
                self._check_deadline()
            homes: dict[str, list[int]] = {}
            for partition in sorted(self._homeless):
                worker = self._choose(partition)
                if worker is not None:
                    homes.setdefault(worker, []).append(partition)
            for worker, partitions in homes.items():
                self._open(worker, tuple(partitions))
            if not self._homeless:
                return
            self._check_deadline()
            known = directory.view
            await self._patient(directory.missed())
            if directory.view is known:
                await asyncio.sleep(min(next(self._waits), max(0.0, self._deadline - time.monotonic())))
            for partition in self._homeless:
                self._tried.pop(partition, None)

    def _choose(self, partition: int) -> str | None:
        reader = self._router.reader
        candidates = self._router.candidates(self._read, partition)
        if reader.worker not in candidates:
            failed = reader.refusal(self._read, partition)
            if failed is not None and failed.reason is not FailureReason.NOT_PRESENT:
                self._note_failure(partition, failed)
        tried = self._tried.get(partition, ())
        return next((each for each in candidates if each not in tried), None)

    def _note_failure(self, partition: int, failed: QueryFailed) -> None:
        """Remember why a partition was not read: what says most of it, and of several such the last one."""
        known = self._failed.get(partition)
        if known is None or _TELLING[failed.reason] >= _TELLING[known.reason]:
            self._failed[partition] = failed

    def _open(self, worker: str, partitions: tuple[int, ...]) -> None:
        router, me = self._router, self._router.reader.worker
        resume = {each: self._resume[each] for each in partitions if each in self._resume}
        remaining_ms = max(1, int((self._deadline - time.monotonic()) * 1000))
        read = msgspec.structs.replace(
            self._read, partitions=partitions, resume=resume, limit=self._left, timeout_ms=remaining_ms
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
        self._homeless.difference_update(partitions)

    def _check_deadline(self) -> None:
        if time.monotonic() < self._deadline:
            return
        partition = min(self._homeless)
        failed = self._failed.get(partition)
        within = f"within {self._read.timeout_ms} ms"
        where = f"partition {partition} of store '{self._read.store}'"
        if failed is None:
            why = f"no worker is known to have {where}, and none came up {within}."
            raise QueryFailed(FailureReason.NOT_PRESENT, why, sorted(self._homeless))
        raise QueryFailed(
            failed.reason, f"{where} could not be read {within}; the last answer: {failed}", sorted(self._homeless)
        )

    async def _patient(self, refreshing: Coroutine[Any, Any, None]) -> None:
        """Wait for the directory, but not beyond the deadline."""
        try:
            await asyncio.wait_for(refreshing, max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            pass

    # What -----------------------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        """Get a piece from each source that has run out of rows; those that fail lose their partitions."""
        waiting = [source for source in self._sources if source.waiting]
        if not waiting:
            return
        outcomes = await asyncio.gather(*map(self._filled, waiting), return_exceptions=True)
        for source, outcome in zip(waiting, outcomes, strict=True):
            if isinstance(outcome, QueryFailed) and outcome.passing:
                self._lose(source, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _filled(self, source: _Source) -> None:
        """Fill a source, and give it up when its partitions turn out to be elsewhere."""
        if isinstance(source.scan, LocalScan):
            await source.fill()
            return
        filling = asyncio.ensure_future(source.fill())
        try:
            while True:
                left = self._deadline + _GRACE_S - time.monotonic()
                done, _ = await asyncio.wait([filling], timeout=max(0.0, min(_SECOND_THOUGHT_S, left)))
                if done:
                    return filling.result()
                gone = f"worker '{source.worker}' did not answer"
                if left <= 0:
                    raise QueryFailed(FailureReason.NOT_PRESENT, f"{gone}.", source.partitions)
                await self._patient(self._router.directory.missed())
                for partition in source.partitions:
                    if source.worker not in self._router.candidates(self._read, partition):
                        raise QueryFailed(
                            FailureReason.NOT_PRESENT,
                            f"{gone}, and is no longer who is to be asked.",
                            source.partitions,
                        )
        finally:
            filling.cancel()

    def _lose(self, source: _Source, failed: QueryFailed) -> None:
        source.scan.close()
        self._sources.remove(source)
        if source.last is not None:
            self._note(source)
            # The rest comes from another moment than what was read before.
            self.snapshot = False
            self._resume.update(resume_after(source.partitions, source.last, self._read.reverse))
        for partition in source.partitions:
            self._homeless.add(partition)
            self._tried.setdefault(partition, set()).add(source.worker)
            self._note_failure(partition, failed)

    def _merged(self) -> list[Row]:
        """The rows that no source can still come before."""
        reverse = self._read.reverse
        sources = [source for source in self._sources if source.rows]
        if len(sources) == 1 and len(self._sources) == 1:
            batch, sources[0].rows = sources[0].rows, []
        else:
            ends = [source.rows[-1] for source in sources if not source.scan.done]
            bound = (max(ends) if reverse else min(ends)) if ends else None
            batch = []
            for source in sources:
                count = len(source.rows) if bound is None else _count_until(source.rows, bound, reverse)
                batch += source.rows[:count]
                del source.rows[:count]
            batch.sort(reverse=reverse)
        if self._left is not None:
            batch = batch[: self._left]
            self._left -= len(batch)
        return batch

    def _retire(self) -> None:
        for source in [each for each in self._sources if each.scan.done and not each.rows]:
            self._sources.remove(source)
            self._note(source)

    def _note(self, source: _Source) -> None:
        """Take over what a source says of its rows."""
        head = source.scan.head
        self.snapshot = self.snapshot and source.scan.end.snapshot
        if head is None:
            return
        self.workers.add(source.worker)
        for name, offset in head.position.items():
            self.position[name] = min(offset, self.position.get(name, offset))
        if head.staleness_ms is not None:
            self.staleness_ms = max(head.staleness_ms, self.staleness_ms or 0)


def _count_until(rows: list[Row], bound: Row, reverse: bool) -> int:
    """How many of the rows come no later than `bound`."""
    return len(rows) - bisect_left(rows[::-1], bound) if reverse else bisect_right(rows, bound)
