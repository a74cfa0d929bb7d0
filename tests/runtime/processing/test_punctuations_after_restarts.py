"""Punctuations of stream time where a task starts again."""

from __future__ import annotations

import itertools
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import millpond as mp
from millpond.runtime.offsets.metadata import Partition
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts
from tests.support import seeds

START_MS = 1_700_000_000_000
INTERVALS = [timedelta(seconds=2), timedelta(seconds=7), timedelta(minutes=1)]
RECORDS = 300


class Ticking(mp.Processor[str, str, str, str]):
    """Forwards each record, and a record at each punctuation."""

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        self.context = context
        for each in INTERVALS:
            context.schedule(each, mp.PunctuationType.STREAM_TIME, lambda now_ms, each=each: self.tick(each, now_ms))

    def process(self, record: mp.Record[str, str]) -> None:
        self.context.forward(record)

    def tick(self, interval: timedelta, now_ms: int) -> None:
        self.context.forward(mp.Record("tick", f"{interval}", now_ms))


def topology() -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Ticking).to("out", key=mp.String, value=mp.String)
    return builder.build()


@pytest.mark.parametrize("run", range(10))
def test_restarts_and_crashes_change_no_punctuation(run: int, tmp_path: Path) -> None:
    """What is committed equals the output of the test driver, wherever the task stops, and whether it commits then."""
    chance = random.Random(seeds.derived(seeds.RUN, f"restarts {run}"))
    kafka, now_ms, times = Kafka(), START_MS, []
    for _ in range(RECORDS):
        now_ms += chance.choice((0, 1, 100, 1_500, 9_000))
        times.append(now_ms - chance.choice((0, 0, 0, 5_000)))

    with mp.testing.TopologyTestDriver(topology()) as driver:
        input_topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for number, time_ms in enumerate(times):
            input_topic.pipe_input("k", f"{number}", datetime.fromtimestamp(time_ms / 1000, UTC))
        output = driver.create_output_topic("out", key=mp.String, value=mp.String)
        expected = _sorted([(each.timestamp, each.value) for each in output.read_records_to_list()])

    sent = 0
    while sent < RECORDS:
        parts = Parts(kafka, topology(), tmp_path, {"in": 1, "out": 1})
        try:
            parts.own(TaskId(0, 0))
            for commits in [True] * chance.randrange(3) + [chance.random() < 0.5]:
                _turn(parts)
                for number in range(sent, min(RECORDS, sent + chance.randrange(1, 40))):
                    kafka.append("in", "k", f"{number}", timestamp=times[number])
                    sent = number + 1
                _turn(parts)
                if commits or sent == RECORDS:
                    parts.commit()
        finally:
            parts.close()
    rows = [each for each in kafka.logs[Partition("out", 0)] if each.stable and each.value is not None]
    assert _sorted([(each.timestamp, each.value.decode()) for each in rows if each.value is not None]) == expected


def _turn(parts: Parts) -> None:
    """Process what there is, and look for punctuations, as a worker's loop does."""
    while parts.process():
        pass
    for task in parts.executor.running:
        task.punctuate(int(time.time() * 1000))


def _sorted(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Sort the ticks of one time: those of two intervals may come in either order."""
    groups = itertools.groupby(rows, key=lambda row: (row[0], ":" in row[1]))
    return [row for (_, ticks), group in groups for row in (sorted(group) if ticks else group)]
