"""Mistakes in calls of the DSL raise in that call, with a message that says what to write."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond import dsl
from millpond.errors import TopologyError

HOUR = mp.TimeWindows(timedelta(hours=1))
CLOSE = mp.EmitStrategy.on_window_close()


def stream(b: mp.StreamsBuilder | None = None) -> mp.KStream[str, str]:
    return (b or mp.StreamsBuilder()).stream("in", key=mp.String, value=mp.String)


def table(b: mp.StreamsBuilder | None = None) -> mp.KTable[str, str]:
    return (b or mp.StreamsBuilder()).table("rows", key=mp.String, value=mp.String)


def built(add: Callable[[mp.StreamsBuilder], Any]) -> mp.Topology:
    builder = mp.StreamsBuilder()
    add(builder)
    return builder.build()


def first(one: Any, _other: Any) -> Any:
    return one


def sessions() -> Any:
    return stream().group_by_key().windowed_by(mp.SessionWindows(timedelta(minutes=5)))


def add(_key: Any, _value: Any, aggregate: Any) -> Any:
    return aggregate


def cogrouped() -> Any:
    return stream().group_by_key().cogroup(add)


def cogrouped_sessions() -> Any:
    return cogrouped().windowed_by(mp.SessionWindows(timedelta(minutes=5)))


def grouped_twice() -> Any:
    grouped = stream().group_by_key()
    return grouped.cogroup(add).cogroup(grouped, add)


def two_topics_of_one_name() -> Any:
    builder = mp.StreamsBuilder()
    groups = [stream(builder).group_by(first), builder.stream("x", key=mp.String).group_by(first)]
    return groups[0].cogroup(add).cogroup(groups[1], add).aggregate(str, store="sums")


def two_cogroups_of_one_store(builder: mp.StreamsBuilder) -> None:
    for topic in ("a", "b"):
        grouped = builder.stream(topic, key=mp.String, value=mp.String).group_by_key()
        grouped.cogroup(add).aggregate(str, store="sums")


class Idle(mp.Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        pass


class Limited(Idle):
    def __init__(self, limit: int) -> None:
        self.limit = limit


class Misspelled(mp.Processor[Any, Any, Any, Any]):
    def proces(self, record: Any) -> None:
        pass


class Row(mp.Struct):
    amount: int


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    # Serdes
    "a type for a serde": (lambda: mp.StreamsBuilder().stream("in", key=str), "not the class str; use mp.String."),
    "a Struct for a serde": (lambda: table().map_values(str, value=Row), "not the class Row; use mp.Json(Row)."),
    "a maker of serdes": (lambda: stream().to("out", value=mp.Json), "so call it: Json(Type)"),
    "a serde's name": (lambda: stream().to_table(key="String"), "write mp.String, without quotes"),
    "a builder's serde": (
        lambda: mp.KeyValueStoreBuilder(name="x", key=mp.String, value=int),
        "KeyValueStoreBuilder(value=…) needs a serde, not the class int; use mp.Long",
    ),
    "a builder's options without names": (
        lambda: mp.KeyValueStoreBuilder("x", mp.String),
        "KeyValueStoreBuilder was given the text 'x' as an argument without a name, of which it takes none",
    ),
    "a builder's misspelled option": (
        lambda: mp.WindowStoreBuilder(name="x", retention=5, window_size_ms=5),
        "did you mean 'retention_ms'?",
    ),
    "a topology's serde": (lambda: mp.Topology().add_source("s", "in", key=str), "use mp.String"),
    # Names of arguments
    "a misspelled option": (lambda: stream().group_by_key().count(stor="x"), "did you mean 'store'?"),
    "a maximum number of windows": (
        lambda: stream().group_by_key().windowed_by(HOUR).count(store="w", max_entries=3),
        "Store 'w' keeps windows, which expire by time; leave out max_entries=",
    ),
    "a maximum of entries on disk": (
        lambda: stream().group_by_key().count(store="w", max_entries=3, persistent=True),
        "The store 'w' has max_entries=, and such stores are in memory; leave persistent=True out.",
    ),
    "retention without windows": (
        lambda: stream().group_by_key().count(retention=timedelta(1)),
        "count() has no argument 'retention', because only windows have a retention",
    ),
    "an option without its name": (lambda: stream().group_by_key().count("x"), "by name, such as store="),
    "a name without its name": (lambda: stream().filter(first, "big"), "by name, such as name="),
    "a forgotten argument": (lambda: stream().join(table()), "join() needs with_; it is not given."),
    "a serde among the topics": (lambda: mp.StreamsBuilder().stream("in", mp.String), "have names, such as key="),
    "topics in a list": (lambda: mp.StreamsBuilder().stream(["a", "b"]), "write stream(*topics)"),
    "a pattern as a text": (lambda: mp.StreamsBuilder().stream("in.*"), "write re.compile('in.*')"),
    "partitions as a text": (
        lambda: built(lambda b: stream(b).repartition(partitions="4")),
        "a number of partitions, not",
    ),
    "a serde of no functions": (
        lambda: mp.Serde("x", "utf8", str),
        "Serde x needs a function of (value), not the text",
    ),
    "an async serde": (lambda: mp.Serde("x", coroutine, str), "Serde x is given 'coroutine'"),
    "windows of a type": (lambda: mp.TimeWindowedSerde(str, timedelta(1)), "needs a serde, not the class str"),
    "windows of a number": (lambda: mp.TimeWindowedSerde(mp.String, 5), "as a timedelta, such as timedelta(hours=1)"),
    "a float for a timestamp": (lambda: mp.Record("k", "v", 1.5), "epoch milliseconds as an int, not the number 1.5"),
    "a misspelled window": (lambda: mp.TimeWindows(sise=timedelta(1)), "did you mean 'size'?"),
    "a text for a flag": (lambda: table().filter(first, caching="no"), "needs True or False for caching="),
    "a text for logging": (lambda: table().filter(first, logging="no"), "dictionary, not the text 'no'"),
    "a cached global table": (lambda: mp.StreamsBuilder().global_table("g", caching=True), "takes no caching="),
    "a name that is no text": (lambda: stream().filter(first, name=3), "needs a string for name=, not the number 3"),
    "a reset that does not exist": (lambda: mp.StreamsBuilder().table("t", reset="newest"), "use one of earliest"),
    "a reset in the future": (
        lambda: mp.StreamsBuilder().stream("t", reset=timedelta(seconds=-1)),
        "stream() has reset=-1 day, 23:59:59, which is negative",
    ),
    "a reset that is a number": (lambda: mp.StreamsBuilder().table("t", reset=5), "or a timedelta"),  # type: ignore[arg-type]
    # Functions
    "no function": (lambda: stream().filter(None), "filter() needs a function of (key, value), not None."),
    "a function of the value alone": (
        lambda: stream().filter(lambda v: v),
        "with (key, value), but it takes (v); give it two parameters.",
    ),
    "a function of key and value": (lambda: stream().map_values(first), "or add with_key=True to get the key first"),
    "a function without the key": (
        lambda: stream().flat_map_values(lambda v: v, with_key=True),
        "give it two parameters, or leave out with_key=True",
    ),
    "a joiner of one value": (lambda: stream().join(table(), len), "with (value, table's value), but it takes (obj)"),
    "a first aggregate": (
        lambda: stream().group_by_key().aggregate(0, add),
        "needs a function without arguments, not the number 0; write lambda: …",
    ),
    "a parameter that nobody gives": (lambda: stream().peek(lambda k, v, *, log: None), "give log a default"),
    # Processors
    "an instance of a processor": (lambda: stream().process(Idle()), "every task needs its own"),
    "a processor with parameters": (lambda: stream().process(Limited), "such as lambda: Count(limit=3)"),
    "a processor without process()": (
        lambda: stream().process(Misspelled),
        "has no process(); write def process(self, record) in place of proces.",
    ),
    "another class": (lambda: stream().process(Row), "needs a Processor's class, not the class Row"),
    "the name of a store": (lambda: stream().process(Idle, stores="x"), "write stores=['x']"),
    "the builder of a store": (
        lambda: stream().process(Idle, stores=[mp.KeyValueStoreBuilder(name="x")]),
        "not a KeyValueStoreBuilder; call add_state_store() with it",
    ),
    "a store that is a name": (lambda: mp.StreamsBuilder().add_state_store("x"), "such as mp.KeyValueStoreBuilder("),
    # Other streams and tables
    "two streams": (lambda: stream().join(stream(), first), "join() of two streams needs windows"),
    "a topic for a table": (lambda: stream().left_join("rows", first), "builder.table('rows') reads a topic as one"),
    "something else for a table": (lambda: stream().join(HOUR, first), "not a TimeWindows"),
    "a table to merge": (lambda: stream().merge(table()), "to_stream() makes one of a table"),
    "another builder's stream": (lambda: stream().merge(stream()), "different StreamsBuilders"),
    "another builder's global table": (
        lambda: stream().join(mp.StreamsBuilder().global_table("g"), first, on=first),
        "different StreamsBuilders",
    ),
    "a duration for windows of a cogroup": (lambda: cogrouped().windowed_by(timedelta(1)), "not a timedelta"),
    "a stream for a cogroup": (lambda: cogrouped().cogroup(stream(), add), "such as stream.group_by_key(), not"),
    "a cogroup of two builders": (
        lambda: cogrouped().cogroup(stream().group_by_key(), add),
        "The streams of cogroup() come from different StreamsBuilders; build both with one.",
    ),
    "a grouped stream in a cogroup twice": (grouped_twice, "twice, but a record goes to one aggregator"),
    "a cogroup with one topic for two streams": (two_topics_of_one_name, "into one topic, 'sums-repartition'; group"),
    "two cogroups of one store": (lambda: built(two_cogroups_of_one_store), "Another store is already called 'sums'"),
    "a short retention of cogrouped windows": (
        lambda: cogrouped().windowed_by(HOUR).aggregate(str, retention=timedelta(minutes=1)),
        "keeps windows for 60000 ms, but they are needed for 3600000 ms",
    ),
    "a short retention of cogrouped sessions": (
        lambda: cogrouped_sessions().aggregate(str, add, retention=timedelta(minutes=1)),
        "keeps sessions for 60000 ms, but they are open for 300000 ms",
    ),
    "final results of unlimited windows": (
        lambda: stream().group_by_key().windowed_by(mp.UnlimitedWindows()).emit_strategy(CLOSE),
        "emit_strategy() cannot wait until unlimited windows close, because they never do; use windows of a size",
    ),
    "a function for a strategy": (
        lambda: stream().group_by_key().windowed_by(HOUR).emit_strategy(mp.EmitStrategy.on_window_close),
        "emit_strategy() needs mp.EmitStrategy.on_window_close() or mp.EmitStrategy.on_window_update(), not",
    ),
    "a text for a strategy of sessions": (lambda: sessions().emit_strategy("close"), "not the text 'close'"),
    "a short retention of final results": (
        lambda: stream().group_by_key().windowed_by(HOUR).emit_strategy(CLOSE).count(retention=timedelta(minutes=1)),
        "keeps windows for 60000 ms, but they are needed for 3600000 ms",
    ),
    "a duration for windows": (lambda: stream().group_by_key().windowed_by(timedelta(1)), "not a timedelta"),
    "a function for a suppression": (lambda: table().suppress(mp.until_window_closes), "until_window_closes() or"),
    "a number for a topic": (lambda: stream().to(5), "to() needs a topic's name"),
}


async def coroutine(*_arguments: Any) -> Any:
    pass


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_is_rejected_with_its_cure(what: str) -> None:
    """The message is one sentence, without an object's address."""
    mistake, message = MISTAKES[what]
    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        mistake()
    assert "0x" not in str(caught.value)
    assert "\n" not in str(caught.value)


def public_calls() -> dict[str, Callable[..., Any]]:
    """Every public method of the DSL and of Topology, and every public function of the DSL."""
    found: dict[str, Callable[..., Any]] = {}
    for thing in [*(getattr(dsl, name) for name in dsl.__all__), mp.Topology]:
        if inspect.isfunction(thing):
            found[thing.__name__] = thing
            continue
        for cls in thing.__mro__[:-1]:
            if not cls.__module__.startswith("millpond"):
                continue
            methods = {name: each for name, each in vars(cls).items() if inspect.isfunction(each)}
            found |= {f"{thing.__name__}.{name}": each for name, each in methods.items() if not name.startswith("_")}
    of_operators = {"KTable.send_old_values", "KTable.view", "TimeWindows.starts"}
    return {name: call for name, call in found.items() if name not in of_operators}


@pytest.mark.parametrize("name", public_calls())
def test_every_public_call_rejects_unknown_arguments(name: str) -> None:
    """Every method rejects unknown arguments by name, before anything is built."""
    call = public_calls()[name]
    with pytest.raises(TopologyError, match=r"has no argument 'no_such_argument'"):
        call(*((None,) if "." in name else ()), no_such_argument=1)


@pytest.mark.parametrize("name", public_calls())
def test_every_misspelled_argument_gets_the_nearest_name(name: str) -> None:
    """Options of stores are checked too; they come from a TypedDict."""
    call = public_calls()[name]
    parameters = inspect.signature(call).parameters.values()
    known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        joined = name in ("KStream.join", "KStream.left_join", "KStream.outer_join")
        known += ["store", "persistent", "logging", "this_value" if joined else "caching"]
    for argument in known:
        with pytest.raises(TopologyError, match=rf"did you mean '{argument}'\?"):
            call(*((None,) if "." in name else ()), **{f"{argument[:-1]}{argument[-1] * 2}": 1})


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "StreamsBuilder.stream timestamp": lambda f: mp.StreamsBuilder().stream("in", timestamp=f),
    "StreamsBuilder.table timestamp": lambda f: mp.StreamsBuilder().table("in", timestamp=f),
    "StreamsBuilder.global_table timestamp": lambda f: mp.StreamsBuilder().global_table("in", timestamp=f),
    "StreamsBuilder.add_global_store supplier": lambda f: mp.StreamsBuilder().add_global_store(
        mp.KeyValueStoreBuilder(name="x", logging=False), "in", f
    ),
    "StreamsBuilder.add_global_store timestamp": lambda f: mp.StreamsBuilder().add_global_store(
        mp.KeyValueStoreBuilder(name="x", logging=False), "in", Idle, timestamp=f
    ),
    "StreamsBuilder.add_read_only_state_store supplier": lambda f: mp.StreamsBuilder().add_read_only_state_store(
        mp.KeyValueStoreBuilder(name="x"), "in", f
    ),
    "StreamsBuilder.add_read_only_state_store timestamp": lambda f: mp.StreamsBuilder().add_read_only_state_store(
        mp.KeyValueStoreBuilder(name="x"), "in", Idle, timestamp=f
    ),
    "KTable.to_stream selector": lambda f: table().to_stream(f),
    "KStream.filter predicate": lambda f: stream().filter(f),
    "KStream.filter_not predicate": lambda f: stream().filter_not(f),
    "KStream.select_key selector": lambda f: stream().select_key(f),
    "KStream.map mapper": lambda f: stream().map(f),
    "KStream.map_values mapper": lambda f: stream().map_values(f),
    "KStream.flat_map mapper": lambda f: stream().flat_map(f),
    "KStream.map_batches mapper": lambda f: stream().map_batches(f),
    "KStream.flat_map_values mapper": lambda f: stream().flat_map_values(f),
    "KStream.peek action": lambda f: stream().peek(f),
    "KStream.foreach action": lambda f: stream().foreach(f),
    "KStream.print describe": lambda f: stream().print(f),
    "KStream.process supplier": lambda f: stream().process(f),
    "KStream.process_values supplier": lambda f: stream().process_values(f),
    "KStream.to topic": lambda f: stream().to(f),
    "KStream.to partitioner": lambda f: stream().to("out", partitioner=f),
    "KStream.repartition partitioner": lambda f: stream().repartition(partitioner=f),
    "KStream.group_by selector": lambda f: stream().group_by(f),
    "KStream.join with_": lambda f: stream(b := mp.StreamsBuilder()).join(table(b), f),
    "KStream.join on": lambda f: stream(b := mp.StreamsBuilder()).join(b.global_table("g"), first, on=f),
    "KStream.left_join with_": lambda f: stream(b := mp.StreamsBuilder()).left_join(
        b.global_table("g"), f, on=first, with_key=True
    ),
    "KStream.left_join on": lambda f: stream(b := mp.StreamsBuilder()).left_join(b.global_table("g"), first, on=f),
    "KStream.outer_join with_": lambda f: stream(b := mp.StreamsBuilder()).outer_join(
        stream(b), f, mp.JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    ),
    "BranchedKStream.branch predicate": lambda f: stream().split().branch(f),
    "BranchedKStream.branch chain": lambda f: stream().split().branch(first, chain=f),
    "BranchedKStream.default_branch chain": lambda f: stream().split().default_branch(chain=f),
    "KGroupedStream.reduce reducer": lambda f: stream().group_by_key().reduce(f),
    "KGroupedStream.aggregate initializer": lambda f: stream().group_by_key().aggregate(f, add),
    "KGroupedStream.aggregate aggregator": lambda f: stream().group_by_key().aggregate(str, f),
    "TimeWindowedKStream.reduce reducer": lambda f: stream().group_by_key().windowed_by(HOUR).reduce(f),
    "TimeWindowedKStream.aggregate initializer": lambda f: stream().group_by_key().windowed_by(HOUR).aggregate(f, add),
    "TimeWindowedKStream.aggregate aggregator": lambda f: stream().group_by_key().windowed_by(HOUR).aggregate(str, f),
    "KTable.filter predicate": lambda f: table().filter(f),
    "KTable.filter_not predicate": lambda f: table().filter_not(f),
    "KTable.map_values mapper": lambda f: table().map_values(f),
    "KTable.transform_values supplier": lambda f: table().transform_values(f),
    "KTable.group_by selector": lambda f: table().group_by(f),
    "KTable.join with_": lambda f: table(b := mp.StreamsBuilder()).join(b.table("more"), f),
    "KTable.left_join with_": lambda f: table(b := mp.StreamsBuilder()).left_join(b.table("more"), f),
    "KTable.join on": lambda f: table(b := mp.StreamsBuilder()).join(b.table("more"), first, on=f),
    "KTable.left_join on": lambda f: table(b := mp.StreamsBuilder()).left_join(b.table("more"), first, on=f),
    "KTable.outer_join with_": lambda f: table(b := mp.StreamsBuilder()).outer_join(b.table("more"), f),
    "KGroupedTable.reduce adder": lambda f: table().group_by(first).reduce(f, first),
    "KGroupedTable.reduce subtractor": lambda f: table().group_by(first).reduce(first, f),
    "KGroupedStream.cogroup aggregator": lambda f: stream().group_by_key().cogroup(f),
    "CogroupedKStream.cogroup aggregator": lambda f: cogrouped().cogroup(stream().group_by_key(), f),
    "CogroupedKStream.aggregate initializer": lambda f: cogrouped().aggregate(f),
    "TimeWindowedCogroupedKStream.aggregate initializer": lambda f: cogrouped().windowed_by(HOUR).aggregate(f),
    "SessionWindowedCogroupedKStream.aggregate initializer": lambda f: cogrouped_sessions().aggregate(f, add),
    "SessionWindowedCogroupedKStream.aggregate session_merger": lambda f: cogrouped_sessions().aggregate(str, f),
    "SessionWindowedKStream.reduce reducer": lambda f: sessions().reduce(f),
    "SessionWindowedKStream.aggregate initializer": lambda f: sessions().aggregate(f, add, add),
    "SessionWindowedKStream.aggregate aggregator": lambda f: sessions().aggregate(str, f, add),
    "SessionWindowedKStream.aggregate session_merger": lambda f: sessions().aggregate(str, add, f),
    "KGroupedTable.aggregate initializer": lambda f: table().group_by(first).aggregate(f, add, add),
    "KGroupedTable.aggregate adder": lambda f: table().group_by(first).aggregate(str, f, add),
    "KGroupedTable.aggregate subtractor": lambda f: table().group_by(first).aggregate(str, add, f),
    "Topology.add_source timestamp": lambda f: mp.Topology().add_source("s", "in", timestamp=f),
    "Topology.add_processor supplier": lambda f: mp.Topology().add_source("s", "in").add_processor("p", f, "s"),
    "Topology.add_sink topic": lambda f: mp.Topology().add_source("s", "in").add_sink("k", f, "s"),
    "Topology.add_sink partitioner": lambda f: (
        mp.Topology().add_source("s", "in").add_sink("k", "o", "s", partitioner=f)
    ),
    "Topology.add_global_store processor": lambda f: mp.Topology().add_global_store(
        mp.KeyValueStoreBuilder(name="x", logging=False), "in", f, source_name="s", processor_name="p"
    ),
    "Topology.add_read_only_state_store processor": lambda f: mp.Topology().add_read_only_state_store(
        mp.KeyValueStoreBuilder(name="x"), "in", f, source_name="s", processor_name="p"
    ),
    "Topology.add_read_only_state_store timestamp": lambda f: mp.Topology().add_read_only_state_store(
        mp.KeyValueStoreBuilder(name="x"), "in", Idle, source_name="s", processor_name="p", timestamp=f
    ),
    "Topology.add_global_store timestamp": lambda f: mp.Topology().add_global_store(
        mp.KeyValueStoreBuilder(name="x", logging=False), "in", Idle, source_name="s", processor_name="p", timestamp=f
    ),
}


def test_all_parameters_that_take_functions_are_tested() -> None:
    """All parameters that take functions, by their annotations, are in the table above."""
    taking = re.compile(r"Callable|Supplier|TopicNameExtractor|StreamPartitioner|TimestampOf|\bBody\b")
    found = {
        f"{name} {parameter.name}"
        for name, call in public_calls().items()
        for parameter in inspect.signature(call).parameters.values()
        if taking.search(str(parameter.annotation))
    }
    asynchronous = {"KStream.map_values_async mapper", "KStream.process_async function"}  # see beyond/test_batches.py
    assert found - {"Topology.add_body body"} - asynchronous == FUNCTIONS.keys()


def generator(*_arguments: Any) -> Any:
    yield 1


class _Called:
    async def __call__(self, *_arguments: Any) -> Any:
        pass


@pytest.mark.parametrize("where", FUNCTIONS)
def test_no_operator_takes_an_async_function(where: str) -> None:
    """An async function is rejected also as a partial and as an object with `__call__`."""
    for function in (coroutine, functools.partial(coroutine, 1), _Called()):
        with pytest.raises(TopologyError, match="which is an async def, but nothing awaits"):
            FUNCTIONS[where](function)


@pytest.mark.parametrize("where", FUNCTIONS)
def test_operators_reject_functions_of_other_parameters(where: str) -> None:
    """No operator takes a function of nine parameters; the message has both lists of parameters."""
    with pytest.raises(
        TopologyError, match=r"calls the lambda \(test_mistakes.py, line \d+\) with \(.*, but it takes \(a,"
    ):
        FUNCTIONS[where](lambda a, b, c, d, e, f, g, h, i: None)


@pytest.mark.parametrize("where", [name for name in FUNCTIONS if "flat_map" not in name])
def test_only_flat_operators_take_generators(where: str) -> None:
    """A call of a generator function runs none of it, so a foreach would never do anything."""
    with pytest.raises(TopologyError, match="which has a yield"):
        FUNCTIONS[where](generator)


def test_functions_of_every_kind_are_taken() -> None:
    """Builtins, methods, classes, partials, defaults, `*args` and objects with `__call__` are accepted."""

    class Both:
        def method(self, key: Any, value: Any) -> Any:
            return key

        def __call__(self, key: Any, value: Any, more: int = 0) -> Any:
            return key

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return function(arguments[-1])

        return call

    @decorated
    def of_value(value: Any) -> Any:
        return value

    for predicate in (max, print, operator.eq, Both().method, Both(), functools.partial(add, 1), of_value, first, dict):
        stream().filter(predicate)
    stream().filter(lambda *record: record)
    stream().filter(lambda key, value, limit=3: value)
    for mapper in (str.upper, str.split, int, str, len, Row, {}.get, functools.partial(first, _other=1), of_value):
        stream().map_values(mapper)
    for initializer in (int, list, dict, lambda: 0):
        stream().group_by_key().aggregate(initializer, add)
    stream().flat_map_values(generator)
    stream().process(lambda: Limited(3))
    stream().process(functools.partial(Limited, 3))


@pytest.mark.parametrize("base", [mp.Processor, mp.FixedKeyProcessor])
def test_processor_methods_are_checked_when_the_class_is_made(base: Any) -> None:
    """Functions with async def or yield, and the arguments of the Processor API before Kafka 3 are rejected."""

    async def coroutine_of(self: Any, record: Any) -> None:
        pass

    def generator_of(self: Any, record: Any) -> Any:
        yield record

    for wrong, told in (
        (coroutine_of, "async def"),
        (generator_of, "has a yield"),
        (lambda self, key, value: None, r"takes \(self, key, value\); write def process\(self, record\)"),
    ):
        with pytest.raises(TopologyError, match=told):
            type("Wrong", (base,), {"process": wrong})
    with pytest.raises(TopologyError, match=r"write def init\(self, context\)"):
        type("Wrong", (base,), {"init": lambda self: None})
