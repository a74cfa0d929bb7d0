"""Records that take longer than a transaction may be open are processed, and their output is written once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millpond as mp
from millpond.runtime.config.model import Config
from millpond.runtime.worker.pacing import POLL_RECORDS, BatchPacing
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.running import Running
from tests.runtime.worker_parts import Parts
from tests.support import kafka

TIMEOUT_S = 1.0
#: The broker of the tests looks every second for transactions that are too old.
SLOW_S = 2 * TIMEOUT_S + 0.2


def _pace(guarantee: str = "exactly_once", stood_still: float = 0.0) -> BatchPacing:
    return BatchPacing(
        Config.of(
            {
                "application.id": "app", "bootstrap.servers": "memory:1",
                "processing.guarantee": guarantee, "transaction.timeout.ms": 1_000,
            }
        ),
        lambda _: stood_still,
    )  # fmt: skip


def test_turns_take_more_records_while_they_are_quick() -> None:
    """Turns of slow records take as many as fit into a quarter of a second."""
    pace = _pace()
    for _ in range(10):
        pace.processed(pace.limit, pace.limit, 0.001)
    assert pace.limit == POLL_RECORDS
    pace.processed(2_000, 2_000, 5.0)
    assert pace.limit == 100


@pytest.mark.parametrize(("guarantee", "slow"), [("exactly_once", True), ("at_least_once", False)])
def test_slow_turn_keeps_transactions_closed_for_a_while(guarantee: str, slow: bool) -> None:
    """Only with transactions."""
    pace = _pace(guarantee)
    pace.processed(1, 1, 0.2)
    assert not pace.slow
    pace.processed(1, 1, 0.3)
    assert pace.slow is slow


@pytest.mark.parametrize(("stood_still", "slow_for", "told"), [(29.9, 30.0, 0), (29.5, 600.0, 1), (0.0, 600.0, 1)])
def test_a_turn_in_which_the_process_stood_still_is_no_slow_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stood_still: float, slow_for: float, told: int
) -> None:
    """No setting needs a change, and transactions stay closed no longer than such a turn took."""
    clock = SimpleNamespace(now=1_000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("millpond.runtime.worker.pacing.time", clock)
    pace = _pace(stood_still=stood_still)
    pace.processed(1, 1, 30.0)
    assert len(caplog.messages) == told
    clock.now += slow_for - 0.1
    assert pace.slow
    clock.now += 0.2
    assert not pace.slow


def test_slow_flush_counts_like_a_slow_turn() -> None:
    """Caches forward at a commit, and the processors after them may be slow."""
    pace = _pace()
    pace.flushed(0.3)
    assert pace.slow


def _topology(source: str, target: str, slowly: Callable[[str], str]) -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).map_values(slowly).to(target, key=mp.String, value=mp.String)
    return builder.build()


def _slowly(calls: list[str]) -> Callable[[str], str]:
    never = threading.Event()

    def slowly(value: str) -> str:
        calls.append(value)
        if value == "slow":
            never.wait(SLOW_S)
        return value

    return slowly


SETTINGS = {
    "processing.guarantee": "exactly_once",
    "transaction.timeout.ms": int(TIMEOUT_S * 1000),
    "commit.interval.ms": 300,
}


def test_record_slower_than_the_transaction_timeout_gets_through(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One transaction is aborted meanwhile; the next time none is open, otherwise there would be no end."""
    servers, source, target = broker.bootstrap_servers, create_topic("in"), create_topic("out")
    calls: list[str] = []
    topology = _topology(source, target, _slowly(calls))
    with caplog.at_level(logging.WARNING), Running(topology, servers, app_id, tmp_path / "state", SETTINGS) as running:
        running.wait_running()
        # The transaction that the quick one opens is still open when the slow one comes, however late that is.
        running.worker.call(lambda: setattr(running.worker._parts.committer, "next_commit", float("inf"))).result(60)
        kafka.produce(servers, source, [("a", "quick")])
        running.wait(lambda: running.worker._parts.collector.in_transaction, "a transaction is open")
        kafka.produce(servers, source, [("b", "slow"), ("c", "last")])
        running.wait(lambda: _values(servers, target) == [b"last", b"quick", b"slow"], "all is committed, once")
    assert "Raise 'transaction.timeout.ms'" in caplog.text


@contextmanager
def _slow_tasks(directory: Path, **settings: Any) -> Iterator[tuple[Kafka, Parts]]:
    """Two slow tasks with one record each in their caches; the journal records when it is forwarded."""
    store = Kafka()
    builder = mp.StreamsBuilder()
    last = builder.stream("in", key=mp.String, value=mp.String).group_by_key().reduce(lambda _, new: new, store="last")
    last.to_stream().map_values(lambda value: store.journal.append("forward") or value).to(
        "out", key=mp.String, value=mp.String
    )
    worker = Parts(store, builder.build(), directory, {"in": 2, "out": 1}, **settings)
    try:
        worker.own(TaskId(0, 0), TaskId(0, 1))
        for partition in range(2):
            store.append("in", "k", "v", partition=partition)
        worker.process()
        worker.committer.flushes_first = True
        store.journal.clear()
        yield store, worker
    finally:
        worker.close()


def test_slow_tasks_are_all_flushed_before_the_transaction_begins(tmp_path: Path) -> None:
    """Forwarding from one task's cache may take long: no other task has opened the transaction by then."""
    with _slow_tasks(tmp_path) as (store, worker):
        worker.commit()
    assert store.journal[:3] == ["forward", "forward", "begin_transaction w0"]
    assert len(store.values("out")) == 2


def test_full_caches_of_slow_tasks_are_flushed_by_a_commit(tmp_path: Path) -> None:
    """No transaction is open while a cache forwards: a commit flushes all caches before it opens one."""
    with _slow_tasks(tmp_path, statestore_cache_max_bytes=1) as (store, worker):
        worker.committer.processed(10_000)
        worker.committer.advance(time.monotonic())
        worker.finish()
    assert store.journal[:3] == ["forward", "forward", "begin_transaction w0"]
    assert "commit w0" in store.journal


def _values(servers: str, topic: str) -> list[bytes | None]:
    return sorted((row.value for row in kafka.read(servers, topic)), key=lambda value: value or b"")
