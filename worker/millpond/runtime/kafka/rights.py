"""The rights of this application's user to topics, as brokers report them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from millpond.errors import BrokerError, TopicError
from millpond.runtime import error_codes
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.missing_rights import Access, Operation, Resource

from . import group_requests

__all__ = (
    "errors_of",
    "may_not_be_seen",
    "may_use_group",
    "not_created",
    "operations_on",
    "try_unseen",
    "unseen",
    "without_right",
)

K = TypeVar("K")


def without_right(admin: AdminClient, topics: Collection[str], operation: AclOperation, timeout_s: float) -> list[str]:
    """Return the topics for which the user lacks a right. One that brokers do not answer for is left out.

    Args:
        admin: an admin client of this user.
        topics: the topics.
        operation: the right, such as `AclOperation.WRITE`.
        timeout_s: how long to wait, in seconds.
    """
    allowed = operations_on(admin, topics, timeout_s)
    return sorted(topic for topic, operations in allowed.items() if operation not in operations)


def operations_on(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, Collection[AclOperation]]:
    """Return what the user may do with each topic. One that brokers do not answer for is left out.

    Args:
        admin: an admin client of this user.
        topics: the topics.
        timeout_s: how long to wait, in seconds.
    """
    if not topics:
        return {}
    found: dict[str, Collection[AclOperation]] = {}
    answers = admin.describe_topics(
        TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    for topic, future in answers.items():
        try:
            allowed = future.result().authorized_operations
        except KafkaException as error:
            if kind_of(error.args[0]) is Kind.FORBIDDEN:
                found[topic] = ()
        else:
            if allowed:
                found[topic] = allowed
    return found


def may_use_group(admin: AdminClient, group: str, timeout_s: float) -> bool:
    """Return whether the user may read and commit offsets of a group, as far as brokers tell.

    They tell nothing about a group that does not exist, unless the user may not even see it.

    Raises:
        KafkaException: no broker answered in time; then the caller drops the client.
    """
    asked = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=group_requests.REQUEST_TIMEOUT_S
    )
    try:
        allowed = group_requests.answer(asked[group], timeout_s).authorized_operations
    except KafkaException as error:
        return kind_of(error.args[0]) is not Kind.FORBIDDEN
    except group_requests.FutureTimeout as error:
        raise KafkaException(KafkaError(error_codes.TIMED_OUT)) from error
    return not allowed or AclOperation.READ in allowed


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


def try_unseen(admin: AdminClient, topics: Collection[str], timeout_s: float) -> list[str]:
    """Return the same as `unseen`; nothing if no broker answers in time."""
    try:
        return unseen(admin, topics, timeout_s)
    except KafkaException:
        return []


def may_not_be_seen(topics: Mapping[str, Operation], access: Access) -> TopicError:
    """Return the error about topics that exist or not: brokers tell only that this user may not know.

    Args:
        topics: the topics, each with the operation that is needed.
        access: names the user.
    """
    several = len(topics) > 1
    them, they = ("them", "they exist") if several else ("it", "it exists")
    lacking = [
        access.lacks(operation, Resource.TOPIC, *sorted(each for each in topics if topics[each] is operation))
        for operation in Operation
        if operation in topics.values()
    ]
    return TopicError(
        f"topic{'s' if several else ''} {', '.join(map(repr, sorted(topics)))} {'do' if several else 'does'} not "
        "exist, or may not be seen (Topic authorization failed). Nothing was created or changed. "
        f"Create {them}; or, if {they}: {' '.join(lacking)}"
    )


def not_created(what: str, topic: str, error: KafkaError, access: Access) -> BrokerError:
    """Return the error about a topic that a broker has not created; `what` begins it."""
    return BrokerError(f"{what}: {access.explained(error, [topic], Operation.CREATE)}")


def errors_of(
    asked: Mapping[K, Future[Any]], access: Access, operation: Operation, topic_of: Callable[[K], str] = str
) -> dict[K, str]:
    """Wait for the answers to requests that change topics, and return the errors, with the right that is missing.

    Args:
        asked: the answers.
        access: names the user.
        operation: the operation that the requests need.
        topic_of: returns the topic of a request.
    """
    found = {}
    for key, future in asked.items():
        try:
            future.result()
        except KafkaException as error:
            found[key] = access.clause(error.args[0], [topic_of(key)], operation)
    return found
