"""Functions of users that return a wrong kind of result: the error names the kind, and nothing is forwarded."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.dsl.operators.flattening import FlatMapRecords, FlatMapValues
from millpond.dsl.operators.mapping import MapRecords
from millpond.dsl.operators.table_grouping import RegroupTable
from millpond.errors import ProcessingFailed
from millpond.testing import TopologyTestDriver
from tests.dsl.support import Node

LETTERS = "whose letters would be the records"
PAIR = "needs a tuple (key, value) from its function, and got "
RECORD = ("k", "v", 5)

RESULTS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "a text from flat_map_values": (FlatMapValues(lambda v: "ab"), RECORD, LETTERS),
    "bytes from flat_map_values": (FlatMapValues(lambda v: b"ab"), RECORD, LETTERS),
    "nothing from flat_map_values": (FlatMapValues(lambda v: None), RECORD, "from its function, and got None"),  # type: ignore[arg-type,return-value]
    "a number from flat_map_values": (FlatMapValues(lambda v: 3), RECORD, "from its function, and got a int"),  # type: ignore[arg-type,return-value]
    "a text from flat_map": (FlatMapRecords(lambda k, v: "ab"), RECORD, LETTERS),  # type: ignore[arg-type,return-value]
    "texts from flat_map": (FlatMapRecords(lambda k, v: [("a", 1), "ab"]), RECORD, f"{PAIR}a str"),  # type: ignore[arg-type,return-value,list-item]
    "one pair from flat_map": (FlatMapRecords(lambda k, v: ("a", 1)), RECORD, f"{PAIR}a str"),  # type: ignore[arg-type,return-value]
    "three of a kind from flat_map": (FlatMapRecords(lambda k, v: [(1, 2), (1, 2, 3)]), RECORD, "of another length"),  # type: ignore[arg-type,return-value,list-item]
    "a text of two letters from map": (MapRecords(lambda k, v: "ab"), RECORD, f"{PAIR}a str"),  # type: ignore[arg-type,return-value]
    "a dict from map": (MapRecords(lambda k, v: {"a": 1, "b": 2}), RECORD, f"{PAIR}a dict"),  # type: ignore[arg-type,return-value]
    "nothing from map": (MapRecords(lambda k, v: None), RECORD, f"{PAIR}None"),  # type: ignore[arg-type,return-value]
    "a key from a table's group_by": (RegroupTable(lambda k, v: "ab"), ("k", "new", None, 5), f"{PAIR}a str"),  # type: ignore[arg-type,return-value]
    "a key from it for the old value": (RegroupTable(lambda k, v: "ab"), ("k", None, "old", 5), f"{PAIR}a str"),  # type: ignore[arg-type,return-value]
}


@pytest.mark.parametrize("what", RESULTS)
def test_error_names_the_kind_of_a_wrong_result(what: str) -> None:
    """The processing handler gets the error, and no part of the result is forwarded."""
    body, record, message = RESULTS[what]
    node = Node()
    body.bind(node)(*record)
    (error,) = node.errors
    assert message in str(error)
    assert node.forwarded == []


def test_pairs_may_be_lists_and_items_any_iterable() -> None:
    """Valid results are accepted."""
    node = Node()
    node.bind(MapRecords(lambda k, v: [v, k]))("k", "v", 5)  # type: ignore[arg-type,return-value]
    node.bind(FlatMapRecords(lambda k, v: iter([(k, 1), [k, 2]])))("k", "v", 5)  # type: ignore[arg-type,return-value,list-item]
    for items in ({"a": 1}, ("a",), ["a"], iter("a"), {"a"}):
        node.bind(FlatMapValues(lambda v, items=items: items))("k", "v", 5)  # type: ignore[misc]
    assert not node.errors
    assert node.forwarded == [("v", "k", 5), ("k", 1, 5), ("k", 2, 5), *[("k", "a", 5)] * 5]


# Processors, stores and the driver


def run(process: Callable[[Any, Any], None], **options: Any) -> list[mp.Record[str, str]]:
    """Run one record through a processor; return what it forwards."""

    class Scripted(mp.Processor[Any, Any, Any, Any]):
        stores = (
            mp.KeyValueStoreBuilder(name="plain", key=mp.Json(), value=mp.Json()),
            mp.KeyValueStoreBuilder(name="stamped", key=mp.Json(), value=mp.Json(), timestamped=True),
            mp.WindowStoreBuilder(
                name="windows", key=mp.Json(), value=mp.Json(), retention_ms=5, window_size_ms=5, timestamped=True
            ),
        )

        def process(self, record: Any) -> None:
            process(self.context, record)

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Scripted, key=mp.String, value=mp.String).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 5, **options)
        return driver.create_output_topic("out", key=mp.String, value=mp.String).read_records_to_list()


def store(name: str, use: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    return lambda context, _record: use(context.get_state_store(name))


def every(interval: Any, kind: Any, callback: Any) -> Callable[[Any, Any], None]:
    return lambda context, _record: context.schedule(interval, kind, callback)


SECOND, STREAM = timedelta(seconds=1), mp.PunctuationType.STREAM_TIME
IN_PROCESSORS: dict[str, tuple[Callable[[Any, Any], None], str]] = {
    "put under None": (store("plain", lambda s: s.put(None, 1)), "put() was called with the key None"),
    "get None": (store("plain", lambda s: s.get(None)), "get() was called with the key None"),
    "delete None": (store("stamped", lambda s: s.delete(None)), "was called with the key None"),
    "put None into a window": (store("windows", lambda s: s.put(None, None, 0)), "put() was called with the key None"),
    "fetch None": (store("windows", lambda s: s.fetch(None, 0, 5)), "fetch() was called with the key None"),
    "put without a timestamp": (
        store("stamped", lambda s: s.put("k", 1)),
        "put mp.ValueAndTimestamp(value, timestamp)",
    ),
    "put a window without one": (store("windows", lambda s: s.put("k", 1, 0)), "put mp.ValueAndTimestamp("),
    "append a header": (lambda _, r: r.headers.append(("h", b"x")), "record.with_headers([*record.headers, ('name'"),
    "a dict of headers": (lambda _, r: r.with_headers({"h": b"x"}), "not a dict, because a name may occur twice"),
    "a header alone": (lambda _, r: r.with_headers([("h", b"x"), "h"]), "but one is the text 'h'"),
    "a text in a header": (lambda _, r: r.with_headers([("h", "x")]), "header 'h' has to be bytes or None"),
    "a dict in a record": (lambda c, r: c.forward(mp.Record("k", "v", 0, {"h": b"x"})), "not a dict"),  # type: ignore[arg-type]
    "forward key and value": (lambda c, r: c.forward("k", "v"), "has to forward a record, not the text 'k'"),
    "an interval in seconds": (every(10, STREAM, print), "give a timedelta, such as timedelta(seconds=10)"),
    "a clock's name": (every(SECOND, "WALL_CLOCK_TIME", print), "PunctuationType.STREAM_TIME or"),
    "a callback without a clock": (every(SECOND, print, None), "with the function print as its clock"),
    "a callback of nothing": (every(SECOND, STREAM, lambda: None), "with (now_ms), but it takes (); give it one"),
}


@pytest.mark.parametrize("what", IN_PROCESSORS)
def test_mistakes_in_processors_have_a_cause_and_a_cure(what: str) -> None:
    """The message has the name of the store or of the processor."""
    mistake, message = IN_PROCESSORS[what]
    with pytest.raises(mp.MillpondError, match=re.escape(message)):
        run(mistake)


def test_headers_are_never_none_and_cannot_be_changed_in_place() -> None:
    """Headers can be read, copied and forwarded, whether the record has some or not."""
    seen: list[Any] = []

    def more(context: Any, record: Any) -> None:
        seen.append([*record.headers])
        with pytest.raises(mp.MillpondError, match="cannot be changed in place"):
            record.headers += [("h", b"y")]
        context.forward(record)
        context.forward(record.with_headers([*record.headers, ("more", None)]))
        context.forward(record.with_headers(None))

    def headers(**options: Any) -> list[Any]:
        return [record.headers for record in run(more, **options)]

    assert headers() == [[], [("more", None)], []]
    assert headers(headers=[("h", b"x")]) == [[("h", b"x")], [("h", b"x"), ("more", None)], []]
    assert seen == [[], [("h", b"x")]]


def test_init_need_not_call_the_one_above() -> None:
    """A processor has its context before, in and after init()."""
    seen: list[Any] = []

    class Own(mp.Processor[Any, Any, str, str]):
        def init(self, context: Any) -> None:
            seen.append(self.context is context)

        def process(self, record: Any) -> None:
            self.context.forward(record)

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Own).to("out", key=mp.String, value=mp.String)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 5)
        assert driver.create_output_topic("out", key=mp.String, value=mp.String).read_key_value() == ("k", "v")
    assert seen == [True]


def test_a_timestamp_function_that_returns_no_time_is_an_error() -> None:
    """A float (seconds) and None are no timestamps."""
    for wrong, told in ((1.5, "got the number 1.5 as its timestamp"), (None, "got None as its timestamp")):
        builder = mp.StreamsBuilder()
        builder.stream("in", key=mp.String, value=mp.String, timestamp=lambda v, wrong=wrong: wrong).to("out")
        with (
            TopologyTestDriver(builder.build()) as driver,
            pytest.raises(ProcessingFailed, match=f"{told}; return epoch milliseconds as an int"),
        ):
            driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 5)


def driver() -> TopologyTestDriver:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    return TopologyTestDriver(builder.build())


IN_TESTS: dict[str, tuple[Callable[[TopologyTestDriver, Any], Any], str]] = {
    "seconds for a timestamp": (lambda d, t: t.pipe_input("k", "v", 1.5), "not the number 1.5."),
    "a flag for a timestamp": (lambda d, t: t.pipe_input("k", "v", True), "not True."),
    "a dict of headers": (lambda d, t: t.pipe_input("k", "v", 1, {"h": b"x"}), "write list(headers.items())"),
    "a key of another type": (
        lambda d, t: t.pipe_input(1, "v"),
        "The key piped into topic 'in' does not fit its serde",
    ),
    "milliseconds for a duration": (lambda d, t: t.advance_time(5), "advance=5 is not a duration"),
    "a number for wall-clock time": (lambda d, t: d.advance_wall_clock_time(5), "advance=5 is not a duration"),
    "a number to advance by": (
        lambda d, t: d.create_input_topic("x", key=mp.String, value=mp.String, auto_advance=5),
        "auto_advance=5 is not a duration",
    ),
    "a type for a serde": (lambda d, t: d.create_output_topic("x", key=str, value=mp.String), "use mp.String"),
    "a builder for a topology": (
        lambda d, t: TopologyTestDriver(mp.StreamsBuilder()),  # type: ignore[arg-type]
        "needs a Topology, not a StreamsBuilder; call its build()",
    ),
    "a builder for a worker": (lambda d, t: mp.Worker(mp.StreamsBuilder(), {}), "call its build()"),  # type: ignore[arg-type]
    "a dict for a worker's configuration": (
        lambda d, t: mp.Worker(mp.Topology(), {"application.id": "x"}),  # type: ignore[arg-type]
        "a worker needs a Config, not a dict; mp.Config.of(settings) makes one of it",
    ),
}


@pytest.mark.parametrize("what", IN_TESTS)
def test_driver_and_worker_reject_wrong_arguments(what: str) -> None:
    """The driver and the worker reject wrong arguments before they process anything."""
    mistake, message = IN_TESTS[what]
    with driver() as made, pytest.raises(mp.MillpondError, match=re.escape(message)):
        mistake(made, made.create_input_topic("in", key=mp.String, value=mp.String))


def test_async_listener_is_rejected() -> None:
    """A class in place of a listener object is rejected too."""

    class Listener(mp.WorkerListener):
        async def committed(self, stats: Any) -> None:  # type: ignore[override]
            pass

    topology = mp.Topology().add_source("views", "views", key=mp.String, value=mp.String)
    config = mp.Config.of(application_id="x", bootstrap_servers="127.0.0.1:1", http_port=-1)
    with pytest.raises(mp.MillpondError, match=r"Listener.committed\(\) is an async def"):
        mp.Worker(topology, config, Listener())
    with pytest.raises(mp.MillpondError, match="not the class Listener"):
        mp.Worker(topology, config, Listener)  # type: ignore[arg-type]


def _counted(builder: mp.StreamsBuilder) -> None:
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.group_by(lambda k, v: len(v), key=mp.String, name="by").count(store="lengths")


def _stored(builder: mp.StreamsBuilder) -> None:
    builder.add_state_store(mp.KeyValueStoreBuilder(name="s", key=mp.Long, value=mp.String))
    builder.stream("in", key=mp.String, value=mp.String).process(lambda: _Put(), stores=["s"])


class _Put(mp.Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        self.context.get_state_store("s").put(record.key, record.value)


def source(builder: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return builder.stream("in", key=mp.String, value=mp.String)


ENCODED: dict[str, tuple[Callable[[mp.StreamsBuilder], Any], str]] = {
    "a value for a topic": (
        lambda b: source(b).map_values(len).to("out", value=mp.String),  # type: ignore[arg-type]
        "the value does not fit topic 'out': String cannot encode a value of type int",
    ),
    "a key for a topic": (
        lambda b: source(b).select_key(lambda k, v: 1).to("out", key=mp.String),  # type: ignore[arg-type]
        "the key does not fit topic 'out': String cannot encode a value of type int",
    ),
    "a key to group by": (
        _counted,
        "the key does not fit topic 'test-application-by-repartition': String cannot encode",
    ),
    "a key of a store": (_stored, "the key does not fit store 's': Long cannot encode a value of type str"),
    "a key of an aggregation": (
        lambda b: b.stream("in", key=mp.String, value=mp.String).group_by_key(key=mp.Long).count(),  # type: ignore[arg-type]
        "STATE-STORE-0000000001': Long cannot encode a value of type str",
    ),
    "a partition alone": (
        lambda b: source(b).to("out", partitioner=lambda topic, key, value, count: 0),  # type: ignore[arg-type,return-value]
        "returned the number 0; it must return a list of partitions, such as [3]",
    ),
    "a topic that is none": (
        lambda b: source(b).to(lambda key, value, context: None),  # type: ignore[arg-type,return-value]
        "returned None; it must return a text",
    ),
}


@pytest.mark.parametrize("what", ENCODED)
def test_error_of_a_value_that_does_not_fit_names_the_serde(what: str) -> None:
    """The message has the serde, the type and the place, and not the text of the C library."""
    make, message = ENCODED[what]
    builder = mp.StreamsBuilder()
    make(builder)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingFailed, match=re.escape(message)):
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 5)


def test_errors_of_user_code_are_not_blamed_on_serdes() -> None:
    """Only the record is dropped, also if its key does not fit a store of the node."""
    builder = mp.StreamsBuilder()

    class Raises(mp.Processor[Any, Any, Any, Any]):
        stores = (mp.KeyValueStoreBuilder(name="s", key=mp.Long, value=mp.String),)

        def process(self, record: Any) -> None:
            raise TypeError("mine")

    source(builder).process(Raises)
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingFailed, match="TypeError: mine"):
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 5)


def test_handler_that_returns_no_result_is_an_error() -> None:
    """A handler without a return returns None, which is neither FAIL nor CONTINUE."""
    builder = mp.StreamsBuilder()
    source(builder).foreach(lambda k, v: 1 / 0)
    config = {"processing.exception.handler": lambda context, error: None}
    with (
        TopologyTestDriver(builder.build(), config) as driver,
        pytest.raises(
            ProcessingFailed, match="its handler returned None; it must return a Result, or a Response with one"
        ),
    ):
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 5)


def test_a_worker_refuses_a_topology_without_an_input() -> None:
    """As KafkaStreams does; one of global tables alone can run, as there."""
    config = mp.Config.of(application_id="x", bootstrap_servers="127.0.0.1:1", http_port=-1)
    with pytest.raises(mp.MillpondError, match="the topology reads no topic"):
        mp.Worker(mp.StreamsBuilder().build(), config)
    builder = mp.StreamsBuilder()
    builder.global_table("countries", key=mp.String, value=mp.String)
    mp.Worker(builder.build(), config).close()
