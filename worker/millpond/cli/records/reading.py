"""Reads the records of a topic, up to its present end or on and on."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millpond.cli.session import Session
from millpond.errors import BrokerError, TopicError
from millpond.runtime import error_codes
from millpond.runtime.config.model import Config
from millpond.runtime.config.parsers import nearest
from millpond.runtime.error_codes import Kind, Request, kind_of, may_repeat
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS
from millpond.runtime.missing_rights import Access, Operation
from millpond.runtime.offsets.metadata import Partition

__all__ = ("Wanted", "admin_of", "counted", "log", "newest", "partitions_of", "quiet", "records")

log: logging.Logger = logging.getLogger("millpond.records")

_PATIENCE = timedelta(seconds=10)
_POLL_S = 0.25
_BATCH = 1_000
# confluent-kafka names librdkafka's public error codes with an underscore.
_SILENCE_S = 30.0


@dataclass
class Wanted:
    """The records of a topic to read."""

    topic: str
    partitions: Collection[int] | None = None
    """None for all."""
    from_ms: int | None = None
    """Skips the records before the first one of this time, in epoch ms; None for the beginning."""
    from_end: bool = False
    """Whether only records are read that are written from now on."""
    from_offsets: Mapping[int, int] | None = None
    """By partition, the first offset to read; None for the beginning, or what the others say."""
    follow: bool = False
    """Whether to wait for further records at the end."""
    committed: bool = True
    """Whether records of transactions that are open or aborted are left out."""
    open_transactions: dict[int, int] = field(default_factory=dict)
    """Filled while reading: by partition, the number of offsets at its end that an open transaction holds back."""
    unreachable: str = ""
    """Set while reading with `follow`: why no record can come; empty if the brokers answer."""
    missing: list[KafkaError] = field(default_factory=list)
    """Filled while reading: errors that the topic does not exist, which come for a while also if it does."""
    access: Access = field(default_factory=Access)
    """Set while reading: names the user in errors about missing rights."""


def quiet(session: Session) -> None:
    """Show logs of Kafka's clients only if debug logs are wanted: they retry by themselves, and failures are errors."""
    session.log_to_stderr()
    log.setLevel(logging.DEBUG if session.verbose else logging.CRITICAL)


def counted(number: int) -> str:
    """Return a number of records as text."""
    return "1 record" if number == 1 else f"{number:,} records"


def admin_of(config: Config, patience: timedelta = _PATIENCE) -> KafkaAdmin:
    """Return an admin client for one command, which repeats requests for so long."""
    return KafkaAdmin(config.admin_settings(CLIENT_DEFAULTS), patience=patience, stopping=lambda: False)


def partitions_of(
    admin: KafkaAdmin, topics: Mapping[str, int], topic: str, operation: Operation = Operation.READ, cure: str = ""
) -> int:
    """Return the partition count of a topic.

    Args:
        admin: an admin client.
        topics: the partition count of each topic that the user may see.
        topic: the topic.
        operation: what the command does with it.
        cure: a further sentence for the error that it does not exist, after a space.

    Raises:
        TopicError: the topic does not exist, or may not be seen.
    """
    if topic in topics:
        return topics[topic]
    admin.check_seen({topic: operation})
    near = nearest(topic, topics)
    hint = f"Did you mean '{near}'?" if near else "`millpond topics` lists those that exist."
    raise TopicError(f"topic '{topic}' does not exist. {hint}{cure}")


def records(config: Config, admin: KafkaAdmin, wanted: Wanted) -> Iterator[list[Message]]:
    """Yield records in batches, by offset within each partition. An empty batch is a pause without new records.

    Raises:
        TopicError: the topic or a partition does not exist.
        BrokerError: the brokers do not answer.
    """
    chosen = _chosen(admin, wanted)
    ranges = admin.ranges(chosen)
    starts = {each: end if wanted.from_end else first for each, (first, end) in ranges.items()}
    if wanted.from_offsets is not None:
        starts = {each: wanted.from_offsets[each.partition] for each in chosen}
    if wanted.from_ms is not None:
        found = admin.offsets_at(dict.fromkeys(chosen, wanted.from_ms))
        starts = {each: ranges[each][1] if (at := found[each]) is None else at for each in chosen}
    consumer = _consumer(config, wanted)
    try:
        consumer.assign([TopicPartition(*each, start) for each, start in starts.items()])
        yield from _read(consumer, wanted, {each.partition: end for each, (_, end) in ranges.items()}, {
            each.partition for each, start in starts.items() if wanted.follow or start < ranges[each][1]
        })  # fmt: skip
    finally:
        consumer.close()


def newest(
    config: Config, admin: KafkaAdmin, wanted: Wanted, count: int, accepts: Callable[[Message], bool]
) -> list[Message]:
    """Return the newest records over all partitions, by their timestamps; those of one partition are in their order.

    It reads backwards from the present end, as far as it has to. Then `wanted.from_offsets` is where the topic goes on.

    Args:
        config: the configuration, for the clients.
        admin: an admin client.
        wanted: the topic and the partitions; `follow` is ignored.
        count: how many records.
        accepts: f(record) -> whether it counts.

    Raises:
        TopicError: the topic or a partition does not exist.
        BrokerError: the brokers do not answer.
    """
    ranges = {each.partition: found for each, found in admin.ranges(_chosen(admin, wanted)).items()}
    tails: dict[int, list[Message]] = {each: [] for each in ranges}
    reach = count
    once = replace(wanted, follow=False, open_transactions={})
    consumer = _consumer(config, wanted)
    try:
        ends = {each: min(end, _stable_end(consumer, wanted, each)) for each, (_, end) in ranges.items()}
        held_back = {each: end - ends[each] for each, (_, end) in ranges.items() if ends[each] < end}
        wanted.open_transactions.update(held_back)
        wanted.from_offsets = dict(ends)
        # Transactions and compaction leave gaps between offsets, so a window may have fewer records than offsets.
        while short := [each for each, (first, _) in ranges.items() if len(tails[each]) < count and ends[each] > first]:
            starts = {each: max(ranges[each][0], ends[each] - reach) for each in short}
            consumer.assign([TopicPartition(wanted.topic, each, start) for each, start in starts.items()])
            found: dict[int, list[Message]] = {each: [] for each in short}
            for batch in _read(consumer, once, ends, set(short)):
                for message in filter(accepts, batch):
                    found[message.partition() or 0].append(message)
            for each in short:
                tails[each] = [*found[each], *tails[each]][-count:]
            ends |= starts
            reach *= 2
    finally:
        consumer.close()
    return _latest(list(tails.values()), count)


def _stable_end(consumer: Consumer, wanted: Wanted, partition: int) -> int:
    """Return the offset at which a consumer of this isolation level stops: an open transaction may be behind it."""
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(wanted.topic, partition), timeout=_SILENCE_S)[1])
    except KafkaException as error:
        raise _failed(wanted, error.args[0]) from error


def _latest(tails: list[list[Message]], count: int) -> list[Message]:
    """Return the last records of lists by their timestamps, so that those of each list stay in their order."""
    found: list[Message] = []
    rest = [each for each in tails if each]
    while rest and len(found) < count:
        tail = max(rest, key=lambda each: each[-1].timestamp()[1])
        found.append(tail.pop())
        rest = [each for each in rest if each]
    return found[::-1]


def _chosen(admin: KafkaAdmin, wanted: Wanted) -> list[Partition]:
    count = partitions_of(admin, admin.topics(), wanted.topic)
    if wrong := [each for each in wanted.partitions or () if each >= count]:
        raise TopicError(f"topic '{wanted.topic}' has no partition {wrong[0]}: it has the partitions 0 to {count - 1}.")
    return [Partition(wanted.topic, each) for each in sorted(set(wanted.partitions or range(count)))]


def _consumer(config: Config, wanted: Wanted) -> Consumer:
    """Return a consumer, which adds the errors that the topic does not exist to `wanted.missing`."""

    def failed(error: KafkaError) -> None:
        log.debug("%s", error)
        if kind_of(error) is Kind.MISSING:
            wanted.missing.append(error)

    fixed: dict[str, Any] = {
        "group.id": config.application_id or "millpond",  # required, but not joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Records that were deleted since their offset was looked up are skipped.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if wanted.committed else "read_uncommitted",
        "error_cb": failed,
    }
    defaults: dict[str, Any] = {**CLIENT_DEFAULTS, "fetch.wait.max.ms": 100, "fetch.queue.backoff.ms": 5}
    defaults["topic.metadata.propagation.max.ms"] = 5_000  # until a topic that is missing counts as deleted
    settings = config.consumer_settings(defaults=defaults, fixed=fixed)
    wanted.access = Access.of(settings)
    return Consumer(dict(settings), logger=log)


def _read(consumer: Consumer, wanted: Wanted, ends: Mapping[int, int], waiting: set[int]) -> Iterator[list[Message]]:
    heard_at = time.monotonic()
    while waiting:
        # consume() alone would wait until it has a whole batch.
        first = consumer.poll(_POLL_S)
        messages = [] if first is None else [first, *consumer.consume(_BATCH, 0)]
        yield [each for each in messages if _is_record(each, wanted, ends, waiting)]
        if wanted.missing:
            wanted.missing.clear()
            _check_broker(consumer, wanted)
        if messages:
            heard_at = time.monotonic()
            wanted.unreachable = ""
        elif time.monotonic() - heard_at > _SILENCE_S:
            try:
                _check_broker(consumer, wanted)
                wanted.unreachable = ""
            except BrokerError as error:
                if not wanted.follow:
                    raise
                wanted.unreachable = str(error)
            heard_at = time.monotonic()


def _is_record(message: Message, wanted: Wanted, ends: Mapping[int, int], waiting: set[int]) -> bool:
    """Return whether a message is a wanted record, and not an event; stop waiting for a partition that has ended."""
    partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
    if wanted.follow:
        if error is not None and error.code() != error_codes.PARTITION_EOF and not _passes(error):
            raise _failed(wanted, error)
        return error is None
    if error is None:
        if offset + 1 >= ends[partition]:
            waiting.discard(partition)
        return offset < ends[partition]
    if error.code() == error_codes.PARTITION_EOF:
        waiting.discard(partition)
        if offset < ends[partition]:
            wanted.open_transactions[partition] = ends[partition] - offset
    elif not _passes(error):
        raise _failed(wanted, error)
    return False


def _passes(error: KafkaError) -> bool:
    """Return whether the client goes on by itself after an event. An unknown topic or error is told at once.

    The group that it looks for is not used, so the right to it is not needed.
    """
    return may_repeat(error, Request.READ, math.inf) or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def _check_broker(consumer: Consumer, wanted: Wanted) -> None:
    """Raise BrokerError if the brokers do not answer, and TopicError if the topic does not exist any more."""
    try:
        found = consumer.list_topics(wanted.topic, timeout=5).topics.get(wanted.topic)
    except KafkaException as error:
        raise _failed(wanted, error.args[0]) from error
    if found is None or found.error is None:
        return
    if kind_of(found.error) is Kind.FORBIDDEN:
        raise _failed(wanted, found.error)
    if kind_of(found.error) is Kind.MISSING:
        raise TopicError(f"topic '{wanted.topic}' was deleted while it was read: start again when it exists again.")


def _failed(wanted: Wanted, error: KafkaError) -> BrokerError:
    cure = wanted.access.cure(error, [wanted.topic])
    return BrokerError(f"topic '{wanted.topic}' cannot be read: {error.str()}. {cure}")
