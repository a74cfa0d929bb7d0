"""Punctuations of stream time, of records that wait when a worker starts."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

import millpond as mp
from millpond.runtime.processing.record_queue import Chunk
from tests.conftest import CreateTopic
from tests.runtime.running import GUARANTEES, run_until
from tests.support import kafka, seeds
from tests.support.broker import Broker

START_MS = 1_700_000_000_000
END_MS = START_MS + 10_000_000
INTERVALS = [timedelta(seconds=2), timedelta(seconds=7), timedelta(minutes=1)]


class Counting(mp.Processor[str, str, str, str]):
    """Tells at each punctuation how many records there were since the last one of the same interval."""

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        self.context = context
        self.seen = 0
        self.before = dict.fromkeys(INTERVALS, 0)
        for each in INTERVALS:
            context.schedule(each, mp.PunctuationType.STREAM_TIME, lambda now_ms, each=each: self.tell(each, now_ms))

    def process(self, record: mp.Record[str, str]) -> None:
        self.seen += 1

    def tell(self, interval: timedelta, now_ms: int) -> None:
        count, self.before[interval] = self.seen - self.before[interval], self.seen
        self.context.forward(mp.Record(f"{interval}", f"{now_ms}: {count}", now_ms))


def topology(sources: list[str], target: str) -> mp.Topology:
    builder = mp.StreamsBuilder()
    first, second = (builder.stream(each, key=mp.String, value=mp.String) for each in sources)
    first.merge(second).process(Counting).to(target, key=mp.String, value=mp.String)
    return builder.build()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_backlog_has_the_punctuations_of_the_test_driver(
    guarantee: str, broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path
) -> None:
    """They come between two records, as soon as they are due, although thousands of records are read at once."""
    chance = random.Random(seeds.derived(seeds.RUN, f"punctuations {guarantee}"))
    sources, target = [create_topic("in"), create_topic("other")], create_topic("out")
    now_ms, records = START_MS, []
    for _ in range(2_000):
        now_ms += chance.choice((0, 1, 100, 1_500, 9_000))
        late_ms = chance.choice((0, 0, 0, 5_000))
        records.append((chance.randrange(2), now_ms - late_ms))
    records += [(0, END_MS), (1, END_MS)]
    for number, source in enumerate(sources):
        kafka.produce(
            broker.bootstrap_servers, source, [("k", "v", at_ms) for which, at_ms in records if which == number]
        )

    with mp.testing.TopologyTestDriver(topology(sources, target)) as driver:
        inputs: list[Any] = [driver.create_input_topic(each, key=mp.String, value=mp.String) for each in sources]
        for which, at_ms in _in_order_of_timestamps(records):
            inputs[which].pipe_input("k", "v", datetime.fromtimestamp(at_ms / 1000, UTC))
        output = driver.create_output_topic(target, key=mp.String, value=mp.String)
        expected = [(each.key, each.value) for each in output.read_records_to_list()]
    assert len(expected) > 100, "the records are of a time with many punctuations"

    rows = run_until(
        topology(sources, target), broker.bootstrap_servers, app_id, tmp_path, target, len(expected),
        {"processing.guarantee": guarantee},
    )  # fmt: skip
    assert [(row.key.decode(), row.value.decode()) for row in rows] == expected


def _in_order_of_timestamps(records: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return records as a task takes them: the input whose next record is the oldest one comes first."""
    queues = [[each for each in records if each[0] == number] for number in range(2)]
    ordered = []
    while any(queues):
        queue = min((each for each in queues if each), key=lambda each: each[0][1])
        ordered.append(queue.pop(0))
    return ordered


def test_many_punctuations_hold_up_neither_output_nor_commits() -> None:
    """A call ends after some of them, and is made again at once; it does not fire those of a whole backlog."""

    class Ticking(mp.Processor[str, str, str, str]):
        def init(self, context: mp.ProcessorContext[str, str]) -> None:
            self.context = context
            context.schedule(timedelta(minutes=1), mp.PunctuationType.STREAM_TIME, self.tick)

        def process(self, record: mp.Record[str, str]) -> None: ...

        def tick(self, now_ms: int) -> None:
            self.context.forward(mp.Record("k", "v", now_ms))

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Ticking).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        task = driver._task
        (queue,) = task.inputs.values()
        messages = [Message("in", 0, each, b"k", b"v", None, None, (1, START_MS)) for each in range(100)]
        times = [START_MS + each * 60_000 for each in range(100)]
        queue.chunks.append(Chunk(messages, ["k"] * 100, ["v"] * 100, times, 100))
        calls = 0
        while task.process(2_000, 0):
            calls += 1
            assert len(task.outbox) <= calls * 4
            assert task.cut_short
        assert (calls, len(task.outbox), task.punctuated) == (25, 100, 100)
        task.outbox.clear()
