"""Metrics in Prometheus' format on `/metrics`, with `/healthz` and `/readyz` beside them.

Nothing is measured per record: the loop adds up per batch and per commit, and a scrape reads what the tasks, stores
and clients know of themselves. Names and meanings follow semantics.md 1.8, in base units.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .config import Config
from .states import WorkerState

__all__ = ("Observed", "WorkerMetrics")

log = logging.getLogger(__name__)

#: The loop counts as alive while its last turn is not older than this.
_STUCK_S = 60.0

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Observed(Protocol):
    """What the metrics look at."""

    state: WorkerState
    last_turn: float


class WorkerMetrics:
    """Figures of one worker.

    Attributes:
        records_processed: since the start.
        recoveries: how often the worker went back to the last commit.
        port: where they are served, 0 while they are not.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._registry = CollectorRegistry()
        self._labels = {"application_id": config.application_id, "worker": config.worker_id}
        self.records_processed = 0
        self.process_seconds = 0.0
        self.recoveries = 0
        self.commits = 0
        self.port = 0
        self.collector: Any = None
        self._manager: Any = None
        self._state_file: Any = None
        self._worker: Observed | None = None
        self._commit_seconds = Histogram(
            "millpond_worker_commit_seconds",
            "Time of a commit, from the flush to the rows in the state file.",
            list(self._labels),
            registry=self._registry,
            buckets=_SECONDS,
        ).labels(**self._labels)
        self._registry.register(_Scrape(self))

    def watch(self, manager: Any, state_file: Any) -> None:
        """Read tasks and stores from here on."""
        self._manager = manager
        self._state_file = state_file

    def processed(self, records: int, seconds: float) -> None:
        """A turn of the loop processed so many records in so long."""
        self.records_processed += records
        self.process_seconds += seconds

    def committed(self, seconds: float, _partitions: int) -> None:
        """A commit is through."""
        self.commits += 1
        self._commit_seconds.observe(seconds)

    # Serving --------------------------------------------------------------------------------------------------

    @contextmanager
    def serving(self, worker: Observed) -> Iterator[None]:
        """Serve over HTTP in a thread while the block runs, as `http.host` and `http.port` say."""
        self._worker = worker
        if self._config.http_port < 0:
            yield
            return
        metrics = make_wsgi_app(self._registry)

        def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            path = environ.get("PATH_INFO", "")
            if path == "/metrics":
                answer: Iterable[bytes] = metrics(environ, start_response)
                return answer
            checks = {"/healthz": self.healthy, "/readyz": self.ready}
            if path not in checks:
                start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
                return [b"paths: /metrics /healthz /readyz\n"]
            good = checks[path]()
            start_response("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [f"{worker.state.value}\n".encode()]

        server = make_server(self._config.http_host, self._config.http_port, app, WSGIServer, _Quiet)
        self.port = server.server_port
        log.info("metrics on http://%s:%d/metrics", self._config.http_host, self.port)
        threading.Thread(target=server.serve_forever, args=(0.1,), name="millpond-http", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()

    def healthy(self) -> bool:
        """Whether the loop turns."""
        worker = self._worker
        if worker is None or worker.state in (WorkerState.ERROR, WorkerState.NOT_RUNNING):
            return False
        return worker.state is WorkerState.STARTING or time.monotonic() - worker.last_turn < _STUCK_S

    def ready(self) -> bool:
        """Whether records are processed."""
        return self._worker is not None and self._worker.state is WorkerState.RUNNING

    # Reading --------------------------------------------------------------------------------------------------

    def families(self) -> Iterator[Metric]:
        """One scrape."""
        yield from self._worker_families()
        tasks = [] if self._manager is None else list(self._manager.tasks.values())
        yield from self._task_families(tasks)
        yield from self._processor_families(tasks)
        yield from self._store_families(tasks)
        yield from self._restore_families()

    def _worker_families(self) -> Iterator[Metric]:
        state = self._gauge("millpond_worker_state", "1 for the state the worker is in.", "state")
        for each in WorkerState:
            state.add_metric(
                [*self._labels.values(), each.value], float(self._worker is not None and self._worker.state is each)
            )
        yield state
        for name, text, value in (
            ("millpond_worker_processed_records", "Records processed.", self.records_processed),
            ("millpond_worker_process_seconds", "Time spent in processing.", self.process_seconds),
            ("millpond_worker_produced_records", "Records sent, changelogs included.", self._sent()),
            ("millpond_worker_recoveries", "Times the worker went back to the last commit.", self.recoveries),
        ):
            counter = CounterMetricFamily(name, text, labels=list(self._labels))
            counter.add_metric(list(self._labels.values()), value)
            yield counter

    def _sent(self) -> int:
        return 0 if self.collector is None else int(self.collector.sent)

    def _task_families(self, tasks: list[Any]) -> Iterator[Metric]:
        processed = self._counter("millpond_task_processed_records", "Records processed.", "task")
        dropped = self._counter("millpond_task_dropped_records", "Records dropped by operators and handlers.", "task")
        enforced = self._counter("millpond_task_enforced_processing", "Runs past max.task.idle.ms.", "task")
        punctuated = self._counter("millpond_task_punctuations", "Punctuators fired.", "task")
        buffered = self._gauge("millpond_task_buffered_records", "Records read ahead.", "task")
        lateness = self._gauge(
            "millpond_task_record_lateness_seconds", "Stream time less the last record's timestamp.", "task"
        )
        e2e = self._gauge("millpond_task_record_e2e_latency_seconds", "Now less the last record's timestamp.", "task")
        now_ms = time.time() * 1000
        for task in tasks:
            labels = [*self._labels.values(), str(task.id)]
            processed.add_metric(labels, task.processed)
            dropped.add_metric(labels, task.context.dropped)
            enforced.add_metric(labels, task.group.enforced)
            punctuated.add_metric(labels, task.punctuated)
            buffered.add_metric(labels, task.group.buffered())
            if task.latest_timestamp >= 0:
                lateness.add_metric(labels, max(0, task.context.stream_time - task.latest_timestamp) / 1000)
                e2e.add_metric(labels, (now_ms - task.latest_timestamp) / 1000)
        yield from (processed, dropped, enforced, punctuated, buffered, lateness, e2e)

    def _processor_families(self, tasks: list[Any]) -> Iterator[Metric]:
        """Source nodes, by the topic they read; what comes after them is one compiled call and is not counted apart."""
        position = self._gauge("millpond_processor_position_offset", "Next offset to process.", "task", "topic")
        waiting = self._gauge("millpond_processor_buffered_records", "Records read ahead.", "task", "topic")
        for task in tasks:
            for topic, queue in list(task.inputs.items()):
                labels = [*self._labels.values(), str(task.id), topic]
                position.add_metric(labels, max(0, queue.position))
                waiting.add_metric(labels, queue.buffered)
        yield from (position, waiting)

    def _store_families(self, tasks: list[Any]) -> Iterator[Metric]:
        staged = self._gauge("millpond_store_staged_bytes", "State staged for the next commit.", "task", "store")
        cached = self._gauge(
            "millpond_store_cache_bytes", "Entries held in memory, staged ones included.", "task", "store"
        )
        for task in tasks:
            for name, store in task.stores.items():
                labels = [*self._labels.values(), str(task.id), name]
                staged.add_metric(labels, store.staged_bytes())
                cached.add_metric(labels, store.cache_bytes())
        yield from (staged, cached)

    def _restore_families(self) -> Iterator[Metric]:
        restored = self._counter("millpond_restore_records", "Changelog records applied.", "store", "partition")
        remaining = self._gauge("millpond_restore_remaining_records", "Offsets to go.", "store", "partition")
        restorations = [] if self._manager is None else list(self._manager.reader.restorations.values())
        for each in restorations:
            labels = [*self._labels.values(), each.store.name, str(each.store.partition)]
            restored.add_metric(labels, each.restored)
            remaining.add_metric(labels, each.remaining)
        yield from (restored, remaining)

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=[*self._labels, *labels])

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=[*self._labels, *labels])


class _Scrape(Collector):
    """Reads the worker when somebody asks."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families()


class _Quiet(WSGIRequestHandler):
    """Does not write a line per request."""

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
