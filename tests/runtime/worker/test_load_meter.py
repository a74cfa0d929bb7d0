"""The measurement of a worker's load."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millpond.protocol import encode
from millpond.protocol.load_rates import rates
from millpond.protocol.loads import InputLoad, WorkerLoad
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.worker.load_meter import LoadMeter
from millpond.topology import TaskId

NOW_MS = 1_000_000


class Brokers:
    """What the consumer has cached about ends, and what the brokers answer."""

    def __init__(self) -> None:
        self.cached: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.requests: list[set[str]] = []

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = 0, *, cached: bool = False
    ) -> tuple[int, int]:
        assert cached, "a request would block the loop"
        if partition.topic not in self.cached:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, self.cached[partition.topic]

    def ask_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, Future[Any]]:
        self.requests.append({each.topic for each in partitions})
        answers = {}
        for each in partitions:
            answers[each] = Future[Any]()
            answers[each].set_result(SimpleNamespace(offset=self.ends[each.topic]))
        return answers

    def unanswered(self) -> None:
        raise AssertionError("every request has an answer")


def queue(*, position: int = 0, polled: int = 0, buffered: int = 0, at_end: bool = False) -> Any:
    chunks = [object()] if buffered else []
    return SimpleNamespace(
        consumed=polled, buffered=buffered, fetch_position=position + buffered, at_end=at_end, chunks=chunks
    )


def task(number: int = 0, processed: int = 0, latest: int = -1, **inputs: Any) -> Any:
    return SimpleNamespace(id=TaskId(0, number), inputs=inputs, processed=processed, latest_timestamp=latest)


class Scene:
    """A meter, with its parts as the test sets them."""

    def __init__(self, directory: Path) -> None:
        self.brokers = Brokers()
        self.metrics: Any = SimpleNamespace(busy_seconds=0.0, records_processed=0)
        self.running: list[Any] = []
        self.meter = LoadMeter(
            self.metrics, lambda: self.running, self.brokers, self.brokers, directory, lambda: NOW_MS
        )

    def at(self, now: float) -> WorkerLoad:
        self.meter.turn(now)
        assert self.meter.latest is not None
        return self.meter.latest

    def lag(self, now: float, topic: str = "orders") -> int | None:
        return self.at(now).tasks["0_0"].inputs[topic].lag


def test_it_measures_at_most_once_a_second(tmp_path: Path) -> None:
    """However many turns the loop has; sizes on disk every ten seconds."""
    scene = Scene(tmp_path)
    (tmp_path / "database").mkdir()
    (tmp_path / "database" / "000004.log").write_bytes(bytes(100))
    (tmp_path / "model").write_bytes(bytes(23))
    measured = {scene.at(turn / 100).measured_ms for turn in range(1_000)}
    assert len(measured) == 10
    (tmp_path / "database" / "000007.sst").write_bytes(bytes(7))
    assert scene.at(9.99).state_bytes == 123
    load = scene.at(10.0)
    assert load.state_bytes == 130
    assert 0 < load.volume_free_bytes <= load.volume_bytes


def test_records_count_when_they_are_processed(tmp_path: Path) -> None:
    """Not when they are polled."""
    scene = Scene(tmp_path)
    scene.running = [task(processed=60, latest=NOW_MS - 5, orders=queue(polled=100, buffered=40))]
    load = scene.at(1.0).tasks["0_0"]
    assert (load.processed, load.inputs["orders"].consumed, load.latency_ms) == (60, 60, 5)


def test_counters_continue_when_a_task_is_created_again(tmp_path: Path) -> None:
    """After a failed commit, and when a task comes back from another worker; a rate is never negative."""
    scene = Scene(tmp_path)
    scene.running = [task(processed=60, orders=queue(polled=60))]
    before = scene.at(1.0)
    scene.running = [task(processed=5, orders=queue(polled=5))]
    assert scene.at(2.0).tasks["0_0"].processed == 65
    scene.running[0].processed = scene.running[0].inputs["orders"].consumed = 7
    assert scene.at(3.0).tasks["0_0"].inputs["orders"].consumed == 67
    scene.running = []
    assert not scene.at(4.0).tasks
    scene.running = [task(processed=3, orders=queue(polled=3))]
    after = scene.at(11.0)
    assert after.tasks["0_0"].processed == 70
    assert rates(before, after).tasks["0_0"].records_per_second == 1.0


def test_the_lag_is_what_is_buffered_and_what_is_not_read_yet(tmp_path: Path) -> None:
    """From the consumer's knowledge, without a request."""
    scene = Scene(tmp_path)
    scene.running = [task(orders=queue(position=100, buffered=20))]
    scene.brokers.cached = {"orders": 1_000}
    assert scene.lag(1.0) == 20 + 880
    assert not scene.brokers.requests


def test_an_input_at_its_end_has_no_lag(tmp_path: Path) -> None:
    """Transaction markers and open transactions are behind the position."""
    scene = Scene(tmp_path)
    scene.running = [task(orders=queue(position=100, at_end=True))]
    scene.brokers.cached = {"orders": 107}
    assert scene.lag(1.0) == 0
    scene.running = [task(orders=queue(position=100, buffered=3, at_end=True))]
    assert scene.lag(2.0) == 3


def test_the_lag_is_unknown_before_the_first_fetch(tmp_path: Path) -> None:
    """None rather than zero, which would look like success."""
    scene = Scene(tmp_path)
    scene.running = [task(orders=queue(position=5))]
    assert scene.lag(1.0) is None
    scene.brokers.cached = {"orders": -1001}
    assert scene.lag(2.0) is None


def test_a_slow_task_still_sees_its_lag_grow(tmp_path: Path) -> None:
    """The client does not fetch while it has enough records to process, so its end is as old as the last fetch."""
    scene = Scene(tmp_path)
    scene.running = [task(orders=queue(position=0, buffered=100), prices=queue(position=9, at_end=True))]
    scene.brokers.cached = scene.brokers.ends = {"orders": 100, "prices": 9}
    assert scene.lag(0.0) == 100
    scene.brokers.ends = {"orders": 5_000, "prices": 9}
    lags = [scene.lag(float(second)) for second in range(1, 9)]
    assert scene.brokers.requests == [{"orders"}], "one request, for the partition that may be out of date"
    assert lags[-1] == 5_000
    scene.brokers.cached = {"orders": 6_000, "prices": 9}
    assert scene.lag(9.0) == 6_000, "a newer end by a fetch counts"


def test_nothing_is_requested_while_the_client_fetches(tmp_path: Path) -> None:
    """The usual case costs no request."""
    scene = Scene(tmp_path)
    scene.running = [task(orders=queue(position=0, buffered=100))]
    for second in range(60):
        scene.brokers.cached = {"orders": 100 + second}
        assert scene.lag(float(second)) == 100 + second
    assert not scene.brokers.requests


def test_the_whole_worker_counts_tasks_that_have_left(tmp_path: Path) -> None:
    """The counters of the worker go on."""
    scene = Scene(tmp_path)
    scene.metrics.records_processed, scene.metrics.busy_seconds = 10, 0.25
    load = scene.at(1.0)
    assert (load.measured_ms, load.processed, load.busy_ms, load.tasks) == (1_000, 10, 250, {})


def test_very_many_inputs_are_summed_up_per_task(tmp_path: Path) -> None:
    """A heartbeat stays small enough for the coordinator's limit."""
    scene = Scene(tmp_path)
    topics = {f"{'topic' * 20}-{number}": queue(polled=10, buffered=4, at_end=True) for number in range(3)}
    scene.running = [task(number, 18, **topics) for number in range(1_000)]
    load = scene.at(1.0)
    assert load.tasks["0_999"].inputs == {"": InputLoad(18, 12)}
    assert load.tasks["0_999"].processed == 18
    assert len(encode(load)) < 128 * 1024
    scene.running = scene.running[:100]
    assert len(scene.at(2.0).tasks["0_9"].inputs) == 3
