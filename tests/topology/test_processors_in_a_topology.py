"""Processors in a whole topology: the order of children and init(), calls of the handler, global stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError
from millpond.testing import TopologyTestDriver
from millpond.times import moment

String = mp.String
CONTINUE = {"processing.exception.handler": "continue"}


class Scripted(mp.Processor[Any, Any, Any, Any]):
    """Runs the function it was made with."""

    def __init__(self, script: Callable[[Any, Any], None]) -> None:
        self.script = script

    def process(self, record: mp.Record[Any, Any]) -> None:
        self.script(self.context, record)


class ScriptedValues(mp.FixedKeyProcessor[Any, Any, Any]):
    """A fixed-key processor that runs the function it was made with."""

    def __init__(self, script: Callable[[Any, Any], None]) -> None:
        self.script = script

    def process(self, record: mp.FixedKeyRecord[Any, Any]) -> None:
        self.script(self.context, record)


def stream() -> tuple[mp.StreamsBuilder, mp.KStream[str, str]]:
    """A builder and the stream of topic "in"."""
    builder = mp.StreamsBuilder()
    return builder, builder.stream("in", key=String, value=String)


def outputs(
    builder: mp.StreamsBuilder, *records: tuple[str, str, int], config: dict[str, object] | None = None
) -> list[tuple[str, str]]:
    """Return the records of topic "out" for records of topic "in"."""
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", key=String, value=String)
        for record in records:
            topic.pipe_input(*record)
        return driver.create_output_topic("out", key=String, value=String).read_key_values_to_list()


def test_children_get_a_record_in_the_order_they_were_added() -> None:
    """A sink that was added before a processor gets it first."""
    builder, source = stream()
    source.to("out")
    source.map_values(lambda value: f"{value}-mapped").to("out", value=String)
    source.to("out")
    assert outputs(builder, ("k", "a", 0)) == [("k", "a"), ("k", "a-mapped"), ("k", "a")]


def test_processors_are_initialised_and_closed_parents_first() -> None:
    """All init() are called before the first record, parents first."""
    calls: list[str] = []

    def supplier(name: str) -> Callable[[], Scripted]:
        class Watched(Scripted):
            def init(self, context: Any) -> None:
                super().init(context)
                calls.append(f"init {name}")

            def close(self) -> None:
                calls.append(f"close {name}")

        return lambda: Watched(lambda context, record: context.forward(record))

    builder, source = stream()
    source.process(supplier("first")).process(supplier("second")).process(supplier("third")).to(
        "out", key=String, value=String
    )
    assert outputs(builder, ("k", "a", 0)) == [("k", "a")]
    assert calls == [f"{what} {name}" for what in ("init", "close") for name in ("first", "second", "third")]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda context, record: context.forward(record.with_timestamp(-1)),
        lambda context, record: context.forward(mp.Record("k", "v", -1)),
        lambda context, record: context.forward(record, "nobody"),
        lambda context, record: context.get_state_store("nothing"),
    ],
    ids=["changed timestamp", "new record", "unknown child", "unknown store"],
)
def test_wrong_calls_of_a_processor_are_the_handlers_to_judge(wrong: Any) -> None:
    """With CONTINUE their record is dropped, as for all exceptions of user code."""

    def script(context: Any, record: Any) -> None:
        if record.value == "bad":
            wrong(context, record)
        context.forward(record)

    builder, source = stream()
    source.process(lambda: Scripted(script)).to("out", key=String, value=String)
    records = (("k", "good", 1), ("k", "bad", 2), ("k", "better", 3))
    assert outputs(builder, *records, config=CONTINUE) == [("k", "good"), ("k", "better")]


def test_wrong_calls_of_a_punctuator_are_the_handlers_to_judge() -> None:
    """A punctuation that fails is called again at its next time."""

    class Punctual(Scripted):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(timedelta(milliseconds=10), mp.PunctuationType.STREAM_TIME, self.fire)

        def fire(self, now_ms: int) -> None:
            self.context.forward(mp.Record("k", str(now_ms), now_ms), "nobody" if now_ms < 20 else None)

    builder, source = stream()
    source.process(lambda: Punctual(lambda *_: None)).to("out", key=String, value=String)
    assert outputs(builder, ("k", "a", 5), ("k", "b", 25), config=CONTINUE) == [("k", "25")]


def _global_counter(script: Callable[[Any, Any], None]) -> mp.StreamsBuilder:
    """A global store of topic "rows", and a processor beside it."""

    def fill(context: Any, record: Any) -> None:
        context.get_state_store("g").put(record.key, record.value)

    builder, source = stream()
    rows = mp.KeyValueStoreBuilder(name="g", key=String, value=String, logging=False)
    builder.add_global_store(rows, "rows", lambda: Scripted(fill), key=String, value=String)
    source.process(lambda: Scripted(script)).to("out", key=String, value=String)
    return builder


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put("k", "mine"),
        lambda store: store.delete("k"),
        lambda store: store.put_if_absent("n", "mine"),
        lambda store: store.put_all([("k", "mine")]),
    ],
    ids=["put", "delete", "put_if_absent", "put_all"],
)
def test_global_store_is_written_by_its_own_processor_only(write: Any) -> None:
    """Other processors can read a global store and not write it, because other workers would not see the change."""

    def script(context: Any, record: Any) -> None:
        store = context.get_state_store("g")
        if record.value == "write":
            write(store)
        context.forward(record.with_value(f"{store.get('k')} {[*store.all()]} {store.approximate_num_entries()}"))

    with TopologyTestDriver(_global_counter(script).build(), CONTINUE) as driver:
        driver.create_input_topic("rows", key=String, value=String).pipe_input("k", "theirs")
        topic = driver.create_input_topic("in", key=String, value=String)
        topic.pipe_input("x", "write")
        topic.pipe_input("x", "read")
        out = driver.create_output_topic("out", key=String, value=String)
        assert out.read_values_to_list() == ["theirs [('k', 'theirs')] 1"]
        assert driver.metrics()["dropped"] == 1


def test_supplier_that_makes_one_processor_for_all_tasks_is_rejected() -> None:
    """Tasks would share the processor, so the topology rejects the supplier when it is built."""
    shared = Scripted(lambda *_: None)
    builder, source = stream()
    source.process(lambda: shared, name="work")
    with pytest.raises(TopologyError, match="supplier of processor 'work' makes the same Scripted each time"):
        builder.build()
    topology = mp.Topology().add_source("source", "in")
    with pytest.raises(TopologyError, match="every task needs its own"):
        topology.add_processor("work", lambda: shared, "source")
    rows = mp.KeyValueStoreBuilder(name="g", key=String, value=String, logging=False)
    with pytest.raises(TopologyError, match="every task needs its own"):
        mp.Topology().add_global_store(rows, "rows", lambda: shared, source_name="s", processor_name="p")


def test_process_values_rejects_a_processor_that_may_change_keys() -> None:
    """The result is not repartitioned, so the processor must keep keys."""

    class Free(mp.Processor[Any, Any, Any, Any]):
        def process(self, record: mp.Record[Any, Any]) -> None:
            self.context.forward(record.with_key("other"))

    _, source = stream()
    for supplier in (Free, lambda: Scripted(lambda *_: None)):
        with pytest.raises(TopologyError, match="which may change keys; derive it from FixedKeyProcessor"):
            source.process_values(supplier)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "other",
    [lambda record: mp.FixedKeyRecord("other", "v", 1), lambda record: mp.Record("other", "v", 1)],
    ids=["fixed-key record", "record"],
)
def test_fixed_key_processor_forwards_the_keys_it_was_given_only(other: Any) -> None:
    """A new record could have any key; changed copies of a received one have the same key."""

    def script(context: Any, record: Any) -> None:
        if record.value == "bad":
            context.forward(other(record))
        context.forward(record.with_value(f"{record.value}!").with_timestamp(9).with_headers([("h", b"x")]))

    builder, source = stream()
    source.process_values(lambda: ScriptedValues(script)).to("out", value=String)
    records = (("k", "a", 1), ("k", "bad", 2), ("k", "b", 3))
    assert outputs(builder, *records, config=CONTINUE) == [("k", "a!"), ("k", "b!")]


def test_fixed_key_processor_may_forward_a_kept_record_later() -> None:
    """A punctuation has no current record, but may forward a record that the processor kept."""

    class Delayed(ScriptedValues):
        def init(self, context: Any) -> None:
            super().init(context)
            self.kept: list[Any] = []
            self.script = lambda _context, record: self.kept.append(record.with_value(f"late {record.value}"))
            context.schedule(timedelta(milliseconds=10), mp.PunctuationType.STREAM_TIME, self.fire)

        def fire(self, now_ms: int) -> None:
            while self.kept:
                self.context.forward(self.kept.pop(0).with_timestamp(now_ms))

    builder, source = stream()
    source.process_values(lambda: Delayed(lambda *_: None)).to("out", value=String)
    assert outputs(builder, ("k", "a", 5), ("l", "b", 15)) == [("k", "late a"), ("l", "late b")]


def test_record_metadata_has_the_timestamp_of_its_record() -> None:
    """The timestamp is the record's own: not stream time, and not the source's if a parent changed it."""
    seen: list[int] = []

    def note(context: Any, record: Any) -> None:
        seen.append(context.record_metadata().timestamp)
        context.forward(record.with_timestamp(record.timestamp + 1))
        seen.append(context.record_metadata().timestamp)

    builder, source = stream()
    source.process(lambda: Scripted(note)).process(lambda: Scripted(note))
    outputs(builder, ("k", "a", 50), ("k", "late", 20))
    assert seen == [50, 51, 51, 50, 20, 21, 21, 20]


def test_punctuations_with_a_start_come_at_its_times() -> None:
    """At full hours of the wall clock, and every 25 ms from 100 ms of stream time on; never before the start."""
    hour = timedelta(hours=1)
    called: list[str] = []

    class Punctual(mp.Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            super().init(context)
            wall, stream = mp.PunctuationType.WALL_CLOCK_TIME, mp.PunctuationType.STREAM_TIME
            past, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 11, 30, 14, tzinfo=timezone(hour))
            context.schedule(hour, wall, lambda now: called.append(f"past {moment(now):%H:%M}"), start=past)
            context.schedule(hour, wall, lambda now: called.append(f"later {moment(now):%H:%M}"), start=later)
            context.schedule(
                timedelta(milliseconds=25), stream, lambda now: called.append(str(now)), start=moment(100)
            )  # fmt: skip

        def process(self, record: mp.Record[Any, Any]) -> None:
            pass

    builder, source = stream()
    source.process(Punctual)
    began = datetime(2026, 11, 30, 10, 40, tzinfo=UTC)
    with TopologyTestDriver(builder.build(), initial_wall_clock=began) as driver:
        for _ in range(16):
            driver.advance_wall_clock_time(hour / 4)
        assert called == ["past 11:10", "past 12:10", "later 13:10", "past 13:10", "later 14:10", "past 14:10"]
        called.clear()
        topic = driver.create_input_topic("in", key=String, value=String)
        for timestamp in (10, 99, 100, 110, 124, 125, 199, 200, 201):
            topic.pipe_input("k", "a", timestamp)
    assert called == ["100", "125", "199", "200"]


def test_changelog_of_a_plain_store_has_the_timestamp_of_its_writer() -> None:
    """The timestamp is that of the received record or of the punctuation, not of an earlier record."""

    class Writer(mp.Processor[Any, Any, Any, Any]):
        stores = (mp.KeyValueStoreBuilder(name="s", key=String, value=String),)

        def init(self, context: Any) -> None:
            super().init(context)
            self.store = context.get_state_store("s")
            context.schedule(
                timedelta(milliseconds=100), mp.PunctuationType.STREAM_TIME, lambda now: self.store.put("p", str(now))
            )
            context.schedule(
                timedelta(seconds=1), mp.PunctuationType.WALL_CLOCK_TIME, lambda now: self.store.put("w", str(now))
            )

        def process(self, record: mp.Record[Any, Any]) -> None:
            self.store.put(record.key, record.value)

    builder, source = stream()
    source.process(lambda: Scripted(lambda context, record: context.forward(record.with_timestamp(7)))).process(Writer)
    with TopologyTestDriver(builder.build(), initial_wall_clock=5_000) as driver:
        driver.create_input_topic("in", key=String, value=String).pipe_input("k", "a", 150)
        driver.advance_wall_clock_time(timedelta(seconds=1))
        changelog = driver.create_output_topic("test-application-s-changelog", key=String, value=String)
        found = {(each.key, each.value, each.timestamp) for each in changelog.read_records_to_list()}
    assert found == {("k", "a", 7), ("p", "150", 150), ("w", "6000", 6_000)}
