"""The worker's Kafka clients, with the properties that differ from librdkafka's defaults, and the reasons.

librdkafka waits in places where a stream processor must not: most of these properties shorten such a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, ThrottleEvent

from millpond.runtime.commit.lost_connections import LostConnections
from millpond.runtime.config.model import Config

from .log_filter import RepeatFilter

__all__ = (
    "CLIENT_DEFAULTS",
    "COPY_AHEAD_KIB",
    "READ_AHEAD_KIB",
    "largest_record",
    "log",
    "longest_call_s",
    "make_consumer",
    "make_log_reader",
    "make_offset_reader",
    "make_producer",
    "transactional_id",
)

log: logging.Logger = logging.getLogger(__name__)
log.addFilter(RepeatFilter())

#: How long a request may have no answer until the client closes its connection, in milliseconds. A network can lose a
#: connection without telling anyone; librdkafka's default is a minute (docs/decisions/0048-silent-connections.md).
_SILENCE_MS = 20_000
#: Properties of all clients of a worker: reconnects, metadata requests and retries within tens of milliseconds instead
#: of hundreds, and limits for connections on which nothing arrives.
CLIENT_DEFAULTS: dict[str, Any] = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "socket.timeout.ms": _SILENCE_MS,
    "socket.connection.setup.timeout.ms": 10_000,
    "socket.keepalive.enable": "true",
}


#: Memory for records read ahead, in KiB, for all input partitions, and for all changelog partitions. With small
#: records, the client's limit of 100,000 records is reached first.
READ_AHEAD_KIB = 16 * 1024
COPY_AHEAD_KIB = 16 * 1024
#: librdkafka's default of `message.max.bytes`.
_LARGEST_RECORD = 1_000_000


def transactional_id(application_id: str, worker: str) -> str:
    """Return the transactional id of a worker."""
    return f"{application_id}-{worker}"


def make_consumer(
    config: Config,
    on_commit: Callable[..., None] | None,
    on_error: Callable[[KafkaError], None],
    read_ahead_kib: int = READ_AHEAD_KIB,
) -> Consumer:
    """Return a consumer for inputs or for changelogs. The worker assigns its partitions; it never joins the group.

    Args:
        config: the worker's configuration.
        on_commit: called with the result of an asynchronous commit.
        on_error: called with errors of the client.
        read_ahead_kib: memory for records read ahead, in KiB.
    """
    defaults: dict[str, Any] = {
        **CLIENT_DEFAULTS,
        # All partitions share one queue. librdkafka fetches while the queue is below both limits. A fetch is at most as
        # large as the queue, and so arrives within `socket.timeout.ms` through a slow network, too.
        "queued.max.messages.kbytes": read_ahead_kib,
        "queued.min.messages": 100_000,
        # How long the client waits before it checks a full queue again.
        "fetch.queue.backoff.ms": 5,
        # Limits how long a newly assigned partition waits for the fetch that is in flight.
        "fetch.wait.max.ms": 50,
    }
    fixed: dict[str, Any] = {
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Positions are always given. One that is out of range must be an error, not a reset.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if config.exactly_once else "read_uncommitted",
        "error_cb": on_error,
    }
    if on_commit is not None:
        fixed["on_commit"] = on_commit
    return Consumer(dict(config.consumer_settings(defaults=defaults, fixed=fixed)), logger=log)


def make_offset_reader(config: Config, on_error: Callable[[KafkaError], None], *, stable: bool = True) -> Consumer:
    """Return a consumer that only reads committed offsets.

    Args:
        config: the worker's configuration.
        on_error: called with errors of the client.
        stable: whether the consumer waits for the end of transactions with pending offsets.
    """
    fixed: dict[str, Any] = {
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if stable and config.exactly_once else "read_uncommitted",
        "error_cb": on_error,
    }
    return Consumer(dict(config.consumer_settings(defaults=CLIENT_DEFAULTS, fixed=fixed)), logger=log)


def make_log_reader(config: Config) -> Consumer:
    """Return a consumer of committed records, under every processing guarantee, for reads up to the ends of logs."""
    fixed: dict[str, Any] = {
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        # Another replica may know an earlier end than the one that was read before.
        "client.rack": "",
        # The end of a partition is only seen when a fetch finds no record.
        "fetch.wait.max.ms": 5,
        "error_cb": lambda _error: None,
    }
    defaults: dict[str, Any] = {**CLIENT_DEFAULTS, "fetch.queue.backoff.ms": 5}
    return Consumer(dict(config.consumer_settings(defaults=defaults, fixed=fixed)), logger=log)


def largest_record(config: Config) -> int:
    """Return the maximum size of a record in the producer, key and value together, in bytes."""
    return int(config.producer_settings(defaults={"message.max.bytes": _LARGEST_RECORD})["message.max.bytes"])


def longest_call_s(config: Config) -> float:
    """Return how long a request of a transactional producer waits for its answer until it is sent again, in seconds."""
    own = {"socket.timeout.ms": _transactional_silence_ms(config)}
    return float(config.producer_settings(defaults=own)["socket.timeout.ms"]) / 1000


def _transactional_silence_ms(config: Config) -> int:
    # librdkafka rejects a longer time.
    return min(_SILENCE_MS, max(config.transaction_timeout_ms - 100, 900))


def make_producer(  # noqa: PLR0913 - what differs between a worker's producers
    config: Config,
    owner: str | None,
    on_error: Callable[[KafkaError], None],
    *,
    careful: bool = False,
    batch_bytes: int | None = None,
    on_throttle: Callable[[ThrottleEvent], None] | None = None,
    connections: LostConnections | None = None,
) -> Producer:
    """Return a producer.

    Args:
        config: the worker's configuration.
        owner: the worker whose transactional id to use; None for a producer without transactions.
        on_error: called with errors that concern no record.
        careful: send each record in a batch of its own, so that a rejection concerns one record
            (`runtime/commit/rejected_records.py`).
        batch_bytes: the maximum size of a batch, in bytes; None for the client's limit.
        on_throttle: called when a broker delays the producer because of a quota.
        connections: notes the producer's lost connections.
    """
    defaults: dict[str, Any] = {
        **CLIENT_DEFAULTS,
        "linger.ms": 5,
        "batch.num.messages": 20_000,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 64 * 1024,
        # Without a transaction, deliveries have no deadline: the client retries as long as the worker runs.
        "message.timeout.ms": 0 if owner is None else config.transaction_timeout_ms,
    }
    fixed: dict[str, Any] = {"enable.idempotence": True, "partitioner": "murmur2_random", "error_cb": on_error}
    if on_throttle is not None:
        fixed["throttle_cb"] = on_throttle
    if careful:
        fixed |= {"batch.num.messages": 1, "linger.ms": 0}
    if batch_bytes is not None:
        fixed["batch.size"] = batch_bytes
    if owner is None and not careful:
        # A record that cannot be delivered becomes a fatal error instead of being dropped silently.
        fixed["enable.gapless.guarantee"] = True
    if owner is not None:
        defaults["socket.timeout.ms"] = _transactional_silence_ms(config)
        fixed["transactional.id"] = transactional_id(config.application_id, owner)
        fixed["transaction.timeout.ms"] = config.transaction_timeout_ms
    return Producer(dict(config.producer_settings(defaults=defaults, fixed=fixed)), logger=connections or log)
