"""Apply the plan of a reset.

The order makes an interrupted reset repeatable: owners are fenced first, so that no worker commits over the new
offsets; then follow offsets, topics and local state. A repeated reset gives the same result.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition

from millpond.errors import BrokerError, OwnershipError
from millpond.runtime.commit.pipeline import is_fenced, portions
from millpond.runtime.kafka import group_requests
from millpond.runtime.kafka.clients import log, transactional_id
from millpond.runtime.missing_rights import Operation
from millpond.state.rocksdb.directory_lock import DirectoryLock

from .cluster import REQUEST_TIMEOUT_S, Cluster
from .plan import ResetPlan

__all__ = ("apply_reset", "delete_topics", "fence")

_DELETION_TIMEOUT_S = 60.0
_POLL_S = 0.1


def apply_reset(cluster: Cluster, plan: ResetPlan, check: Callable[[], None]) -> None:
    """Apply a plan.

    The offsets of each owner are committed under its transactional id, as a take-over does. So they are committed only
    if no worker has initialised that id since it was fenced, and no commit of the owner can follow.

    Args:
        cluster: the Kafka clients.
        plan: the plan.
        check: called after the owners are fenced, and before topics are deleted, to raise if a worker was started
            meanwhile.

    Raises:
        BrokerError: Kafka rejected a step, or did not answer in time; earlier steps stay, and the reset can be
            repeated.
        OwnershipError: an owner has taken its transactional id back, so it runs. Nothing is deleted.
        StateDirectoryLocked: a worker of the application runs on this machine.
    """
    producers = {owner: fence(cluster, owner) for owner in plan.owners}
    check()
    by_owner: dict[str | None, list[TopicPartition]] = {}
    for move in (*plan.moves, *plan.repartition):
        by_owner.setdefault(move.owner, []).append(TopicPartition(*move.partition, move.after))
    _commit(cluster, by_owner.pop(None, []))
    for owner, offsets in by_owner.items():
        assert owner is not None
        _commit_as(cluster, owner, producers[owner], offsets)
    check()
    delete_topics(cluster, plan.delete_topics)
    for directory in plan.directories:
        _delete_directory(directory)


def fence(cluster: Cluster, owner: str) -> Producer:
    """Abort the open transaction of a worker, fence its producers, and return a producer with its transactional id.

    Raises:
        BrokerError: Kafka rejected the request, or did not answer in time.
    """
    name = transactional_id(cluster.config.application_id, owner)
    producer = Producer(dict(cluster.config.producer_settings(fixed={"transactional.id": name})), logger=log)
    cluster.ask(lambda: producer.init_transactions(REQUEST_TIMEOUT_S), f"to end the transactions of worker '{owner}'")
    return producer


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
                why = cluster.access.explained(error.args[0], [topic], Operation.DELETE)
                raise BrokerError(f"topic '{topic}' cannot be deleted: {why}") from error
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
    asked = cluster.admin.alter_consumer_group_offsets([request], request_timeout=group_requests.REQUEST_TIMEOUT_S)
    for future in asked.values():
        done = cluster.answer(future, "to commit the new offsets")
        if failed := [each for each in done.topic_partitions if each.error is not None]:
            why = cluster.access.explained(failed[0].error, [failed[0].topic])
            raise BrokerError(f"the offset of {failed[0].topic} cannot be changed: {why}")


def _commit_as(cluster: Cluster, owner: str, producer: Producer, offsets: list[TopicPartition]) -> None:
    group = cluster.consumer.consumer_group_metadata()
    try:
        producer.begin_transaction()
        for part in portions(offsets):
            producer.send_offsets_to_transaction(part, group, REQUEST_TIMEOUT_S)
        producer.commit_transaction(REQUEST_TIMEOUT_S)
    except KafkaException as error:
        if is_fenced(error):
            raise OwnershipError(
                f"worker '{owner}' of '{cluster.config.application_id}' runs: it continued after the reset had fenced "
                "it. Nothing was deleted: stop all workers, and reset again."
            ) from error
        with contextlib.suppress(KafkaException):
            # Pending offsets would hold up the next attempt until the transaction times out.
            producer.abort_transaction(REQUEST_TIMEOUT_S)
        why = cluster.access.explained(error.args[0], {each.topic for each in offsets})
        raise BrokerError(f"the offsets of worker '{owner}' cannot be changed: {why}") from error


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
