"""An application with a store of every kind, and its changelogs as a transactional producer writes them."""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer, TopicPartition

from millpond.runtime.config.model import Config
from millpond.state import StoreBuilder
from millpond.state.formats import (
    BUFFER_HEADERS,
    BufferValue,
    RecordContext,
    encode_buffer_value,
    session_key,
    window_key,
)
from millpond.state.stores.outer_join import encode_list, side_prefix
from millpond.topology import Topology
from millpond.topology.processor import Processor
from tests.snapshots.changelogs import BUILDERS
from tests.support import kafka

__all__ = ("PARTITIONS", "Application", "record_of", "with_stores")

PARTITIONS = 4
"""Of every topic; the last one stays empty."""

_KEYS = [b"", b"a", b"b", b"a\x00", b"\xff\xff", b"\x00", b"\x80", *(b"key-%03d" % number for number in range(40))]
_TIMEOUT_S = 60.0

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]


class _Idle(Processor):
    def process(self, record: Any) -> None: ...


def with_stores(topology: Topology, source: str, builders: dict[str, StoreBuilder[Any, Any]]) -> Topology:
    """Return a topology with one more sub-topology, of one processor with these stores."""
    topology.add_source("source", source).add_processor("idle", _Idle, "source")
    for builder in builders.values():
        topology.add_state_store(builder, "idle")
    return topology


class Application:
    """An application: its topics in a broker, its topology, its configuration."""

    def __init__(
        self,
        bootstrap_servers: str,
        app_id: str,
        source: str,
        builders: dict[str, StoreBuilder[Any, Any]] | None = None,
    ) -> None:
        """Create the changelogs.

        Args:
            bootstrap_servers: the broker.
            app_id: its id.
            source: its input topic, of `PARTITIONS` partitions.
            builders: of its stores, by kind; a store of every kind by default.
        """
        self.bootstrap_servers = bootstrap_servers
        self.id = app_id
        self.builders = BUILDERS if builders is None else builders
        self.topology = with_stores(Topology(), source, self.builders)
        for builder in self.builders.values():
            # Not compacted, so that all that was produced is there to compare with, records with null keys too.
            kafka.create_topic(bootstrap_servers, self.changelog(builder.name), PARTITIONS)
        flags: dict[str, object] = {"application.id": app_id, "bootstrap.servers": bootstrap_servers}
        self.config = Config.load(None, flags=flags)

    def changed(self, source: str, builders: dict[str, StoreBuilder[Any, Any]]) -> Application:
        """A later version of it, with other builders for the same stores."""
        later = copy.copy(self)
        later.builders, later.topology = builders, with_stores(Topology(), source, builders)
        return later

    def changelog(self, store: str) -> str:
        """The changelog topic of a store."""
        return f"{self.id}-{store}-changelog"

    def producer(self) -> Producer:
        """A transactional producer."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "transactional.id": uuid.uuid4().hex,
                "transaction.timeout.ms": 900_000,  # one that is open while a job reads stays so on a busy machine, too
                "linger.ms": 5,
                "log_level": 3,
            },
            logger=kafka.log,
        )
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def write(self, random: random.Random, transactions: int, each: int = 40) -> None:
        """Write transactions over all changelogs and all partitions but the last; every third one is aborted."""
        producer = self.producer()
        for number in range(transactions):
            producer.begin_transaction()
            for kind, builder in self.builders.items():
                for _ in range(each):
                    self.send(producer, builder.name, random.randrange(PARTITIONS - 1), record_of(kind, random))
            if number % 3 == 1:
                producer.flush(_TIMEOUT_S)
                producer.abort_transaction(_TIMEOUT_S)
            else:
                producer.commit_transaction(_TIMEOUT_S)
        self.settle()

    def settle(self) -> None:
        """Wait until committed records are visible."""
        for builder in self.builders.values():
            kafka.settle(self.bootstrap_servers, self.changelog(builder.name))

    def send(self, producer: Producer, store: str, partition: int, record: Record) -> None:
        """Produce a record to a changelog."""
        key, value, timestamp, headers = record
        producer.produce(self.changelog(store), value, key, partition, timestamp=timestamp, headers=headers or [])

    def truncate(self, store: str, partition: int, before: int) -> None:
        """Delete the beginning of a changelog partition."""
        admin = kafka.admin(self.bootstrap_servers)
        wanted = [TopicPartition(self.changelog(store), partition, before)]
        for future in admin.delete_records(wanted).values():
            future.result(_TIMEOUT_S)

    def committed(self, store: str) -> dict[int, list[Record]]:
        """What is committed in a changelog, by partition."""
        found: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
        for row in kafka.read(self.bootstrap_servers, self.changelog(store)):
            found[row.partition].append((row.key, row.value, row.timestamp, list(row.headers)))
        return found

    def keyed(self, store: str, starts: Mapping[int, int]) -> int:
        """Return the number of committed records with a key, from the given offset of each partition on (or 0)."""
        rows = kafka.read(self.bootstrap_servers, self.changelog(store))
        return sum(row.key is not None and row.offset >= starts.get(row.partition, 0) for row in rows)


def record_of(kind: str, random: random.Random) -> Record:
    """Return a changelog record for a kind of store: deletions, expired windows, times out of order, headers."""
    key: bytes | None = random.choice(_KEYS)
    timestamp = random.randrange(1, 2_000_000)
    value = None if random.random() < 0.25 else random.randbytes(random.randrange(20))
    headers: list[tuple[str, bytes | None]] | None = random.choice([None, [("h", None)], [("h", b"1"), ("v", b"\x03")]])
    if kind == "buffer":
        if value is not None:
            context = RecordContext(timestamp, 7, 0, "in", random.choice([None, [("n", None), ("m", b"x")]]))
            prior = random.choice([None, b"p"])
            value = encode_buffer_value(BufferValue(prior, random.choice([prior, b"o"]), value, context), timestamp)
        return key, value, timestamp, None if value is None else BUFFER_HEADERS
    if kind == "join_buffer":
        place = b"\0" + timestamp.to_bytes(8, "big") + (key or b"") + random.randrange(1, 4).to_bytes(4, "big")
        if value is not None:
            context = RecordContext(timestamp, 7, 0, "in", random.choice([None, [("n", None), ("m", b"x")]]))
            value = encode_buffer_value(BufferValue(None, None, value, context), 0)
        return place, value, timestamp, None
    if kind == "outer_join":
        place = side_prefix(random.randrange(20) * 1000, random.random() < 0.5) + (key or b"")
        return place, None if value is None else encode_list([value, b"x"]), timestamp, headers
    if kind == "versioned":
        timestamp = random.randrange(1, 60) * 10_000
    if kind.endswith("window"):
        return window_key(key or b"", random.randrange(-2, 40) * 30_000), value, timestamp, headers
    if kind == "session":
        end = random.randrange(-2, 40) * 30_000
        return session_key(key or b"", end - random.randrange(4) * 25_000, end), value, timestamp, headers
    if random.random() < 0.05:
        key = None
    return key, value, timestamp, headers
