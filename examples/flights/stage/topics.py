"""The topics of the demo: created on its own broker, and on somebody else's also deleted again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights.stage.session import APPLICATION_ID

__all__ = ("TOPICS", "TopicsExist", "create_topics", "guest_topics")

TOPICS = {"airlines": 1, "planes": 1, "flights": 1, "delays-by-airport": 3}
"""Topics and their numbers of partitions. `flights` has one, which keeps the year in order. With several, a worker that
catches up may read a week of one before an hour of another, and windows would need a grace that covers this, as in
Kafka Streams.
"""

_TIMEOUT_S = 60.0


class TopicsExist(Exception):
    """The cluster has topics by the names that the demo uses."""


def create_topics(bootstrap_servers: str) -> None:
    """Create the topics of the application, without retention: Kafka would delete records of 2013 at once."""
    new = [NewTopic(name, count, config={"retention.ms": "-1"}) for name, count in TOPICS.items()]
    # Kept in a variable: futures of a client that is garbage-collected are never completed.
    admin = _admin(bootstrap_servers)
    _await(admin.create_topics(new))


@contextlib.contextmanager
def guest_topics(bootstrap_servers: str) -> Iterator[None]:
    """Create the topics on a cluster of somebody's own; delete them, the internal ones and the group after the block.

    Raises:
        TopicsExist: some exist already, and may be somebody's.
    """
    admin = _admin(bootstrap_servers)
    if found := _names(admin):
        topics, them = ("topic", "it") if len(found) == 1 else ("topics", "them")
        raise TopicsExist(
            f"the cluster at {bootstrap_servers} has the {topics} {', '.join(found)} already, and the demo would "
            f"delete {them} in the end. Delete {them} if nobody needs {them}, or give the address of another cluster."
        )
    create_topics(bootstrap_servers)
    try:
        yield
    finally:
        _await(admin.delete_topics(_names(admin)))
        _await(admin.delete_consumer_groups([APPLICATION_ID]))


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


def _names(admin: AdminClient) -> list[str]:
    listed = admin.list_topics(timeout=_TIMEOUT_S).topics
    return sorted(name for name in listed if name in TOPICS or name.startswith(f"{APPLICATION_ID}-"))


def _await(requests: Mapping[str, Future[None]]) -> None:
    for request in requests.values():
        try:
            request.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
