"""Kafka for tests: create topics, produce records, read committed records."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from millpond.runtime.offsets.metadata import text_of
from tests.support import broker, set_up

__all__ = (
    "Row",
    "admin",
    "alter_topic",
    "answer",
    "commit_offsets",
    "committed_offsets",
    "create_topic",
    "delete_topics",
    "end_offsets",
    "eventually",
    "log",
    "produce",
    "read",
    "read_all",
    "read_until",
    "settle",
    "topic_names",
)

T = TypeVar("T")

#: Of librdkafka's clients of tests: without one they would write to the terminal.
log = logging.getLogger("tests.kafka")

_TIMEOUT_S = 60.0
_NO_ANSWER = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.REQUEST_TIMED_OUT}
_READERS = 6
_QUICK = {
    # Clients of a test run for a second or two: librdkafka's default backoffs would take most of it.
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "log_level": 3,  # errors only
}
_NO_LEADER_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}

Produced = Sequence[Any]
"""`(key, value)`, `(key, value, timestamp_ms)` or `(key, value, timestamp_ms, partition)`."""


class Row(NamedTuple):
    """One record that was read."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    """Epoch milliseconds."""
    partition: int
    offset: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def admin(bootstrap_servers: str) -> AdminClient:
    """Return an admin client with short backoffs."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, **_QUICK}, logger=log)


def create_topic(
    bootstrap_servers: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic; return when every partition has a leader that clients can see.

    A broker of the test's own that does not answer in time is started anew.

    Raises:
        SetUpError: the broker did not answer a second time either.
    """
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    requested = False

    def create() -> None:
        nonlocal requested
        client = admin(bootstrap_servers)
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                answer(client.create_topics([new])[name], f"creating topic {name}")
                break
            except KafkaException as error:
                code = error.args[0].code()
                if requested and code == KafkaError.TOPIC_ALREADY_EXISTS:
                    break
                if code != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                # A broker that was frozen is fenced until its next heartbeat, and then has no place for a replica.
                if time.monotonic() > deadline:
                    raise set_up.Late(f"the broker accepted no topic {name} within {_TIMEOUT_S:g} s") from error
                time.sleep(0.1)
            except set_up.Late:
                requested = True
                raise
        deadline = time.monotonic() + _TIMEOUT_S
        while not _led(client, name, partitions):
            if time.monotonic() > deadline:
                raise set_up.Late(f"{partitions} partitions of topic {name} had no leaders within {_TIMEOUT_S:g} s")
            time.sleep(0.02)

    _requested(bootstrap_servers, create)


def _requested(bootstrap_servers: str, step: Callable[[], None]) -> None:
    """Do a step of a set-up that a broker answers; if the answer is late, once more, with a new process if it may."""
    renewed: list[broker.OwnBroker] = []
    set_up.twice(
        step,
        again=lambda: renewed.extend(broker.renew(bootstrap_servers)),
        log=lambda: "\n".join(each.end_of_log() for each in renewed) or broker.end_of_shared_log(bootstrap_servers),
    )


def _led(client: AdminClient, name: str, partitions: int) -> bool:
    """Whether all partitions of a topic have leaders that clients can see."""
    try:
        topic = client.list_topics(name, timeout=_TIMEOUT_S).topics[name]
    except KafkaException as error:
        if error.args[0].code() in _NO_ANSWER:
            return False
        raise
    return len(topic.partitions) == partitions and all(each.leader >= 0 for each in topic.partitions.values())


def answer(future: Future[T], what: str) -> T:
    """Wait for the answer to an admin client's request, a step of a set-up.

    Raises:
        Late: there was none in time.
    """
    try:
        return future.result(_TIMEOUT_S)
    except TimeoutError as error:
        raise set_up.Late(f"{what} had no answer within {_TIMEOUT_S:g} s") from error
    except KafkaException as error:
        if error.args[0].code() in _NO_ANSWER:
            raise set_up.Late(f"{what} failed ({error.args[0].str()})") from error
        raise


def delete_topics(bootstrap_servers: str, names: Iterable[str]) -> None:
    """Delete topics; ignore topics that do not exist."""
    wanted = list(names)

    def delete() -> None:
        client = admin(bootstrap_servers)  # kept: futures of a garbage-collected client are never completed
        for name, future in client.delete_topics(wanted).items():
            try:
                answer(future, f"deleting topic {name}")
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

    if wanted:
        _requested(bootstrap_servers, delete)


def alter_topic(bootstrap_servers: str, name: str, **settings: str) -> None:
    """Set configurations of a topic."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    client = admin(bootstrap_servers)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(_TIMEOUT_S)


def topic_names(bootstrap_servers: str, prefix: str = "") -> set[str]:
    """Return the names of all topics except Kafka's internal ones."""
    topics = admin(bootstrap_servers).list_topics(timeout=_TIMEOUT_S).topics
    return {name for name in topics if name.startswith(prefix) and not re.match(r"__[a-z]", name)}


def produce(bootstrap_servers: str, topic: str, records: Iterable[Produced], **config: Any) -> None:
    """Produce records in order; return when the broker has all of them.

    Records without a partition get the one of Java's default partitioner.

    Args:
        bootstrap_servers: the broker.
        topic: the topic.
        records: `(key, value[, timestamp_ms[, partition]])`; keys and values are bytes, str or None.
        config: further producer settings with `_` for `.`: `produce(..., linger_ms=0)`.
    """
    settings = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "linger.ms": 1,
            **_QUICK,
            **settings,
        },
        logger=log,
    )
    # librdkafka requests a producer id when metadata arrives over a permanent connection, otherwise every 0.5 s.
    for _ in range(2):
        producer.list_topics(topic, timeout=_TIMEOUT_S)
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    for record in records:
        key, value, *rest = record
        named = dict(zip(("timestamp", "partition"), rest, strict=False))
        arguments = {name: given for name, given in named.items() if given is not None}
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=delivered, **arguments)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(_TIMEOUT_S)
    assert not left, f"{left} records for {topic} were not delivered within {_TIMEOUT_S} s"
    assert not errors, f"{topic}: {errors[0]}"


def read(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed", settled: bool = False) -> list[Row]:
    """Return all records of a topic, by partition and offset.

    With `read_committed`, it reads up to the last stable offset, and does not wait for open transactions. With
    `settled`, it does: so a test reads what workers wrote that have ended, if it waited for something else.
    """
    if settled:
        settle(bootstrap_servers, topic)
    consumer = _consumer(bootstrap_servers, isolation)
    try:
        waiting = _assign_all(consumer, topic)
        rows: list[Row] = []
        deadline = time.monotonic() + _TIMEOUT_S
        while waiting:
            assert time.monotonic() < deadline, f"the end of {topic} was not reached within {_TIMEOUT_S} s"
            for message in _arrived(consumer):
                error = message.error()
                if error is None:
                    rows.append(_row(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(message.partition())
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: (row.partition, row.offset))


def read_all(
    bootstrap_servers: str, names: Iterable[str], *, prefix: str = "", suffix: str = ""
) -> dict[str, list[Row]]:
    """Return all committed records of topics, some of which are read at the same time.

    Args:
        bootstrap_servers: the broker.
        names: names of the topics, without what they have in common.
        prefix: what all of them begin with.
        suffix: what all of them end with.
    """
    known = list(names)
    with ThreadPoolExecutor(_READERS, "read") as readers:
        rows = readers.map(lambda name: read(bootstrap_servers, f"{prefix}{name}{suffix}"), known)
        return dict(zip(known, rows, strict=True))


def read_until(
    bootstrap_servers: str,
    topic: str,
    done: Callable[[list[Row]], bool] | int,
    *,
    isolation: str = "read_committed",
    timeout_s: float = _TIMEOUT_S,
) -> list[Row]:
    """Read a topic from its beginning until `done(rows)` is true, or until there are so many rows.

    Raises:
        AssertionError: that took longer than `timeout_s`; the message has the number of rows.
    """
    enough = (lambda rows: len(rows) >= done) if isinstance(done, int) else done
    consumer = _consumer(bootstrap_servers, isolation)
    try:
        _assign_all(consumer, topic)
        rows: list[Row] = []
        deadline = time.monotonic() + timeout_s
        while not enough(rows):
            assert time.monotonic() < deadline, f"{topic}: {len(rows)} rows after {timeout_s} s were not enough"
            rows += [_row(message) for message in _arrived(consumer) if message.error() is None]
    finally:
        consumer.close()
    return rows


def settle(bootstrap_servers: str, topic: str) -> None:
    """Wait until all transactions in a topic have ended: brokers confirm a commit before all its markers are written.

    Offsets and other topics of the same transaction may be visible earlier.
    """
    eventually(lambda: settled_ends(bootstrap_servers, topic) is not None, f"all transactions in {topic} have ended")


def settled_ends(bootstrap_servers: str, topic: str) -> dict[int, int] | None:
    """Return the end offset of each partition; None while a transaction is open in one of them."""
    committed, written = (
        end_offsets(bootstrap_servers, topic, isolation=each) for each in ("read_committed", "read_uncommitted")
    )
    return written if written == committed else None


def end_offsets(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> dict[int, int]:
    """Return the end offset of each partition; with `read_committed`, the last stable offset."""
    consumer = _consumer(bootstrap_servers, isolation)
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        return {each: _end_offset(consumer, TopicPartition(topic, each)) for each in sorted(partitions)}
    finally:
        consumer.close()


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the end offset of a partition, whose leader may not know of it yet if its topic is new."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)[1])
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def committed_offsets(bootstrap_servers: str, group: str, topic: str) -> dict[int, tuple[int, str | None]]:
    """Return the committed offset and metadata of each partition; -1001 and None if the group has committed none."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, **_QUICK}, logger=log)
    try:
        partitions = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        wanted = [TopicPartition(topic, each) for each in sorted(partitions)]
        found = _while_moving(lambda: consumer.committed(wanted, timeout=_TIMEOUT_S))
        return {each.partition: (each.offset, text_of(each)) for each in found}
    finally:
        consumer.close()


def commit_offsets(bootstrap_servers: str, group: str, offsets: Sequence[TopicPartition]) -> None:
    """Commit offsets of a group that has no members."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, **_QUICK}, logger=log)
    try:
        _while_moving(lambda: consumer.commit(offsets=list(offsets), asynchronous=False))
    finally:
        consumer.close()


#: While brokers start, a group's coordinator does not run yet, or has moved.
_MOVING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def _while_moving(ask: Callable[[], T]) -> T:
    """Ask a group's coordinator; retry while it moves."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def eventually(condition: Callable[[], bool], what: str | Callable[[], str], timeout_s: float = _TIMEOUT_S) -> None:
    """Wait until `condition()` is true.

    Raises:
        AssertionError: it was not true within `timeout_s`; the message has `what`, which may be found out then.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, (
            f"not true within {timeout_s} s: {what if isinstance(what, str) else what()}"
        )
        time.sleep(0.02)


def _consumer(bootstrap_servers: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-by-assignment-only",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
            **_QUICK,
        },
        logger=log,
    )


def _arrived(consumer: Consumer) -> list[Message]:
    """Wait for one message, then return all available ones: `consume()` would wait for their number or the timeout."""
    first = consumer.poll(0.2)
    return [] if first is None else [first, *consumer.consume(10_000, timeout=0)]


def _assign_all(consumer: Consumer, topic: str) -> set[int]:
    partitions = set(consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions)
    assert partitions, f"topic {topic} does not exist"
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    return partitions


def _row(message: Any) -> Row:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Row(message.key(), message.value(), message.timestamp()[1], message.partition(), message.offset(), headers)
