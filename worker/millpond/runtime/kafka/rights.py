"""The rights of this application's user to topics, as brokers report them."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from millpond.runtime.error_codes import Kind, kind_of

__all__ = ("without_right",)


def without_right(admin: AdminClient, topics: Collection[str], operation: AclOperation, timeout_s: float) -> list[str]:
    """Return the topics for which the user lacks a right. One that brokers do not answer for is left out.

    Args:
        admin: an admin client of this user.
        topics: the topics.
        operation: the right, such as `AclOperation.WRITE`.
        timeout_s: how long to wait, in seconds.
    """
    if not topics:
        return []
    found = []
    answers = admin.describe_topics(
        TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    for topic, future in answers.items():
        try:
            allowed = future.result().authorized_operations
        except KafkaException as error:
            if kind_of(error.args[0]) is Kind.FORBIDDEN:
                found.append(topic)
        else:
            if allowed and operation not in allowed:
                found.append(topic)
    return sorted(found)
