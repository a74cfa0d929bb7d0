"""The work queue: which keys have to be looked at, each once at a time, and those that failed later and later.

It has the semantics of client-go's: a key that is added while it waits is there once; a key that is added while it is
worked on comes again after that; a key that failed waits longer each time until it succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from millpond.backoff import Backoff
from millpond.errors import MillpondError
from millpond.protocol import clock
from millpond_operator.kubernetes.errors import ApiError, LeadershipLost

__all__ = ("QueueMetrics", "WorkQueue")

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_FIRST_BACKOFF, _LONGEST_BACKOFF = timedelta(milliseconds=50), timedelta(seconds=60)


class QueueMetrics(Protocol):
    """Is told what happens to keys."""

    def added(self) -> None:
        """A key was put on the queue."""

    def retried(self) -> None:
        """A key was put aside because it failed."""

    def taken(self, waited_s: float) -> None:
        """A key was taken from the queue after it waited that long."""

    def worked(self, took_s: float) -> None:
        """Work on a key ended."""


class _NoMetrics:
    def added(self) -> None: ...

    def retried(self) -> None: ...

    def taken(self, waited_s: float) -> None: ...

    def worked(self, took_s: float) -> None: ...


class WorkQueue(Generic[K]):
    """Keys to be worked on. For one event loop.

    Args:
        name: for logs.
        metrics: is told what happens.
        first_backoff: how long a key waits after its first failure in a row; doubled for each further one.
        longest_backoff: the longest such wait.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str = "",
        *,
        metrics: QueueMetrics | None = None,
        first_backoff: timedelta = _FIRST_BACKOFF,
        longest_backoff: timedelta = _LONGEST_BACKOFF,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        self.name = name
        self._metrics = metrics or _NoMetrics()
        self._backoff = Backoff(first_backoff, longest_backoff, jitter=0.5)
        self._clock = clock
        self._ready: deque[K] = deque()
        self._added_at: dict[K, float] = {}
        """Since when each key waits to be worked on: those of `_ready`, and those that have to come again."""
        self._working: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        """When each key of `_later` comes. Entries of `_later` that say another time are void."""
        self._numbers = itertools.count()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many keys are ready to be worked on."""
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """How many keys are put aside for later."""
        return len(self._due)

    @property
    def idle(self) -> bool:
        """Whether nothing is ready and nothing is worked on."""
        return not self._ready and not self._working

    def running_since(self) -> list[float]:
        """For how many seconds each of the keys that are worked on has been worked on."""
        now = self._clock()
        return [now - since for since in self._working.values()]

    def longest(self) -> tuple[K, timedelta] | None:
        """The key that has been worked on for longest, and for how long; None when none is."""
        if not self._working:
            return None
        key = min(self._working, key=self._working.__getitem__)
        return key, timedelta(seconds=self._clock() - self._working[key])

    def failures(self, key: K) -> int:
        """How often in a row work on a key failed."""
        return self._failures.get(key, 0)

    def add(self, key: K) -> None:
        """Have a key worked on as soon as possible."""
        if key in self._added_at:
            return
        self._added_at[key] = self._clock()
        self._metrics.added()
        if key not in self._working:
            self._make_ready(key)

    def add_after(self, key: K, delay: timedelta) -> None:
        """Have a key worked on after a while, or earlier when something else asks for that."""
        if delay <= timedelta(0):
            self.add(key)
            return
        due = self._clock() + delay.total_seconds()
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._numbers), key))
        self._set_timer()

    def add_rate_limited(self, key: K, at_least: timedelta = timedelta(0)) -> timedelta:
        """Have a key worked on again that failed, later after each failure in a row.

        Args:
            key: the key.
            at_least: wait this long in any case.

        Returns:
            How long it waits.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(timedelta(seconds=self._backoff.wait_s(failures + 1)), at_least)
        self._metrics.retried()
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Work on a key succeeded: its next failure is the first in a row."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Take the key that has waited longest; `done` must follow."""
        while not self._ready:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and self._ready:
                    self._wake()  # it was this one's turn: the next one's, then
                else:
                    with contextlib.suppress(ValueError):
                        self._takers.remove(taker)
                raise
        key = self._ready.popleft()
        now = self._clock()
        self._metrics.taken(now - self._added_at.pop(key))
        self._working[key] = now
        return key

    def done(self, key: K) -> None:
        """Work on a key ended. If it was added meanwhile, it is ready again."""
        self._metrics.worked(self._clock() - self._working.pop(key))
        if key in self._added_at:
            self._make_ready(key)

    async def run(self, handle: Callable[[K], Awaitable[timedelta | None]], workers: int = 8) -> None:
        """Work on keys until cancelled, or until leadership is lost.

        Args:
            handle: works on one key and says when to look again, None for not before it is added. An error of it is
                logged and has the key come again later; `LeadershipLost` ends everything.
            workers: on how many keys at once.

        Raises:
            LeadershipLost: `handle` raised it.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(self._work(handle), name=f"{self.name or 'queue'}-{number}")
        except BaseExceptionGroup as errors:
            lost = errors.subgroup(LeadershipLost)
            if lost is None:
                raise
            raise _first(lost) from errors

    async def _work(self, handle: Callable[[K], Awaitable[timedelta | None]]) -> None:
        while True:
            key = await self.get()
            try:
                again = await handle(key)
            except LeadershipLost:
                raise
            except Exception as error:
                wish = error.retry_after if isinstance(error, ApiError) else None
                delay = self.add_rate_limited(key, timedelta(seconds=wish or 0))
                if isinstance(error, MillpondError):
                    log.warning("%s comes again in %.1f s: %s", key, delay.total_seconds(), error)
                else:
                    log.exception("%s comes again in %.1f s: it failed unexpectedly.", key, delay.total_seconds())
            else:
                self.forget(key)
                if again is not None:
                    self.add_after(key, again)
            finally:
                self.done(key)

    def _make_ready(self, key: K) -> None:
        self._ready.append(key)
        self._wake()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._later:
            delay = max(0.0, self._later[0][0] - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._set_timer()


def _first(errors: BaseExceptionGroup[LeadershipLost]) -> LeadershipLost:
    for error in errors.exceptions:
        if isinstance(error, LeadershipLost):
            return error
        return _first(error)
    raise AssertionError("a group of exceptions is never empty")
