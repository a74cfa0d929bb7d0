"""The two applications that are scaled, from `BENCH_INPUT` to `BENCH_OUTPUT`.

`count` does as little per record as a stateful application can, so the broker uses about as much CPU time as the
workers. `busy` has user code that takes some microseconds per record, like parsing and a little arithmetic: there the
workers are the bottleneck.
"""

from __future__ import annotations

import os

import millpond as mp

_ROUNDS = 400  # about 15 microseconds


def count() -> mp.Topology:
    """Return the topology: counts per key."""
    builder = mp.StreamsBuilder()
    _counted(builder.stream(os.environ["BENCH_INPUT"], key=mp.String, value=mp.String))
    return builder.build()


def busy() -> mp.Topology:
    """Return the topology: counts per key, after some work on every value."""
    builder = mp.StreamsBuilder()
    _counted(builder.stream(os.environ["BENCH_INPUT"], key=mp.String, value=mp.String).map_values(_work))
    return builder.build()


def _counted(records: mp.KStream[str, str]) -> None:
    counts = records.group_by_key().count()
    counts.to_stream().to(os.environ["BENCH_OUTPUT"], key=mp.String, value=mp.Long)


def _work(value: str) -> str:
    total = 0
    for number in range(_ROUNDS):
        total ^= number
    return value if total >= 0 else ""
