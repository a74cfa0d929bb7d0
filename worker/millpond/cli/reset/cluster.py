"""Reads the state of an application in Kafka: topics, the consumer group, committed offsets. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, AdminClient

from millpond.errors import BrokerError, ConfigError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka import group_requests
from millpond.runtime.kafka.clients import log
from millpond.runtime.kafka.group_events import read_committed_offsets
from millpond.runtime.kafka.rights import may_not_be_seen, unseen
from millpond.runtime.missing_rights import Access, Operation
from millpond.runtime.offsets.metadata import Partition, decode_metadata, text_of
from millpond.runtime.ownership.presence import Presence, decode_presence, presence_group
from millpond.runtime.topics.identity import digest_of, topic_ids

from .internal_topics import of_commits, owner_of

__all__ = ("REQUEST_TIMEOUT_S", "Cluster", "Committed")

REQUEST_TIMEOUT_S = 30.0
_RETRY_S = 0.1

_Answer = TypeVar("_Answer")


class Committed(NamedTuple):
    """The committed offset of one partition."""

    offset: int
    owner: str | None
    """The `worker.id` in the offset's metadata; None when it names none."""
    changelogs: str = ""
    """The digest of the changelogs with the task's state (`OffsetMetadata.changelogs`); empty if unknown."""
    topic: str = ""
    """The digest of the id of its topic (`OffsetMetadata.topic`); empty if unknown."""


@dataclass
class Cluster:
    """The Kafka clients of one command. The caller closes them. Only what reads offsets needs `application.id`."""

    config: Config
    admin: AdminClient = field(init=False)
    access: Access = field(init=False)
    """Names the user in errors about missing rights."""

    def __post_init__(self) -> None:
        self.access = Access.of(self.config.admin_settings(), self.config.application_id)
        self.admin = AdminClient(dict(self.config.admin_settings()), logger=log)

    @cached_property
    def consumer(self) -> Consumer:
        """The consumer of the application's group, which joins nothing."""
        settings = self.config.consumer_settings(
            fixed={"group.id": self.config.application_id, "enable.auto.commit": False}
        )
        return Consumer(dict(settings), logger=log)

    def close(self) -> None:
        """Close the connections."""
        if "consumer" in self.__dict__:
            self.consumer.close()

    def ask(
        self,
        request: Callable[[], _Answer],
        what: str,
        *,
        topics: Collection[str] = (),
        group: str = "",
        operation: Operation = Operation.READ,
    ) -> _Answer:
        """Send a request and return its answer.

        Args:
            request: sends the request and waits for the answer.
            what: the requested thing, for the error message: `the topics`, `to commit the new offsets`.
            topics: the topics of the request, for errors about missing rights.
            group: its group. Default: the application's.
            operation: the operation that it needs on these.

        Raises:
            BrokerError: Kafka answered with an error, or did not answer in time.
        """
        try:
            return request()
        except KafkaException as error:
            raise BrokerError(
                f"Kafka at '{self.config.bootstrap_servers}' was asked for {what.removeprefix('to ')} and answered: "
                f"{self.access.explained(error.args[0], topics, operation, group=group)}"
            ) from error
        except group_requests.FutureTimeout as error:
            raise BrokerError(
                f"Kafka at '{self.config.bootstrap_servers}' was asked for {what.removeprefix('to ')} and did not "
                f"answer for {REQUEST_TIMEOUT_S:.0f} s. Check that its brokers are up."
            ) from error

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""
        listing = self.ask(lambda: self.admin.list_topics(timeout=REQUEST_TIMEOUT_S), "the topics")
        return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}

    def check_seen(self, topics: Mapping[str, Operation]) -> None:
        """Check that topics which are missing in a list do not exist, and are not only hidden from the user.

        Args:
            topics: the topics, each with the operation that the command needs.

        Raises:
            TopicError: whether a topic exists may not be seen.
        """
        if hidden := self.ask(lambda: unseen(self.admin, topics, REQUEST_TIMEOUT_S), "the topics"):
            raise may_not_be_seen({each: topics[each] for each in hidden}, self.access)

    def check_group_seen(self, operation: Operation, group: str = "") -> None:
        """Check that the user may see whether a group exists.

        A list leaves out groups that are hidden, and a consumer without the right waits for a coordinator.

        Args:
            operation: the operation that the command needs.
            group: the group. Default: the application's.

        Raises:
            BrokerError: whether the group exists may not be seen.
        """
        id = group or self.config.application_id
        asked = self.admin.describe_consumer_groups([id], request_timeout=group_requests.REQUEST_TIMEOUT_S)
        with _unless_missing():
            self.answer(asked[id], "the consumer group", group=id, operation=operation)

    def sees_all_groups(self) -> bool:
        """Return whether a list of groups has all of them: without Describe on the cluster, it leaves out some."""
        asked = self.admin.describe_cluster(include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S)
        allowed = self.ask(lambda: asked.result(REQUEST_TIMEOUT_S), "the cluster").authorized_operations
        return AclOperation.DESCRIBE in (allowed or ())  # None without any operation

    def groups(self) -> list[str]:
        """Return all consumer groups; retry while a broker is still loading them, since a reset must not miss a group.

        Raises:
            BrokerError: a broker could not list its groups in time.
        """
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            listing = self.ask(
                lambda: self.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S),
                "the consumer groups",
            )
            if not listing.errors:
                return [each.group_id for each in listing.valid]
            if time.monotonic() >= deadline:
                raise BrokerError(f"the consumer groups cannot be listed: {listing.errors[0]}. Check the brokers.")
            time.sleep(_RETRY_S)

    def committed(self, partitions: Sequence[Partition]) -> dict[Partition, Committed]:
        """Return the group's committed offsets, without partitions that have none."""
        if not partitions:
            return {}
        wanted = [TopicPartition(*each) for each in partitions]
        found = self.ask(
            lambda: read_committed_offsets(self.consumer, wanted, REQUEST_TIMEOUT_S), "the committed offsets"
        )
        return _committed(found)

    def all_committed(self, operation: Operation) -> dict[Partition, Committed]:
        """Return all committed offsets of the group, which must exist.

        Args:
            operation: what the command does with the group, for errors about missing rights.
        """
        return _committed(self._of_group(self.config.application_id, operation))

    def proven_changelogs(self, topics: Sequence[str], groups: Collection[str]) -> set[str]:
        """Return those of some changelogs that the ids in the application's committed offsets prove to be its own.

        Args:
            topics: the changelogs that may be the application's.
            groups: all consumer groups.
        """
        return self._proven(self.config.application_id, topics, groups)

    def reject_proven_of_others(
        self, topics: Iterable[str], existing: Collection[str], groups: Collection[str]
    ) -> None:
        """Reject a topic that the committed offsets of an application with a longer id prove to be that one's.

        Raises:
            ConfigError: see above.
        """
        for topic in sorted(topics):
            if (other := owner_of(topic, self.config.application_id, groups)) is None:
                continue
            candidates = [each for each in existing if each.startswith(f"{other}-") and each.endswith("-changelog")]
            if topic in self._proven(other, candidates, groups):
                raise ConfigError(
                    f"--internal-topics: topic '{topic}' has state of application '{other}', as its committed offsets "
                    f"prove: leave the topic out."
                )

    def _proven(self, id: str, topics: Sequence[str], groups: Collection[str]) -> set[str]:
        if not topics or id not in groups:
            return set()
        digests = {each.changelogs for each in _committed(self._of_group(id)).values()} - {""}
        if not digests:
            return set()
        return of_commits(self._ids(topics), digests)

    def recreated(self, committed: Mapping[Partition, Committed]) -> set[str]:
        """Return the topics that were deleted and created again since an offset in them was committed."""
        known = {(partition.topic, each.topic) for partition, each in committed.items() if each.topic}
        if not known:
            return set()
        ids = self._ids(sorted({topic for topic, _ in known}))
        return {topic for topic, digest in known if digest_of([ids[topic]]) not in ("", digest)}

    def _ids(self, topics: Sequence[str]) -> dict[str, str]:
        return self.ask(
            lambda: topic_ids(self.admin, topics, REQUEST_TIMEOUT_S), "the topics",
            topics=topics, operation=Operation.DESCRIBE,
        )  # fmt: skip

    def readers(self, topic: str, groups: Collection[str]) -> list[str]:
        """Return the consumer groups that have committed offsets in a topic, without those for reports of workers.

        Args:
            topic: the topic.
            groups: all consumer groups.
        """
        reports = {presence_group(each) for each in groups}
        return [
            each
            for each in sorted(set(groups) - reports)
            if any(place.topic == topic and place.offset != OFFSET_INVALID for place in self._of_group(each))
        ]

    def presences(self) -> dict[Partition, tuple[int, Presence]]:
        """Return the last reports of workers, each with its time; a report of each task (`ownership/presence.py`)."""
        return {
            Partition(each.topic, each.partition): (each.offset, decode_presence(text_of(each)))
            for each in self._of_group(presence_group(self.config.application_id))
            if each.offset != OFFSET_INVALID
        }

    def _of_group(self, id: str, operation: Operation = Operation.DESCRIBE) -> list[TopicPartition]:
        asked = self.admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(id)], request_timeout=group_requests.REQUEST_TIMEOUT_S
        )
        answer = self.answer(asked[id], "the committed offsets", group=id, operation=operation)
        return list(answer.topic_partitions)

    def answer(
        self, future: Future[_Answer], what: str, *, group: str = "", operation: Operation = Operation.READ
    ) -> _Answer:
        """Wait for a group's coordinator, as `ask`, for a request sent with `group_requests.REQUEST_TIMEOUT_S`."""
        return self.ask(
            lambda: group_requests.answer(future, REQUEST_TIMEOUT_S), what, group=group, operation=operation
        )

    def delete_group(self, id: str) -> None:
        """Delete a consumer group, unless it does not exist.

        Raises:
            BrokerError: Kafka rejected the request, or did not answer in time.
        """
        asked = self.admin.delete_consumer_groups([id], request_timeout=group_requests.REQUEST_TIMEOUT_S)
        with _unless_missing():
            self.answer(asked[id], f"to delete the consumer group '{id}'", group=id, operation=Operation.DELETE)

    def active_members(self, groups: Collection[str]) -> list[str]:
        """Return a part of a sentence with the number of the group's members; an empty list without members.

        Members are processes of a Java application: millpond's workers do not join the group.

        Args:
            groups: all consumer groups.
        """
        id = self.config.application_id
        if id not in groups:
            return []
        asked = self.admin.describe_consumer_groups([id], request_timeout=group_requests.REQUEST_TIMEOUT_S)
        described = self.answer(asked[id], "the consumer group", operation=Operation.DESCRIBE)
        if described.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD) or not described.members:
            return []
        return [f"the consumer group has {len(described.members)} active members"]

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset and the end offset of each partition."""
        return {each: self._watermarks(each) for each in partitions}

    def _watermarks(self, partition: Partition) -> tuple[int, int]:
        place = TopicPartition(*partition)
        low, high = self.ask(
            lambda: self.consumer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S),
            f"the offsets of {partition}", topics=[partition.topic], operation=Operation.DESCRIBE,
        )  # fmt: skip
        return low, high

    def offsets_at(self, partitions: Sequence[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the first offset at or after a time for each partition; the end offset if no record is so late."""
        # Negative timestamps have other meanings in the protocol, such as the end.
        wanted = [TopicPartition(each.topic, each.partition, max(0, timestamp_ms)) for each in partitions]
        found = self.ask(lambda: self.consumer.offsets_for_times(wanted, timeout=REQUEST_TIMEOUT_S), "offsets by time")
        ends = self.ends(partitions)
        return {
            (place := Partition(each.topic, each.partition)): each.offset if each.offset >= 0 else ends[place][1]
            for each in found
        }

    def clamp(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offsets, limited to the range from the first offset to the end of each partition."""
        ends = self.ends(list(offsets))
        return {each: min(max(offset, ends[each][0]), ends[each][1]) for each, offset in offsets.items()}


@contextmanager
def _unless_missing() -> Iterator[None]:
    """Leave the block where a group does not exist."""
    try:
        yield
    except BrokerError as error:
        cause = error.__cause__
        if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise


def _committed(found: Sequence[TopicPartition]) -> dict[Partition, Committed]:
    return {
        Partition(each.topic, each.partition): Committed(
            each.offset, metadata.owner, metadata.any_changelogs, metadata.topic
        )
        for each in found
        if each.offset != OFFSET_INVALID
        for metadata in [decode_metadata(text_of(each))]
    }
