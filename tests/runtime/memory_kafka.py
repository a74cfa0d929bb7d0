"""A fake Kafka in memory for ownership and commits: logs, transactions, and offsets with metadata.

`journal` has every request in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition

from millpond.runtime.offsets.metadata import (
    CommittedOffset,
    OffsetMetadata,
    Partition,
    decode_metadata,
    encode_metadata,
)
from millpond.runtime.topics.identity import TopicIdentity

__all__ = ("Consumer", "Kafka", "Producer", "Record", "error")


def error(code: int, text: str = "rejected", *, retriable: bool = False, abort: bool = False) -> KafkaException:
    """An exception of the client."""
    return KafkaException(KafkaError(code, text, retriable=retriable, txn_requires_abort=abort))


@dataclass
class Record:
    """One record of a log; `stable` is None while its transaction is open."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    stable: bool | None
    headers: Any = None


@dataclass
class Kafka:
    """The brokers.

    Attributes:
        logs: all records of each partition.
        offsets: the committed offsets of the group.
        pending: offsets of open transactions, by transactional id.
        holders: the newest producer of each transactional id.
        journal: the requests.
        starts: the first offset of partitions that do not start at 0.
        facts_of: the identities of topics; by default, the name is the id.
        silent: whether requests for end offsets get no answer.
        past: answers to the next requests for committed offsets, in their order, instead of the committed ones, as
            from a broker that has not loaded its log to the end.
        surveyed: answers to requests that do not wait for transactions, instead of the committed offsets, or None.
    """

    logs: dict[Partition, list[Record]] = field(default_factory=dict)
    offsets: dict[Partition, tuple[int, str]] = field(default_factory=dict)
    pending: dict[str, dict[Partition, tuple[int, str]]] = field(default_factory=dict)
    holders: dict[str, Producer] = field(default_factory=dict)
    journal: list[str] = field(default_factory=list)
    starts: dict[Partition, int] = field(default_factory=dict)
    facts_of: dict[str, TopicIdentity] = field(default_factory=dict)
    silent: bool = False
    past: list[dict[Partition, tuple[int, str]]] = field(default_factory=list)
    surveyed: dict[Partition, tuple[int, str]] | None = None

    def append(self, topic: str, key: str | None, value: str, timestamp: int = 1_000, partition: int = 0) -> None:
        """Put a committed record into a topic."""
        log = self.logs.setdefault(Partition(topic, partition), [])
        log.append(Record(None if key is None else key.encode(), value.encode(), timestamp, stable=True))

    def commit(self, partition: Partition, offset: int, metadata: OffsetMetadata) -> None:
        """Commit an offset as another client."""
        self.offsets[partition] = (offset, encode_metadata(metadata))

    def committed(self, partition: Partition) -> CommittedOffset:
        """The committed offset of a partition."""
        offset, text = self.offsets.get(partition, (None, ""))
        return CommittedOffset(offset, decode_metadata(text))

    def values(self, topic: str, partition: int = 0) -> list[tuple[str, str | None]]:
        """Committed keys and values of a partition."""
        return [
            ((each.key or b"").decode(), None if each.value is None else each.value.decode())
            for each in self.logs.get(Partition(topic, partition), ())
            if each.stable
        ]

    def ranges(self, partitions: Iterable[Partition]) -> dict[Partition, tuple[int, int]]:
        """First offset and end of partitions, as `KafkaAdmin.ranges`."""
        self.journal.append("ranges")
        return {each: (self.starts.get(each, 0), len(self.logs.get(each, ()))) for each in partitions}

    def offsets_at(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """As `KafkaAdmin.offsets_at`."""
        return {
            each: next((at for at, record in enumerate(self.logs.get(each, ())) if record.timestamp >= time_ms), None)
            for each, time_ms in times.items()
        }

    def facts(self, topics: Iterable[str]) -> dict[str, TopicIdentity]:
        """As `KafkaAdmin.facts`."""
        return {each: self.facts_of.get(each, TopicIdentity(each, 86_400_000)) for each in topics}

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """As `KafkaAdmin.ids`."""
        self.journal.append("ids")
        return {topic: facts.id for topic, facts in self.facts(topics).items()}

    def ask_ends(self, partitions: Iterable[Partition]) -> dict[Partition, Future[Any]]:
        """As `KafkaAdmin.ask_ends`, answered at once unless `silent`."""
        answers: dict[Partition, Future[Any]] = {each: Future() for each in partitions}
        for partition, answer in answers.items():
            if not self.silent:
                answer.set_result(SimpleNamespace(offset=self._stable_end(partition)))
        return answers

    def unanswered(self) -> None:
        """As `KafkaAdmin.unanswered`."""

    def _stable_end(self, partition: Partition) -> int:
        log = self.logs.get(partition, ())
        return next((offset for offset, each in enumerate(log) if each.stable is None), len(log))

    def remake(self, topic: str, id: str) -> None:
        """Delete a topic and create it again."""
        for each in [each for each in self.logs if each.topic == topic]:
            self.logs[each] = []
        self.facts_of[topic] = TopicIdentity(id, 86_400_000)

    def partition_count(self, topic: str) -> int:
        """As `KafkaAdmin.partition_count`."""
        return 1

    def readable(self, partition: Partition, position: int) -> list[Message]:
        """Committed records from a position up to the last stable offset."""
        messages = []
        for offset, each in enumerate(self.logs.get(partition, ())):
            if each.stable is None:
                break
            if offset >= position and each.stable:
                messages.append(
                    Message(
                        topic=partition.topic, partition=partition.partition, offset=offset, key=each.key,
                        value=each.value, timestamp=(1, each.timestamp), headers=each.headers, error=None,
                    )
                )  # fmt: skip
        return messages


class CommittedEnds:
    """As `millpond.runtime.kafka.committed_ends.CommittedEnds`, answered at once unless the brokers are silent."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def ask_ends(self, partitions: Iterable[Partition]) -> dict[Partition, Future[Any]]:
        answers: dict[Partition, Future[Any]] = {each: Future() for each in partitions}
        for partition, answer in answers.items():
            if not self._kafka.silent:
                answer.set_result(SimpleNamespace(offset=self._kafka.committed(partition).offset or 0))
        return answers

    def unanswered(self) -> None:
        pass

    def close(self) -> None:
        pass


class Producer:
    """A producer with a transactional id, or without.

    Attributes:
        failures: exceptions to raise, by method; each is raised by one call.
        delivers: whether records are acknowledged.
        room: the size of its queue until it is polled, in records; None without a limit.
    """

    def __init__(self, kafka: Kafka, id: str | None = None) -> None:
        self.kafka = kafka
        self.id = id
        self.failures: dict[str, list[Exception]] = {}
        self.delivers = True
        self.room: int | None = None
        self._reports: list[tuple[Any, Message]] = []
        self._records: list[Record] = []

    def __len__(self) -> int:
        return len(self._reports)

    def init_transactions(self, timeout: float = 0) -> None:
        self._called("init_transactions")
        former = self.kafka.holders.get(self.id or "")
        self.kafka.holders[self.id or ""] = self
        self.kafka.pending.pop(self.id or "", None)
        for record in former._records if former is not None else ():
            record.stable = False

    def begin_transaction(self) -> None:
        self._called("begin_transaction")
        self._check()

    def produce(
        self, topic: str, value: Any = None, key: Any = None, partition: int = -1, callback: Any = None,
        partitioner: Any = None, timestamp: int = 0, headers: Any = None,
    ) -> None:  # fmt: skip
        if self.room is not None and len(self._reports) >= self.room:
            raise BufferError
        self._called("produce")
        place = Partition(topic, max(partition, 0))
        log = self.kafka.logs.setdefault(place, [])
        record = Record(key, value, timestamp, stable=None if self.id else True, headers=headers)
        log.append(record)
        self._records.append(record)
        message = Message(topic=topic, partition=place.partition, offset=len(log) - 1, key=key, value=value)
        self._reports.append((callback, message))

    def poll(self, timeout: float = 0) -> int:
        return self._deliver()

    def flush(self, timeout: float = 0) -> int:
        self._deliver()
        return len(self)

    def _deliver(self) -> int:
        if not self.delivers:
            return 0
        reports, self._reports = self._reports, []
        for callback, message in reports:
            if callback is not None:
                callback(None, message)
        return len(reports)

    def acknowledge(self, count: int) -> None:
        """Report the oldest records in flight as delivered."""
        reports, self._reports = self._reports[:count], self._reports[count:]
        for callback, message in reports:
            if callback is not None:
                callback(None, message)

    def fail_deliveries(self, code: int) -> None:
        """Report all records in flight as rejected."""
        reports, self._reports = self._reports, []
        for callback, message in reports:
            if callback is not None:
                callback(KafkaError(code), message)

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], group: Any, timeout: float) -> None:
        self._called("send_offsets")
        self._check()
        pending = self.kafka.pending.setdefault(self.id or "", {})
        pending.update({Partition(each.topic, each.partition): (each.offset, each.metadata or "") for each in offsets})

    def commit_transaction(self, timeout: float = 0) -> None:
        self._called("commit")
        self._check()
        self.kafka.offsets.update(self.kafka.pending.pop(self.id or "", {}))
        for record in self._records:
            record.stable = True
        self._records.clear()

    def abort_transaction(self, timeout: float = 0) -> None:
        self._called("abort")
        self._check()
        self.kafka.pending.pop(self.id or "", None)
        for record in self._records:
            record.stable = False
        self._records.clear()

    def _called(self, method: str) -> None:
        self.kafka.journal.append(f"{method} {self.id}")
        if self.failures.get(method):
            raise self.failures[method].pop(0)

    def _check(self) -> None:
        if self.kafka.holders.get(self.id or "") is not self:
            raise error(KafkaError._FENCED, "fenced")


class Consumer:
    """A consumer of the group.

    Attributes:
        positions: the next offset of each assigned partition.
        failures: as for a producer.
        answers: the answers of `commit` by partition: an error code, or None if the offset is accepted.
    """

    def __init__(self, kafka: Kafka, *, stable: bool = True) -> None:
        self.kafka = kafka
        self.stable = stable
        self.positions: dict[Partition, int] = {}
        self.failures: list[Exception] = []
        self.commits: list[list[TopicPartition]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float = 0) -> list[TopicPartition]:
        self.kafka.journal.append("committed" if self.stable else "survey")
        if self.failures:
            raise self.failures.pop(0)
        pending = {each for offsets in self.kafka.pending.values() for each in offsets}
        if self.stable and pending & {Partition(each.topic, each.partition) for each in partitions}:
            raise error(KafkaError._TIMED_OUT, retriable=True)
        answer = []
        offsets = self.kafka.past.pop(0) if self.kafka.past else self.kafka.offsets
        if not self.stable and self.kafka.surveyed is not None:
            offsets = self.kafka.surveyed
        for each in partitions:
            offset, text = offsets.get(Partition(each.topic, each.partition), (OFFSET_INVALID, ""))
            answer.append(TopicPartition(each.topic, each.partition, offset, text))
        return answer

    def consumer_group_metadata(self) -> str:
        return "group"

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.kafka.journal.append("commit offsets")
        self.commits.append(offsets)
        if not asynchronous:
            self.kafka.offsets.update(
                {Partition(each.topic, each.partition): (each.offset, each.metadata or "") for each in offsets}
            )
        return offsets

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.positions.update({Partition(each.topic, each.partition): each.offset for each in partitions})

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            del self.positions[Partition(each.topic, each.partition)]

    def get_watermark_offsets(self, partition: TopicPartition, *, cached: bool) -> tuple[int, int]:
        return 0, len(self.kafka.logs.get(Partition(partition.topic, partition.partition), ()))

    def poll(self, timeout: float = 0) -> None:
        return None

    def close(self) -> None:
        self.positions.clear()

    def read(self) -> list[tuple[Partition, list[Message], int]]:
        """The new records of each assigned partition, and its end."""
        found = []
        for partition, position in list(self.positions.items()):
            messages = self.kafka.readable(partition, position)
            end = len(self.kafka.logs.get(partition, ()))
            self.positions[partition] = max(position, end)
            found.append((partition, messages, end))
        return found
