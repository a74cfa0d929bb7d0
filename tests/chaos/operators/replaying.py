"""The expected results of operators with one input: what one task makes of its partition, in the order of the broker.

`TopologyTestDriver` replays each partition. It is held to Kafka Streams itself by `tests/differential`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import millpond as mp
from millpond.testing import TopologyTestDriver
from tests.chaos.operators.application import INPUTS, OUT, OUTPUTS, topology
from tests.chaos.operators.generating import GLOBALS
from tests.support.kafka import Row

__all__ = ("REPLAYED", "in_order_of_time", "replay", "wrong_replayed")

REPLAYED = (
    "count", "reduce", "aggregate", "in-memory", "tumbling", "suppress-final", "suppress-time", "hopping", "sliding",
    "session", "stream-self", "global", "filter", "map-values", "to-table", "stores", "cogroup-windowed",
    "final-tumbling", "final-sliding", "final-session", "unlimited", "windows-reduced", "sliding-aggregated",
    "session-reduced", "session-aggregated", "cogroup-sliding", "cogroup-sessions", "final-hopping", "suppress-table",
    "lru", "versioned-count", "transformed", "own-store", "batches", "async", "async-twice",
)  # fmt: skip
"""The outputs that depend on one input only."""

Results = dict[bytes, list[tuple[bytes | None, int, object]]]
"""By key, since each key is in one task: value, timestamp and headers of each record, in order."""


def in_order_of_time(inputs: Mapping[str, Sequence[Row]], partition: int) -> Iterable[tuple[str, Row]]:
    """Yield the rows of a partition of all topics as a task would take them: the head with the smallest time first."""
    left = {topic: [row for row in reversed(rows) if row.partition == partition] for topic, rows in inputs.items()}
    while heads := [(rows[-1].timestamp, topic) for topic, rows in left.items() if rows]:
        _, topic = min(heads)
        yield topic, left[topic].pop()


def replay(inputs: Mapping[str, Sequence[Row]], *, optimized: bool) -> dict[str, list[Row]]:
    """Return the rows of each output, computed partition by partition."""
    found: dict[str, list[Row]] = {name: [] for name in OUTPUTS}
    settings = {"topology.optimization": "all" if optimized else "none"}
    for partition in sorted({row.partition for rows in inputs.values() for row in rows}):
        with TopologyTestDriver(topology(optimized=optimized), settings) as driver:
            globals_ = driver.create_input_topic("global", key=mp.String, value=mp.String)
            for key, value in GLOBALS.items():
                globals_.pipe_input(key, value)
            topics = {name: driver.create_input_topic(name, key=mp.Bytes, value=mp.Bytes) for name in INPUTS}
            outputs = {
                name: driver.create_output_topic(f"{OUT}{name}", key=mp.Bytes, value=mp.Bytes) for name in OUTPUTS
            }
            for topic, row in in_order_of_time(inputs, partition):
                topics[topic].pipe_input(row.key, row.value, row.timestamp)
            driver.advance_wall_clock_time(timedelta(seconds=10))
            for name, output in outputs.items():
                found[name] += [
                    Row(each.key, each.value, each.timestamp, partition, offset, tuple(each.headers or ()))
                    for offset, each in enumerate(output.read_records_to_list())
                ]
    return found


def wrong_replayed(rows: Iterable[Row], expected: Iterable[Row]) -> Iterable[str]:
    """Return the first difference of each key."""
    found, wanted = _by_key(rows), _by_key(expected)
    for key in sorted({*found, *wanted}):
        mine, theirs = found.get(key, []), wanted.get(key, [])
        if mine != theirs:
            at = next((at for at, (one, two) in enumerate(zip(mine, theirs, strict=False)) if one != two), None)
            at = min(len(mine), len(theirs)) if at is None else at
            yield (
                f"{key!r} has {len(mine)} records instead of {len(theirs)}; record {at} "
                f"is {mine[at : at + 2]} instead of {theirs[at : at + 2]}"
            )


def _by_key(rows: Iterable[Row]) -> Results:
    found: Results = defaultdict(list)
    for row in rows:
        found[row.key or b""].append((row.value, row.timestamp, row.headers))
    return found
