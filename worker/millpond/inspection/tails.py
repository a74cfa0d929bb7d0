"""What a changelog partition got since an offset, as rows: read once, however many sources are compared with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millpond.errors import BrokerError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import QUICK_RETRIES, log
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.reusable_state import ChangelogFacts
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots.rows import StoreLayout, row_function

from .comparing import Change
from .sources import NotReadable

__all__ = ("Changelogs", "Tail")

_PATIENCE_S = 30.0
_BATCH = 10_000
_POLL_S = 0.5


class Changelogs:
    """Reads changelogs, what is committed of them. One thread at a time.

    Attributes:
        on_records: told how many more records were read.
    """

    def __init__(self, config: Config) -> None:
        self.on_records: Callable[[int], object] = lambda _count: None
        self._cluster = KafkaAdmin(
            config.admin_settings(), patience=timedelta(seconds=_PATIENCE_S), stopping=lambda: False
        )
        fixed: dict[str, Any] = {
            "group.id": config.application_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "error_cb": lambda _error: None,
        }
        # The broker answers at once where nothing new is to come, and is asked again at once.
        defaults: dict[str, Any] = {**QUICK_RETRIES, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 5}
        self._consumer = Consumer(dict(config.consumer_settings(defaults=defaults, fixed=fixed)), logger=log)

    def logs(self, topics: Collection[str], partitions: Collection[Partition]) -> dict[Partition, ChangelogFacts]:
        """Return where changelog partitions begin and end, and what their topics are. Topics that are gone are left out.

        Raises:
            BrokerError: the brokers do not answer.
        """
        existing = self._cluster.topics()
        facts: dict[str, TopicIdentity] = self._cluster.facts([each for each in topics if each in existing])
        wanted = [each for each in partitions if each.partition < existing.get(each.topic, 0)]
        return {each: ChangelogFacts(*found, facts[each.topic]) for each, found in self._cluster.ranges(wanted).items()}

    def tail(self, partition: Partition, layout: StoreLayout, first: int) -> Tail:
        """Return what a changelog partition has from an offset on; nothing is read yet."""
        return Tail(self, partition, layout, first)

    def stable_end(self, partition: Partition) -> int:
        """Return the offset before which no transaction of a partition is open.

        Raises:
            BrokerError: the brokers do not answer.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            asked: Future[Any] = self._cluster.ask_ends([partition])[partition]
            try:
                return int(asked.result().offset)
            except KafkaException as error:
                if time.monotonic() > deadline or not error.args[0].retriable():
                    raise self._failed(error.args[0]) from error
                time.sleep(_POLL_S)

    def read(self, partition: Partition, first: int, end: int, take: Callable[[Any], None]) -> None:
        """Give the committed records with first <= offset to `take`, until all before `end` were there.

        Raises:
            BrokerError: the brokers do not answer.
            NotReadable: the records are gone.
        """
        at = first
        moved = time.monotonic()
        self._consumer.assign([TopicPartition(partition.topic, partition.partition, first)])
        try:
            while at < end:
                # consume() alone would wait for as many as it is asked for.
                awaited = self._consumer.poll(_POLL_S)
                messages = [] if awaited is None else [awaited, *self._consumer.consume(_BATCH, 0)]
                count = 0
                for message in messages:
                    error = message.error()
                    if error is None:
                        take(message)
                        count += 1
                        at = _offset(message) + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        at = max(at, _offset(message))
                    elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                        raise NotReadable(f"the records of {partition} from offset {first} on are gone")
                    elif not error.retriable() and error.code() != KafkaError._TRANSPORT:
                        raise self._failed(error)
                if messages:
                    moved = time.monotonic()
                    self.on_records(count)
                elif time.monotonic() - moved > _PATIENCE_S:
                    raise BrokerError(
                        f"{partition} was read to offset {at} of {end}, and then nothing came for {_PATIENCE_S:.0f} s: check "
                        "that the brokers are up."
                    )
        finally:
            self._consumer.unassign()

    def _failed(self, error: KafkaError) -> BrokerError:
        return BrokerError(f"cannot read changelogs: {error.str()}. Check the brokers, and what the user may read.")

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


class Tail:
    """What a changelog partition got since an offset.

    Attributes:
        first: the first offset that is in it.
    """

    def __init__(self, changelogs: Changelogs, partition: Partition, layout: StoreLayout, first: int) -> None:
        self.first = first
        self._changelogs = changelogs
        self._partition = partition
        self._row = row_function(layout, partition.partition)
        self._changes: list[Change] = []
        self._read_to = first

    def changes(self, at_least: int) -> list[Change]:
        """Return all changes from `first` to the end that the changelog has now, by offset.

        Args:
            at_least: an offset that this end has not to be below: what a worker has written may be stable a moment later.

        Raises:
            BrokerError: the brokers do not answer.
            NotReadable: the records are gone.
            StateError: a record of a suppress buffer is of an unknown format.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while (end := self._changelogs.stable_end(self._partition)) < at_least:
            if time.monotonic() > deadline:
                raise NotReadable(
                    f"the rows stand at offset {at_least}, and {self._partition} is committed to {end} only: is this the cluster "
                    "that they were written to?"
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
        full, value = self._row(key, message.value(), message.timestamp()[1], message.headers())
        self._changes.append(Change(offset, full, value))
        self._read_to = offset + 1
