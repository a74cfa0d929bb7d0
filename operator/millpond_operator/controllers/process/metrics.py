"""The operator's metrics. Their names are those of controller-runtime, so its dashboards and alerts work unchanged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millpond.protocol import clock

from .http_connections import CLOSE_REASONS
from .work_queue import WorkQueue

__all__ = ("CONTENT_TYPE", "UPGRADES_WAITING", "MetricSnapshot", "OperatorMetrics")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
K = TypeVar("K")

UPGRADES_WAITING = (
    "StreamApps that wait for their turn to restart their workers for this version of the operator. Bad when it does "
    "not fall for hours: a restart before them does not end."
)
"""The help text of `millpond_operator_upgrades_waiting`."""

_REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 10, 30)
_RECONCILE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_QUEUE_BUCKETS = (0.0001, 0.001, 0.01, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class OperatorMetrics:
    """All metrics of one operator. The API server client reports its requests to `requested`."""

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
            "Reconciliations in progress.",
            ["controller"],
            registry=self.registry,
        )
        self._leading = Gauge(
            "millpond_operator_leading",
            "1 while this replica of the operator leads, 0 while it stands by. Bad when it is 0 on all replicas, "
            "or 1 on two.",
            registry=self.registry,
        )
        self._leads = Gauge(
            "leader_election_master_status",
            "1 while this operator leads, 0 while it stands by.",
            ["name"],
            registry=self.registry,
        )
        closed = Counter(
            "millpond_operator_http_closed_connections_total",
            "Connections to the HTTP port that the operator closed before the response was sent, by reason. Bad "
            "when it grows: a client is too slow, or there are too many of them.",
            ["reason"],
            registry=self.registry,
        )
        self._closed_connections = {reason: closed.labels(reason) for reason in CLOSE_REASONS}
        ProcessCollector(registry=self.registry)

    def requested(self, method: str, verb: str, code: str, seconds: float) -> None:
        """Record a finished request to the API server."""
        self._requests.labels(code, method).inc()
        self._request_seconds.labels(verb).observe(seconds)

    def closed_connection(self, reason: str) -> None:
        """Record that a connection to the HTTP port was closed because of a limit."""
        self._closed_connections[reason].inc()

    def leads(self, name: str, *, now: bool) -> None:
        """Record whether this operator leads."""
        self._leads.labels(name).set(int(now))
        self._leading.set(int(now))

    def measured(
        self, controller: str, handle: Callable[[K], Awaitable[timedelta | None]]
    ) -> Callable[[K], Awaitable[timedelta | None]]:
        """Return `handle` wrapped so that each call is recorded as a reconciliation of a controller."""
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

    def of_queue(self, name: str) -> WorkQueueMetrics:
        """Return the metrics of a work queue; give it the queue with `watch` afterwards."""
        return WorkQueueMetrics(self.registry, name)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed at each scrape."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def add(self, collector: Collector) -> None:
        """Expose the metrics of another component as well."""
        self.registry.register(collector)

    def certificates(self, expiry: Callable[[], Mapping[str, datetime]]) -> None:
        """Expose when the coordinator's certificates expire."""
        self.registry.register(_CertificateExpiry(expiry))

    def collected(self) -> MetricSnapshot:
        """Read all metrics now. The result may be encoded in another thread."""
        return MetricSnapshot(list(self.registry.collect()))

    def exposed(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return self.collected().encoded()


class MetricSnapshot:
    """All metrics at one moment."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """Return the metric families."""
        return self._families

    def encoded(self) -> bytes:
        """Return them in the Prometheus text format."""
        return generate_latest(cast(CollectorRegistry, self))


class _CertificateExpiry(Collector):
    def __init__(self, expiry: Callable[[], Mapping[str, datetime]]) -> None:
        self._expiry = expiry

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "millpond_operator_certificate_expiry_timestamp_seconds",
            "When a certificate of the coordinator expires, in seconds since 1970. Bad when it is less than 14 "
            "days ahead: the operator renews it long before.",
            labels=["certificate"],
        )
        for name, moment in self._expiry().items():
            family.add_metric([name], moment.timestamp())
        yield family


class WorkQueueMetrics:
    """The metrics of one work queue."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        self._registry = registry
        self._name = name
        self._adds = Counter("workqueue_adds_total", "Keys added to the queue.", ["name"], registry=registry).labels(
            name
        )
        self._retries = Counter(
            "workqueue_retries_total", "Retries of keys after a failure.", ["name"], registry=registry
        ).labels(name)
        self._waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited in the queue.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        ).labels(name)
        self._works = Histogram(
            "workqueue_work_duration_seconds",
            "How long the work on keys took.",
            ["name"],
            buckets=_QUEUE_BUCKETS,
            registry=registry,
        ).labels(name)

    def added(self) -> None:
        """Record an added key."""
        self._adds.inc()

    def retried(self) -> None:
        """Record a retry."""
        self._retries.inc()

    def taken(self, waited_s: float) -> None:
        """Record the waiting time of a key taken from the queue."""
        self._waits.observe(waited_s)

    def worked(self, took_s: float) -> None:
        """Record the duration of the work on a key."""
        self._works.observe(took_s)

    def watch(self, queue: WorkQueue[Any]) -> None:
        """Expose the queue's depth and its work in progress."""
        for name, text, value in (
            ("workqueue_depth", "Keys ready to be worked on.", lambda: float(len(queue))),
            (
                "workqueue_unfinished_work_seconds",
                "How long the unfinished work on keys has been in progress, summed over the keys.",
                lambda: sum(queue.running_since()),
            ),
            (
                "workqueue_longest_running_processor_seconds",
                "How long the longest unfinished work on one key has been in progress.",
                lambda: max(queue.running_since(), default=0.0),
            ),
        ):
            Gauge(name, text, ["name"], registry=self._registry).labels(self._name).set_function(value)
