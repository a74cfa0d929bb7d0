"""Makes the worker's producer with its transactional id, and the parts that live as long as the producer."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Producer

from millpond.runtime.commit.lost_connections import LostConnections, Patience
from millpond.runtime.commit.pipeline import CommitPipeline, TransactionCommitter
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.rejected_changelog import RecordLimits
from millpond.runtime.commit.rejected_records import CarefulCollector
from millpond.runtime.kafka.clients import largest_record, log, longest_call_s, make_producer
from millpond.runtime.kafka.reconnect import COMMON_TOPIC, answers
from millpond.runtime.ownership.takeover import init_producer

from .commit_scheduler import CommitScheduler
from .parts import WorkerParts

__all__ = ("Producers",)

#: The longest wait for the first connection of a new producer, in seconds; it continues to connect afterwards.
_CONNECT_S = 0.5


class Producers:
    """The maker of a worker's producers.

    Args:
        parts: the parts of the worker.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._connections = LostConnections(log)
        self._patience = Patience()

    def start(self) -> None:
        """Make a producer that fences earlier ones of this worker's transactional id, and a commit scheduler for it.

        Raises:
            BrokerError: the brokers did not initialise the transactional id in time.
        """
        parts, config = self._parts, self._parts.config
        producer = self._make()
        parts.collector = self._careful(producer) or RecordCollector(producer, transactional=config.exactly_once)
        parts.executor.active.outbox = parts.collector.outbox
        parts.metrics.collector = parts.collector
        collector, timeout_s = parts.collector, config.transaction_timeout_ms / 1000
        collector.measures = parts.transactions.limit is not None
        offset_sink = parts.assembly.offset_committer or TransactionCommitter(
            producer,
            parts.assembly.consumer,
            lambda: None,
            lambda: timeout_s - collector.transaction_s,
            longest_call_s(config),
            parts.assembly.offsets.check_unchanged,
            self._connections,
            self._patience.next_s(parts.metrics.commits),
        )
        parts.offset_sink = offset_sink
        pipeline = CommitPipeline(parts.collector, offset_sink)
        parts.committer = CommitScheduler(
            parts.assembly,
            config,
            parts.collector,
            pipeline,
            parts.metrics,
            parts.garbage,
            parts.listener,
            parts.transactions,
        )

    def fencing(self, owner: str) -> Producer:
        """Make a producer that fences `owner`, whose transactional id it has; raise as `start` does."""
        config, on_error = self._parts.config, self._parts.client_errors.on_error
        return self._initialised(lambda: _connected(make_producer(config, owner, on_error)))

    def gives_up(self) -> bool:
        """Return whether to stop waiting for brokers: the worker has to end, and is not handing its tasks over."""
        leave_until = self._parts.leave_until
        return self._parts.stop.is_set() and (leave_until is None or time.monotonic() >= leave_until)

    def _make(self) -> Producer:
        parts, config = self._parts, self._parts.config

        def made() -> Producer:
            self._connections = LostConnections(log)
            return _connected(
                make_producer(
                    config,
                    config.worker_id if config.exactly_once else None,
                    parts.client_errors.on_error,
                    careful=parts.rejected.careful,
                    batch_bytes=parts.rejected.batch_bytes,
                    on_throttle=parts.throttling.note,
                    connections=self._connections,
                )
            )

        producer = self._initialised(made) if config.exactly_once else made()
        producer.poll(0)  # its log arrives: addresses to which it could not connect at first are no lost connections
        self._connections.answered()
        return producer

    def _careful(self, producer: Producer) -> CarefulCollector | None:
        parts = self._parts
        if not parts.rejected.careful:
            return None
        return CarefulCollector(
            producer,
            transactional=parts.config.exactly_once,
            rejected=parts.rejected,
            handlers=parts.assembly.environment.handlers,
            contexts=lambda: [task.context for task in parts.executor.tasks.values()],
            limits=RecordLimits(largest_record(parts.config), parts.assembly.cluster.max_message_bytes),
        )

    def _initialised(self, made: Callable[[], Producer]) -> Producer:
        parts = self._parts
        return init_producer(made, self.gives_up, parts.config.task_timeout_ms / 1000, parts.access)


def _connected(producer: Producer) -> Producer:
    """Make a new producer request its producer id at once.

    librdkafka requests it when a metadata response arrives over an open connection, and otherwise every 0.5 s. The
    first response may close the connection to the bootstrap address. The second one arrives over the permanent
    connection.
    """
    if answers(producer, COMMON_TOPIC, _CONNECT_S):
        answers(producer, COMMON_TOPIC, _CONNECT_S)
    return producer
