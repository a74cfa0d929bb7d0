"""map_batches, map_values_async and process_async: steps over the records that a task has at hand."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.errors import ProcessingFailed, TopologyError
from millpond.testing import TopologyTestDriver
from millpond.testing.topics import RawRecord

String, Long = mp.String, mp.Long
CONTINUE = {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"}


class Batches:
    """A topology whose task gets several records in one turn."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver

    def turn(self, *records: tuple[str | None, str] | tuple[str | None, str, int]) -> None:
        """Let the task process records (key, value[, timestamp]) in one turn, as after one poll, and commit."""
        driver, task = self.driver, self.driver._task
        for number, (key, value, *time) in enumerate(records):
            raw = RawRecord(None if key is None else key.encode(), value.encode(), time[0] if time else number, [])
            if value.startswith("h"):
                raw = raw._replace(headers=[("h", value.encode())])
            driver._enqueue("in", raw)
        for queue in task.inputs.values():
            queue.at_end = True
        task.process(1_000, driver._now_ms)
        task.punctuate_stream_time()
        driver._commit()

    def out(self, value: Any = String) -> list[tuple[str, Any]]:
        """The new records of topic "out"."""
        return self.driver.create_output_topic("out", key=String, value=value).read_key_values_to_list()

    def records(self) -> list[mp.Record[str, str]]:
        """The new records of topic "out", with timestamps and headers."""
        return self.driver.create_output_topic("out", key=String, value=String).read_records_to_list()


@contextmanager
def batches(write: Callable[[mp.KStream[str, str]], mp.KStream[str, Any]], **settings: Any) -> Iterator[Batches]:
    """The batches of a topology of one step from topic "in" to topic "out"."""
    builder = mp.StreamsBuilder()
    write(builder.stream("in", key=String, value=String)).to("out", key=String)
    config = {"default.value.serde": "String", **{name.replace("_", "."): value for name, value in settings.items()}}
    with TopologyTestDriver(builder.build(), config) as driver:
        yield Batches(driver)


def shout(values: list[str]) -> list[str]:
    return [value.upper() for value in values]


def test_a_batch_has_the_records_at_hand_and_keeps_their_order_keys_times_and_headers() -> None:
    """One call for one turn of the task; each result has the key, the timestamp and the headers of its record."""
    sizes: list[int] = []

    def mapper(values: list[str]) -> list[str]:
        sizes.append(len(values))
        return shout(values)

    with batches(lambda stream: stream.map_batches(mapper)) as run:
        run.turn(("a", "x", 5), ("b", "hy", 3), (None, "z", 9))
        assert run.records() == [
            mp.Record("a", "X", 5), mp.Record("b", "HY", 3, [("h", b"hy")]), mp.Record(None, "Z", 9)
        ]  # fmt: skip
        run.turn(("a", "w"))
        assert run.out() == [("a", "W")]
    assert sizes == [3, 1]


def test_a_batch_has_at_most_max_rows() -> None:
    """More records make several batches, in order."""
    sizes: list[int] = []

    def mapper(values: list[str]) -> list[str]:
        sizes.append(len(values))
        return values

    with batches(lambda stream: stream.map_batches(mapper, max_rows=2)) as run:
        run.turn(*((str(number), str(number)) for number in range(5)))
        assert [key for key, _ in run.out()] == list("01234")
    assert sizes == [2, 2, 1]


def test_records_of_a_batch_have_keys_timestamps_and_headers() -> None:
    """With batch="records", the function gets records."""

    def mapper(records: list[mp.FixedKeyRecord[str, str]]) -> list[str]:
        return [f"{record.key} {record.value} {record.timestamp} {len(record.headers)}" for record in records]

    with batches(lambda stream: stream.map_batches(mapper, batch="records")) as run:
        run.turn(("a", "hx", 5), ("b", "y", 6))
        assert run.out() == [("a", "a hx 5 1"), ("b", "b y 6 0")]


def test_only_the_rows_that_fail_go_to_the_handler() -> None:
    """The function is called again for each row; the dead letter has the bytes and the place of the row."""

    def mapper(values: list[str]) -> list[int]:
        return [int(value) for value in values]

    with batches(lambda stream: stream.map_batches(mapper, value=Long), **CONTINUE) as run:
        run.turn(("a", "1"), ("b", "no"), ("c", "3"))
        assert run.out(Long) == [("a", 1), ("c", 3)]
        dead = run.driver.create_output_topic("dead", key=String, value=String).read_record()
        assert (dead.key, dead.value) == ("b", "no")
        assert ("__streams.errors.offset", b"1") in dead.headers
        assert run.driver.metrics()["dropped"] == 1
    with (
        batches(lambda stream: stream.map_batches(mapper, value=Long)) as run,
        pytest.raises(ProcessingFailed, match="invalid literal for int"),
    ):
        run.turn(("a", "1"), ("b", "no"))


def test_a_result_of_another_length_is_an_error() -> None:
    """Rows could not be told apart, so none of them is forwarded."""
    with (
        batches(lambda stream: stream.map_batches(lambda values: values[:-1])) as run,
        pytest.raises(ProcessingFailed, match="the function returned 0 for 1 rows"),
    ):
        run.turn(("a", "x"), ("b", "y"))


def test_records_of_punctuations_and_caches_are_complete_before_a_commit() -> None:
    """What a punctuation or a flushed cache forwards into a step is not held until the next poll."""

    class Ticking(mp.Processor[str, str, str, str]):
        def init(self, context: mp.ProcessorContext[str, str]) -> None:
            context.schedule(timedelta(seconds=1), mp.PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: mp.Record[str, str]) -> None:
            """Keep nothing."""

        def tick(self, now_ms: int) -> None:
            self.context.forward(mp.Record("tick", "tock", 7))

    with batches(lambda stream: stream.process(Ticking).map_batches(shout)) as run:
        run.driver.advance_wall_clock_time(timedelta(seconds=1))
        assert run.records() == [mp.Record("tick", "TOCK", 7)]

    def counted(stream: mp.KStream[str, str]) -> mp.KStream[str, str]:
        table = stream.group_by_key().count(store="counts", caching=True)
        return table.to_stream().map_batches(lambda counts: [f"{count} times" for count in counts], value=String)

    with batches(counted, statestore_cache_max_bytes=1_000_000) as run:
        run.turn(("a", "x"), ("b", "x"), ("a", "x"))
        assert sorted(run.out()) == [("a", "2 times"), ("b", "1 times")]


def test_a_step_below_a_step_gets_its_results_in_the_same_batch() -> None:
    """Steps end from the source on, so nothing remains between them; a store below has every record."""

    def chained(stream: mp.KStream[str, str]) -> mp.KStream[str, Any]:
        twice = stream.map_batches(shout).map_batches(lambda values: [value * 2 for value in values])
        return twice.group_by_key().count(store="counts").to_stream()

    with batches(chained, statestore_cache_max_bytes=0) as run:
        run.turn(("a", "x"), ("a", "y"))
        assert run.out(Long) == [("a", 1), ("a", 2)]


def test_a_commit_has_all_that_a_step_sends_to_a_store_during_the_flush() -> None:
    """A cache forwards into the step when the commit flushes it; the store below is in the same commit, and logged."""

    def twice(stream: mp.KStream[str, str]) -> mp.KStream[str, Any]:
        first = stream.group_by_key().count(store="first", caching=True).to_stream()
        second = first.map_batches(lambda counts: [str(count) for count in counts], value=String)
        return second.group_by_key(key=String, value=String).count(store="second", caching=False).to_stream()

    with batches(twice, statestore_cache_max_bytes=1_000_000) as run:
        run.turn(("a", "x"), ("b", "x"), ("a", "x"))
        assert sorted(run.out(Long)) == [("a", 1), ("b", 1)]
        log = run.driver.create_output_topic("test-application-second-changelog", key=String, value=mp.Bytes)
        assert sorted(key for key, _ in log.read_key_values_to_list()) == ["a", "b"]


class Item(msgspec.Struct):
    name: str
    size: int


@pytest.mark.parametrize("form", ["arrow", "pandas"])
def test_tables_have_columns_of_fields_with_key_and_timestamp(form: Any) -> None:
    """Without the library, the error says what to install."""
    library = {"arrow": "pyarrow", "pandas": "pandas"}[form]

    def mapper(table: Any) -> Any:
        assert list(getattr(table, "column_names", None) or table.columns) == ["name", "size", "_key", "_timestamp"]
        return table

    value = mp.Json(Item)
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=String, value=value)
    if importlib.util.find_spec(library) is None:
        with pytest.raises(TopologyError, match=f"needs {library} for its form of batches"):
            stream.map_batches(mapper, batch=form, value=value)
        return
    stream.map_batches(mapper, batch=form, value=mp.Json()).to("out", key=String)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=String, value=value).pipe_input("a", Item("x", 3))
        out = driver.create_output_topic("out", key=String, value=value)
        assert out.read_key_value() == ("a", Item("x", 3))


# Async steps


def test_calls_run_together_and_results_keep_the_order_of_the_records() -> None:
    """Calls of different keys wait for each other here, so they run at the same time; the first ends last."""
    ended: list[str] = []
    together: dict[str, asyncio.Event] = {}

    async def mapper(value: str) -> str:
        mine = together.setdefault(value, asyncio.Event())
        if value == "first":
            await together.setdefault("second", asyncio.Event()).wait()
        mine.set()
        ended.append(value)
        return value.upper()

    with batches(lambda stream: stream.map_values_async(mapper)) as run:
        run.turn(("a", "first", 4), ("b", "second", 2))
        assert run.records() == [mp.Record("a", "FIRST", 4), mp.Record("b", "SECOND", 2)]
    assert ended == ["second", "first"]


def test_calls_of_one_key_run_one_after_the_other() -> None:
    """No two of them overlap, and they begin in the order of the records."""
    running: list[str] = []
    begun: list[str] = []

    async def mapper(key: str, value: str) -> str:
        assert key not in running
        running.append(key)
        begun.append(value)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.remove(key)
        return value

    with batches(lambda stream: stream.map_values_async(mapper, with_key=True)) as run:
        run.turn(("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("a", "5"))
        assert [value for _, value in run.out()] == list("12345")
    assert [value for value in begun if value in "135"] == list("135")
    assert [value for value in begun if value in "24"] == list("24")


def test_no_more_calls_run_at_the_same_time_than_allowed() -> None:
    """Further calls begin when earlier ones end."""
    now, most = 0, 0

    async def mapper(value: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return value

    with batches(lambda stream: stream.map_values_async(mapper, max_concurrency=3)) as run:
        run.turn(*((str(number), str(number)) for number in range(20)))
        assert len(run.out()) == 20
    assert most == 3


def test_failed_cancelled_and_slow_calls_go_to_the_handler() -> None:
    """Each with its own record; the others are forwarded."""

    async def mapper(value: str) -> str:
        if value == "bad":
            raise ValueError("no")
        if value == "cancelled":
            raise asyncio.CancelledError
        if value == "slow":
            await asyncio.Event().wait()
        return value

    def write(stream: mp.KStream[str, str]) -> mp.KStream[str, str]:
        return stream.map_values_async(mapper, timeout=timedelta(milliseconds=20))

    with batches(write, **CONTINUE) as run:
        run.turn(("a", "1"), ("b", "bad"), ("c", "cancelled"), ("d", "slow"), ("e", "5"))
        assert run.out() == [("a", "1"), ("e", "5")]
        dead = run.driver.create_output_topic("dead", key=String, value=String).read_records_to_list()
        messages = [dict(record.headers)["__streams.errors.message"] for record in dead]
        assert [record.value for record in dead] == ["bad", "cancelled", "slow"]
        assert messages == [b"no", b"the call was cancelled", b"the call took longer than 0.02 s"]
    with batches(write) as run, pytest.raises(ProcessingFailed):
        run.turn(("b", "bad"))


def test_process_async_forwards_the_records_that_the_function_returns() -> None:
    """None, one or several, with keys, timestamps and headers of their own."""

    async def function(record: mp.Record[str, str]) -> Any:
        match record.value:
            case "none":
                return None
            case "one":
                return record.with_key("other").with_headers([("h", b"1")])
        return [record.with_value(part).with_timestamp(number) for number, part in enumerate(record.value.split())]

    with batches(lambda stream: stream.process_async(function)) as run:
        run.turn(("a", "none"), ("b", "one", 3), ("c", "hx y", 4))
        assert run.records() == [
            mp.Record("other", "one", 3, [("h", b"1")]),
            mp.Record("c", "hx", 0, [("h", b"hx y")]), mp.Record("c", "y", 1, [("h", b"hx y")]),
        ]  # fmt: skip

    async def wrong(_record: mp.Record[str, str]) -> Any:
        return ["text"]

    with (
        batches(lambda stream: stream.process_async(wrong)) as run,
        pytest.raises(ProcessingFailed, match="a record or an iterable of records, which has the text 'text'"),
    ):
        run.turn(("a", "x"))


def test_all_steps_share_one_event_loop_beside_the_task() -> None:
    """So a client that one call has opened serves all of them."""
    seen: list[Any] = []

    async def mapper(value: str) -> str:
        seen.append((asyncio.get_running_loop(), threading.current_thread()))
        return value

    for _ in range(2):
        with batches(lambda stream: stream.map_values_async(mapper).map_values_async(mapper)) as run:
            run.turn(("a", "x"))
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert seen[0][1] is not threading.current_thread()


def coroutine_of_two(_key: str, _value: str) -> str:
    return ""


async def of_none() -> str:
    return ""


async def of_one(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda stream: stream.map_batches(lambda: [1]), r"map_batches\(\) calls .* with \(batch\)"),
        (lambda stream: stream.map_batches(of_one), r"map_batches\(\) is given .* async def"),
        (lambda stream: stream.map_batches(shout, batch="list"), r"has batch='list'; use one of 'values', 'records'"),
        (lambda stream: stream.map_batches(shout, batch=["values"]), r"has batch=\['values'\]; use one of"),
        (lambda stream: stream.map_batches(shout, max_rows=0), r"max_rows= from 1 to 1,000,000, not the number 0"),
        (lambda stream: stream.map_values_async(coroutine_of_two), "write async def, or use map_values"),
        (lambda stream: stream.map_values_async(of_none), r"map_values_async\(\) calls .* with \(value\)"),
        (lambda stream: stream.map_values_async("of_one"), r"needs an async def of \(value\), not the text"),
        (lambda stream: stream.map_values_async(of_one, max_concurrency=0), r"max_concurrency= from 1 to 10,000"),
        (lambda stream: stream.process_async(of_one, timeout=3), "a positive timedelta as its timeout"),
    ],
)
def test_wrong_arguments_are_found_when_the_topology_is_built(write: Callable[[Any], Any], message: str) -> None:
    """Each message has the operator, the cause and the cure."""
    with pytest.raises(TopologyError, match=message):
        write(mp.StreamsBuilder().stream("in", key=String, value=String))


def test_steps_run_inside_a_processor_wrapper() -> None:
    """A wrapped step still holds its records until the end of the batch."""
    builder = mp.StreamsBuilder(processor_wrapper=mp.ProcessorWrapper())
    builder.stream("in", key=String, value=String).map_batches(shout).to("out", key=String, value=String)
    with TopologyTestDriver(builder.build()) as driver:
        run = Batches(driver)
        run.turn(("a", "x", 5), ("b", "hy", 3))
        assert run.records() == [mp.Record("a", "X", 5), mp.Record("b", "HY", 3, [("h", b"hy")])]


def test_steps_below_each_other_leave_no_record_behind_in_a_wrapper() -> None:
    """A wrapper's operators are bound in another order; a commit must not find records that a step still holds."""
    builder = mp.StreamsBuilder(processor_wrapper=mp.ProcessorWrapper())
    stream = builder.stream("in", key=String, value=String)
    for step in "123":
        stream = stream.map_batches(lambda values, step=step: [value + step for value in values])
    stream.to("out", key=String, value=String)
    with TopologyTestDriver(builder.build()) as driver:
        run = Batches(driver)
        run.turn(("a", "x"), ("b", "y"))
        assert run.out() == [("a", "x123"), ("b", "y123")]


def test_a_call_that_exits_ends_the_task_and_not_the_event_loop() -> None:
    """sys.exit() in a coroutine is raised in the task, as in map_values(); calls of other tasks go on."""

    async def leave(value: str) -> str:
        raise SystemExit(value)

    with batches(lambda stream: stream.map_values_async(leave)) as run, pytest.raises(SystemExit, match="x"):
        run.turn(("a", "x"))
    with batches(lambda stream: stream.map_values_async(of_one)) as run:
        run.turn(("a", "x"))
        assert run.out() == [("a", "x")]


def test_a_task_that_waits_long_for_its_calls_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a timeout a call may take for ever: the log has the node and the task."""
    monkeypatch.setattr("millpond.dsl.operators.batches.event_loop._EXPLAIN_S", 0.01)

    async def until_logged(value: str) -> str:
        while not caplog.messages:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.001)
        return value

    with batches(lambda stream: stream.map_values_async(until_logged, name="ask")) as run:
        run.turn(("a", "x"))
        assert run.out() == [("a", "x")]
    assert caplog.messages[0].startswith("node 'ask' of task 0_0 has waited 0.01 s for its calls")
