"""What the feeds of the examples share: they send records to a broker."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

__all__ = ("Sent", "run", "seconds", "send")

_TIMEOUT_S = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sent(NamedTuple):
    """One record to send."""

    topic: str
    key: object
    """A str and bytes are written as they are, anything else as JSON."""
    value: object
    """Bytes are written as they are, anything else as JSON; None is a tombstone."""
    at: datetime
    """When it is sent, which is the record's timestamp."""


def run(records: Iterable[Sent]) -> None:
    """Send records to the broker that the command line names."""
    parser = argparse.ArgumentParser(description="Send the records of the example.")
    parser.add_argument("servers", nargs="?", default="localhost:9092", help="the broker (default: localhost:9092)")
    servers = parser.parse_args().servers
    print(f"sent {send(servers, records):,} records to {servers}")


def send(servers: str, records: Iterable[Sent]) -> int:
    """Send records in order, and return their number; records of one minute arrive before those of the next.

    Raises:
        SystemExit: no broker answers, or it did not take one of them.
    """
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    # Java's partitioner, which Kafka Connect uses as well: records of one key meet in one partition.
    settings = {"partitioner": "murmur2_random", "enable.idempotence": True, "log_level": 2}
    producer = Producer({"bootstrap.servers": servers, **settings})
    try:
        producer.list_topics(timeout=_TIMEOUT_S)
    except KafkaException:
        sys.exit(f"No broker answers at {servers}: start `millpond dev` as the example's page says.")
    sent, minute = 0, None
    for record in records:
        if minute != (minute := record.at.replace(second=0, microsecond=0)):
            _flush(producer, servers, refused)
        producer.produce(
            record.topic,
            key=record.key if isinstance(record.key, str) else _bytes(record.key),
            value=None if record.value is None else _bytes(record.value),
            timestamp=(record.at - _EPOCH) // timedelta(milliseconds=1),
            on_delivery=delivered,
        )
        sent += 1
    _flush(producer, servers, refused)
    return sent


def seconds(count: float) -> timedelta:
    """Return a duration in whole seconds."""
    return timedelta(seconds=int(count))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def _flush(producer: Producer, servers: str, refused: list[KafkaError]) -> None:
    if producer.flush(_TIMEOUT_S) or refused:
        sys.exit(f"{servers} does not take records: {refused[0] if refused else 'no answer'}")
