"""The identity of a topic: its id, how long it keeps tombstones, and whether it is only compacted."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

__all__ = (
    "TopicIdentity",
    "delete_retention_ms",
    "deletion",
    "digest_of",
    "existing_ids",
    "is_only_compacted",
    "topic_configs",
    "topic_ids",
)

log: logging.Logger = logging.getLogger(__name__)

#: Kafka's default of `delete.retention.ms`.
_DELETE_RETENTION_MS = 86_400_000
#: The id in responses of brokers without topic ids: all bits are zero.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class TopicIdentity(NamedTuple):
    """The identity of one topic."""

    id: str
    """The topic's id. A topic that is created again under its name has another one. Empty if brokers have no ids."""
    delete_retention_ms: int | None
    """The minimum time that a tombstone stays, in milliseconds; None if tombstones are never compacted away."""
    only_compacted: bool = False
    """Whether brokers never delete the newest record of a key. Such a topic starts at offset 0, unless a person deletes
    records."""


def digest_of(ids: Iterable[str]) -> str:
    """Return a digest of ids of topics, eight characters; empty if brokers do not return ids."""
    known = sorted(ids)
    if not known or not all(known):
        return ""
    return base64.urlsafe_b64encode(hashlib.sha256("\n".join(known).encode()).digest())[:8].decode()


def topic_ids(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """Return the id of each topic.

    Raises:
        KafkaException: a topic does not exist, or no broker answered in time.
    """
    answers = admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s)
    found = {name: str(future.result().topic_id) for name, future in answers.items()}
    return {name: "" if id == _NO_ID else id for name, id in found.items()}


def existing_ids(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """Return the ids of topics as `topic_ids`, without topics for which no broker returns one."""
    found = {}
    for name, future in admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s).items():
        try:
            id = str(future.result().topic_id)
        except KafkaException:
            continue
        if id != _NO_ID:
            found[name] = id
    return found


def topic_configs(admin: AdminClient, topics: Collection[str], timeout_s: float) -> dict[str, dict[str, str]]:
    """Return the configuration of each topic, without topics whose configuration this client may not read.

    Raises:
        KafkaException: no broker answered in time.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=timeout_s).items():
        try:
            found[resource.name] = {name: str(entry.value) for name, entry in future.result().items()}
        except KafkaException as error:
            if error.args[0].retriable():
                raise
            log.info("topic %s: cannot read its configuration: %s", resource.name, error.args[0].str())
    return found


def is_only_compacted(config: Mapping[str, str] | None) -> bool:
    """Return `TopicIdentity.only_compacted` for a topic's configuration; False if that is unknown."""
    return config is not None and config.get("cleanup.policy") == "compact"


def deletion(config: Mapping[str, str]) -> str | None:
    """Return the settings by which brokers delete old records of a topic whatever their keys; None if they do not."""
    policy = config.get("cleanup.policy", "delete")
    limits = {name: config.get(name, "-1") for name in ("retention.ms", "retention.bytes")}
    reached = {name: limit for name, limit in limits.items() if limit != "-1"}
    if "delete" not in policy or not reached:
        return None
    return ", ".join(f"'{name}' is {value}" for name, value in {"cleanup.policy": policy, **reached}.items())


def delete_retention_ms(config: Mapping[str, str] | None) -> int | None:
    """Return `TopicIdentity.delete_retention_ms` for a topic's configuration; Kafka's default if that is unknown."""
    if config is None:
        return _DELETE_RETENTION_MS
    if "compact" not in config.get("cleanup.policy", "compact"):
        return None
    return int(config.get("delete.retention.ms", _DELETE_RETENTION_MS))
