"""The processes of a run: broker, coordinator, workers, and the proxies between them."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from millpond.protocol import Role, TaskState, View
from millpond.runtime.offsets.metadata import decode_metadata
from tests.chaos.applications import APPLICATION, APPLICATIONS
from tests.chaos.planning import DELETE_RETENTION_S, LOST_AFTER_S, TRANSACTION_S
from tests.chaos.processes import Coordinator, Exit, WorkerProcess, broker_with_listeners
from tests.chaos.proxying import Proxies, Proxy
from tests.support.broker import free_port
from tests.support.kafka import committed_offsets, create_topic

__all__ = ("Options", "Stage", "unsettled")

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    seed: int
    directory: Path
    """The directory of all files."""
    application: str = "orders"
    """The application: one of `APPLICATIONS`."""
    optimized: bool = False
    """Whether Kafka Streams' rewrites are applied to its topology; `orders` has nothing to rewrite."""
    faults: int = 200
    workers: int = 3
    standbys: int = 1
    rate: float | None = None
    """Input records per second; None for the application's own."""
    every: float = 3.5
    """The mean time between two faults, in seconds."""
    session: float = 2.0
    """The coordinator's session timeout, in seconds."""
    alone: bool = False
    """Whether there is one worker and no coordinator."""
    fencing: bool = True
    """False: transactional ids are unique per process. Then the run has to fail."""
    only: frozenset[Any] = frozenset()
    """The kinds of faults to choose from; empty for all."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Further settings of the workers."""


class Stage:
    """The processes of one run and the proxies between them; all are stopped at the end of the `with` block.

    Attributes:
        workers: the workers by name; the last one is the spare one.
        exits: the ends of processes that ended by themselves.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.application = APPLICATIONS[options.application]
        self.directory = options.directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.names = [f"w{number}" for number in range((1 if options.alone else options.workers) + 1)]
        self.proxies = Proxies()
        self.exits: list[Exit] = []
        self._brokers = ThreadPoolExecutor(1, "broker")

    @property
    def usual(self) -> list[str]:
        """The names of the permanent workers."""
        return self.names[:-1]

    @property
    def spare(self) -> str:
        """The name of the spare worker."""
        return self.names[-1]

    @property
    def address(self) -> str:
        """The broker's address for the test, which is never cut."""
        return self.broker.bootstrap_servers

    def changelog(self, store: str) -> str:
        """Return the name of a store's changelog topic."""
        return f"{APPLICATION}-{store}-changelog"

    def state_of(self, worker: str) -> Path:
        """Return a worker's state directory."""
        return self.directory / "state" / APPLICATION / worker

    @property
    def directories(self) -> dict[str, Path]:
        """The state directory of each worker."""
        return {name: self.state_of(name) for name in self.names}

    def __enter__(self) -> Self:
        options = self.options
        self.proxies.__enter__()
        try:
            self.coordinator = Coordinator(
                APPLICATION, self.directory, standbys=options.standbys, session=options.session
            )
            self.to_broker: dict[str, Proxy] = {}
            self.to_coordinator: dict[str, Proxy] = {}
            listeners = {}
            for name in self.names:
                port = free_port()
                self.to_broker[name] = self.proxies.before(partial(int, port))
                self.to_coordinator[name] = self.proxies.before(lambda: self.coordinator.port)
                listeners[name] = (port, self.to_broker[name])
            self.broker = broker_with_listeners(self.directory / "broker", listeners)
            self.workers = {
                name: WorkerProcess(
                    name,
                    self.directory,
                    self._settings(name),
                    alone=options.alone,
                    fencing=options.fencing,
                    application=options.application,
                    optimized=options.optimized,
                )
                for name in self.names
            }
            self.broker.start()
            for topic, partitions in self.application.topics.items():
                create_topic(self.address, topic, partitions)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in getattr(self, "workers", {}).values():
            worker.wanted = False
            worker.kill()
        if hasattr(self, "coordinator"):
            self.coordinator.wanted = False
            self.coordinator.kill()
        self._brokers.shutdown(wait=True, cancel_futures=True)
        if hasattr(self, "broker"):
            self.broker.kill()
        self.proxies.__exit__()

    def _settings(self, name: str) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "application.id": APPLICATION,
            "bootstrap.servers": f"127.0.0.1:{self.to_broker[name].port}",
            "state.dir": str(self.directory / "state"),
            "processing.guarantee": "exactly_once",
            "commit.interval.ms": 100,
            "transaction.timeout.ms": int(TRANSACTION_S * 1000),
            "brokers.unreachable.timeout.ms": int(LOST_AFTER_S * 1000),
            # The repartition topic and the changelogs are read completely at the end.
            "repartition.purge.interval.ms": _DAY_MS,
            "topic.min.compaction.lag.ms": str(_DAY_MS),
            # A worker that is down for longer may not reuse its rows.
            "topic.delete.retention.ms": str(int(DELETE_RETENTION_S * 1000)),
            # Rows are read from the database, not from memory.
            "rocksdb.row.cache.bytes": 0,
        }
        if not self.options.alone:
            settings |= {
                "coordinator.url": f"http://127.0.0.1:{self.to_coordinator[name].port}",
                "coordinator.session.timeout.ms": int(self.options.session * 1000),
                "state.cleanup.delay.ms": 10_000,
            }
        if self.options.optimized:
            settings["topology.optimization"] = "all"
        return {**settings, **self.options.settings}

    def supervise(self) -> list[Exit]:
        """Start processes that should run, like a supervisor; return the ends of those that ended by themselves."""
        now = time.monotonic()
        found = [
            exit
            for each in ([] if self.options.alone else [self.coordinator]) + list(self.workers.values())
            if (exit := each.supervise(now)) is not None
        ]
        self.exits += found
        return found

    def restart_broker(self, *, kill: bool) -> Future[Any]:
        """Restart the broker in the background."""

        def again() -> None:
            if kill:
                self.broker.kill()
            else:
                self.broker.stop()
            self.broker.start()

        return self._brokers.submit(again)

    def lags(self, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return the number of uncommitted offsets of those partitions that have some."""
        behind = {}
        for topic in {topic for topic, _ in ends}:
            committed = committed_offsets(self.address, APPLICATION, topic)
            for (name, partition), end in ends.items():
                if name == topic and (offset := max(committed[partition][0], 0)) < end:
                    behind[topic, partition] = end - offset
        return behind

    def owners(self) -> dict[tuple[int, int], str | None]:
        """Return the owner of each task in the committed metadata, by sub-topology and partition."""
        found = {}
        for subtopology, topic in self.application.inputs.items():
            for partition, (_, metadata) in committed_offsets(self.address, APPLICATION, topic).items():
                found[subtopology, partition] = decode_metadata(metadata).owner
        return found


def unsettled(view: View | None) -> str | None:
    """Return a task that does not run where the coordinator wants it, and why; None if there is none."""
    if view is None:
        return "the coordinator does not answer"
    for task, why in view.waiting.items():
        return f"task {task} waits: {why}"
    running = {
        (task, each.worker)
        for each in view.members
        if each.alive
        for task, report in each.tasks.items()
        if report.role is Role.ACTIVE and report.state is TaskState.RUNNING
    }
    stopped = [f"task {task} does not run on {worker}" for task, worker in view.active.items() - running]
    return stopped[0] if stopped else None
