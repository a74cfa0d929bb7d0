"""One application's engine with what it needs around it: a clock, threads, the store, and those who wait for answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from millpond.backoff import Backoff
from millpond.protocol import Answer, Heartbeat, Member, Refusal, View, clock

from .admission import RejectedMember
from .engine import Engine
from .options import EngineOptions, KafkaClaim
from .store import AssignmentStore, StoreError

__all__ = ("Application",)

log = logging.getLogger(__name__)

#: No heartbeat waits for longer, whatever it asks for.
_LONGEST_WAIT_MS = 30_000
#: Assignments of fewer tasks and workers are made at once: they take 30 ms at most, and another thread that has to
#: share the interpreter with heartbeats takes longer.
_SMALL = 2_000
_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=2))
#: Changes are told no more often than this.
_TELLING_S = 0.1


class Application:
    """Serves the workers of one application.

    Args:
        engine: decides. Nobody else may use it meanwhile.
        store: has the last assignment, and gets each new one before workers are told.
        on_superseded: called once, when a worker knows a later coordinator.
        on_change: called soon after something of interest changed, once for many changes.

    Attributes:
        plans: assignments made so far.
        plan_seconds: time spent making them.
        save_seconds: time spent writing them down.
        save_failures: how often that failed.
    """

    def __init__(
        self,
        engine: Engine,
        store: AssignmentStore | None,
        on_superseded: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.plans = 0
        self.plan_seconds = 0.0
        self.save_seconds = 0.0
        self.save_failures = 0
        self._store = store
        self._on_superseded = on_superseded
        self._on_change = on_change
        self._superseded = False
        self._told_changes = 0
        self._told_at = 0.0
        self._telling: asyncio.Handle | None = None
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._due = asyncio.Event()
        self._regrant: asyncio.Handle | None = None
        self._regrant_seconds = 0.0
        self._regranted_at = 0.0
        self._planning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the last assignment, if any, and begin.

        Raises:
            StoreError: it cannot be read, or this start of the coordinator cannot be written down.
        """
        if self._store is not None:
            last = await self._store.load()
            if last is not None:
                self.engine.restore(last, _now_ms())
            # The term is used up before anybody hears of it.
            await self._store.save(self.engine.view(None))
            self.engine.served(_now_ms())
        self._planning = asyncio.create_task(self._plan())

    async def stop(self) -> None:
        """End; those who wait are answered."""
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)
        for soon in (self._regrant, self._telling):
            if soon is not None:
                soon.cancel()
        self._wake(list(self._waiters))

    async def heartbeat(self, heartbeat: Heartbeat) -> Answer | Refusal:
        """Take in a heartbeat and wait, as long as it may, until there is news for its worker."""
        worker = heartbeat.worker
        refusal = self.engine.heartbeat(heartbeat, _now_ms(), int(clock.unix_time() * 1000))
        self._after_change()
        if refusal is not None:
            return refusal
        if not heartbeat.topology_hash:
            return self.engine.answer_for("")
        # An earlier heartbeat of the same worker need not wait any more: this one does.
        self._wake((worker,))
        if heartbeat.wait_ms > 0 and not self.engine.has_news_for(heartbeat):
            await self._wait(worker, heartbeat.incarnation, min(heartbeat.wait_ms, _LONGEST_WAIT_MS) / 1000)
        refusal = self.engine.refusal_for(worker, heartbeat.incarnation)
        return refusal if refusal is not None else self.engine.answer_for(worker)

    def gone(self, worker: str) -> Member | None:
        """A worker is known to be gone; None when there is no such worker."""
        found = self.engine.gone(worker, _now_ms())
        self._after_change()
        return self._member(worker) if found else None

    def drain(self, worker: str, *, draining: bool) -> Member | None:
        """Drain a worker, or end that; None when there is no such worker."""
        found = self.engine.drain(worker, draining=draining)
        self._after_change()
        return self._member(worker) if found else None

    def refused(self, worker: str, incarnation: str, revision: str, refusal: Refusal) -> None:
        """A worker was refused before its heartbeat could be read."""
        self.engine.refuse(worker, RejectedMember(incarnation, revision, refusal.code, refusal.message, _now_ms()))
        self._after_change()

    def pin(self, pinned: str) -> None:
        """Let in this topology only, by its hash, or with "" none in particular (`EngineOptions.pinned`)."""
        self.engine.pin(pinned)

    def claim(self, claim: KafkaClaim | None) -> None:
        """Let in workers on this Kafka cluster only (`EngineOptions.claim`)."""
        self.engine.claim(claim)

    def reconfigure(self, options: EngineOptions) -> None:
        """Go on with other settings."""
        if self.engine.reconfigure(options, _now_ms()):
            self._wake(list(self._waiters))
        self._after_change()

    def tick(self) -> None:
        """Let time pass."""
        self.engine.tick(_now_ms())
        self._after_change()

    def view(self) -> View:
        """The whole picture."""
        return self.engine.view(_now_ms())

    @property
    def waiting(self) -> int:
        """Heartbeats that wait for news."""
        return len(self._waiters)

    def _member(self, worker: str) -> Member:
        return self.engine.members[worker].shown(_now_ms())

    # Waiting and waking.

    async def _wait(self, worker: str, incarnation: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self._waiters[worker] = news
        timer = loop.call_later(seconds, _resolve, news)
        try:
            await news
        except asyncio.CancelledError:
            if self._waiters.get(worker) is news:  # the worker's connection broke, and it has not posted since
                self.engine.lost(worker, incarnation, _now_ms())
            raise
        finally:
            timer.cancel()
            if self._waiters.get(worker) is news:
                del self._waiters[worker]

    def _wake(self, workers: Iterable[str]) -> None:
        for worker in workers:
            news = self._waiters.pop(worker, None)
            if news is not None:
                _resolve(news)

    # Deciding.

    def _after_change(self) -> None:
        """Something came in: log it, and see to it that what follows happens."""
        engine = self.engine
        while engine.events:
            log.info("%s: %s", engine.application, engine.events.popleft())
        if engine.superseded_by is not None:
            if not self._superseded:
                self._superseded = True
                self._wake(list(self._waiters))
                self._on_superseded()
            return
        if engine.changes != self._told_changes and self._telling is None:
            delay = self._told_at + _TELLING_S - clock.monotonic()
            self._telling = asyncio.get_running_loop().call_later(max(delay, 0), self._tell)
        if engine.regrant_due and self._regrant is None:
            # Soon, not now: more may come in the same turn of the loop. And never for more than half of the time.
            delay = self._regranted_at + self._regrant_seconds - clock.monotonic()
            self._regrant = asyncio.get_running_loop().call_later(max(delay, 0), self._regrant_now)
        if engine.plan_due:
            self._due.set()

    def _regrant_now(self) -> None:
        began = clock.monotonic()
        self._regrant = None
        try:
            self._wake(sorted(self.engine.regrant()))
        except Exception:
            log.exception("%s: orders could not be worked out; the assignment is made anew", self.engine.application)
            self.engine.failed()
            self._due.set()
        self._regranted_at = clock.monotonic()
        self._regrant_seconds = self._regranted_at - began

    def _tell(self) -> None:
        self._telling = None
        self._told_at = clock.monotonic()
        self._told_changes = self.engine.changes
        self._on_change()

    async def _plan(self) -> None:
        """Make assignments when they are due."""
        waits = iter(_BACKOFF)
        while True:
            await self._due.wait()
            self._due.clear()
            began = clock.monotonic()
            try:
                await self._plan_once()
                waits = iter(_BACKOFF)
            except Exception as error:
                self.engine.failed()
                self._due.set()
                if isinstance(error, StoreError):
                    self.save_failures += 1
                    log.error("%s: %s Workers keep the assignment they have.", self.engine.application, error)
                else:
                    log.exception("%s: no assignment could be made; workers keep theirs", self.engine.application)
                await asyncio.sleep(next(waits))
            else:
                # Big assignments take their time; heartbeats get at least as much of it.
                took = clock.monotonic() - began
                if took > 0.1:
                    await asyncio.sleep(took)

    async def _plan_once(self) -> None:
        engine = self.engine
        began = clock.monotonic()
        job = engine.job(_now_ms())
        if job is None:
            return
        size = len(job.situation.tasks) + len(job.situation.workers)
        plan = job.run() if size <= _SMALL else await asyncio.to_thread(job.run)
        self.plans += 1
        self.plan_seconds += clock.monotonic() - began
        view = engine.adopt(plan)
        if view is not None and self._store is not None:
            began = clock.monotonic()
            await self._store.save(view)
            self.save_seconds += clock.monotonic() - began
        changed = engine.publish()
        if changed:
            log.info("%s: epoch %d.%d has news for %s.", engine.application, *engine.epoch, _workers(len(changed)))
        self._wake(sorted(changed))
        self._after_change()


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _resolve(news: asyncio.Future[None]) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        news.set_result(None)


def _now_ms() -> int:
    return int(clock.monotonic() * 1000)
