"""The metrics of a worker in Prometheus' format on `/metrics`, and its probes `/healthz` and `/readyz`.

Nothing is measured per record, unless `metrics.recording.level` asks for it: the loop counts per batch and per commit,
and a scrape reads the counters of tasks, stores and clients. Metrics have base units.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from millpond.runtime.blockers import Blockers
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.processing.node_figures import LATENCIES
from millpond.runtime.states import WorkerState
from millpond.texts import well_formed

from .metric_families import (
    BOOTSTRAP,
    DROPS,
    HELD,
    INPUT_LAGS,
    INPUTS,
    LOAD,
    RESTORATIONS,
    ROCKSDB,
    STORES,
    TASKS,
    MetricRow,
    families,
)
from .server import HttpServer
from .user_metrics import node_families, store_families, user_families

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ("COMMIT_FAILURES", "ObservedTasks", "WorkerMetrics")

log: logging.Logger = logging.getLogger(__name__)

#: The loop counts as stuck when its last turn is older: the default of `max.poll.interval.ms`, after which Kafka
#: Streams gives up a thread. An earlier failure of the probe would kill a worker for a slow record, again and again.
_STUCK_S = 300.0
_PAGE_BYTES = resource.getpagesize()

COMMIT_FAILURES = ("fenced", "timeout", "error")
"""Reasons of failed commits."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ObservedTasks(Protocol):
    """The interface of the worker for probes and metrics."""

    waiting: Blockers
    contact: BrokerContact

    @property
    def state(self) -> WorkerState:
        """The state of the worker."""

    @property
    def last_turn(self) -> float:
        """The start of the last turn of the worker's loop, in monotonic seconds."""

    @property
    def rejection(self) -> str | None:
        """The reason why the coordinator has not admitted the worker; None if it has, or without a coordinator."""


class WorkerMetrics:
    """The metrics of one worker.

    Attributes:
        polls: number of polls that returned records.
        polled_records: number of records that they returned.
        records_processed: number of records processed since the start.
        busy_seconds: time that the loop spent on records and commits since the start, as `WorkerLoad.busy_ms`.
        recoveries: how often the worker returned to the last commit.
        clients_replaced: number of Kafka clients that lost their brokers and were replaced.
        registry: the registry served on `/metrics`; other parts may register with it.
        http: the HTTP server; other parts may add routes to it before the start.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.registry: CollectorRegistry = CollectorRegistry()
        self._labels = {"application_id": config.application_id, "worker": config.worker_id}
        self.polls: int = 0
        self.polled_records: int = 0
        self.records_processed: int = 0
        self.process_seconds: float = 0.0
        self.busy_seconds: float = 0.0
        self.recoveries = 0
        self.clients_replaced = 0
        self.commits: int = 0
        self.http: HttpServer = HttpServer(config.http_host, config.http_port)
        self.http.route("GET", "/metrics", self._metrics)
        self.http.route("GET", "/healthz", self._healthz)
        self.http.route("GET", "/readyz", self._readyz)
        self.collector: Any = None
        self.throttling: Any = None
        self._executor: Any = None
        self._topics: Any = None
        self._state_file: Any = None
        self._load: Any = None
        self._worker: ObservedTasks | None = None
        self._commit_seconds = Histogram(
            "millpond_worker_commit_seconds",
            "Seconds that a commit took, from the flush of the stores to the rows in the state file. Bad when it "
            "nears transaction.timeout.ms: the broker then aborts the transaction.",
            list(self._labels),
            registry=self.registry,
            buckets=_SECONDS,
        ).labels(**self._labels)
        self._e2e_seconds = Histogram(
            "millpond_worker_e2e_latency_seconds",
            "Seconds from the timestamp of a record to the commit of its results. One observation for each task "
            "and commit: its first record, which waited longest. Bad when high quantiles are above what users of "
            "the results accept; the service level of the alerts is 10 seconds.",
            list(self._labels),
            registry=self.registry,
            buckets=LATENCIES,
        ).labels(**self._labels)
        self._input_seconds = Histogram(
            "millpond_input_e2e_latency_seconds",
            "Seconds from the timestamp of a record to the commit of its results, by sub-topology and input topic. Two "
            "observations for each commit and topic partition: its first record and its last. Records keep their "
            "timestamps on the way through repartition topics, so that of a later sub-topology is the latency of the "
            "whole way. Bad when high quantiles are above what users of the results accept.",
            [*self._labels, "subtopology", "topic"],
            registry=self.registry,
            buckets=LATENCIES,
        )
        self._commit_failures = Counter(
            "millpond_worker_commit_failures",
            "Commits that failed, or whose result is unknown, so that the worker went back to the last commit; by "
            "reason: fenced (another worker took over), timeout (the transaction was open too long), or error. Bad"
            " when it grows: records are processed again, and results come later.",
            [*self._labels, "reason"],
            registry=self.registry,
        )
        for reason in COMMIT_FAILURES:
            self._commit_failures.labels(**self._labels, reason=reason)
        self.registry.register(_Scrape(self))

    @property
    def port(self) -> int:
        """The port of the HTTP server; 0 while it is not running."""
        return self.http.port

    def watch(self, executor: Any, state_file: Any, topics: Any = None, load: Any = None) -> None:
        """Set the tasks, the state file, the topics and the load meter that scrapes read."""
        self._load = load
        self._topics = topics
        self._executor = executor
        self._state_file = state_file

    def polled(self, records: int) -> None:
        """Count a poll that returned records."""
        self.polls += 1
        self.polled_records += records

    def processed(self, records: int, seconds: float) -> None:
        """Count the records of one turn of the loop, and their processing time."""
        self.records_processed += records
        self.process_seconds += seconds

    def committed(self, seconds: float, _partitions: int) -> None:
        """Count a completed commit and its duration."""
        self.commits += 1
        self._commit_seconds.observe(seconds)

    def latencies(
        self, timestamps: Iterable[int], input_times: Iterable[tuple[int, str, int, int]], now_ms: int
    ) -> None:
        """Observe end-to-end latencies of a completed commit.

        Args:
            timestamps: the timestamp of the first record of each task in the commit, in epoch milliseconds.
            input_times: sub-topology, topic, and the timestamps of the first and the last record, of each input.
            now_ms: the current time, in epoch milliseconds.
        """
        for each in timestamps:
            self._e2e_seconds.observe(max(0, now_ms - each) / 1000)
        for subtopology, topic, first, last in input_times:
            histogram = self._input_seconds.labels(**self._labels, subtopology=str(subtopology), topic=topic)
            histogram.observe(max(0, now_ms - first) / 1000)
            histogram.observe(max(0, now_ms - last) / 1000)

    def commit_failed(self, reason: str) -> None:
        """Count a failed commit by reason, one of `COMMIT_FAILURES`."""
        self._commit_failures.labels(**self._labels, reason=reason).inc()

    # Serving

    @contextmanager
    def serving(self, worker: ObservedTasks) -> Iterator[None]:
        """Serve on `http.host` and `http.port` in a thread while the block runs.

        Raises:
            ConfigError: the address is not available.
        """
        self._worker = worker
        with self.http:
            if self.http.url is not None:
                log.info("HTTP server: metrics on %s/metrics", self.http.url)
            yield

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        names = request.query.getall("name[]", [])
        registry: Any = self.registry.restricted_registry(names) if names else self.registry
        # In another thread: the event loop must send heartbeats meanwhile.
        body: bytes = await asyncio.to_thread(encode, registry)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _healthz(self, _request: web.Request) -> web.StreamResponse:
        return self._probe_response(ok=self.healthy())

    async def _readyz(self, _request: web.Request) -> web.StreamResponse:
        return self._probe_response(ok=self.ready(), reason=self._obstacle())

    def _probe_response(self, *, ok: bool, reason: str | None = None) -> web.Response:
        from aiohttp import web

        state = "created" if self._worker is None else self._worker.state.value
        suffix = "" if ok or reason is None else f": {reason}"
        return web.Response(status=200 if ok else 503, text=well_formed(f"{state}{suffix}\n"))

    def _obstacle(self) -> str | None:
        """Return the thing that the worker waits for, as text; None if it does not wait."""
        worker = self._worker
        if worker is None:
            return None
        trouble = worker.waiting.trouble(0.0)
        return worker.rejection if trouble is None else trouble.message

    def healthy(self) -> bool:
        """Return whether the worker's loop is running."""
        worker = self._worker
        if worker is None or worker.state in (WorkerState.ERROR, WorkerState.NOT_RUNNING):
            return False
        return worker.state is WorkerState.STARTING or time.monotonic() - worker.last_turn < _STUCK_S

    def ready(self) -> bool:
        """Return whether the worker processes records."""
        worker = self._worker
        return (
            worker is not None
            and worker.state is WorkerState.RUNNING
            and worker.rejection is None
            and not worker.contact.lost
            and not worker.waiting.wait_for_registry
        )

    # Reading

    def families(self) -> Iterator[Metric]:
        """Yield the metrics of one scrape."""
        yield from self._worker_families()
        executor = self._executor
        tasks = [] if executor is None else list(executor.tasks.values())
        labels = self._labels
        yield from families(TASKS, labels, ["task"], [((str(task.id),), task) for task in tasks])
        drops = [((str(task.id), reason), count) for task in tasks for reason, count in task.context.drops.items()]
        yield from families(DROPS, labels, ["task", "reason"], drops)
        inputs = [((str(task.id), topic), queue) for task in tasks for topic, queue in list(task.inputs.items())]
        yield from families(INPUTS, labels, ["task", "topic"], inputs)
        yield from node_families(labels, tasks)
        yield from user_families(labels, tasks)
        yield from self._load_families()
        stores = [((str(task.id), name), store) for task in tasks for name, store in task.stores.items()]
        yield from families(STORES, labels, ["task", "store"], stores)
        yield from store_families(labels, tasks)
        held = [] if executor is None else list(executor.held.values())
        restoring = [
            ((each.store.name, str(each.store.partition)), each) for task in held for each in list(task.changelogs)
        ]
        yield from families(HELD, labels, ["task", "role"], [((str(task.id), task.role.value), task) for task in held])
        yield from families(RESTORATIONS, labels, ["store", "partition"], restoring)
        bootstrap = None if executor is None else executor.bootstrap
        yield from families(BOOTSTRAP, labels, [], [] if bootstrap is None else [((), bootstrap)])
        yield from families(ROCKSDB, labels, [], [] if self._state_file is None else [((), self._state_file)])

    def _load_families(self) -> Iterator[Metric]:
        load = None if self._load is None else self._load.latest
        lags = (
            []
            if load is None
            else [
                ((task, topic, task.rpartition("_")[2]), each)
                for task, of_task in load.tasks.items()
                for topic, each in of_task.inputs.items()
            ]
        )
        yield from families(INPUT_LAGS, self._labels, ["task", "topic", "partition"], lags)
        yield from families(LOAD, self._labels, [], [] if load is None else [((), load)])

    def _worker_families(self) -> Iterator[Metric]:
        labels = self._labels
        states = [
            ((each.value,), float(self._worker is not None and self._worker.state is each)) for each in WorkerState
        ]
        state = MetricRow(
            "millpond_worker_state",
            '1 for the state that the worker is in, 0 for the others. Bad when state="error" is 1, or when '
            'state="running" stays 0 for minutes.',
            float,
        )
        yield from families([state], labels, ["state"], states)
        for name, text, value in (
            (
                "millpond_worker_polls",
                "Polls of the consumer that returned records. Bad when it stands still while "
                "millpond_input_lag_records is above 0.",
                self.polls,
            ),
            (
                "millpond_worker_polled_records",
                "Records that polls of the consumer returned, with those of global stores. Bad when it stands still "
                "while millpond_input_lag_records is above 0.",
                self.polled_records,
            ),
            (
                "millpond_worker_processed_records",
                "Records that the worker processed, in all of its tasks. Bad when it stands still while "
                "millpond_input_lag_records is above 0.",
                self.records_processed,
            ),
            (
                "millpond_worker_process_seconds",
                "Seconds that the worker's loop spent on processing records. Bad when it grows by nearly 1 per second:"
                " user code or serdes are the limit.",
                self.process_seconds,
            ),
            (
                "millpond_worker_cpu_seconds",
                "Seconds of CPU time that the worker's process used, in all of its threads. Bad when it grows by "
                "nearly the number of CPUs that it may use per second.",
                time.process_time(),
            ),
            (
                "millpond_worker_busy_seconds",
                "Seconds that the worker's loop spent on processing and commits, not waiting for records. Bad when it "
                "grows by more than 0.8 per second: the worker has little left for more records.",
                self.busy_seconds,
            ),
            (
                "millpond_worker_produced_records",
                "Records that were handed to the producer: results, repartitioned records and changelog records. Bad "
                "when it stands still while records are processed that must have results.",
                self._sent(),
            ),
            (
                "millpond_worker_recoveries",
                "Times that the worker went back to its last commit, to process the records after it again. Bad when "
                "it grows: the log has the reason each time.",
                self.recoveries,
            ),
            (
                "millpond_worker_throttled_seconds",
                "Seconds for which brokers delayed the producer because of a quota. Bad when it grows: raise "
                "'producer_byte_rate' or 'request_percentage' of the application's user or client id.",
                0.0 if self.throttling is None else self.throttling.total_s,
            ),
            (
                "millpond_worker_clients_replaced",
                "Kafka clients that lost their brokers and were replaced. Bad when it grows: look at the brokers and "
                "at the network.",
                self.clients_replaced,
            ),
        ):
            yield from families([MetricRow(name, text, float, counter=True)], labels, [], [((), value)])
        resident = MetricRow(
            "millpond_worker_resident_bytes",
            "Bytes of memory of the worker's process that are in RAM. Bad when it nears the memory limit of the "
            "container: the kernel then kills the worker.",
            lambda size: size,
        )
        yield from families([resident], labels, [], [((), _resident_bytes())])
        waiting = MetricRow(
            "millpond_worker_outbox_records",
            "Records that wait for the next transaction, while a commit is in flight. Bad when it keeps growing: "
            "commits take longer than the records between them.",
            float,
        )
        yield from families([waiting], labels, [], [((), self._waiting())])
        silent = MetricRow(
            "millpond_worker_brokers_silent_seconds",
            "Seconds since a broker answered; 0 while brokers answer. Bad when it is above 0, and after "
            "brokers.unreachable.timeout.ms the worker is not ready.",
            float,
        )
        yield from families(
            [silent], labels, [], [((), 0.0 if self._worker is None else self._worker.contact.silent_s)]
        )
        missing = MetricRow(
            "millpond_worker_brokers_missing",
            "Brokers that lead partitions of the application and have not answered for half of "
            "brokers.unreachable.timeout.ms, while others answer. Bad when it is above 0: if another worker reaches "
            "them, the tasks of this worker move.",
            float,
        )
        absent = 0 if self._worker is None else len(self._worker.contact.reach.missing)
        yield from families([missing], labels, [], [((), absent)])
        unread = MetricRow(
            "millpond_worker_unread_partitions",
            "Partitions of input topics that no task reads, since they were added while the application ran. Bad "
            "when it is above 0: their records are not processed until a restart.",
            float,
        )
        yield from families([unread], labels, [], [((), 0 if self._topics is None else self._topics.unread)])
        held = MetricRow(
            "millpond_worker_tasks",
            "Active tasks that the worker runs. Bad when it is 0 on a worker while others have many, or when the "
            "sum over workers is below the number of tasks.",
            float,
        )
        yield from families([held], labels, [], [((), 0 if self._executor is None else len(self._executor.tasks))])

    def _sent(self) -> int:
        return 0 if self.collector is None else int(self.collector.sent)

    def _waiting(self) -> int:
        return 0 if self.collector is None else len(self.collector.outbox)


def _resident_bytes() -> float | None:
    """Return the process's memory in RAM; None where the system does not tell it in /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs more than the read
            return float(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None


class _Scrape(Collector):
    """The collector that reads the worker at each scrape."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.families()
