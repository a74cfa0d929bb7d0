"""The source of the console's documents in the operator: computed on demand, never more often than it can afford."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from millpond.console import Unavailable
from millpond.drawing import MOST_PLACES, graph_of_overview, places, svg
from millpond.protocol import View, clock
from millpond.protocol.overview import ApplicationOverview, ApplicationSummary
from millpond_operator.controllers.events import EventHistory
from millpond_operator.kubernetes import Cache, kinds
from millpond_operator.resources import StreamApp

from .documents import overview, summary, typed

__all__ = ("OperatorConsole",)

T = TypeVar("T")

#: How long an answer is reused, at least: so many viewers cost as much as one.
_KEPT_S = 1.0
#: An answer is reused for this many times as long as it took to compute, so the console takes a twentieth of the time.
_SHARE = 20
#: How long the list of applications is computed without letting heartbeats through.
_SLICE_S = 0.01
#: Documents of an application with more tasks are made by a thread, so that heartbeats are answered meanwhile.
_MANY_TASKS = 200
_MAX_OVERVIEWS = 64


@dataclass
class _Kept(Generic[T]):
    """An answer that is reused for a while."""

    answer: T
    until: float


class OperatorConsole:
    """The console's documents; `lead` makes them available.

    Until then this replica stands by, and says so.
    """

    def __init__(self) -> None:
        self._cache: Cache | None = None
        self._view: Callable[[StreamApp], View | None] = lambda _app: None
        self._history = EventHistory()
        self._ready: Callable[[], bool] = lambda: False
        self._clock: Callable[[], datetime] = clock.now
        self._summaries: _Kept[tuple[ApplicationSummary, ...]] | None = None
        self._overviews: dict[tuple[str, str], _Kept[ApplicationOverview | None]] = {}
        self._pictures: dict[tuple[str, str], str | None] = {}
        self._lock = asyncio.Lock()

    def lead(
        self,
        cache: Cache,
        view: Callable[[StreamApp], View | None],
        history: EventHistory,
        ready: Callable[[], bool],
    ) -> None:
        """Serve documents from now on.

        Args:
            cache: the known objects.
            view: returns the coordinator's view of an application.
            history: the last events.
            ready: returns whether all objects are known.
        """
        self._cache, self._view, self._history, self._ready = cache, view, history, ready

    async def summaries(self) -> Sequence[ApplicationSummary]:
        """Return all StreamApps, by namespace and name."""
        cache = self._known()
        async with self._lock:
            if self._summaries is None or self._summaries.until <= clock.monotonic():
                self._summaries = await _measured(lambda: self._summarize(cache))
            return self._summaries.answer

    async def overview(self, namespace: str, name: str) -> ApplicationOverview | None:
        """Return one StreamApp; None if it does not exist."""
        cache, key = self._known(), (namespace, name)
        async with self._lock:
            kept = self._overviews.pop(key, None)
            if kept is None or kept.until <= clock.monotonic():
                kept = await _measured(lambda: self._overview(cache, namespace, name))
            self._overviews[key] = kept
            while len(self._overviews) > _MAX_OVERVIEWS:
                del self._overviews[next(iter(self._overviews))]
            return kept.answer

    async def picture(self, namespace: str, name: str) -> str | None:
        """Return the drawn topology of a StreamApp; None if there is none, or it is too large to draw."""
        found = await self.overview(namespace, name)
        if found is None or found.topology is None:
            return None
        async with self._lock:
            key = (found.drawing, name)
            if key not in self._pictures:
                parts = {int(task.task.partition("_")[0]) for task in found.tasks}
                graph = graph_of_overview(found.topology, parts)
                # A tenant may report any topology: one that takes long to lay out must not stop the operator.
                drawable = places(graph) <= MOST_PLACES
                self._pictures[key] = await asyncio.to_thread(svg, graph, name, live=True) if drawable else None
                while len(self._pictures) > _MAX_OVERVIEWS:
                    del self._pictures[next(iter(self._pictures))]
            return self._pictures[key]

    def _known(self) -> Cache:
        if self._cache is None:
            raise Unavailable("This replica of the operator stands by and knows no applications: ask the leading one.")
        if not self._ready():
            raise Unavailable("This operator has just begun to lead and lists all objects: try again in some seconds.")
        return self._cache

    async def _summarize(self, cache: Cache) -> tuple[ApplicationSummary, ...]:
        rows, pause = [], clock.monotonic() + _SLICE_S
        for key in sorted(cache.keys(kinds.STREAM_APP)):
            raw = cache.get(kinds.STREAM_APP, key.namespace, key.name)
            if raw is not None:
                app = typed(raw)
                view = self._view(app)
                rows.append(await _computed(view, functools.partial(summary, app, view)))
            if clock.monotonic() >= pause:
                await asyncio.sleep(0)
                pause = clock.monotonic() + _SLICE_S
        return tuple(rows)

    async def _overview(self, cache: Cache, namespace: str, name: str) -> ApplicationOverview | None:
        raw = cache.get(kinds.STREAM_APP, namespace, name)
        if raw is None:
            return None
        app = typed(raw)
        view, pods = self._view(app), cache.of_app(kinds.POD, namespace, name)
        events, now = self._history.of(namespace, name), self._clock()
        return await _computed(view, lambda: overview(app, view, pods, events, now))


async def _computed(view: View | None, compute: Callable[[], T]) -> T:
    """Return a document, computed by a thread if the application is large."""
    tasks = len(view.active) if view is not None else 0
    return compute() if tasks <= _MANY_TASKS else await asyncio.to_thread(compute)


async def _measured(compute: Callable[[], Awaitable[T]]) -> _Kept[T]:
    """Compute an answer, and keep it the longer, the longer it took."""
    began = clock.monotonic()
    answer = await compute()
    now = clock.monotonic()
    return _Kept(answer, now + max(_KEPT_S, (now - began) * _SHARE))
