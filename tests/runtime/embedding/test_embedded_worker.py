"""A program runs a worker in its own process: start and close, states, pauses, failures and replacements."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ConfigError, ProcessingFailed, TopologyError, WorkerStateError
from millpond.runtime.listeners import WorkerListener
from tests.runtime.running import config
from tests.support import kafka

SOON = timedelta(seconds=40)
States = mp.WorkerState


class Noting(WorkerListener):
    """Notes the states of a worker."""

    def __init__(self) -> None:
        self.states: list[mp.WorkerState] = []

    def state_changed(self, state: mp.WorkerState) -> None:
        self.states.append(state)


def upper(source: str, target: str, change: Callable[[str], str] = str.upper) -> mp.Topology:
    """Change each value."""
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.String)
    stream.map_values(change).to(target, key=mp.String, value=mp.String)
    return builder.build()


def offline(tmp_path: Path, **settings: Any) -> mp.Worker:
    """A worker whose brokers do not exist."""
    return mp.Worker(upper("in", "out"), config("127.0.0.1:1", "offline", tmp_path, settings))


def values(servers: str, topic: str) -> list[str]:
    """The committed values of a topic."""
    return [row.value.decode() for row in kafka.read(servers, topic)]


def test_a_block_starts_a_worker_and_closes_it(broker, create_topic, app_id, tmp_path):
    """In the block it runs in a thread; after it, everything processed is committed."""
    source, target = create_topic("in"), create_topic("out")
    servers, listener = broker.bootstrap_servers, Noting()
    kafka.produce(servers, source, [("a", "x"), ("b", "y")])
    worker = mp.Worker(upper(source, target), config(servers, app_id, tmp_path), listener)
    assert worker.state is States.CREATED
    with worker:
        assert worker.wait_for(States.RUNNING, SOON)
        assert worker.state.is_running_or_rebalancing()
        kafka.eventually(lambda: len(values(servers, target)) == 2, "the output is complete")
    assert values(servers, target) == ["X", "Y"]
    assert worker.state.has_ended()
    assert worker.exception is None
    assert listener.states == [
        States.STARTING, States.RESTORING, States.RUNNING, States.PENDING_SHUTDOWN, States.NOT_RUNNING
    ]  # fmt: skip
    assert kafka.committed_offsets(servers, app_id, source)[0][0] >= 2


def test_a_paused_worker_processes_nothing_until_it_resumes(broker, create_topic, app_id, tmp_path):
    """It keeps its tasks meanwhile, and punctuations wait as well as records."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    ticks: list[int] = []

    class Ticking(mp.Processor[str, str, str, str]):
        def init(self, context):
            context.schedule(timedelta(milliseconds=1), mp.PunctuationType.WALL_CLOCK_TIME, ticks.append)

        def process(self, record):
            self.context.forward(record)

    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).process(Ticking).to(target, key=mp.String, value=mp.String)
    kafka.produce(servers, source, [("a", "x")])
    worker = mp.Worker(builder.build(), config(servers, app_id, tmp_path))
    worker.pause()
    with worker:
        assert worker.wait_for(States.RUNNING, SOON)
        assert worker.is_paused()
        turns = [worker.view().result(60) for _ in range(5)]
        assert len(turns) == 5
        assert not ticks
        assert worker.metrics.records_processed == 0
        worker.resume()
        assert not worker.is_paused()
        kafka.eventually(lambda: values(servers, target) == ["x"] and ticks, "it continues")


def failing(times: int) -> Callable[[str], str]:
    """A function that fails a number of times."""
    left = [times]

    def change(value: str) -> str:
        if left[0]:
            left[0] -= 1
            raise ValueError("no")
        return value.upper()

    return change


def test_a_handler_lets_a_failed_worker_start_again(broker, create_topic, app_id, tmp_path):
    """REPLACE_THREAD: the records of the failed attempts are processed again, and each result is committed once."""
    source, target = create_topic("in"), create_topic("out")
    servers, listener = broker.bootstrap_servers, Noting()
    kafka.produce(servers, source, [("a", "x"), ("b", "y")])
    errors: list[Exception] = []

    def replace(error: Exception) -> mp.StreamThreadExceptionResponse:
        errors.append(error)
        return mp.StreamThreadExceptionResponse.REPLACE_THREAD

    settings = {"processing.guarantee": "exactly_once"}
    worker = mp.Worker(upper(source, target, failing(2)), config(servers, app_id, tmp_path, settings), listener)
    worker.set_uncaught_exception_handler(replace)
    with worker:
        kafka.eventually(lambda: len(values(servers, target)) == 2, "the output is complete")
        with pytest.raises(WorkerStateError, match="before start"):
            worker.set_uncaught_exception_handler(replace)
    assert values(servers, target) == ["X", "Y"]
    assert [type(each) for each in errors] == [ProcessingFailed, ProcessingFailed]
    assert worker.exception is None
    assert listener.states.count(States.STARTING) == 3
    assert States.PENDING_ERROR not in listener.states
    assert listener.states[-1] is States.NOT_RUNNING


def test_a_worker_is_replaced_although_its_close_failed_as_well(broker, create_topic, app_id, tmp_path, caplog):
    """The error that ended it stays the error, that of `close()` is logged, and the state directory is free again."""
    source, servers = create_topic("in"), broker.bootstrap_servers
    kafka.produce(servers, source, [("a", "x")])
    broken = threading.Event()
    broken.set()

    class Breaking(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            if broken.is_set():
                raise ValueError("cannot process")

        def close(self) -> None:
            if broken.is_set():
                broken.clear()
                raise ValueError("cannot close")

    builder = mp.StreamsBuilder()
    words = builder.stream(source, key=mp.String, value=mp.String)
    words.process(Breaking)
    words.group_by_key().count(store="counts")
    errors: list[Exception] = []

    def replace(error: Exception) -> mp.StreamThreadExceptionResponse:
        errors.append(error)
        return mp.StreamThreadExceptionResponse.REPLACE_THREAD

    worker = mp.Worker(builder.build(), config(servers, app_id, tmp_path))
    worker.set_uncaught_exception_handler(replace)
    with worker:
        kafka.eventually(lambda: worker.metrics.commits and not broken.is_set(), "the replacement commits")
    assert [type(each) for each in errors] == [ProcessingFailed]
    assert "cannot close" in caplog.text


@pytest.mark.parametrize(
    "handler",
    [
        None,
        lambda _: mp.StreamThreadExceptionResponse.SHUTDOWN_CLIENT,
        lambda _: mp.StreamThreadExceptionResponse.SHUTDOWN_APPLICATION,
        lambda _: "anything else",
        lambda _: 1 / 0,
    ],
)
def test_a_failed_worker_keeps_its_error(broker, create_topic, app_id, tmp_path, handler):
    """Without a replacement the worker ends in ERROR, and the block raises the error."""
    source, target = create_topic("in"), create_topic("out")
    servers, listener = broker.bootstrap_servers, Noting()
    kafka.produce(servers, source, [("a", "x")])
    worker = mp.Worker(upper(source, target, failing(1)), config(servers, app_id, tmp_path), listener)
    if handler is not None:
        worker.set_uncaught_exception_handler(handler)
    with pytest.raises(ProcessingFailed), worker:
        assert worker.wait_for(States.ERROR, SOON)
        with pytest.raises(ProcessingFailed):
            worker.wait_for(States.RUNNING)
    assert isinstance(worker.exception, ProcessingFailed)
    assert listener.states[-2:] == [States.PENDING_ERROR, States.ERROR]
    with pytest.raises(
        WorkerStateError, match=r"the worker has failed: Processing failed in .*; make a new one\."
    ) as e:
        worker.store("counts", mp.KeyValueStore)
    assert e.value.__cause__ is worker.exception
    assert values(servers, target) == []


def test_close_returns_false_after_its_timeout(broker, create_topic, app_id, tmp_path):
    """The worker ends later, and a second call waits for that."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    entered, goes_on = threading.Event(), threading.Event()

    def slow(value: str) -> str:
        entered.set()
        assert goes_on.wait(60)
        return value

    kafka.produce(servers, source, [("a", "x")])
    worker = mp.Worker(upper(source, target, slow), config(servers, app_id, tmp_path))
    worker.start()
    assert entered.wait(40)
    assert not worker.close(timedelta())
    goes_on.set()
    assert worker.close(mp.CloseOptions(timeout=SOON, leave_group=False))
    assert worker.state is States.NOT_RUNNING
    assert values(servers, target) == ["x"]


def test_a_program_that_ends_closes_its_worker(broker, create_topic, app_id, tmp_path):
    """A worker that nobody closed commits, and does not keep the program alive."""
    source, target = create_topic("in"), create_topic("out")
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, [("a", "x")])
    program = f"""
import millpond as mp
from datetime import timedelta
from pathlib import Path
from tests.runtime.embedding.test_embedded_worker import upper
from tests.runtime.running import config
worker = mp.Worker(upper({source!r}, {target!r}), config({servers!r}, {app_id!r}, Path({str(tmp_path)!r}),
                   {{"commit.interval.ms": 600_000, "processing.guarantee": "exactly_once",
                     "transaction.timeout.ms": 600_001}}))
worker.start()
while not worker.metrics.records_processed:
    assert not worker.wait_for(mp.WorkerState.ERROR, timedelta(milliseconds=20))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert values(servers, target) == ["X"]


def test_a_worker_runs_once(tmp_path):
    """A second start, and one after close(), name the state and the cure."""
    worker = offline(tmp_path)
    worker.start()
    for again in (worker.start, worker.run):
        with pytest.raises(WorkerStateError, match=r"make a new mp\.Worker"):
            again()
    assert worker.close(SOON)
    assert worker.close()
    assert worker.exception is None
    unused = offline(tmp_path)
    assert unused.close()
    assert unused.state is States.NOT_RUNNING
    assert not unused.wait_for(States.RUNNING)
    with pytest.raises(WorkerStateError, match="not_running"):
        unused.start()


def test_wrong_arguments_name_the_right_ones(tmp_path):
    """Timeouts are timedeltas, and handlers take the exception."""
    worker = offline(tmp_path)
    with pytest.raises(ConfigError, match="not the number 5"):
        worker.close(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="negative timeout"):
        worker.close(timedelta(seconds=-1))
    with pytest.raises(ConfigError, match="needs a timedelta"):
        worker.wait_for(States.RUNNING, 5)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="takes \\(\\)"):
        worker.set_uncaught_exception_handler(lambda: None)  # type: ignore[arg-type, misc]
