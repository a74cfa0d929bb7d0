"""One application: its engine, with clock, threads, store, and the heartbeats that wait for an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta

from millpond.backoff import Backoff
from millpond.protocol import Answer, Heartbeat, Member, Refusal, View, clock
from millpond_operator.coordinator.engine.admission import RejectedMember
from millpond_operator.coordinator.engine.engine import Engine
from millpond_operator.coordinator.engine.options import EngineOptions, KafkaClaim

from .store import AssignmentStore, StoreError

__all__ = ("Application",)

log = logging.getLogger(__name__)

#: The longest time that a heartbeat is held, even if it asks for more.
_MAX_WAIT_MS = 30_000
#: Assignments with fewer tasks and workers are computed in the event loop: they take 30 ms at most, and a thread that
#: competes with heartbeats for the interpreter takes longer.
_SMALL_ASSIGNMENT = 2_000
_BACKOFF = Backoff(timedelta(milliseconds=50), timedelta(seconds=2))
#: `on_change` is called at most once in this time.
_MIN_CHANGE_INTERVAL_S = 0.1


class Application:
    """Serves the workers of one application.

    Args:
        engine: the application's engine, for the exclusive use of this object.
        store: has the last assignment, and gets each new one before workers do; None to store nothing.
        on_superseded: called once, when a worker knows a later coordinator.
        on_change: called soon after a visible change, once for many changes.

    Attributes:
        plans: number of assignments so far.
        plan_seconds: time spent computing them.
        save_seconds: time spent storing them.
        save_failures: number of failed attempts to store one.
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
        self._reported_changes = 0
        self._reported_at = 0.0
        self._reporting: asyncio.Handle | None = None
        self._waiters: dict[str, asyncio.Future[None]] = {}
        self._due = asyncio.Event()
        self._regrant: asyncio.Handle | None = None
        self._regrant_seconds = 0.0
        self._last_regrant_at = 0.0
        self._planning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Restore the last assignment, if there is one, and start.

        Raises:
            StoreError: the last assignment cannot be read, or the new term cannot be stored.
        """
        if self._store is not None:
            last = await self._store.load()
            if last is not None:
                self.engine.restore(last, _now_ms())
            # Store the term before any worker sees it, so that it is never used twice.
            await self._store.save(self.engine.view(None))
            self.engine.start_sessions(_now_ms())
        self._planning = asyncio.create_task(self._plan())

    async def stop(self) -> None:
        """Stop, and answer the heartbeats that wait."""
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)
        for soon in (self._regrant, self._reporting):
            if soon is not None:
                soon.cancel()
        self._wake(list(self._waiters))

    async def heartbeat(self, heartbeat: Heartbeat) -> Answer | Refusal:
        """Process a heartbeat; hold the answer until it has news for the worker, as long as the heartbeat allows."""
        worker = heartbeat.worker
        refusal = self.engine.heartbeat(heartbeat, _now_ms(), int(clock.unix_time() * 1000))
        self._follow_up()
        if refusal is not None:
            return refusal
        if not heartbeat.topology_hash:
            return self.engine.answer_for("")
        # Release an earlier heartbeat of the same worker: this one waits instead.
        self._wake((worker,))
        if heartbeat.wait_ms > 0 and not self.engine.has_news_for(heartbeat):
            await self._wait(worker, heartbeat.incarnation, min(heartbeat.wait_ms, _MAX_WAIT_MS) / 1000)
        refusal = self.engine.refusal_for(worker, heartbeat.incarnation)
        return refusal if refusal is not None else self.engine.answer_for(worker)

    def declare_dead(self, worker: str) -> Member | None:
        """Count a worker as dead; None when there is no such worker."""
        found = self.engine.declare_dead(worker, _now_ms())
        self._follow_up()
        return self._member(worker) if found else None

    def drain(self, worker: str, *, draining: bool) -> Member | None:
        """Start or stop draining a worker; None when there is no such worker."""
        found = self.engine.drain(worker, draining=draining)
        self._follow_up()
        return self._member(worker) if found else None

    def note_rejected(self, worker: str, incarnation: str, revision: str, refusal: Refusal) -> None:
        """Remember a worker whose heartbeat could not be decoded."""
        self.engine.note_rejected(
            worker, RejectedMember(incarnation, revision, refusal.code, refusal.message, _now_ms())
        )
        self._follow_up()

    def pin(self, pinned: str) -> None:
        """Admit only the topology with this hash; "" for any (`EngineOptions.pinned`)."""
        self.engine.pin(pinned)

    def claim(self, claim: KafkaClaim | None) -> None:
        """Admit only workers on this Kafka cluster (`EngineOptions.claim`)."""
        self.engine.claim(claim)

    def reconfigure(self, options: EngineOptions) -> None:
        """Continue with other settings."""
        if self.engine.reconfigure(options, _now_ms()):
            self._wake(list(self._waiters))
        self._follow_up()

    def tick(self) -> None:
        """Pass the current time to the engine."""
        self.engine.tick(_now_ms())
        self._follow_up()

    def view(self) -> View:
        """Return the state for people and tools."""
        return self.engine.view(_now_ms())

    @property
    def waiting(self) -> int:
        """Number of heartbeats that wait for news."""
        return len(self._waiters)

    def _member(self, worker: str) -> Member:
        return self.engine.members[worker].info(_now_ms())

    # Long polls

    async def _wait(self, worker: str, incarnation: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self._waiters[worker] = news
        timer = loop.call_later(seconds, _resolve, news)
        try:
            await news
        except asyncio.CancelledError:
            if self._waiters.get(worker) is news:  # its connection broke, and no later heartbeat arrived
                self.engine.connection_lost(worker, incarnation, _now_ms())
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

    # Assignment

    def _follow_up(self) -> None:
        """Log events after an input to the engine, and schedule what follows from it."""
        engine = self.engine
        while engine.events:
            log.info("application %s: %s", engine.application, engine.events.popleft())
        if engine.superseded_by is not None:
            if not self._superseded:
                self._superseded = True
                self._wake(list(self._waiters))
                self._on_superseded()
            return
        if engine.changes != self._reported_changes and self._reporting is None:
            delay = self._reported_at + _MIN_CHANGE_INTERVAL_S - clock.monotonic()
            self._reporting = asyncio.get_running_loop().call_later(max(delay, 0), self._report_change)
        if engine.regrant_due and self._regrant is None:
            # Not at once, since more may arrive in the same turn of the loop; and for at most half of the time.
            delay = self._last_regrant_at + self._regrant_seconds - clock.monotonic()
            self._regrant = asyncio.get_running_loop().call_later(max(delay, 0), self._regrant_now)
        if engine.plan_due:
            self._due.set()

    def _regrant_now(self) -> None:
        began = clock.monotonic()
        self._regrant = None
        try:
            self._wake(sorted(self.engine.regrant()))
        except Exception:
            log.exception(
                "application %s: cannot update the assignment after changes of owners; computing a new one",
                self.engine.application,
            )
            self.engine.discard_plan()
            self._due.set()
        self._last_regrant_at = clock.monotonic()
        self._regrant_seconds = self._last_regrant_at - began

    def _report_change(self) -> None:
        self._reporting = None
        self._reported_at = clock.monotonic()
        self._reported_changes = self.engine.changes
        self._on_change()

    async def _plan(self) -> None:
        """Compute, store and publish assignments when they are due."""
        waits = iter(_BACKOFF)
        while True:
            await self._due.wait()
            self._due.clear()
            began = clock.monotonic()
            try:
                await self._plan_once()
                waits = iter(_BACKOFF)
            except Exception as error:
                self.engine.discard_plan()
                self._due.set()
                if isinstance(error, StoreError):
                    self.save_failures += 1
                    log.error(
                        "application %s: cannot store the assignment; workers keep theirs: %s",
                        self.engine.application,
                        error,
                    )
                else:
                    log.exception(
                        "application %s: cannot compute an assignment; workers keep theirs", self.engine.application
                    )
                await asyncio.sleep(next(waits))
            else:
                # After a long computation, leave heartbeats at least as much time.
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
        plan = job.run() if size <= _SMALL_ASSIGNMENT else await asyncio.to_thread(job.run)
        self.plans += 1
        self.plan_seconds += clock.monotonic() - began
        view = engine.adopt(plan)
        if view is not None and self._store is not None:
            began = clock.monotonic()
            await self._store.save(view)
            self.save_seconds += clock.monotonic() - began
        changed = engine.publish()
        if changed:
            log.info(
                "application %s: epoch %d.%d changes the assignment of %s",
                engine.application,
                *engine.epoch,
                _workers(len(changed)),
            )
        self._wake(sorted(changed))
        self._follow_up()


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _resolve(news: asyncio.Future[None]) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):
        news.set_result(None)


def _now_ms() -> int:
    return int(clock.monotonic() * 1000)
