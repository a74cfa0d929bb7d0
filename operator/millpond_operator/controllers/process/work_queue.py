"""The work queue: the keys to reconcile, with retries and back-off.

Its semantics are those of client-go's work queue. A key that is added twice while it waits is handled once. A key that
is added while it is worked on is handled again afterwards, never concurrently. A key that fails backs off longer after
each failure in a row.

A key that was only due after a long delay, such as a periodic check, is routine: it waits while others are ready, so
that a change of one StreamApp does not wait for the checks of thousands.
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

__all__ = ("QueueMetrics", "WorkQueue", "key_name")

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

#: From this delay on, the work on a key is routine.
_ROUTINE_DELAY = timedelta(seconds=10)
#: Every n-th key taken is a routine one if there is any, so that these are late but not forgotten.
_ROUTINE_SHARE = 4
_FIRST_BACKOFF, _LONGEST_BACKOFF = timedelta(milliseconds=50), timedelta(seconds=60)


class QueueMetrics(Protocol):
    """A recorder of the metrics of keys."""

    def added(self) -> None:
        """Record an added key."""

    def retried(self) -> None:
        """Record a retry."""

    def taken(self, waited_s: float) -> None:
        """Record the waiting time of a key taken from the queue."""

    def worked(self, took_s: float) -> None:
        """Record the duration of the work on a key."""


class _NoMetrics:
    def added(self) -> None: ...

    def retried(self) -> None: ...

    def taken(self, waited_s: float) -> None: ...

    def worked(self, took_s: float) -> None: ...


class WorkQueue(Generic[K]):
    """A queue of keys to be worked on, for one event loop.

    Args:
        name: the queue's name, for the names of its tasks.
        metrics: records what happens to keys.
        first_backoff: the back-off after the first failure in a row; each further failure doubles it.
        longest_backoff: the upper limit of the back-off.
        clock: returns monotonic seconds.
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
        self._routine: dict[K, None] = {}
        """Routine keys that are ready, in the order in which they became so."""
        self._taken = 0
        self._added_at: dict[K, float] = {}
        """When each waiting key was added: ready ones, and those to be handled again after the current work."""
        self._working: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._later: list[tuple[float, int, K, bool]] = []
        self._due: dict[K, float] = {}
        """When each key of `_later` is due. Entries of `_later` with another time are obsolete."""
        self._numbers = itertools.count()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many keys are ready to be worked on."""
        return len(self._ready) + len(self._routine)

    @property
    def waiting(self) -> int:
        """The number of keys that are due later."""
        return len(self._due)

    @property
    def idle(self) -> bool:
        """Whether nothing is ready and nothing is worked on."""
        return not len(self) and not self._working

    def running_since(self) -> list[float]:
        """Return for how many seconds each key in progress has been worked on."""
        now = self._clock()
        return [now - since for since in self._working.values()]

    def longest(self) -> tuple[K, timedelta] | None:
        """Return the key that has been in progress for longest, and that time; None when no key is in progress."""
        if not self._working:
            return None
        key = min(self._working, key=self._working.__getitem__)
        return key, timedelta(seconds=self._clock() - self._working[key])

    def failures(self, key: K) -> int:
        """Return how often in a row the work on a key has failed."""
        return self._failures.get(key, 0)

    def add(self, key: K) -> None:
        """Add a key to be worked on as soon as possible."""
        if key in self._routine:
            del self._routine[key]
            self._ready.append(key)
        elif self._count(key):
            self._make_ready(key)

    def _add_routine(self, key: K) -> None:
        if self._count(key):
            self._routine[key] = None
            self._wake()

    def _count(self, key: K) -> bool:
        """Record that a key waits; return whether it is ready, which it is not if it waits already or is worked on."""
        if key in self._added_at:
            return False
        self._added_at[key] = self._clock()
        self._metrics.added()
        return key not in self._working

    def add_after(self, key: K, delay: timedelta) -> None:
        """Add a key to be worked on after a delay, or earlier if it is added otherwise."""
        if delay <= timedelta(0):
            self.add(key)
            return
        due = self._clock() + delay.total_seconds()
        if self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._numbers), key, delay >= _ROUTINE_DELAY))
        self._set_timer()

    def add_rate_limited(self, key: K, at_least: timedelta = timedelta(0)) -> timedelta:
        """Add a key that failed to be retried after a back-off, which grows with each failure in a row.

        Args:
            key: the key.
            at_least: the minimum back-off.

        Returns:
            The back-off.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(timedelta(seconds=self._backoff.wait_s(failures + 1)), at_least)
        self._metrics.retried()
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the failures of a key after its work succeeded."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Take the key that has waited longest, routine ones last, waiting for one if needed; `done` must follow."""
        while not len(self):
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled() and len(self):
                    self._wake()  # pass the turn on to the next waiting taker
                else:
                    with contextlib.suppress(ValueError):
                        self._takers.remove(taker)
                raise
        key = self._next()
        now = self._clock()
        self._metrics.taken(now - self._added_at.pop(key))
        self._working[key] = now
        return key

    def _next(self) -> K:
        self._taken += 1
        if self._routine and (not self._ready or self._taken % _ROUTINE_SHARE == 0):
            key = next(iter(self._routine))
            del self._routine[key]
            return key
        return self._ready.popleft()

    def done(self, key: K) -> None:
        """End the work on a key. If it was added meanwhile, it is ready again."""
        self._metrics.worked(self._clock() - self._working.pop(key))
        if key in self._added_at:
            self._make_ready(key)

    async def run(self, handle: Callable[[K], Awaitable[timedelta | None]], workers: int = 8) -> None:
        """Work on keys until cancelled, or until leadership is lost.

        Args:
            handle: works on one key and returns after which time to handle it again; None to wait until it is added.
                Its errors are logged and the key is retried; `LeadershipLost` ends the queue.
            workers: the number of keys to work on concurrently.

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
            except Exception as error:  # the failure of one key must not stop the others
                retry_after_s = error.retry_after if isinstance(error, ApiError) else None
                delay = self.add_rate_limited(key, timedelta(seconds=retry_after_s or 0))
                name = key_name(key)
                if isinstance(error, MillpondError):
                    log.warning(
                        "StreamApp %s: reconcile failed; retrying in %.1f s: %s", name, delay.total_seconds(), error
                    )
                else:
                    log.exception("StreamApp %s: reconcile failed; retrying in %.1f s", name, delay.total_seconds())
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
            self._timer = asyncio.get_running_loop().call_later(delay, self._add_due)

    def _add_due(self) -> None:
        self._timer = None
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            due, _, key, routine = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                (self._add_routine if routine else self.add)(key)
        self._set_timer()


def key_name(key: Hashable) -> str:
    """Return a key as people write it: `namespace/name`."""
    return "/".join(key) if isinstance(key, tuple) else str(key)


def _first(errors: BaseExceptionGroup[LeadershipLost]) -> LeadershipLost:
    for error in errors.exceptions:
        if isinstance(error, LeadershipLost):
            return error
        return _first(error)
    raise AssertionError("a group of exceptions is never empty")
