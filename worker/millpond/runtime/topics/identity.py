"""What a topic is, besides its partitions: its id, and for how long it keeps the records of deletions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

__all__ = ("TopicIdentity", "ask_configs", "ask_ids", "delete_retention_ms", "is_only_compacted")

log = logging.getLogger(__name__)

#: Kafka's default of `delete.retention.ms`.
_DELETE_RETENTION_MS = 86_400_000
#: What brokers without topic ids answer: all bits zero.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class TopicIdentity(NamedTuple):
    """One topic."""

    id: str
    """Another one of the same name has another id; "" where the brokers do not tell."""
    delete_retention_ms: int | None
    """How long a tombstone stays at the least; None where none is ever compacted away."""
    only_compacted: bool = False
    """Whether brokers never delete the newest record of a key: then the topic begins at 0, unless somebody deleted records."""


def ask_ids(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """The id of each topic.

    Raises:
        KafkaException: there is no such topic, or nobody answered.
    """
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s)
    found = {name: str(future.result().topic_id) for name, future in answers.items()}
    return {name: "" if id == _NO_ID else id for name, id in found.items()}


def ask_configs(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, dict[str, str]]:
    """The configuration of each topic; without those that this client may not see.

    Raises:
        KafkaException: nobody answered.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=timeout_s).items():
        try:
            found[resource.name] = {name: str(entry.value) for name, entry in future.result().items()}
        except KafkaException as error:
            if error.args[0].retriable():
                raise
            log.info("the configuration of topic %s cannot be read: %s", resource.name, error.args[0].str())
    return found


def is_only_compacted(config: Mapping[str, str] | None) -> bool:
    """From a topic's configuration; False where that is not known."""
    return config is not None and config.get("cleanup.policy") == "compact"


def delete_retention_ms(config: Mapping[str, str] | None) -> int | None:
    """From a topic's configuration; Kafka's default where that is not known."""
    if config is None:
        return _DELETE_RETENTION_MS
    if "compact" not in config.get("cleanup.policy", "compact"):
        return None
    return int(config.get("delete.retention.ms", _DELETE_RETENTION_MS))
