"""The tails of changelog partitions: changes since an offset, read once for all sources to compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from millpond.errors import BrokerError
from millpond.runtime import error_codes
from millpond.runtime.config.model import Config
from millpond.runtime.error_codes import Request, may_repeat
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS, make_log_reader
from millpond.runtime.kafka.end_offsets import offset_in
from millpond.runtime.missing_rights import Access, Operation
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.reusable_state import ChangelogFacts
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots.layouts import StoreLayout, row_function

from .comparing import Change
from .sources import NotReadable

__all__ = ("Changelogs", "Tail")

_TIMEOUT_S = 30.0
_BATCH = 10_000
_POLL_S = 0.5


class Changelogs:
    """A reader of the committed records of changelogs. Not thread-safe.

    Attributes:
        on_records: called with the number of records after each read.
    """

    def __init__(self, config: Config) -> None:
        self.on_records: Callable[[int], object] = lambda _count: None
        self._cluster = KafkaAdmin(
            config.admin_settings(CLIENT_DEFAULTS), patience=timedelta(seconds=_TIMEOUT_S), stopping=lambda: False
        )
        self._access = Access.of(config.consumer_settings())
        self._consumer = make_log_reader(config)

    def logs(self, topics: Collection[str], partitions: Collection[Partition]) -> dict[Partition, ChangelogFacts]:
        """Return the offset range and topic of changelog partitions, without topics that no longer exist.

        Raises:
            BrokerError: the brokers do not answer.
            TopicError: whether a topic exists may not be seen.
        """
        existing = self._cluster.topics()
        self._cluster.check_seen({each: Operation.READ for each in topics if each not in existing})
        facts: dict[str, TopicIdentity] = self._cluster.facts([each for each in topics if each in existing])
        wanted = [each for each in partitions if each.partition < existing.get(each.topic, 0)]
        return {each: ChangelogFacts(*found, facts[each.topic]) for each, found in self._cluster.ranges(wanted).items()}

    def tail(self, partition: Partition, layout: StoreLayout, first: int) -> Tail:
        """Return the tail of a changelog partition from an offset on, without reading it."""
        return Tail(self, partition, layout, first)

    def stable_end(self, partition: Partition) -> int:
        """Return the last stable offset of a partition: no transaction below it is open.

        Raises:
            BrokerError: the brokers do not answer.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            end: Future[Any] = self._cluster.ask_ends([partition])[partition]
            try:
                return offset_in(end)
            except KafkaException as error:
                if time.monotonic() > deadline or not may_repeat(error.args[0], Request.READ):
                    raise self._failed(error.args[0], partition) from error
                time.sleep(_POLL_S)

    def read(self, partition: Partition, first: int, end: int, take: Callable[[Any], None]) -> None:
        """Pass the committed records from `first` up to `end` to `take`.

        Raises:
            BrokerError: the brokers do not answer.
            NotReadable: the records no longer exist.
        """
        at = first
        progressed_at = time.monotonic()
        self._consumer.assign([TopicPartition(partition.topic, partition.partition, first)])
        try:
            while at < end:
                # consume() alone would wait until it has _BATCH records.
                first_message = self._consumer.poll(_POLL_S)
                messages = [] if first_message is None else [first_message, *self._consumer.consume(_BATCH, 0)]
                count = 0
                for message in messages:
                    error = message.error()
                    if error is None:
                        take(message)
                        count += 1
                        at = _offset(message) + 1
                    elif error.code() == error_codes.PARTITION_EOF:
                        at = max(at, _offset(message))
                    elif error.code() in error_codes.RECORDS_GONE:
                        raise NotReadable(f"{partition} no longer has the records from offset {first} on")
                    elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                        pass  # the group that the client looks for is not used
                    elif not may_repeat(error, Request.READ, time.monotonic() - progressed_at):
                        raise self._failed(error, partition)
                if messages:
                    progressed_at = time.monotonic()
                    self.on_records(count)
                elif time.monotonic() - progressed_at > _TIMEOUT_S:
                    self._cluster.check_seen({partition.topic: Operation.READ})  # a client waits for a hidden topic
                    raise BrokerError(
                        f"{partition} was read up to offset {at} of {end}, then no record arrived for {_TIMEOUT_S:.0f} "
                        "s: check that the brokers are up."
                    )
        finally:
            self._consumer.unassign()

    def _failed(self, error: KafkaError, partition: Partition) -> BrokerError:
        return BrokerError(f"cannot read changelogs: {error.str()}. {self._access.cure(error, [partition.topic])}")

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


class Tail:
    """The changes of a changelog partition since an offset.

    Attributes:
        first: the offset of the first change.
    """

    def __init__(self, changelogs: Changelogs, partition: Partition, layout: StoreLayout, first: int) -> None:
        self.first = first
        self._changelogs = changelogs
        self._partition = partition
        self._row = row_function(layout, partition.partition)
        self._changes: list[Change] = []
        self._read_to = first

    def changes(self, at_least: int) -> list[Change]:
        """Return all changes from `first` to the current end of the changelog, by offset.

        Args:
            at_least: an offset that the end must reach; records of a worker may become stable a moment later.

        Raises:
            BrokerError: the brokers do not answer.
            NotReadable: the records no longer exist.
            StateError: a record of a suppress buffer has an unknown format.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while (end := self._changelogs.stable_end(self._partition)) < at_least:
            if time.monotonic() > deadline:
                raise NotReadable(
                    f"the rows are at offset {at_least}, but {self._partition} is committed only up to {end}: check "
                    "that this is the Kafka cluster of the application"
                )
            time.sleep(_POLL_S)
        if end > self._read_to:
            self._changelogs.read(self._partition, self._read_to, end, self._take)
            self._read_to = end
        return self._changes

    def _take(self, message: Any) -> None:
        key = message.key()
        offset = message.offset()
        if key is None or offset < self._read_to:
            return
        timestamp = message.timestamp()[1]
        full, value = self._row(key, message.value(), timestamp, message.headers())
        self._changes.append(Change(offset, full, value, timestamp))
        self._read_to = offset + 1
