"""The CPU time of a record with and without tracing: `python -m bench.tracing`.

One task counts records by key and sends each count on, without a broker; its input is decoded messages of the client,
as a worker gets them. Each case is measured with `tracing = none` and with OpenTelemetry, in turns, and the result is
the smallest time of each. Spans are made and ended, and go nowhere.

    python -m bench.tracing records=20000 rounds=15
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message
from opentelemetry.sdk.trace import TracerProvider

import millpond as mp
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import OffsetMetadata
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers, fail_on_error
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.processing.tracing import Tracing
from millpond.runtime.worker.otel_spans import OpenTelemetryTracing
from millpond.state import MemoryBackend
from millpond.topology import Topology

__all__ = ("main", "measured")

_CHUNK = 1_000
_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_SAMPLED = [("traceparent", f"00-{_TRACE}-00f067aa0ba902b7-01".encode())]
_UNSAMPLED = [("traceparent", f"00-{_TRACE}-00f067aa0ba902b7-00".encode())]
CASES: dict[str, tuple[Any, ...]] = {
    "no headers": (None,),
    "another header": ([("id", b"7")],),
    "traceparent, not sampled": (_UNSAMPLED,),
    "one of 100 sampled": (_SAMPLED, *[None] * 99),
    "all sampled": (_SAMPLED,),
}
"""The headers of records, which repeat."""


def _topology() -> Topology:
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts").to_stream().to("out", key=mp.String, value=mp.Long)
    return builder.build()


def _task(tracing: Tracing | None) -> StreamTask:
    environment = Environment(
        "bench", Handlers(fail_on_error, fail_on_error, fail_on_error, None), cache_bytes=0, tracing=tracing
    )
    (subtopology,) = _topology().subtopologies()
    builders = map(environment.complete, subtopology.stores)
    stores = {each.name: each.build(0, MemoryBackend(), f"{each.name}-changelog") for each in builders}
    task = StreamTask(subtopology, 0, stores, {}, environment)
    task.resume_at({"in": (0, OffsetMetadata())})
    return task


def _messages(headers: Sequence[Any], records: int) -> list[list[Message]]:
    made: list[Any] = [
        Message(
            topic="in", partition=0, offset=number, key=b"k%d" % (number % 100), value=b"value",
            timestamp=(1, 1_000 + number), headers=headers[number % len(headers)], error=None,
        )
        for number in range(records)
    ]  # fmt: skip
    return [made[start : start + _CHUNK] for start in range(0, records, _CHUNK)]


def _once(chunks: list[list[Message]], tracing: Tracing | None) -> float:
    """Return the CPU time of one pass over all records, in seconds."""
    task = _task(tracing)
    began = time.process_time()
    for chunk in chunks:
        task.add("in", chunk)
        task.process(_CHUNK, 0)
        task.flush()
        task.outbox.clear()
        for span in task.take_spans():
            span.end()
    return time.process_time() - began


def measured(headers: Sequence[Any], records: int, rounds: int) -> tuple[float, float]:
    """Return the CPU time of a record without and with tracing, in seconds."""
    config = Config.of({"application.id": "bench", "bootstrap.servers": "none:1", "tracing": "opentelemetry"})
    tracing = OpenTelemetryTracing(config, TracerProvider(shutdown_on_exit=False))
    chunks = _messages(headers, records)
    off, on = [], []
    for _ in range(rounds):
        off.append(_once(chunks, None))
        on.append(_once(chunks, tracing))
    return min(off) / records, min(on) / records


def main(arguments: Sequence[str]) -> None:
    """Measure all cases and print a table."""
    given = dict(each.split("=", 1) for each in arguments)
    records, rounds = int(given.get("records", 20_000)), int(given.get("rounds", 15))
    print("| headers of records | tracing off | tracing on | ratio |\n|---|---|---|---|")
    for name, headers in CASES.items():
        off, on = measured(headers, records, rounds)
        print(f"| {name} | {off * 1e6:.2f} µs | {on * 1e6:.2f} µs | {on / off:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
