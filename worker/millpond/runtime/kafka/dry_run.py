"""What a broker would do with the internal topics of an application, asked without creating any."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from millpond.runtime.error_codes import Kind, Request, kind_of, may_repeat
from millpond.runtime.topics.plan import TopicSpec

__all__ = ("default_replication_factor", "new_topics", "not_creatable")

_DEFAULT = "default.replication.factor"


def new_topics(topics: Iterable[TopicSpec], existing: Collection[str], replication_factor: int) -> list[NewTopic]:
    """Return the internal topics to create: those that do not exist.

    Args:
        topics: the internal topics.
        existing: the topics of the cluster.
        replication_factor: the number of replicas; -1 for the brokers' default.
    """
    return [
        NewTopic(each.name, each.partitions, replication_factor, config=dict(each.config))
        for each in topics
        if each.name not in existing
    ]


def not_creatable(admin: AdminClient, new: Collection[NewTopic], timeout_s: float) -> dict[str, KafkaError]:
    """Return the topics that a broker would not create, each with its error. Nothing is created.

    Raises:
        KafkaException: no broker answered in time.
    """
    if not new:
        return {}
    found = {}
    for topic, future in admin.create_topics(list(new), request_timeout=timeout_s, validate_only=True).items():
        try:
            future.result()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            if may_repeat(cause, Request.READ):
                raise
            found[topic] = cause
    return found


def default_replication_factor(admin: AdminClient, broker: int, timeout_s: float) -> int | None:
    """Return the number of replicas that new topics get by default; None if this user may not know it.

    Services that keep Kafka's protocol tell only some of the settings of their brokers: then it is None, too.

    Raises:
        KafkaException: the broker did not answer in time.
    """
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result()
    except KafkaException as error:
        if kind_of(error.args[0]) is not Kind.FORBIDDEN:
            raise
        return None
    entry = entries.get(_DEFAULT)
    return None if entry is None or entry.value is None else int(entry.value)
