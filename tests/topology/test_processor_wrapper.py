"""A ProcessorWrapper sees every processor and operator, and changes nothing unless it wants to (KIP-1112)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
import tests.oracle.session_behaviours
import tests.oracle.stream_join_behaviours
import tests.oracle.window_behaviours  # noqa: F401 - each registers its cases
from millpond.errors import TopologyError
from millpond.testing import TopologyTestDriver
from tests.oracle.behaviours import CASES, run

GOLDEN = Path(__file__).parents[1] / "oracle" / "golden-behaviours"
String = mp.String


class Counted(mp.Processor[Any, Any, Any, Any]):
    """Counts the records that reach a processor, and runs it."""

    def __init__(self, name: str, inner: Any, seen: Counter[str]) -> None:
        self.name, self.inner, self.seen = name, inner, seen

    def init(self, context: Any) -> None:
        self.inner.init(context)

    def process(self, record: Any) -> None:
        self.seen[self.name] += 1
        self.inner.process(record)

    def close(self) -> None:
        self.seen[f"{self.name} closed"] += 1
        self.inner.close()


class CountedValues(mp.FixedKeyProcessor[Any, Any, Any]):
    """Counts the records that reach a fixed-key processor, and runs it."""

    def __init__(self, name: str, inner: Any, seen: Counter[str]) -> None:
        self.name, self.inner, self.seen = name, inner, seen

    def init(self, context: Any) -> None:
        self.inner.init(context)

    def process(self, record: Any) -> None:
        self.seen[self.name] += 1
        self.inner.process(record)


class Counting(mp.ProcessorWrapper):
    """Wraps everything in counters."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def wrap_processor_supplier(self, name: str, supplier: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: Counted(name, supplier(), self.seen)

    def wrap_fixed_key_processor_supplier(self, name: str, supplier: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: CountedValues(name, supplier(), self.seen)


@pytest.mark.parametrize("name", sorted(CASES))
def test_wrapped_operators_have_the_results_of_kafka_streams(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrapper around each of their nodes, all operators still have the output of the original."""
    plain, wrapper = mp.StreamsBuilder, Counting()
    monkeypatch.setattr(mp, "StreamsBuilder", lambda: plain(processor_wrapper=wrapper))
    assert run(f"{name}-cached") == (GOLDEN / f"{name}-cached.txt").read_text()
    assert wrapper.seen


class Keep(mp.Processor[str, str, str, str]):
    """A processor with a store."""

    stores = (mp.KeyValueStoreBuilder(name="kept", key=String, value=String),)

    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)
        self.context.forward(record)


class Shout(mp.FixedKeyProcessor[str, str, str]):
    """A fixed-key processor."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(record.value.upper()))


def build(wrapper: mp.ProcessorWrapper) -> mp.Topology:
    builder = mp.StreamsBuilder(processor_wrapper=wrapper)
    stream = builder.stream("in", key=String, value=String)
    stream.process(Keep, name="keep").to("kept", key=String, value=String)
    table = stream.process_values(Shout, name="up", value=String).group_by_key().count(store="counts", name="count")
    table.filter(lambda _, count: count > 1, name="many").to_stream(name="rows").to("out", key=String, value=mp.Long)
    return builder.build()


def feed(topology: mp.Topology, *values: str, headers: Any = None) -> tuple[list[Any], list[str]]:
    """The counts, and the values that the processor has kept, of some values of one key."""
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("in", key=String, value=String)
        for number, value in enumerate(values):
            topic.pipe_input("k", value, timestamp=number, headers=headers)
        counts = driver.create_output_topic("out", key=String, value=mp.Long).read_records_to_list()
        return counts, driver.create_output_topic("kept", key=String, value=String).read_values_to_list()


def test_every_processor_and_operator_is_wrapped_under_the_name_of_its_node() -> None:
    """Users' processors of both kinds and operators of streams and tables are seen; sources and sinks are not."""
    wrapper = Counting()
    results, _ = feed(build(wrapper), "a", "b", headers=[("h", b"x")])
    assert [(each.value, each.timestamp, each.headers) for each in results] == [(2, 1, [("h", b"x")])]
    assert wrapper.seen == {
        "keep": 2, "up": 2, "count": 2, "many": 2, "rows": 1,
        **{f"{name} closed": 1 for name in ("keep", "count", "many", "rows")},
    }  # fmt: skip


def test_a_wrapped_table_has_changes_as_values() -> None:
    """The value of a record between tables is its new and its old value."""
    changes: list[Any] = []

    class Watching(mp.ProcessorWrapper):
        def wrap_processor_supplier(self, name: str, supplier: Callable[[], Any]) -> Callable[[], Any]:
            class Watch(Counted):
                def process(self, record: Any) -> None:
                    if name == "many":
                        changes.append(record.value)
                    self.inner.process(record)

            return lambda: Watch(name, supplier(), Counter())

    feed(build(Watching()), "a", "b")
    assert changes == [mp.Change(1, None), mp.Change(2, 1)]
    assert changes[1].new == 2


def test_a_wrapper_may_change_and_drop_records_and_add_stores() -> None:
    """It may stand for the processor altogether; its stores are connected besides those of the processor."""
    seen = mp.KeyValueStoreBuilder(name="seen", key=String, value=String)

    class Odd(mp.ProcessorWrapper):
        def wrap_processor_supplier(self, name: str, supplier: Callable[[], Any]) -> Callable[[], Any]:
            class Once(Counted):
                def process(self, record: Any) -> None:
                    store = self.context.get_state_store("seen")
                    if store.get(record.value) is None:
                        store.put(record.value, "yes")
                        self.inner.process(record.with_value(record.value + "!"))

            if name != "keep":
                return supplier
            make = lambda: Once(name, supplier(), Counter())
            make.stores = (seen,)  # type: ignore[attr-defined]
            return make

    topology = build(Odd())
    assert {"seen", "kept"} <= topology.stores.keys()
    assert feed(topology, "a", "a", "b", "a")[1] == ["a!", "b!"]


def test_a_wrong_wrapper_is_rejected() -> None:
    """A class, another object, and a wrapper that returns no supplier are errors when the topology is built."""
    with pytest.raises(TopologyError, match="was given the class Counting as its processor_wrapper; give an instance"):
        mp.StreamsBuilder(processor_wrapper=Counting)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"an instance of a subclass of mp\.ProcessorWrapper"):
        mp.Topology(processor_wrapper=print)  # type: ignore[arg-type]

    class Empty(mp.ProcessorWrapper):
        def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
            return None

    with pytest.raises(TopologyError, match=r"Empty\.wrap_processor_supplier\(\) for 'keep' was given None"):
        build(Empty())


def test_a_global_store_is_filled_through_the_wrapper() -> None:
    """Users' processors of global stores are wrapped, too."""
    wrapper = Counting()
    builder = mp.KeyValueStoreBuilder(name="all", key=String, value=String, logging=False)

    class Fill(mp.Processor[str, str, None, None]):
        def process(self, record: mp.Record[str, str]) -> None:
            self.context.get_state_store("all").put(record.key, record.value)

    topology = mp.Topology(processor_wrapper=wrapper)
    topology.add_global_store(
        builder, "rows", Fill, source_name="source", processor_name="fill", key=String, value=String
    )
    topology.add_source("in", "in", key=String, value=String)
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("rows", key=String, value=String).pipe_input("k", "v")
        assert driver.get_state_store("all").get("k") == "v"
    assert wrapper.seen["fill"] == 1
