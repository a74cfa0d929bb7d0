"""The constants of both sides: data, windows, and the names of the workloads.

The Java side repeats `WINDOW_MS`, `DIFFERENCE_MS` and `GRACE_MS` in `java/KafkaStreamsBench.java`; `tests/bench` checks
that they are equal.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

WorkloadName = Literal[
    "stateless", "count", "window", "join", "stream_join", "session", "sliding", "table_join", "fk_join", "cogroup"
]
Guarantee = Literal["at_least_once", "exactly_once"]

WORKLOADS: Final[tuple[WorkloadName, ...]] = (
    "stateless", "count", "window", "join", "stream_join", "session", "sliding", "table_join", "fk_join", "cogroup",
)  # fmt: skip
WITH_TABLE: Final = frozenset({"join", "table_join", "fk_join"})
"""The workloads that read the table."""
GUARANTEES: Final[tuple[Guarantee, ...]] = ("at_least_once", "exactly_once")

DESCRIPTIONS: Final[dict[WorkloadName, str]] = {
    "stateless": "map_values to upper case, filter that keeps 15 of 16 records, to a topic",
    "count": "group_by_key().count() in a key-value store, every update that leaves the cache is sent to a topic",
    "window": "group_by_key() in tumbling windows of one minute with 10 s grace, count(), to a topic",
    "join": "stream-table inner join by key, every record finds its row, to a topic",
    "stream_join": "inner join of the two halves of the input, 20 s apart at most, 10 s grace, to a topic",
    "session": "group_by_key() in sessions with a gap of 20 s and 10 s grace, count(), to a topic",
    "sliding": "group_by_key() in sliding windows of 20 s with 10 s grace, count(), to a topic",
    "table_join": "table-table inner join by key, every record finds its row, to a topic",
    "fk_join": "table-table inner join by a foreign key in the value, every record finds its row, to a topic",
    "cogroup": "the two halves of the input, cogrouped into one sum, to a topic",
}

KEYS: Final = 100_000
"""Distinct keys of `stateless` and `join`, and of the latency runs; drawn uniformly."""
KEY_COUNTS: Final = (5_000, 100_000, 1_000_000)
"""Distinct keys of `count` and `window`, one case for each: their cost depends on the keys changed per commit."""
KEYED_WORKLOADS: Final[tuple[WorkloadName, ...]] = ("count", "window")
"""The workloads that run once for each number of keys."""
VALUE_BYTES: Final = 100
"""Length of a record's value; its key is 8 bytes more."""
TABLE_VALUE_BYTES: Final = 20
"""Length of a value in the table of `join`."""
EVENTS_PER_SECOND: Final = 5_000
"""Records per second of event time: a window of one minute has 300,000 records."""
WINDOW_MS: Final = 60_000
DIFFERENCE_MS: Final = 20_000
"""The largest time difference of `stream_join` and `sliding`, and the gap of `session`: the mean time between two
records of a key, so that about half of the records find neighbours."""
GRACE_MS: Final = 10_000

_BODIES = 4096  # distinct values: enough for a realistic compression ratio, few enough to be generated fast
_HEX = "0123456789abcdef"


class InputRecord(NamedTuple):
    """One input record."""

    key: bytes
    value: bytes
    timestamp: int
    """Epoch milliseconds; never decreases."""


@dataclass(frozen=True, slots=True)
class Data:
    """The input of a run: equal for both sides, byte for byte, with the same seed.

    The first character of every value is a uniformly random hex digit: the filter of `stateless` drops `0`.
    """

    records: int
    seed: int
    start_ms: int
    """Timestamp of the first record, epoch milliseconds."""
    keys: int = KEYS
    """Distinct keys."""

    def stream(self) -> Iterator[InputRecord]:
        """Yield the records of the input topic in the order of sending."""
        random_ = random.Random(self.seed)
        keys = [key_of(number) for number in range(self.keys)]
        bodies = ["".join(random_.choices(_HEX, k=VALUE_BYTES)).encode() for _ in range(_BODIES)]
        chunk = 50_000
        for first in range(0, self.records, chunk):
            size = min(chunk, self.records - first)
            yield from map(
                InputRecord,
                random_.choices(keys, k=size),
                random_.choices(bodies, k=size),
                [self.start_ms + (first + i) * 1000 // EVENTS_PER_SECOND for i in range(size)],
            )

    def table(self) -> Iterator[InputRecord]:
        """Yield the rows of the table topic: one per key, older than every record of the stream."""
        for number in range(self.keys):
            yield InputRecord(key_of(number), f"row {number}".ljust(TABLE_VALUE_BYTES, ".").encode(), self.start_ms - 1)


def key_of(number: int) -> bytes:
    """Return the bytes of key `number`: eight ASCII characters."""
    return b"k%07d" % number
