"""End-to-end latency of both sides: one client sends a steady stream of records, and receives the results.

The send time is the record's timestamp, which every workload passes on: a result has the newest timestamp of its
inputs. The consumer reads `read_committed`, so under exactly-once a result counts when its transaction is committed.
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
_START: Final = 60.0  # seconds until the first result of a side
_DRAIN: Final = 15.0  # seconds until the last results
_MARGIN: Final = 2_000  # milliseconds after the end, for the last counted result of the slowest partition
_WARM_UP: Final = 8.0  # seconds between the first result and the first counted record


class _Load(threading.Thread):
    """Sends `rate` records per second, with the send time as timestamp, until `stop()`."""

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
    on_status: Callable[[str], None],
) -> list[float]:
    """Return the latencies in milliseconds of all results of records sent within `seconds`, after a warm-up.

    Args:
        commands: starts the side.
        cluster: the broker.
        side: the side.
        job: its job; the input and output topics are created and deleted here.
        partitions: the partitions of both topics.
        rate: records per second.
        seconds: the duration of the measurement.
        on_status: called with the current step, for a progress bar.

    Raises:
        RunFailed: the side ended, or gave no result within a minute.
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
            on_status("starting")
            load.start()
            try:
                _first_result(consumer, child)
                begin = time.time() * 1000 + _WARM_UP * 1000
                return _read(consumer, child, begin, begin + seconds * 1000, on_status)
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


def _read(consumer: Consumer, child: Child, begin: float, end: float, on_status: Callable[[str], None]) -> list[float]:
    """Return the latencies of results with a timestamp within [begin, end), epoch milliseconds."""
    latencies: list[float] = []
    on_status("warming up")
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
            on_status("measuring")
        if newest >= end + _MARGIN:
            break
    if not latencies:
        raise RunFailed("no result of the measured time was received")
    return latencies
