"""Arguments that StreamsBuilder and its streams reject, and those that they pass to the runtime."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError

HOUR = mp.TimeWindows(timedelta(hours=1), grace=timedelta(minutes=5))


def stream(b: mp.StreamsBuilder, *topics: Any, **options: Any) -> mp.KStream[str, str]:
    return b.stream(*(topics or ("in",)), key=mp.String, value=mp.String, **options)


def rows(b: mp.StreamsBuilder, **options: Any) -> mp.KTable[str, str]:
    return b.table("rows", key=mp.String, value=mp.String, **options)


def first(one: str, _other: Any) -> str:
    return one


WRONG: dict[str, tuple[Callable[[mp.StreamsBuilder], Any], str]] = {
    "no topic": (lambda b: b.stream(), "one or more topic names"),
    "a topic and a pattern": (lambda b: stream(b, "a", re.compile("b")), "or one compiled pattern"),
    "overlapping topics": (lambda b: (stream(b, "a", "b"), stream(b, "b", "c"), b.build()), "Topic 'b' is read by two"),
    "different resets": (
        lambda b: (stream(b, reset="latest"), stream(b, reset="earliest"), b.build()),
        "different reset= settings",
    ),
    "an illegal node name": (lambda b: stream(b).filter(first, name="a b"), "'a b' may only have"),
    "an illegal store name": (lambda b: stream(b).group_by_key().count(store="a/b"), "store name 'a/b'"),
    "a repeated node name": (
        lambda b: (stream(b).filter(first, name="x"), stream(b).filter(first, name="x"), b.build()),
        "already called 'x'",
    ),
    "a repeated store name": (
        lambda b: (rows(b, store="x"), stream(b).group_by_key().count(store="x"), b.build()),
        "already called 'x'",
    ),
    "a repeated branch name": (
        lambda b: stream(b).split().branch(first, name="x").branch(first, name="x"),
        "two branches called 'x'",
    ),
    "a branch after the default": (
        lambda b: [s := stream(b).split(), s.default_branch(), s.branch(first)],
        "before its default branch",
    ),
    "a store that does not exist": (
        lambda b: (stream(b).process(_Nothing, stores=["memory"]), b.build()),
        "uses store 'memory', which does not exist",
    ),
    "a topic as stream and as table": (lambda b: (stream(b, "rows"), rows(b), b.build()), "already read by source"),
    "a global join without on=": (
        lambda b: stream(b).join(b.global_table("all", key=mp.String, value=mp.String), first),
        "needs on=",
    ),
    "a table join with on=": (lambda b: stream(b).join(rows(b), first, on=first), "is by the stream's key"),
    "a join with a stream": (lambda b: stream(b).join(stream(b), first), "join() of two streams needs windows"),
    "a join with another builder's table": (
        lambda b: stream(b).join(rows(mp.StreamsBuilder()), first),
        "different StreamsBuilders",
    ),
    "windows of a table without windows": (
        lambda b: rows(b).suppress(mp.until_window_closes()),
        "use until_time_limit",
    ),
    "windows whose keys have no serde": (
        lambda b: b.stream("in").group_by_key().windowed_by(HOUR).count().suppress(mp.until_window_closes()),
        "give key= where the stream is grouped",
    ),
    "a retention shorter than the windows": (
        lambda b: stream(b).group_by_key().windowed_by(HOUR).count(store="x", retention=timedelta(hours=1)),
        "give a longer retention=",
    ),
    "a negative limit": (lambda b: mp.until_window_closes(max_records=-1), "max_records=-1 is negative"),
    "a wait that is no duration": (lambda b: mp.until_time_limit(5), "not a duration"),
    "a regrouping without a serde": (
        lambda b: (rows(b).group_by(lambda k, v: (v, 1)).count(), b.build()),
        "give value= to group_by",
    ),
}


class _Nothing(mp.Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        pass


@pytest.mark.parametrize("what", WRONG)
def test_builder_rejects_invalid_calls(what: str) -> None:
    """Each mistake is an error with cause and cure, in the call if possible, else in build()."""
    mistake, message = WRONG[what]
    with pytest.raises(TopologyError, match=re.escape(message)) as caught:
        mistake(mp.StreamsBuilder())
    assert "\n" not in str(caught.value)


def test_building_twice_gives_equal_topologies() -> None:
    """build() does not change the builder; operators that are added later are in the next topology."""
    builder = mp.StreamsBuilder()
    counts = stream(builder).group_by(lambda _, v: v, key=mp.String).count()
    stream(builder).left_join(rows(builder), first).to("out")
    first_time = builder.build()
    assert str(builder.build().describe()) == str(first_time.describe())
    counts.to_stream().to("counts")
    assert "topic: counts" in str(builder.build().describe())
    assert "topic: counts" not in str(first_time.describe())


def test_a_split_into_chains_returns_what_the_chains_return() -> None:
    """The stream of a chain replaces the branch in the result; a chain that returns None leaves the branch out."""
    builder = mp.StreamsBuilder()
    branches = (
        stream(builder)
        .split(name="s-")
        .branch(lambda _, v: v == "a", name="kept", chain=lambda s: s.map_values(str.upper))
        .branch(lambda _, v: v == "b", name="gone", chain=lambda s: s.to("b"))
        .default_branch()
    )
    assert list(branches) == ["s-kept", "s-0"]
    branches["s-kept"].to("a", value=mp.String)
    branches["s-0"].to("rest")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for value in "abc":
            topic.pipe_input("k", value, 1)
        outputs = [driver.create_output_topic(name, key=mp.String, value=mp.String) for name in ("a", "b", "rest")]
        assert [output.read_values_to_list() for output in outputs] == [["A"], ["b"], ["c"]]


def test_materialized_arguments_reach_the_stores_builder() -> None:
    """The store has the name, serdes, caching, changelog settings, persistence and retention that the user gives."""
    builder = mp.StreamsBuilder()
    grouped = stream(builder).group_by_key()
    grouped.count(store="plain")
    grouped.count(store="tuned", caching=False, logging={"segment.bytes": "1"}, persistent=False)
    grouped.count(store="unlogged", logging=False)
    grouped.windowed_by(HOUR).count(store="windows", retention=timedelta(days=1))
    (part,) = builder.build().subtopologies()
    stores: dict[str, Any] = {store.name: store for store in part.stores}
    plain, tuned, unlogged, windows = (stores[name] for name in ("plain", "tuned", "unlogged", "windows"))
    assert (plain.key, plain.value, plain.timestamped) == (mp.String, mp.Long, True)
    assert (plain.caching, plain.logging, plain.persistent) == (True, True, True)
    assert (tuned.caching, tuned.logging, tuned.persistent) == (False, True, False)
    assert tuned.log_config == {"segment.bytes": "1"}
    assert not unlogged.logging
    assert (windows.window_size_ms, windows.retention_ms) == (3_600_000, 86_400_000)
    assert set(part.changelogs) == {"plain", "tuned", "windows"}


def test_print_writes_a_line_per_record(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines are `[label]: key, value`; the default label is the name of the node above."""
    builder = mp.StreamsBuilder()
    source = stream(builder)
    source.print()
    source.print(lambda k, v: f"{k} is {v}", label="mine")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v", 1)
    assert capsys.readouterr().out == "[KSTREAM-SOURCE-0000000000]: k, v\n[mine]: k is v\n"


def test_a_sinks_partitioner_is_passed_on_and_headers_follow_records() -> None:
    """Stateless operators keep the headers of a record."""
    builder = mp.StreamsBuilder()
    stream(builder).map_values(str.upper, value=mp.String).to("out", partitioner=lambda *_: {0})
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        topic.pipe_input("k", "v", 1, headers=[("h", b"1")])
        record = driver.create_output_topic("out", key=mp.String, value=mp.String).read_record()
        assert (record.value, record.headers) == ("V", [("h", b"1")])
