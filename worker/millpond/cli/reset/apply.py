"""Apply the plan of a reset.

The order makes an interrupted reset repeatable: owners are fenced first, so that no worker commits over the new
offsets; then follow offsets, topics and local state. A repeated reset gives the same result.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition

from millpond.errors import BrokerError
from millpond.runtime.kafka.clients import transactional_id
from millpond.state.rocksdb.directory_lock import DirectoryLock

from .cluster import REQUEST_TIMEOUT_S, Cluster
from .plan import ResetPlan

__all__ = ("apply_reset", "delete_topics", "fence")

log: logging.Logger = logging.getLogger(__name__)

_DELETION_TIMEOUT_S = 60.0
_POLL_S = 0.1


def apply_reset(cluster: Cluster, plan: ResetPlan) -> None:
    """Apply a plan.

    Raises:
        BrokerError: Kafka rejected a step, or did not answer in time; earlier steps stay, and the reset can be
            repeated.
        StateDirectoryLocked: a worker of the application runs on this machine.
    """
    for owner in plan.owners:
        fence(cluster, owner)
    offsets = [TopicPartition(*move.partition, move.after) for move in plan.moves]
    offsets += [TopicPartition(*each, 0) for each in plan.repartition]
    _commit(cluster, offsets)
    delete_topics(cluster, plan.delete_topics)
    for directory in plan.directories:
        _delete_directory(directory)


def fence(cluster: Cluster, owner: str) -> None:
    """Abort the open transaction of a worker, and fence its producers.

    Raises:
        BrokerError: Kafka rejected the request, or did not answer in time.
    """
    name = transactional_id(cluster.config.application_id, owner)
    producer = Producer(dict(cluster.config.producer_settings(fixed={"transactional.id": name})), logger=log)
    cluster.ask(lambda: producer.init_transactions(REQUEST_TIMEOUT_S), f"to end the transactions of worker '{owner}'")


def delete_topics(cluster: Cluster, topics: Sequence[str]) -> None:
    """Delete topics, and wait until they are deleted. Topics that do not exist are ignored.

    Raises:
        BrokerError: a topic cannot be deleted, or is not deleted in time.
    """
    if not topics:
        return
    for topic, future in cluster.admin.delete_topics(list(topics)).items():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerError(f"topic '{topic}' cannot be deleted: {error.args[0].str()}.") from error
    # Brokers delete in the background: a worker that starts too early would find a topic that is half deleted.
    deadline = time.monotonic() + _DELETION_TIMEOUT_S
    while left := sorted(set(topics) & cluster.topics().keys()):
        if time.monotonic() >= deadline:
            raise BrokerError(f"topic '{left[0]}' is still being deleted; wait before you start the application.")
        time.sleep(_POLL_S)


def _commit(cluster: Cluster, offsets: list[TopicPartition]) -> None:
    if not offsets:
        return
    request = ConsumerGroupTopicPartitions(cluster.config.application_id, offsets)
    for future in cluster.admin.alter_consumer_group_offsets([request]).values():
        done = cluster.ask(functools.partial(future.result, REQUEST_TIMEOUT_S), "to commit the new offsets")
        if failed := [each for each in done.topic_partitions if each.error is not None]:
            raise BrokerError(f"the offset of {failed[0].topic} cannot be changed: {failed[0].error.str()}.")


def _delete_directory(directory: Path) -> None:
    lock = DirectoryLock(directory)
    try:
        # Renamed first: an interruption leaves either a complete state directory or none.
        renamed = directory.with_name(f".{directory.name}.deleted-{os.getpid()}")
        directory.rename(renamed)
    finally:
        lock.release()
    shutil.rmtree(renamed)
    if not any(directory.parent.iterdir()):
        directory.parent.rmdir()
