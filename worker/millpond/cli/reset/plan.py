"""What a reset is made of: finding out what there is, deciding what to change, and changing it.

The order keeps an interrupted reset repeatable: owners are fenced, so that no worker commits over the new offsets;
then offsets, then topics, then local state. Doing it again ends the same way.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from millpond.errors import BrokerError, StateDirectoryLocked, TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.clients import transactional_id
from millpond.runtime.offsets.metadata import Partition, decode_metadata
from millpond.state.rocksdb.directory_lock import DirectoryLock
from millpond.topology import Topology

__all__ = ("Inputs", "OffsetMove", "ResetPlan", "Resetter", "internal_topics", "topics_of")

log: logging.Logger = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_GONE_S = 60.0
_SUFFIXES = ("-changelog", "-repartition")

Target = Callable[["Resetter", Sequence[Partition], Mapping[Partition, int]], Mapping[Partition, int]]
"""Chooses new offsets: (resetter, partitions, committed offsets) -> offsets, still to be kept within the topic."""


@dataclass(frozen=True)
class OffsetMove:
    """One input partition's committed offset, before and after."""

    partition: Partition
    before: int | None
    """None when nothing was committed."""
    after: int
    """Within what the topic holds."""


@dataclass(frozen=True)
class ResetPlan:
    """Everything a reset would change; nothing in it is done yet."""

    application_id: str
    moves: tuple[OffsetMove, ...]
    repartition: tuple[Partition, ...]
    """Partitions of repartition topics; their committed offsets go back to 0, since the topics begin anew."""
    delete_topics: tuple[str, ...]
    keep_topics: tuple[str, ...]
    """Topics with the application's prefix that are not touched, since they seem to belong to something else."""
    directories: tuple[Path, ...]
    owners: tuple[str, ...]
    """Workers named in the committed offsets, whose transactional ids are fenced."""
    active: tuple[str, ...]
    """Signs of running workers, each a piece of a sentence; empty when there are none."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (any(move.before != move.after for move in self.moves) or self.delete_topics or self.directories)


class Inputs(NamedTuple):
    """What an application reads."""

    topics: frozenset[str]
    patterns: tuple[re.Pattern[str], ...] = ()

    def among(self, existing: Collection[str]) -> list[str]:
        """The topics, with those that match a pattern.

        Raises:
            TopicError: one does not exist.
        """
        if missing := sorted(self.topics - set(existing)):
            raise TopicError(
                f"there is no topic '{missing[0]}': create it, or name the application's inputs as they are."
            )
        matching = {topic for topic in existing if any(each.fullmatch(topic) for each in self.patterns)}
        return sorted(self.topics | matching)


def topics_of(topology: Topology) -> tuple[Inputs, set[str]]:
    """What a topology reads, and the logical names of its internal topics.

    Global tables are no inputs here: they have no committed offsets.
    """
    internal = set(topology.repartition_topics)
    topics: set[str] = set()
    patterns = []
    for part in topology.subtopologies():
        for source in part.sources:
            topics |= set(source.topics)
            if source.pattern is not None:
                patterns.append(source.pattern)
        internal |= set(part.changelogs.values())
    return Inputs(frozenset(topics - topology.repartition_topics.keys()), tuple(patterns)), internal - topics | set(
        topology.repartition_topics
    )


def internal_topics(
    existing: Iterable[str], application_id: str, groups: Iterable[str], known: Collection[str] | None
) -> tuple[list[str], list[str]]:
    """Topics to delete, and topics that only look as if they belonged to the application.

    Args:
        existing: all topics.
        application_id: the application.
        groups: all consumer groups. The topics of an application ``a-b`` begin with ``a-`` as well: its group tells.
        known: logical names of the topology's internal topics; None when there is no topology to ask.
    """
    prefix = f"{application_id}-"
    others = [f"{group}-" for group in groups if group.startswith(prefix)]
    delete: list[str] = []
    keep: list[str] = []
    for topic in sorted(existing):
        if not topic.startswith(prefix) or not topic.endswith(_SUFFIXES):
            continue
        ours = topic.removeprefix(prefix) in known if known is not None else not any(map(topic.startswith, others))
        (delete if ours else keep).append(topic)
    return delete, keep


@dataclass
class Resetter:
    """The clients a reset needs. Close it."""

    config: Config
    admin: AdminClient = field(init=False)
    consumer: Consumer = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient(dict(self.config.admin_settings()), logger=log)
        self.consumer = Consumer(
            dict(
                self.config.consumer_settings(
                    fixed={"group.id": self.config.application_id, "enable.auto.commit": False}
                )
            ),
            logger=log,
        )

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close()

    # Finding out ----------------------------------------------------------------------------------------------

    def plan(self, inputs: Inputs, known: Collection[str] | None, target: Target) -> ResetPlan:
        """What a reset would change.

        Args:
            inputs: what the application reads.
            known: logical names of its internal topics, or None to go by their names.
            target: where the inputs' offsets go.

        Raises:
            TopicError: an input topic does not exist.
            BrokerError: Kafka does not answer.
        """
        application_id = self.config.application_id
        counts = self._topics()
        topics = inputs.among(counts)
        groups = self._groups()
        delete, keep = internal_topics(counts, application_id, groups, known)
        partitions = [Partition(topic, number) for topic in topics for number in range(counts[topic])]
        repartition = [
            Partition(topic, number)
            for topic in delete
            if topic.endswith("-repartition")
            for number in range(counts[topic])
        ]
        committed = self._committed([*partitions, *repartition]) if application_id in groups else {}
        offsets = {each: offset for each, (offset, _) in committed.items()}
        chosen = self._within(target(self, partitions, offsets))
        owners = sorted({owner for _, owner in committed.values() if owner})
        directories = self._directories()
        return ResetPlan(
            application_id,
            tuple(OffsetMove(each, offsets.get(each), chosen[each]) for each in partitions if each in chosen),
            tuple(each for each in repartition if each in offsets),
            tuple(delete), tuple(keep), directories, tuple(owners),
            (*self._members(groups), *_locked(directories)),
        )  # fmt: skip

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        """First offset kept, and offset after the last record, of each partition."""
        return {
            each: self._ask(
                lambda each=each: self.consumer.get_watermark_offsets(TopicPartition(*each), timeout=_TIMEOUT_S),  # type: ignore[misc]
                f"the offsets of {each}",
            )
            for each in partitions
        }

    def at_time(self, partitions: Sequence[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The first offset at or after a time; the end where there is none."""
        # Below zero the protocol has other meanings, such as the end.
        wanted = [TopicPartition(each.topic, each.partition, max(0, timestamp_ms)) for each in partitions]
        found = self._ask(lambda: self.consumer.offsets_for_times(wanted, timeout=_TIMEOUT_S), "offsets by time")
        ends = self.ends(partitions)
        return {
            (place := Partition(each.topic, each.partition)): each.offset if each.offset >= 0 else ends[place][1]
            for each in found
        }

    def _within(self, chosen: Mapping[Partition, int]) -> dict[Partition, int]:
        ends = self.ends(list(chosen))
        return {each: min(max(offset, ends[each][0]), ends[each][1]) for each, offset in chosen.items()}

    def _topics(self) -> dict[str, int]:
        listing = self._ask(lambda: self.admin.list_topics(timeout=_TIMEOUT_S), "the topics")
        return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}

    def _groups(self) -> list[str]:
        """All consumer groups. A broker that cannot tell yet is asked again: a group that is overlooked stays."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            listing = self._ask(
                lambda: self.admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result(_TIMEOUT_S),
                "the consumer groups",
            )
            if not listing.errors:
                return [each.group_id for each in listing.valid]
            if time.monotonic() >= deadline:
                raise BrokerError(f"the consumer groups cannot be listed: {listing.errors[0]}. Check the brokers.")
            time.sleep(0.1)

    def _committed(self, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, str | None]]:
        if not partitions:
            return {}
        wanted = [TopicPartition(*each) for each in partitions]
        found = self._ask(lambda: self.consumer.committed(wanted, timeout=_TIMEOUT_S), "the committed offsets")
        return {
            Partition(each.topic, each.partition): (each.offset, decode_metadata(each.metadata).owner)
            for each in found
            if each.offset != OFFSET_INVALID
        }

    def _members(self, groups: Collection[str]) -> list[str]:
        """Members of the group: a Java application's, since millpond's workers assign by themselves."""
        application_id = self.config.application_id
        if application_id not in groups:
            return []
        described = self._ask(
            lambda: self.admin.describe_consumer_groups([application_id])[application_id].result(_TIMEOUT_S),
            "the consumer group",
        )
        if described.state in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD) or not described.members:
            return []
        return [f"the consumer group has {len(described.members)} active members"]

    def _directories(self) -> tuple[Path, ...]:
        application = self.config.state_dir / self.config.application_id
        return tuple(sorted(path for path in application.iterdir() if path.is_dir())) if application.is_dir() else ()

    # Changing -------------------------------------------------------------------------------------------------

    def apply(self, plan: ResetPlan) -> None:
        """Carry a plan out.

        Raises:
            BrokerError: Kafka refuses a step; what was done stays done, and the reset can be repeated.
            StateDirectoryLocked: a worker runs on this machine.
        """
        for owner in plan.owners:
            self._fence(owner)
        offsets = [TopicPartition(*move.partition, move.after) for move in plan.moves]
        offsets += [TopicPartition(*each, 0) for each in plan.repartition]
        self._alter(offsets)
        self._delete(plan.delete_topics)
        for directory in plan.directories:
            _remove(directory)

    def _fence(self, owner: str) -> None:
        """End whatever transaction the owner has open, and keep it from committing another."""
        name = transactional_id(self.config.application_id, owner)
        producer = Producer(dict(self.config.producer_settings(fixed={"transactional.id": name})), logger=log)
        self._ask(lambda: producer.init_transactions(_TIMEOUT_S), f"to end the transactions of worker '{owner}'")

    def _alter(self, offsets: list[TopicPartition]) -> None:
        if offsets:
            request = ConsumerGroupTopicPartitions(self.config.application_id, offsets)
            for future in self.admin.alter_consumer_group_offsets([request]).values():
                done = self._ask(lambda future=future: future.result(_TIMEOUT_S), "to commit the new offsets")  # type: ignore[misc]
                if failed := [each for each in done.topic_partitions if each.error is not None]:
                    raise BrokerError(f"the offset of {failed[0].topic} cannot be changed: {failed[0].error.str()}.")

    def _delete(self, topics: Sequence[str]) -> None:
        if not topics:
            return
        for topic, future in self.admin.delete_topics(list(topics)).items():
            try:
                future.result(_TIMEOUT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise BrokerError(f"topic '{topic}' cannot be deleted: {error.args[0].str()}.") from error
        # The broker deletes in the background; a worker that starts meanwhile would find half of a topic.
        deadline = time.monotonic() + _GONE_S
        while left := sorted(set(topics) & self._topics().keys()):
            if time.monotonic() >= deadline:
                raise BrokerError(f"topic '{left[0]}' is still being deleted; wait before you start the application.")
            time.sleep(0.1)

    def _ask(self, question: Callable[[], Any], what: str) -> Any:
        try:
            return question()
        except KafkaException as error:
            cause = error.args[0]
            raise BrokerError(
                f"Kafka at '{self.config.bootstrap_servers}' was asked for {what.removeprefix('to ')} and answered: "
                f"{cause.str()}."
            ) from error


def _locked(directories: Iterable[Path]) -> list[str]:
    signs = []
    for directory in directories:
        if not (directory / "lock").exists():  # looking must not make one
            continue
        try:
            DirectoryLock(directory).release()
        except StateDirectoryLocked as error:
            signs.append(str(error).partition(":")[0])
        except OSError:  # somebody else's directory: whether it can be removed shows later
            continue
    return signs


def _remove(directory: Path) -> None:
    lock = DirectoryLock(directory)
    try:
        # Renamed first: a state directory is whole or not there, whenever this is interrupted.
        doomed = directory.with_name(f".{directory.name}.deleted-{os.getpid()}")
        directory.rename(doomed)
    finally:
        lock.release()
    shutil.rmtree(doomed)
    if not any(directory.parent.iterdir()):
        directory.parent.rmdir()
