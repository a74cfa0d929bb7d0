"""End-to-end latency: a steady stream of records goes in, and the same client sees each result come out, for both sides.

The send time travels as the record's timestamp, which every workload hands on: a result carries the newest timestamp of
what went into it. The consumer reads `read_committed`, so under exactly-once a result counts when its transaction is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.cluster import Cluster
from bench.sides import Child, Commands, Job, RunFailed, SideName
from bench.workloads import Data

_TICK: Final = 0.002  # seconds between two small bursts of the producer
_START: Final = 60.0  # seconds a side has to show its first result
_DRAIN: Final = 15.0  # seconds the last results have to arrive
_MARGIN: Final = 2_000  # milliseconds past the end until the slowest partition has shown its last counted result
_WARM_UP: Final = 8.0  # seconds between the first result and the first record that counts


class _Load(threading.Thread):
    """Produces `rate` records a second, each with the moment of its sending as timestamp, until `stop()`."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "log_level": 3,
                "partitioner": "murmur2_random",
                "acks": "all",
            }
        )
        self._topic = topic
        self._rate = rate
        self._ended = threading.Event()

    def run(self) -> None:
        records = Data(records=1 << 40, seed=1, start_ms=0).stream()
        begin, sent = time.monotonic(), 0
        while not self._ended.wait(_TICK):
            due = int((time.monotonic() - begin) * self._rate)
            for _ in range(due - sent):
                key, value, _ = next(records)
                self._producer.produce(self._topic, value, key, timestamp=int(time.time() * 1000))
            sent = due
            self._producer.poll(0)
        self._producer.flush(10)

    def stop(self) -> None:
        self._ended.set()
        self.join()


def measure(
    commands: Commands,
    cluster: Cluster,
    side: SideName,
    job: Job,
    partitions: int,
    rate: int,
    seconds: float,
    told: Callable[[str], None],
) -> list[float]:
    """Latencies in milliseconds of all results of the records sent within `seconds`, after a warm-up.

    Args:
        commands: how to start the side.
        cluster: the broker.
        side: which one.
        job: what it does; its input and output topics are created and deleted here.
        partitions: of both topics.
        rate: records per second.
        seconds: how long to measure.
        told: called with what is going on, for a progress bar.

    Raises:
        RunFailed: when the side ends, or shows no result within a minute.
    """
    for topic in (job.input, job.table, job.output):
        cluster.create(topic, partitions)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{job.application}-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 3,
        }
    )
    load = _Load(cluster.bootstrap, job.input, rate)
    try:
        consumer.assign([TopicPartition(job.output, partition, 0) for partition in range(partitions)])
        with commands.running(side, job) as child:
            told("starting")
            load.start()
            try:
                _first_result(consumer, child)
                begin = time.time() * 1000 + _WARM_UP * 1000
                return _read(consumer, child, begin, begin + seconds * 1000, told)
            finally:
                load.stop()
    finally:
        consumer.close()
        cluster.delete([job.input, job.table, job.output, f"{job.application}-"])


def _first_result(consumer: Consumer, child: Child) -> None:
    deadline = time.monotonic() + _START
    while consumer.poll(0.1) is None:
        child.check()
        if time.monotonic() > deadline:
            raise child.failure(f"no result within {_START:.0f} s")


def _read(consumer: Consumer, child: Child, begin: float, end: float, told: Callable[[str], None]) -> list[float]:
    """The latencies of the results whose timestamp is within [begin, end), epoch milliseconds."""
    latencies: list[float] = []
    told("warming up")
    while (now := time.time() * 1000) < end + _DRAIN * 1000:
        child.check()
        newest = 0.0
        message = consumer.poll(0.02)
        while message is not None:
            now = time.time() * 1000
            if message.error() is None:
                sent = message.timestamp()[1]
                newest = max(newest, sent)
                if begin <= sent < end:
                    latencies.append(now - sent)
            message = consumer.poll(0)
        if latencies:
            told("measuring")
        if newest >= end + _MARGIN:
            break
    if not latencies:
        raise RunFailed("no result of the measured time arrived")
    return latencies
