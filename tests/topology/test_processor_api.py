"""User processors get records, contexts and stores as in Kafka Streams' Processor API."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ProcessingFailed, StateError, TopologyError
from millpond.topology.processor_body import ProcessorBody
from tests.dsl.support import Node


class Scripted(mp.Processor[Any, Any, Any, Any]):
    """Runs the function it was made with."""

    def __init__(self, script: Any) -> None:
        self.script = script

    def process(self, record: mp.Record[Any, Any]) -> None:
        self.script(self.context, record)


def bind(script: Any, **stores: Any) -> tuple[Node, Any]:
    node = Node("work", **stores)
    return node, ProcessorBody(lambda: Scripted(script)).bind(node)


def test_a_record_has_its_time_as_a_datetime() -> None:
    """In UTC, to the millisecond."""
    noon = datetime(2026, 3, 2, 12, 0, 0, 123000, tzinfo=UTC)
    for kind in (mp.Record, mp.FixedKeyRecord):
        assert kind("k", 1, 1_772_452_800_123).time == noon


def test_forward_keeps_key_value_timestamp_and_headers() -> None:
    """Children get the forwarded record; its headers are the task's while they run, and are restored afterwards."""

    def script(context: Any, record: Any) -> None:
        context.forward(record.with_key("new").with_value(2).with_timestamp(7).with_headers([("h", b"x")]))

    node, process = bind(script)
    node.task.headers = [("old", None)]
    process("k", 1, 5)
    assert node.forwarded == [("new", 2, 7)]
    assert node.forwarded_headers == [[("h", b"x")]]
    assert node.task.headers == [("old", None)]


def test_headers_are_restored_when_a_child_fails() -> None:
    """After an exception of a child, the task has its earlier headers again."""

    def script(context: Any, record: Any) -> None:
        context.forward(record.with_headers([("h", b"x")]))

    node = Node("work")

    def fail(*_record: Any) -> None:
        raise ProcessingFailed("stop")

    node.forward = fail  # type: ignore[method-assign]
    process = ProcessorBody(lambda: Scripted(script)).bind(node)
    with pytest.raises(ProcessingFailed):
        process("k", 1, 5)
    assert node.task.headers is None
    assert node.errors == []


def test_a_record_can_go_to_one_child() -> None:
    """forward(record, child) calls that child alone."""
    node, process = bind(lambda context, record: context.forward(record, "left"))
    process("k", 1, 5)
    assert node.children == {"left": [("k", 1, 5)]}
    assert node.forwarded == []


def test_an_exception_of_the_processor_is_reported_with_its_record() -> None:
    """The processing handler decides; the processor gets the next record."""

    def script(_context: Any, record: Any) -> None:
        if record.value == "bad":
            raise ValueError("no")

    node, process = bind(script)
    process("k", "bad", 5)
    process("k", "good", 6)
    assert [type(error) for error in node.errors] == [ValueError]


@pytest.mark.parametrize("error", [ProcessingFailed("x"), StateError("x")])
def test_errors_of_the_runtime_pass_through(error: Exception) -> None:
    """A failure of a child is not reported as one of the processor above it."""

    def script(_context: Any, _record: Any) -> None:
        raise error

    node, process = bind(script)
    with pytest.raises(type(error)):
        process("k", 1, 5)
    assert node.errors == []


def test_a_negative_timestamp_is_rejected() -> None:
    """Both kinds of records reject a negative timestamp, when made and when changed."""
    for record in (mp.Record("k", 1, 0), mp.FixedKeyRecord("k", 1, 0)):
        with pytest.raises(TopologyError, match="negative timestamp -1"):
            record.with_timestamp(-1)
    with pytest.raises(TopologyError, match="negative timestamp"):
        mp.Record("k", 1, -5)


def test_records_cannot_be_changed_in_place() -> None:
    """Records are immutable, because children may keep them."""
    record: Any = mp.Record("k", 1, 0)
    with pytest.raises(AttributeError):
        record.value = 2
    assert not hasattr(mp.FixedKeyRecord("k", 1, 0), "with_key")


def test_the_context_has_the_source_position_of_the_record() -> None:
    """record_metadata() has topic, partition and offset of the source record; in punctuations it is None."""
    seen: list[Any] = []
    node, process = bind(lambda context, record: seen.append((context.record_metadata(), context.task_id)))
    node.task.offset, node.task.partition = 12, 3
    process("k", 1, 5)
    node.task.topic = None
    process("k", 1, 5)
    assert seen[0][0][:3] == ("topic", 3, 12)
    assert str(seen[0][1]) == "0_0"
    assert seen[1][0] is None


def test_close_is_called_when_the_task_closes() -> None:
    """init() is called first and close() last, once each."""
    calls: list[str] = []

    class Watched(mp.Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            calls.append("init")

        def process(self, record: Any) -> None:
            calls.append("process")

        def close(self) -> None:
            calls.append("close")

    node = Node("work")
    ProcessorBody(Watched).bind(node)("k", 1, 5)
    for callback in node.closing:
        callback()
    assert calls == ["init", "process", "close"]


def test_an_interval_below_a_millisecond_is_rejected() -> None:
    """The least interval of a punctuation is the unit of the clock."""
    node, process = bind(
        lambda context, _: context.schedule(timedelta(microseconds=5), mp.PunctuationType.STREAM_TIME, print)
    )
    process("k", 1, 5)
    (error,) = node.errors
    with pytest.raises(TopologyError, match="at least a millisecond"):
        raise error


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (datetime(1969, 12, 31, 23, 59, tzinfo=UTC), "of 1970 or later"),
        (date(2026, 1, 1), "a date as its start; give a datetime"),
        (0, "the number 0 as its start; give a datetime"),
    ],
)
def test_a_start_that_is_no_moment_from_1970_on_is_rejected(start: Any, message: str) -> None:
    """As in Kafka Streams, and with what it has to be."""
    node, process = bind(
        lambda context, _: context.schedule(timedelta(1), mp.PunctuationType.WALL_CLOCK_TIME, print, start=start)
    )
    process("k", 1, 5)
    (error,) = node.errors
    with pytest.raises(TopologyError, match=message):
        raise error


class Remembering(mp.Processor[str, str, str, str]):
    """Forwards each value with the one before it, and on every 100 ms of stream time how many keys it knows."""

    stores = (mp.KeyValueStoreBuilder(name="before", key=mp.String, value=mp.String),)

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("before")
        context.schedule(timedelta(milliseconds=100), mp.PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: mp.Record[str, str]) -> None:
        before = self.store.get(record.key)
        self.store.put(record.key, record.value)
        self.context.forward(record.with_value(f"{before}->{record.value}"))

    def tick(self, now: int) -> None:
        self.context.forward(mp.Record("tick", str(now), now))


def test_a_processor_with_its_store_and_punctuation_in_a_topology() -> None:
    """Stores come with the supplier, punctuations follow stream time: through the real task."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Remembering, key=mp.String, value=mp.String).to("out")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        topic.pipe_input("a", "1", 0)
        topic.pipe_input("a", "2", 50)
        topic.pipe_input("a", "3", 230)
        assert out.read_key_values_to_list() == [
            ("a", "None->1"),
            ("tick", "0"),
            ("a", "1->2"),
            ("a", "2->3"),
            ("tick", "230"),
        ]


def test_a_fixed_key_processor_changes_values_only() -> None:
    """A FixedKeyProcessor runs as a Processor does, and nothing is repartitioned after it."""

    class Upper(mp.FixedKeyProcessor[str, str, str]):
        def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
            self.context.forward(record.with_value(record.value.upper()))

    builder = mp.StreamsBuilder()
    upper = builder.stream("in", key=mp.String, value=mp.String).process_values(Upper, value=mp.String)
    upper.group_by_key().count(caching=False).to_stream().to("out")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("a", "x", 1)
        assert driver.create_output_topic("out", key=mp.String, value=mp.Long).read_key_value() == ("a", 1)
        assert not any("repartition" in topic for topic in driver.produced_topic_names())
