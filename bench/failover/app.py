"""The application under fault; `java/KafkaStreamsFailover.java` is the same in Kafka Streams' DSL.

A count per key in a store with a changelog; every update goes out (no record cache), so that each record has a result
of its own. Topics and the name of this process come from the environment.
"""

from __future__ import annotations

import os

import millpond as mp
from bench.failover.records import STORE, result


def topology() -> mp.Topology:
    """Return the topology: counts per key, from `BENCH_INPUT` to `BENCH_OUTPUT`, each with the name in `BENCH_OWNER`.

    Raises:
        KeyError: one of the variables is missing.
    """
    owner = os.environ["BENCH_OWNER"]
    builder = mp.StreamsBuilder()
    (
        builder.stream(os.environ["BENCH_INPUT"], key=mp.String, value=mp.String)
        .group_by_key()
        .aggregate(
            str, lambda _key, record, before: result(record, before, owner), store=STORE, value=mp.String, caching=False
        )
        .to_stream()
        .to(os.environ["BENCH_OUTPUT"], key=mp.String, value=mp.String)
    )
    return builder.build()
