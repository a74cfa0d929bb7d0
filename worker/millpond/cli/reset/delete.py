"""The end of an application: everything of it in Kafka goes, but for what it read and what it wrote.

Owners are fenced first, so that no worker that still runs somewhere commits anew; the group goes last, since it names the
owners. So an interrupted deletion can be repeated, and doing it again ends the same way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, KafkaError, KafkaException

from millpond.errors import BrokerError
from millpond.runtime.offsets.metadata import decode_metadata

from .plan import Resetter, internal_topics

__all__ = ("DeletePlan", "delete", "deletion")

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class DeletePlan:
    """What would be deleted; nothing is yet."""

    application_id: str
    delete_topics: tuple[str, ...]
    keep_topics: tuple[str, ...]
    """Topics with the application's prefix that are not touched, since they seem to belong to something else."""
    group: bool
    """Whether there is a consumer group."""
    owners: tuple[str, ...]
    """Workers named in the committed offsets, whose transactional ids are fenced."""
    active: tuple[str, ...]
    """Signs of running workers, each a piece of a sentence; empty when there are none."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.delete_topics or self.group)


class _Group(NamedTuple):
    exists: bool
    owners: tuple[str, ...]


def deletion(resetter: Resetter, known: Collection[str] | None) -> DeletePlan:
    """What there is to delete.

    Args:
        resetter: the clients.
        known: logical names of the application's internal topics, or None to go by their names.

    Raises:
        BrokerError: Kafka does not answer.
    """
    application_id = resetter.config.application_id
    topics = resetter._topics()  # first: before it, the client knows no brokers to ask for their groups
    groups = resetter._groups()
    delete, keep = internal_topics(topics, application_id, groups, known)
    group = _group(resetter, groups)
    return DeletePlan(
        application_id, tuple(delete), tuple(keep), group.exists, group.owners, tuple(resetter._members(groups))
    )


def delete(resetter: Resetter, what: DeletePlan) -> None:
    """Carry it out.

    Raises:
        BrokerError: Kafka refuses a step; what was done stays done, and the deletion can be repeated.
    """
    for owner in what.owners:
        resetter._fence(owner)
    resetter._delete(what.delete_topics)
    if what.group:
        _delete_group(resetter)


def _group(resetter: Resetter, groups: Collection[str]) -> _Group:
    id = resetter.config.application_id
    if id not in groups:
        return _Group(exists=False, owners=())
    asked = resetter.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(id)], request_timeout=_TIMEOUT_S)
    found = resetter._ask(lambda: asked[id].result(_TIMEOUT_S), "the committed offsets")
    committed = [each for each in found.topic_partitions if each.offset != OFFSET_INVALID]
    owners = {owner for each in committed if (owner := decode_metadata(each.metadata).owner)}
    return _Group(exists=True, owners=tuple(sorted(owners)))


def _delete_group(resetter: Resetter) -> None:
    id = resetter.config.application_id
    try:
        resetter.admin.delete_consumer_groups([id], request_timeout=_TIMEOUT_S)[id].result(_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise BrokerError(f"the consumer group '{id}' cannot be deleted: {error.args[0].str()}.") from error
