"""The parts of a worker that own and commit tasks, with a Kafka in memory. The test is the loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millpond.runtime.commit.lost_connections import LostConnections
from millpond.runtime.commit.pipeline import CommitPhase, CommitPipeline, OffsetCommitter, TransactionCommitter
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.transaction_size import TransactionSize
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.replaceable_consumer import ReplaceableConsumer
from millpond.runtime.listeners import WorkerListener
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.runtime.tasks.resources import TaskResources
from millpond.runtime.tasks.task_stores import TaskStores
from millpond.runtime.topics.plan import make_plan
from millpond.runtime.topics.window_changelogs import ExpiredRecords, window_changelogs
from millpond.runtime.worker.assembly import _environment
from millpond.runtime.worker.commit_scheduler import CommitScheduler
from millpond.state import StateFile, StateFileOptions
from millpond.topology import TaskId
from tests.runtime.memory_kafka import CommittedEnds, Consumer, Kafka, Producer

__all__ = ("Errands", "Parts")


class Errands:
    """The threads for blocking requests: jobs run at once, or when the test calls `work`.

    Attributes:
        deferred: whether jobs wait for `work`.
    """

    def __init__(self, kafka: Kafka) -> None:
        self.deferred = False
        self._consumer = Consumer(kafka)
        self._jobs: list[Callable[[], None]] = []

    def run(self, job: Callable[[], Any], *, again: bool = True) -> Future[Any]:
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(job())
            except BaseException as error:
                answer.set_exception(error)

        if self.deferred:
            self._jobs.append(work)
        else:
            work()
        return answer

    def work(self) -> None:
        """Run the deferred jobs."""
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job()

    def consumer(self) -> Consumer:
        return self._consumer

    def forget_consumer(self) -> None:
        raise AssertionError("Kafka in memory always answers")

    def close(self) -> None:
        self._jobs.clear()


class Parts:
    """One worker.

    Attributes:
        executor: its tasks.
        committer: its commits.
        collector: its output.
        producer: the client below it.
        plan: what it needs of topics.
        written: what went to the state file, batch by batch: rows and offsets.
        ahead_ms: how far the worker's wall clock is ahead of the test's.
    """

    def __init__(
        self,
        kafka: Kafka,
        topology: Any,
        directory: Path,
        topics: dict[str, int],
        worker: str = "w0",
        tracing: Any = None,
        **settings: Any,
    ) -> None:
        given = {
            "application.id": "app",
            "bootstrap.servers": "memory:1",
            "worker.id": worker,
            "state.dir": directory,
            "processing.guarantee": "exactly_once",
            "commit.interval.ms": 3_600_000,
            "transaction.timeout.ms": 3_600_001,
            "repartition.purge.interval.ms": 3_600_000,
        }
        self.kafka = kafka
        self.config = Config.of({**given, **{key.replace("_", "."): value for key, value in settings.items()}})
        cluster: Any = kafka
        self.plan = plan = make_plan(topology, topics, "app")
        self.ahead_ms = 0
        environment = replace(
            _environment(topology, self.config, cluster, tracing),
            now_ms=lambda: int(time.time() * 1000) + self.ahead_ms,
        )
        self.state_file = StateFile(self.config.directory, StateFileOptions())
        self.written: list[tuple[list[Any], dict[Any, Any]]] = []
        self._note_writes()
        stores = TaskStores(plan, environment, self.state_file, cluster.ranges)
        self.consumer, self.copier = (
            ReplaceableConsumer(lambda: Consumer(kafka)),
            ReplaceableConsumer(lambda: Consumer(kafka)),
        )
        self.errands = Errands(kafka)
        errands: Any = self.errands
        self.offsets = OffsetStore(
            errands.consumer, errands.forget_consumer, lambda: Consumer(kafka, stable=False), lambda: False, 1.0
        )
        self.reader = ChangelogReader(lambda _: None, WorkerListener(), environment.now_ms)
        self.executor = TaskExecutor(
            TaskResources(
                plan=plan,
                config=self.config,
                environment=environment,
                stores=stores,
                global_stores=GlobalStores((), {}, environment, stores.of_builder, self.consumer, cluster),
                consumer=self.consumer,
                copier=self.copier,
                cluster=cluster,
                offsets=self.offsets,
                threads=errands,
                committed_ends=CommittedEnds(kafka),  # type: ignore[arg-type]
                reader=self.reader,
                fencing=self.producer_of,
            )
        )
        self._assembly: Any = SimpleNamespace(
            cluster=cluster, plan=plan, executor=self.executor, consumer=self.consumer, environment=environment,
            expired=ExpiredRecords(plan, window_changelogs(plan), cluster, errands.run),
        )  # fmt: skip
        self.new_producer()

    def _note_writes(self) -> None:
        write = self.state_file.write

        def noting(groups: Any, offsets: Any = None, provenances: Any = None) -> None:
            groups = list(groups)
            self.kafka.journal.append("write state")
            write(groups, offsets, provenances)
            self.written.append(
                ([(store, partition, list(rows)) for store, partition, rows in groups], dict(offsets or {}))
            )

        self.state_file.write = noting  # type: ignore[method-assign]

    def producer_of(self, owner: str) -> Producer:
        """A producer that fences others with the owner's transactional id."""
        producer = Producer(self.kafka, owner)
        producer.init_transactions()
        return producer

    def new_producer(self) -> None:
        """Use a new producer, as a worker does at its start and after a failed commit."""
        transactional = self.config.exactly_once
        self.producer = self.producer_of(self.config.worker_id) if transactional else Producer(self.kafka)
        client: Any = self.producer
        self.collector = RecordCollector(client, transactional=transactional)
        self.executor.active.outbox = self.collector.outbox
        sink: Any = (
            TransactionCommitter(
                client,
                self.consumer,
                lambda: None,
                lambda: 10.0,
                10.0,
                self.offsets.check_unchanged,
                LostConnections(logging.getLogger(__name__)),
                1.0,
            )
            if transactional
            else OffsetCommitter(self.consumer)
        )
        self.sink = sink
        self.first_timestamps: list[int] = []
        self.input_times: list[tuple[int, str, int, int]] = []
        metrics: Any = SimpleNamespace(
            committed=lambda *_: None,
            latencies=self._latencies,
            records_processed=0,
        )
        garbage: Any = SimpleNamespace(committed=lambda: None)
        self.committer = CommitScheduler(
            self._assembly,
            self.config,
            self.collector,
            CommitPipeline(self.collector, sink),
            metrics,
            garbage,
            WorkerListener(),
            TransactionSize(self.config.transaction_timeout_ms / 1000 if transactional else None),
        )

    def _latencies(self, timestamps: Iterable[int], times: Iterable[tuple[int, str, int, int]], _now_ms: int) -> None:
        self.first_timestamps.extend(timestamps)
        self.input_times.extend(times)

    def own(self, *tasks: TaskId, start: bool = True) -> None:
        """Make the worker the owner of tasks and, with `start`, run them."""
        self.executor.registrar.take_over_now(None, dict.fromkeys(tasks, self.config.worker_id))
        if start:
            self.executor.hold(tasks, self._active())
            self.settle()

    @staticmethod
    def _active() -> Any:
        from millpond.protocol import Role

        return Role.ACTIVE

    def settle(self) -> None:
        """Handle answers, restore, and start tasks that are complete."""
        for answer in self.executor.registrar.answers():
            self.executor.looked_up(answer)  # type: ignore[arg-type]
        self.copy()
        self.executor.start_restored()

    def copy(self) -> None:
        """Read new records of changelogs."""
        for partition, messages, end in self.copier.read():
            if messages:
                self.reader.records(partition, messages)
            self.reader.reached_end(partition, end)

    def rows(self, store: str) -> dict[bytes, bytes]:
        """The rows of a store in the state file, by key without the partition."""
        return {key[4:]: value for key, value in self.state_file.range(store, b"", None)}

    def process(self) -> int:
        """Read and process new records. Output waits for the commit."""
        for partition, messages, end in self.consumer.read():
            task = self.executor.by_input.get(partition)
            if task is not None:
                if messages:
                    task.add(partition.topic, messages)
                task.inputs[partition.topic].reached_end(end)
        return sum(task.process(1_000, 0) for task in self.executor.running)

    def commit(self, *, through: bool = True) -> None:
        """Start a commit, and with `through` wait for its end."""
        self.committer.next_commit = 0.0
        self.committer.advance(time.monotonic())
        if through:
            self.finish()

    def finish(self) -> None:
        """Wait for the commit in flight."""
        deadline = time.monotonic() + 60
        while self.committer.phase is not CommitPhase.IDLE:
            assert time.monotonic() < deadline, "the commit does not end"
            self.committer.advance(time.monotonic())

    def offset_on_disk(self, store: str, partition: int = 0) -> int | None:
        """The changelog offset in the state file."""
        return self.state_file.offset(store, partition)

    def close(self) -> None:
        """Close everything."""
        self.sink.close()
        self.executor.close()
        self.state_file.close()
