"""An application with a store of every kind, and snapshots of it that do not need Spark."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

import millpond as mp
from millpond.runtime.config.model import Config
from millpond.snapshots.locations import open_location
from millpond.snapshots.manifest import Manifest
from millpond_spark.stores import stores_of
from tests.snapshots.reference import write_snapshot
from tests.support import kafka

HOUR_MS = 3_600_000
BEGIN_MS = (int(time.time() * 1000) - 20 * HOUR_MS) // HOUR_MS * HOUR_MS
"""Brokers refuse records of the future, and delete old ones."""
PARTITIONS = 2
SOURCE = "MILLPOND_TEST_SOURCE"
"""Names the input topic."""


class Seen(msgspec.Struct, frozen=True):
    """The value of a key."""

    times: int
    last: str | None = None


def topology(source: str) -> mp.Topology:
    """Return counts per key, Structs per key, versions, counts per key and hour, and a suppress buffer."""
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.to_table(store="versions", history_retention=timedelta(minutes=20))
    grouped = stream.group_by_key()
    grouped.count(store="counts")
    grouped.aggregate(
        lambda: Seen(0), lambda _key, value, seen: Seen(seen.times + 1, value), store="seen", value=mp.Json(Seen)
    )
    (
        grouped.windowed_by(mp.TimeWindows(timedelta(hours=1), grace=timedelta(minutes=10)))
        .count(store="hourly")
        .suppress(mp.until_window_closes())
        .to_stream()
        .to(f"{source}-out", key=mp.TimeWindowedSerde(mp.String, timedelta(hours=1)), value=mp.Long)
    )
    return builder.build()


def application() -> mp.Topology:
    """The application as `MODULE:ATTRIBUTE` for the command line."""
    import os

    return topology(os.environ[SOURCE])


def records(count: int, first: int = 0, step_ms: int = 20_000) -> list[tuple[str, str, int]]:
    """Return records of forty keys, in the order of time."""
    return [(f"k{each % 40}", f"v{each}", BEGIN_MS + each * step_ms) for each in range(first, first + count)]


def make_snapshot(
    topology: mp.Topology, config: Config, servers: str, location: Path, version: str, as_of_ms: int
) -> Manifest:
    """Write a snapshot of the committed state."""
    client = kafka.admin(servers)
    existing = {name: len(each.partitions) for name, each in client.list_topics(timeout=30).topics.items()}
    stores: dict[str, Any] = {}
    for store in stores_of(topology, existing, config).logged:
        kafka.settle(servers, store.topic)
        ends = kafka.end_offsets(servers, store.topic)
        rows = kafka.read(servers, store.topic)
        changelogs = {
            number: (
                [
                    (row.key, row.value, row.timestamp, list(row.headers))
                    for row in rows
                    if row.partition == number and row.offset < ends[number]
                ],
                ends[number],
            )
            for number in range(store.partitions)
        }
        stores[store.name] = (store.layout, store.topic, "", changelogs)
    return write_snapshot(
        open_location(str(location)), config.application_id, version, stores, as_of_ms=as_of_ms, rows_per_file=30
    )
