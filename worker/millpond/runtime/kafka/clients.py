"""The worker's clients: librdkafka's settings for them, and why each differs from the default.

librdkafka waits where a stream processor must not: most of what stands here shortens such a wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from millpond.runtime.config.model import Config

from .log_filter import Unrepeated

__all__ = (
    "COPY_AHEAD_KIB",
    "READ_AHEAD_KIB",
    "largest_record",
    "log",
    "make_asker",
    "make_consumer",
    "make_producer",
    "quick_retries",
    "transactional_id",
)

log = logging.getLogger(__name__)
log.addFilter(Unrepeated())

#: Reconnects, metadata and retries within tens of milliseconds rather than hundreds.
quick_retries: dict[str, Any] = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 10,
}


#: Records read ahead, for all partitions that the worker reads together: of inputs, and of changelogs. The client's limit of
#: 100,000 records is met first where records are small.
READ_AHEAD_KIB = 16 * 1024
COPY_AHEAD_KIB = 16 * 1024
#: librdkafka's default of `message.max.bytes`.
_LARGEST_RECORD = 1_000_000


def transactional_id(application_id: str, worker: str) -> str:
    """The transactional id under which a worker commits."""
    return f"{application_id}-{worker}"


def make_consumer(
    config: Config,
    on_commit: Callable[..., None] | None,
    on_error: Callable[[KafkaError], None],
    read_ahead_kib: int = READ_AHEAD_KIB,
) -> Consumer:
    """One of the worker's consumers, for inputs or for changelogs: it assigns by itself and never joins the group.

    Args:
        config: the worker's settings.
        on_commit: told about asynchronous commits.
        on_error: told about errors of the client.
        read_ahead_kib: memory for reading ahead, in KiB.
    """
    defaults: dict[str, Any] = {
        **quick_retries,
        # All partitions share one queue, and librdkafka counts what is in that; below both limits it fetches again.
        "queued.max.messages.kbytes": read_ahead_kib,
        "queued.min.messages": 100_000,
        # A full queue is looked at again so much later, whatever was consumed meanwhile.
        "fetch.queue.backoff.ms": 5,
        # Bounds how long a newly assigned partition waits behind the fetch that is on its way.
        "fetch.wait.max.ms": 50,
    }
    fixed: dict[str, Any] = {
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Positions are always given; one that is out of range must be seen, not skipped over.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if config.exactly_once else "read_uncommitted",
        "error_cb": on_error,
    }
    if on_commit is not None:
        fixed["on_commit"] = on_commit
    return Consumer(dict(config.consumer_settings(defaults=defaults, fixed=fixed)), logger=log)


def make_asker(config: Config, on_error: Callable[[KafkaError], None], *, stable: bool = True) -> Consumer:
    """A consumer that only asks which offsets are committed.

    Args:
        config: the worker's settings.
        on_error: told about errors of the client.
        stable: whether it waits for transactions that are pending there.
    """
    fixed: dict[str, Any] = {
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if stable and config.exactly_once else "read_uncommitted",
        "error_cb": on_error,
    }
    return Consumer(dict(config.consumer_settings(defaults=quick_retries, fixed=fixed)), logger=log)


def largest_record(config: Config) -> int:
    """The most bytes, key and value together, that the producer takes as one record."""
    return int(config.producer_settings(defaults={"message.max.bytes": _LARGEST_RECORD})["message.max.bytes"])


def make_producer(
    config: Config,
    owner: str | None,
    on_error: Callable[[KafkaError], None],
    *,
    careful: bool = False,
    batch_bytes: int | None = None,
) -> Producer:
    """A producer; transactional under `owner`'s id when the guarantee is exactly once.

    Args:
        config: the worker's configuration.
        owner: whose transactional id to use, None for a producer without transactions.
        on_error: told of errors that concern no record.
        careful: each record is a batch of its own, so that a refusal is about one record (see `careful.py`).
        batch_bytes: the largest batch to send, None for the client's own limit.
    """
    defaults: dict[str, Any] = {
        **quick_retries,
        "linger.ms": 5,
        "batch.num.messages": 20_000,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 64 * 1024,
        # A record is given up only when the worker is: delivery has no deadline of its own.
        "message.timeout.ms": 0 if owner is None else config.transaction_timeout_ms,
    }
    fixed: dict[str, Any] = {"enable.idempotence": True, "partitioner": "murmur2_random", "error_cb": on_error}
    if careful:
        fixed |= {"batch.num.messages": 1, "linger.ms": 0}
    if batch_bytes is not None:
        fixed["batch.size"] = batch_bytes
    if owner is None and not careful:
        # Any record that is lost for good becomes a fatal error: nothing is dropped in silence.
        fixed["enable.gapless.guarantee"] = True
    if owner is not None:
        fixed["transactional.id"] = transactional_id(config.application_id, owner)
        fixed["transaction.timeout.ms"] = config.transaction_timeout_ms
    return Producer(dict(config.producer_settings(defaults=defaults, fixed=fixed)), logger=log)
