"""Public reports about processors, from the trackers of peers. These passed when they were written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from millpond import serdes
from millpond.state import KeyValueStoreBuilder

_SECOND = timedelta(seconds=1)


def _driver(processor: type[mp.Processor[str, str, str, str]]) -> mp.testing.TopologyTestDriver:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(processor).to("out", key=mp.String, value=mp.String)
    return mp.testing.TopologyTestDriver(builder.build(), initial_wall_clock=0)


def test_a_punctuation_that_cancels_itself_is_not_called_again() -> None:
    """Kafka Streams called it again: the next call was scheduled after the cancellation.

    https://github.com/apache/kafka/pull/4827 (KAFKA-6748)
    https://github.com/confluentinc/kafka-streams-examples/issues/114
    """
    calls: list[int] = []

    class Once(mp.Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            self.handle = context.schedule(_SECOND, mp.PunctuationType.WALL_CLOCK_TIME, self.call)

        def call(self, now_ms: int) -> None:
            calls.append(now_ms)
            self.handle.cancel()

        def process(self, record: mp.Record[str, str]) -> None: ...

    with _driver(Once) as driver:
        for _ in range(3):
            driver.advance_wall_clock_time(_SECOND)
    assert calls == [1_000]


def test_punctuations_are_not_made_up_for_after_a_gap() -> None:
    """Kafka Streams called a punctuation of wall-clock time at once, and once more for each interval of a gap.

    https://github.com/apache/kafka/pull/4301 (KAFKA-6323)
    """
    calls: list[int] = []

    class Regular(mp.Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            context.schedule(_SECOND, mp.PunctuationType.WALL_CLOCK_TIME, calls.append)

        def process(self, record: mp.Record[str, str]) -> None: ...

    with _driver(Regular) as driver:
        driver.advance_wall_clock_time(_SECOND / 2)
        assert calls == []
        driver.advance_wall_clock_time(10 * _SECOND)
        assert calls == [10_500]


def test_a_punctuation_has_no_headers_of_a_record() -> None:
    """In Kafka Streams, records that punctuations sent shared one list of headers, which grew.

    https://github.com/apache/kafka/pull/8181 (KAFKA-9584)
    """

    class Sending(mp.Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            self.context = context
            context.schedule(_SECOND, mp.PunctuationType.WALL_CLOCK_TIME, self.send)

        def process(self, record: mp.Record[str, str]) -> None:
            self.context.forward(record.with_headers([*record.headers, ("seen", b"1")]))

        def send(self, now_ms: int) -> None:
            record = mp.Record("p", "v", now_ms)
            self.context.forward(record.with_headers([*record.headers, ("sent", b"1")]))

    with _driver(Sending) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", headers=[("a", b"0")])
        for _ in range(2):
            driver.advance_wall_clock_time(_SECOND)
        records = driver.create_output_topic("out", key=mp.String, value=mp.String).read_records_to_list()
    assert [record.headers for record in records] == [[("a", b"0"), ("seen", b"1")], [("sent", b"1")], [("sent", b"1")]]


def test_a_processor_of_values_sends_null() -> None:
    """Whether a value of null is a record or none was unclear: it is one, and the key stays.

    https://github.com/apache/kafka/pull/8108 (KAFKA-9533)
    """

    class Nothing(mp.FixedKeyProcessor[str, str, str | None]):
        def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
            self.context.forward(record.with_value(None))

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process_values(Nothing).to(
        "out", key=mp.String, value=mp.String
    )
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v")
        assert driver.create_output_topic("out", key=mp.String, value=mp.String).read_key_values_to_list() == [
            ("k", None)
        ]


def test_a_processor_writes_to_its_store_before_the_first_record() -> None:
    """In Kafka Streams a `put` in `init` ended with a NullPointerException, since no record was being processed.

    https://github.com/apache/kafka/pull/20403 (KAFKA-19638)
    """

    class Filling(mp.Processor[str, str, str, int]):
        def init(self, context: Any) -> None:
            self.context, self.store = context, context.get_state_store("s")
            self.store.put("k", 41)

        def process(self, record: mp.Record[str, str]) -> None:
            self.store.put(record.key, self.store.get(record.key) + 1)
            self.context.forward(record.with_value(self.store.get(record.key)))

    for caching in (True, False):
        builder = mp.StreamsBuilder()
        builder.add_state_store(
            KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, caching=caching, timestamped=False)
        )
        stream = builder.stream("in", key=mp.String, value=mp.String).process(Filling, stores=["s"])
        stream.to("out", key=mp.String, value=mp.Long)
        with mp.testing.TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v")
            out = driver.create_output_topic("out", key=mp.String, value=mp.Long)
            assert out.read_key_values_to_list() == [("k", 42)]
