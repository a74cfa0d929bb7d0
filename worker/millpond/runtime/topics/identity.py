"""The identity of a topic: its id, how long it keeps tombstones, and whether it is only compacted."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from millpond.runtime.error_codes import Kind, kind_of

__all__ = (
    "TopicIdentity",
    "deletion",
    "digest_of",
    "existing_ids",
    "identity_of",
    "is_only_compacted",
    "topic_configs",
    "topic_ids",
)

log: logging.Logger = logging.getLogger(__name__)

#: For topics whose `delete.retention.ms` is unknown: a copy without contact for longer is made again.
_UNKNOWN_RETENTION_MS = 600_000
#: The id in responses of brokers without topic ids: all bits are zero.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class TopicIdentity(NamedTuple):
    """The identity of one topic."""

    id: str
    """The topic's id. A topic that is created again under its name has another one. Empty if brokers have no ids."""
    delete_retention_ms: int | None
    """The minimum time that a tombstone stays, in milliseconds; None if tombstones are never compacted away. If the
    setting is unknown, this is short."""
    only_compacted: bool = False
    """Whether brokers never delete the newest record of a key. Such a topic starts at offset 0, unless a person deletes
    records."""
    known: bool = True
    """Whether this application may read the topic's configuration."""

    @property
    def shown_retention(self) -> str:
        """The value of `delete.retention.ms`, for messages."""
        return str(self.delete_retention_ms) if self.known else "unknown: this application may not read it"


def identity_of(id: str, config: Mapping[str, str] | None) -> TopicIdentity:
    """Return the identity of a topic.

    Args:
        id: its id.
        config: its configuration; None if it is unknown.
    """
    if config is None:
        return TopicIdentity(id, _UNKNOWN_RETENTION_MS, known=False)
    if "compact" not in config.get("cleanup.policy", "compact"):
        return TopicIdentity(id, None)
    compacted, kept = is_only_compacted(config), config.get("delete.retention.ms")
    if kept is None:
        return TopicIdentity(id, _UNKNOWN_RETENTION_MS, compacted, known=False)
    return TopicIdentity(id, int(kept), compacted)


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
        KafkaException: no broker answered in time, or a topic is unknown.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=timeout_s).items():
        try:
            found[resource.name] = {name: str(entry.value) for name, entry in future.result().items()}
        except KafkaException as error:
            # Of any other error one cannot conclude that the configuration stays unknown.
            if kind_of(error.args[0]) not in (Kind.FORBIDDEN, Kind.REFUSED):
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
