"""The rights of this application's user to topics, as brokers report them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from millpond.errors import TopicError
from millpond.runtime.error_codes import Kind, kind_of

__all__ = ("may_not_be_seen", "unseen", "without_right")


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


def unseen(admin: AdminClient, topics: Collection[str], timeout_s: float) -> list[str]:
    """Return the topics of which the user may not know whether they exist: lists of topics leave them out.

    Raises:
        KafkaException: no broker answered in time.
    """
    if not topics:
        return []
    found = []
    for topic, future in admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout_s).items():
        try:
            future.result()
        except KafkaException as error:
            kind = kind_of(error.args[0])
            if kind is Kind.FORBIDDEN:
                found.append(topic)
            elif kind is not Kind.MISSING:
                raise
    return sorted(found)


def may_not_be_seen(topics: Sequence[str]) -> TopicError:
    """Return the error about topics that exist or not: brokers tell only that this user may not know."""
    them = "them" if len(topics) > 1 else "it"
    return TopicError(
        f"topic{'s' if len(topics) > 1 else ''} {', '.join(map(repr, topics))} may not exist, or this application's "
        f"user may not see {them} (Topic authorization failed). Nothing was created or changed. Create {them}, or "
        f"grant the user the operation Describe."
    )
