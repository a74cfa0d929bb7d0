"""Figures of the operator, named as controllers written with controller-runtime name theirs: dashboards and alerts fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.registry import Collector

from millpond.protocol import clock

from .work_queue import WorkQueue

__all__ = ("CONTENT_TYPE", "OperatorMetrics")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
K = TypeVar("K")

_REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 10, 30)
_RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_QUEUE_BUCKETS = (0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics:
    """All figures of one operator.

    It takes requests to the API server (`requested`), and is an argument of the client.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API server, by method and status; code is <error> when there was no answer.",
            ["code", "method"],
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "rest_client_request_duration_seconds",
            "How long requests to the API server took.",
            ["verb"],
            buckets=_REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._reconciles = Counter(
            "controller_runtime_reconcile_total",
            "Reconciliations, by result: success, requeue_after or error.",
            ["controller", "result"],
            registry=self.registry,
        )
        self._reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciliations took.",
            ["controller"],
            buckets=_RECONCILE_BUCKETS,
            registry=self.registry,
        )
        self._active = Gauge(
            "controller_runtime_active_workers",
            "Reconciliations under way.",
            ["controller"],
            registry=self.registry,
        )
        self._leads = Gauge(
            "leader_election_master_status",
            "1 while this operator leads, 0 while it stands by.",
            ["name"],
            registry=self.registry,
        )

    def requested(self, method: str, verb: str, code: str, seconds: float) -> None:
        """A request to the API server ended."""
        self._requests.labels(code, method).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def leads(self, name: str, *, now: bool) -> None:
        """This operator leads from now on, or does not."""
        self._leads.labels(name).set(int(now))

    def measured(
        self, controller: str, handle: Callable[[K], Awaitable[timedelta | None]]
    ) -> Callable[[K], Awaitable[timedelta | None]]:
        """`handle`, whose calls are counted as reconciliations of a controller."""
        counts = {
            result: self._reconciles.labels(controller, result) for result in ("success", "requeue_after", "error")
        }
        seconds, active = self._reconcile_seconds.labels(controller), self._active.labels(controller)

        async def measured(key: K) -> timedelta | None:
            began = clock.monotonic()
            active.inc()
            result = "error"
            try:
                again = await handle(key)
                result = "success" if again is None else "requeue_after"
                return again
            finally:
                active.dec()
                counts[result].inc()
                seconds.observe(clock.monotonic() - began)

        return measured

    def of_queue(self, name: str) -> QueueFigures:
        """What a work queue of that name reports to; the queue itself is given to it afterwards, with `watch`."""
        return QueueFigures(self.registry, name)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A figure that is asked for at each scrape."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def add(self, collector: Collector) -> None:
        """Expose another part's figures too."""
        self.registry.register(collector)

    def exposed(self) -> bytes:
        """All of them, as text."""
        return generate_latest(self.registry)


class QueueFigures:
    """Figures of one work queue."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        self._registry = registry
        self._name = name
        self._adds = Counter("workqueue_adds_total", "Keys put on the queue.", ["name"], registry=registry).labels(name)
        self._retries = Counter(
            "workqueue_retries_total", "Keys put aside because they failed.", ["name"], registry=registry
        ).labels(name)
        self._waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        ).labels(name)
        self._works = Histogram(
            "workqueue_work_duration_seconds",
            "How long keys were worked on.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        ).labels(name)

    def added(self) -> None:
        """A key was put on the queue."""
        self._adds.inc()

    def retried(self) -> None:
        """A key was put aside because it failed."""
        self._retries.inc()

    def taken(self, waited_s: float) -> None:
        """A key was taken from the queue."""
        self._waits.observe(waited_s)

    def worked(self, took_s: float) -> None:
        """Work on a key ended."""
        self._works.observe(took_s)

    def watch(self, queue: WorkQueue[Any]) -> None:
        """Expose what the queue holds."""
        for name, text, value in (
            ("workqueue_depth", "Keys that are ready to be worked on.", lambda: float(len(queue))),
            (
                "workqueue_unfinished_work_seconds",
                "How long all keys under way have been worked on together.",
                lambda: sum(queue.running_since()),
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How long the key has been worked on that has been worked on for longest.",
                lambda: max(queue.running_since(), default=0.0),
            ),
        ):
            Gauge(name, text, ["name"], registry=self._registry).labels(self._name).set_function(value)
