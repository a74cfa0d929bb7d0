"""Metrics in Prometheus' format on `/metrics`, with `/healthz` and `/readyz` beside them.

Nothing is measured per record: the loop adds up per batch and per commit, and a scrape reads what the tasks, stores
and clients know of themselves. Names and meanings follow semantics.md 1.8, in base units.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from millpond.runtime.blockers import Blockers
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.states import WorkerState

from .metric_families import BOOTSTRAP, HELD, INPUTS, RESTORATIONS, ROCKSDB, STORES, TASKS, MetricRow, families
from .server import HttpServer

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ("ObservedTasks", "WorkerMetrics")

log = logging.getLogger(__name__)

#: The loop counts as alive while its last turn is not older: the default of `max.poll.interval.ms`, after which Kafka Streams
#: gives up a thread. A probe that fails earlier would kill a worker for a slow record, and then again for the same one.
_STUCK_S = 300.0

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ObservedTasks(Protocol):
    """What the metrics look at."""

    waiting: Blockers
    contact: BrokerContact

    @property
    def state(self) -> WorkerState:
        """Where the worker is in its life."""

    @property
    def last_turn(self) -> float:
        """When the last turn of its loop began, in monotonic seconds."""

    @property
    def rejection(self) -> str | None:
        """Why the coordinator has never let the worker in; None when it has, or when there is none."""


class WorkerMetrics:
    """Figures of one worker.

    Attributes:
        polls: polls that brought records.
        polled_records: what they brought.
        records_processed: since the start.
        recoveries: how often the worker went back to the last commit.
        clients_replaced: how many Kafka clients did not find the brokers again and were replaced.
        registry: what is served on `/metrics`; others may register with it.
        http: the server; others may add routes to it before the start.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.registry = CollectorRegistry()
        self._labels = {"application_id": config.application_id, "worker": config.worker_id}
        self.polls = 0
        self.polled_records = 0
        self.records_processed = 0
        self.process_seconds = 0.0
        self.recoveries = 0
        self.clients_replaced = 0
        self.commits = 0
        self.http = HttpServer(config.http_host, config.http_port)
        self.http.route("GET", "/metrics", self._metrics)
        self.http.route("GET", "/healthz", self._healthz)
        self.http.route("GET", "/readyz", self._readyz)
        self.collector: Any = None
        self._executor: Any = None
        self._topics: Any = None
        self._state_file: Any = None
        self._worker: ObservedTasks | None = None
        self._commit_seconds = Histogram(
            "millpond_worker_commit_seconds",
            "Time of a commit, from the flush to the rows in the state file.",
            list(self._labels),
            registry=self.registry,
            buckets=_SECONDS,
        ).labels(**self._labels)
        self.registry.register(_Scrape(self))

    @property
    def port(self) -> int:
        """Where they are served, 0 while they are not."""
        return self.http.port

    def watch(self, executor: Any, state_file: Any, topics: Any = None) -> None:
        """Read tasks, stores and the watch over topics from here on."""
        self._topics = topics
        self._executor = executor
        self._state_file = state_file

    def polled(self, records: int) -> None:
        """A poll brought so many records."""
        self.polls += 1
        self.polled_records += records

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
    def serving(self, worker: ObservedTasks) -> Iterator[None]:
        """Serve over HTTP in a thread while the block runs, as `http.host` and `http.port` say.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        self._worker = worker
        with self.http:
            if self.http.url is not None:
                log.info("metrics on %s/metrics", self.http.url)
            yield

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        names = request.query.getall("name[]", [])
        registry: Any = self.registry.restricted_registry(names) if names else self.registry
        # In a thread of its own: the event loop has heartbeats to answer meanwhile.
        body: bytes = await asyncio.to_thread(encode, registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _healthz(self, _request: web.Request) -> web.StreamResponse:
        return self._checked(self.healthy())

    async def _readyz(self, _request: web.Request) -> web.StreamResponse:
        return self._checked(self.ready(), self._obstacle())

    def _checked(self, good: bool, why_not: str | None = None) -> web.Response:
        from aiohttp import web

        state = "created" if self._worker is None else self._worker.state.value
        more = "" if good or why_not is None else f": {why_not}"
        return web.Response(status=200 if good else 503, text=f"{state}{more}\n")

    def _obstacle(self) -> str | None:
        """What the worker waits for."""
        worker = self._worker
        if worker is None:
            return None
        trouble = worker.waiting.trouble(0.0)
        return worker.rejection if trouble is None else trouble.message

    def healthy(self) -> bool:
        """Whether the loop turns."""
        worker = self._worker
        if worker is None or worker.state in (WorkerState.ERROR, WorkerState.NOT_RUNNING):
            return False
        return worker.state is WorkerState.STARTING or time.monotonic() - worker.last_turn < _STUCK_S

    def ready(self) -> bool:
        """Whether records are processed."""
        worker = self._worker
        return (
            worker is not None
            and worker.state is WorkerState.RUNNING
            and worker.rejection is None
            and not worker.contact.lost
        )

    # Reading --------------------------------------------------------------------------------------------------

    def families(self) -> Iterator[Metric]:
        """One scrape."""
        yield from self._worker_families()
        executor = self._executor
        tasks = [] if executor is None else list(executor.tasks.values())
        labels = self._labels
        yield from families(TASKS, labels, ["task"], [((str(task.id),), task) for task in tasks])
        inputs = [((str(task.id), topic), queue) for task in tasks for topic, queue in list(task.inputs.items())]
        yield from families(INPUTS, labels, ["task", "topic"], inputs)
        stores = [((str(task.id), name), store) for task in tasks for name, store in task.stores.items()]
        yield from families(STORES, labels, ["task", "store"], stores)
        held = [] if executor is None else list(executor.held.values())
        restoring = [
            ((each.store.name, str(each.store.partition)), each) for task in held for each in list(task.changelogs)
        ]
        yield from families(HELD, labels, ["task", "role"], [((str(task.id), task.role.value), task) for task in held])
        yield from families(RESTORATIONS, labels, ["store", "partition"], restoring)
        bootstrap = None if executor is None else executor.bootstrap
        yield from families(BOOTSTRAP, labels, [], [] if bootstrap is None else [((), bootstrap)])
        yield from families(ROCKSDB, labels, [], [] if self._state_file is None else [((), self._state_file)])

    def _worker_families(self) -> Iterator[Metric]:
        labels = self._labels
        states = [
            ((each.value,), float(self._worker is not None and self._worker.state is each)) for each in WorkerState
        ]
        state = MetricRow("millpond_worker_state", "1 for the state the worker is in.", float)
        yield from families([state], labels, ["state"], states)
        for name, text, value in (
            ("millpond_worker_polls", "Polls of the consumer that brought records.", self.polls),
            ("millpond_worker_polled_records", "Records they brought.", self.polled_records),
            ("millpond_worker_processed_records", "Records processed.", self.records_processed),
            ("millpond_worker_process_seconds", "Time spent in processing.", self.process_seconds),
            ("millpond_worker_produced_records", "Records sent, changelogs included.", self._sent()),
            ("millpond_worker_recoveries", "Times the worker went back to the last commit.", self.recoveries),
            (
                "millpond_worker_clients_replaced",
                "Kafka clients that did not find the brokers again and were replaced.",
                self.clients_replaced,
            ),
        ):
            yield from families([MetricRow(name, text, float, counter=True)], labels, [], [((), value)])
        waiting = MetricRow("millpond_worker_outbox_records", "Records that wait for the next transaction.", float)
        yield from families([waiting], labels, [], [((), self._waiting())])
        silent = MetricRow(
            "millpond_worker_brokers_silent_seconds", "For how long no broker has answered; 0 while they do.", float
        )
        yield from families(
            [silent], labels, [], [((), 0.0 if self._worker is None else self._worker.contact.silent_s)]
        )
        unread = MetricRow("millpond_worker_unread_partitions", "Partitions of inputs that no task reads.", float)
        yield from families([unread], labels, [], [((), 0 if self._topics is None else self._topics.unread)])
        held = MetricRow("millpond_worker_tasks", "Tasks the worker holds.", float)
        yield from families([held], labels, [], [((), 0 if self._executor is None else len(self._executor.tasks))])

    def _sent(self) -> int:
        return 0 if self.collector is None else int(self.collector.sent)

    def _waiting(self) -> int:
        return 0 if self.collector is None else len(self.collector.outbox)


class _Scrape(Collector):
    """Reads the worker when somebody asks."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families()
