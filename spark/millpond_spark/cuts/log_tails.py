"""Read the last records of partitions in the driver, and tell at which offsets their rows are complete.

Compaction removes a record only if the log has a newer one with the same key, before the last stable offset. So rows
are complete at an offset if everything before it was read, and no later record was stable by then: the last stable
offset was still this one. The client reports this as the end of the partition.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message, TopicPartition

from millpond.errors import BrokerError, SnapshotError
from millpond.runtime import error_codes
from millpond.runtime.config.model import Config
from millpond.runtime.error_codes import Request, may_repeat
from millpond.runtime.kafka.clients import make_log_reader
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.metadata import Partition

__all__ = ("LogTails", "Tail", "TailRecord")

_BATCH = 10_000


class TailRecord(NamedTuple):
    """A record, with the columns of `changelog_reader.RECORDS`."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] | None


class Tail:
    """What was read of the end of a partition.

    Everything before the first offset was read earlier, while no later record was stable than those that the tail has.
    """

    def __init__(self, first: int) -> None:
        self._position = first
        self._offsets: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int) -> None:
        """Add a record."""
        self._offsets.append(offset)
        self._position = offset + 1

    def add_end(self, offset: int) -> None:
        """Note that everything before an offset was read while this was the last stable offset."""
        self._ends.append(offset)
        self._position = max(self._position, offset)

    def has_all_before(self, offset: int) -> bool:
        """Return whether everything before an offset was read, as far as it still existed."""
        return self._position >= offset

    def last_end(self) -> int | None:
        """Return the last offset at which everything was read, and nothing was newer; None without one."""
        return self._ends[-1] if self._ends else None

    def complete_at(self, offset: int) -> bool:
        """Return whether the rows at an offset are complete: no record that they need was removed before it was read.

        They are at each known end. They are in between if no offset after the last end is missing, or if no record
        lies before the next end: only records there can have replaced records before the offset.
        """
        place = bisect.bisect_right(self._ends, offset)
        if place == 0:
            return False
        end = self._ends[place - 1]
        if offset == end:
            return True
        first, last = bisect.bisect_left(self._offsets, end), bisect.bisect_left(self._offsets, offset)
        if last - first == offset - end:
            return True
        return place < len(self._ends) and bisect.bisect_left(self._offsets, self._ends[place]) == last


class LogTails:
    """The tails of partitions, read by one client in the driver. Not thread-safe.

    Attributes:
        records: the committed records, of each partition by offset.
        bytes: the size of their keys and values.
        tails: the tail of each partition.
    """

    def __init__(self, config: Config, firsts: Mapping[Partition, int], with_headers: Collection[str] = ()) -> None:
        """Begin to read.

        Args:
            config: the configuration of the application.
            firsts: the first offset of each partition.
            with_headers: the topics whose records are kept with their headers.
        """
        self.records: list[TailRecord] = []
        self.bytes: int = 0
        self.tails: dict[Partition, Tail] = {each: Tail(first) for each, first in firsts.items()}
        self._with_headers = frozenset(with_headers)
        self._access = Access.of(config.consumer_settings())
        self._failing_since: float | None = None
        self._consumer = make_log_reader(config)
        self._consumer.assign([TopicPartition(*each, first) for each, first in firsts.items()])

    def __enter__(self) -> Self:
        """Return the tails."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._consumer.close()

    def poll(self, timeout_s: float) -> None:
        """Take what arrives within a time.

        Raises:
            SnapshotError: records were deleted before they were read.
            BrokerError: the brokers do not answer, or a right is missing.
        """
        for message in self._consumer.consume(_BATCH, timeout_s):
            error = message.error()
            if error is None:
                self._failing_since = None
                self._take(message)
            elif error.code() == error_codes.PARTITION_EOF:
                self.tails[_partition(message)].add_end(_offset(message))
            elif error.code() in error_codes.RECORDS_GONE:
                raise SnapshotError(
                    f"records of topic '{message.topic()}' were deleted while it was read, by 'retention.ms' of the "
                    "topic or by hand: make the snapshot again."
                )
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # the group is not used
                self._check(error, message)

    def _check(self, error: KafkaError, message: Message) -> None:
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        if not may_repeat(error, Request.READ, now - self._failing_since):
            topic = message.topic()
            cure = self._access.cure(error, [topic] if topic else ())
            raise BrokerError(f"cannot read changelogs: {error.str()}. {cure}")

    def _take(self, message: Message) -> None:
        topic, offset = str(message.topic()), _offset(message)
        partition = _partition(message)
        kind, timestamp_ms = message.timestamp()
        headers: Any = message.headers() if topic in self._with_headers else None
        if kind == TIMESTAMP_NOT_AVAILABLE:
            timestamp_ms = -1
        record = TailRecord(*partition, offset, message.key(), message.value(), timestamp_ms, headers)
        self.bytes += len(record.key or b"") + len(record.value or b"")
        self.tails[partition].add(offset)
        self.records.append(record)


def _partition(message: Message) -> Partition:
    topic, number = message.topic(), message.partition()
    assert topic is not None
    assert number is not None
    return Partition(topic, number)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
