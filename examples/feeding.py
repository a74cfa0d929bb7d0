"""What the feeds of the examples share: they send records to a broker, and show results until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

import millpond as mp

__all__ = ("Results", "Sent", "run", "send", "show")

_TIMEOUT_S = 30.0


class Sent(NamedTuple):
    """One record to send."""

    topic: str
    key: object
    """A str is written as it is, anything else as JSON."""
    value: object
    """Written as JSON; None is a tombstone."""
    at: datetime
    """When it is sent, which is the record's timestamp."""


class Results(NamedTuple):
    """A topic to show, with its serdes."""

    topic: str
    key: mp.Serde[Any]
    value: mp.Serde[Any]


def run(records: Iterable[Sent], *results: Results) -> None:
    """Send records to the broker that the command line names, then show results until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Send the example's records, then show its results until Ctrl-C.")
    parser.add_argument("servers", nargs="?", default="localhost:9092", help="the broker (default: localhost:9092)")
    servers = parser.parse_args().servers
    with contextlib.suppress(KeyboardInterrupt):
        print(f"sent {send(servers, records):,} records; Ctrl-C ends", flush=True)
        show(servers, results)


def send(servers: str, records: Iterable[Sent]) -> int:
    """Send records in order, and return their number; records of one minute arrive before those of the next.

    Raises:
        SystemExit: the broker did not take one of them.
    """
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    # Java's partitioner, which Kafka Connect uses as well: records of one key meet in one partition.
    settings = {"partitioner": "murmur2_random", "enable.idempotence": True, "message.timeout.ms": 30_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    sent, minute = 0, None
    for record in records:
        if minute != (minute := record.at.replace(second=0, microsecond=0)):
            _flush(producer, servers, refused)
        producer.produce(
            record.topic,
            key=record.key if isinstance(record.key, str) else msgspec.json.encode(record.key),
            value=None if record.value is None else msgspec.json.encode(record.value),
            timestamp=int(record.at.timestamp() * 1000),
            on_delivery=delivered,
        )
        sent += 1
    _flush(producer, servers, refused)
    return sent


def show(servers: str, results: Sequence[Results]) -> None:
    """Print committed records of topics from their beginning, for ever."""
    serdes = {each.topic: each for each in results}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "shown", "isolation.level": "read_committed"})
    try:
        topics = consumer.list_topics(timeout=_TIMEOUT_S).topics
        consumer.assign(
            [TopicPartition(name, each, OFFSET_BEGINNING) for name in serdes for each in topics[name].partitions]
        )
        while True:
            message = consumer.poll(1)
            if message is None or message.error() is not None:
                continue
            shown = serdes[str(message.topic())]
            key, value = message.key(), message.value()
            print(
                shown.topic,
                None if key is None else text_of(shown.key.deserialize(key)),
                None if value is None else text_of(shown.value.deserialize(value)),
                flush=True,
            )
    finally:
        consumer.close()


def text_of(value: object) -> str:
    """Return a key or a value as people read it: JSON, and the window of a windowed key."""
    if isinstance(value, mp.Windowed):
        window = value.window
        return f"{text_of(value.key)} {window.start_time:%H:%M:%S}-{window.end_time:%H:%M:%S}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def seconds(count: float) -> timedelta:
    """Return a duration in whole seconds."""
    return timedelta(seconds=int(count))


def _flush(producer: Producer, servers: str, refused: list[KafkaError]) -> None:
    if producer.flush(_TIMEOUT_S) or refused:
        sys.exit(f"{servers} does not take records: {refused[0] if refused else 'no answer'}")
