"""A value that a store cannot encode is an error of the record that produced it, for all kinds of serdes and stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.errors import ProcessingFailed, SerializationError
from millpond.testing import TopologyTestDriver


class Frozen(msgspec.Struct, frozen=True):
    """A total that cannot be changed in place."""

    total: int


class Open(msgspec.Struct):
    """A total that can be changed in place."""

    total: int


def picky(immutable: bool) -> mp.Serde[int]:
    """A serde that rejects 13."""

    def encode(number: int) -> bytes:
        if number == 13:
            raise ValueError("not that number")
        return str(number).encode()

    return mp.Serde("Picky", encode, int, immutable=immutable)


def adding(struct: Any) -> Callable[[Any, int, Any], Any]:
    return lambda _key, value, total: struct(total.total + value)


MAX = 2**63 - 1
#: How values become totals, and a value whose total cannot be encoded.
AGGREGATIONS: dict[str, tuple[Callable[[Any, bool], mp.KTable[Any, Any]], int]] = {
    "reduce": (lambda grouped, caching: grouped.reduce(lambda a, b: a + b, store="s", caching=caching), MAX),
    "frozen": (
        lambda grouped, caching: grouped.aggregate(
            lambda: Frozen(0), adding(Frozen), store="s", value=mp.MsgPack(Frozen), caching=caching
        ),
        2**64,
    ),
    "open": (
        lambda grouped, caching: grouped.aggregate(
            lambda: Open(0), adding(Open), store="s", value=mp.MsgPack(Open), caching=caching
        ),
        2**64,
    ),
    "picky immutable": (
        lambda grouped, caching: grouped.aggregate(
            lambda: 0, lambda _k, v, total: total + v, store="s", value=picky(True), caching=caching
        ),
        12,
    ),
    "picky mutable": (
        lambda grouped, caching: grouped.aggregate(
            lambda: 0, lambda _k, v, total: total + v, store="s", value=picky(False), caching=caching
        ),
        12,
    ),
    "count": (lambda grouped, caching: grouped.count(store="s", value=mp.String, caching=caching), 1),
}


def driver_of(how: str, caching: bool, windowed: bool, handler: str) -> tuple[TopologyTestDriver, int]:
    builder = mp.StreamsBuilder()
    make, bad = AGGREGATIONS[how]
    numbers = mp.Json(int) if how in ("frozen", "open") else mp.Long
    grouped: Any = builder.stream("in", key=mp.String, value=numbers).group_by_key()
    if windowed:
        grouped = grouped.windowed_by(mp.TimeWindows(timedelta(seconds=1)))
    make(grouped, caching).to_stream().map_values(lambda value: getattr(value, "total", value)).foreach(lambda *_: None)
    return TopologyTestDriver(builder.build(), {"processing.exception.handler": handler}), bad


@pytest.mark.parametrize("windowed", [False, True], ids=["keys", "windows"])
@pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("how", AGGREGATIONS)
def test_total_that_cannot_be_encoded_is_the_handlers_to_judge(how: str, caching: bool, windowed: bool) -> None:
    """With CONTINUE its record is dropped and the total before it stays; with FAIL the error names store and key."""
    start = 0 if how == "count" else 1
    driver, bad = driver_of(how, caching, windowed, "continue")
    with driver:
        topic = driver.create_input_topic("in", key=mp.String, value=_piped(how))
        for value in (1, bad, 1):
            topic.pipe_input("k", value, 5)
        store: Any = driver.get_window_store("s") if windowed else driver.get_key_value_store("s")
        held = store.fetch("k", 0) if windowed else store.get("k")
        assert getattr(held, "total", held) == (None if how == "count" else start + 1)
        assert driver.metrics()["dropped"] == (3 if how == "count" else 1)
    driver, bad = driver_of(how, caching, windowed, "fail")
    with driver:
        topic = driver.create_input_topic("in", key=mp.String, value=_piped(how))
        with pytest.raises(ProcessingFailed, match=r"at in-0 offset [01]: store 's' cannot keep a value for key 'k'"):
            for value in (1, bad):
                topic.pipe_input("k", value, 5)


def _piped(how: str) -> mp.Serde[Any]:
    """A sum of 2**64 does not fit into a Long; the input is JSON."""
    return _Big if how in ("frozen", "open") else mp.Long


_Big: mp.Serde[Any] = mp.Serde("Big", lambda number: str(number).encode(), int)


def test_processor_hears_of_a_value_its_store_cannot_keep() -> None:
    """The error is an exception of put(), which a processor can handle."""
    told: list[str] = []

    class Work(mp.Processor[Any, Any, Any, Any]):
        stores = (mp.KeyValueStoreBuilder(name="s", key=mp.String, value=mp.Int),)

        def process(self, record: mp.Record[Any, Any]) -> None:
            try:
                self.context.get_state_store("s").put(record.key, record.value)
            except SerializationError as error:
                told.append(str(error))

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.Long).process(Work)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.Long)
        topic.pipe_input("a" * 500, 2**31)
        topic.pipe_input("b", 2**31 - 1)
        store = driver.get_key_value_store("s")
        assert store is not None
        assert list(store.all()) == [("b", 2**31 - 1)]
    (error,) = told
    assert error.startswith("store 's' cannot keep a value for key 'aaa")
    assert len(error) < 300


def test_suppressed_value_that_cannot_be_encoded_is_the_handlers_to_judge() -> None:
    """A value that is held back is encoded at once, and not in the commit."""
    builder = mp.StreamsBuilder()
    sums = builder.table("in", key=mp.String, value=mp.Long).map_values(
        lambda value: value + 1, value=mp.Long, store="mapped"
    )
    sums.suppress(mp.until_time_limit(timedelta(seconds=1))).to_stream().to("out", key=mp.String, value=mp.Long)
    with TopologyTestDriver(builder.build(), {"processing.exception.handler": "continue"}) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.Long)
        for value, timestamp in ((1, 0), (MAX, 10), (7, 2_000)):
            topic.pipe_input("k", value, timestamp)
        topic.pipe_input("l", 0, 5_000)
        out = driver.create_output_topic("out", key=mp.String, value=mp.Long)
        assert out.read_key_values_to_list() == [("k", 8)]
        assert driver.metrics()["dropped"] == 1


@pytest.mark.parametrize("given", [{"total": 1}, Open(1)])
def test_store_keeps_what_it_would_read_after_a_restart(given: Any) -> None:
    """Of a value of another type than its serde's, so that nothing in memory can be changed in place either."""
    seen: list[Any] = []

    class Work(mp.Processor[Any, Any, Any, Any]):
        stores = (mp.KeyValueStoreBuilder(name="s", key=mp.String, value=mp.Json(Frozen)),)

        def process(self, record: mp.Record[Any, Any]) -> None:
            store = self.context.get_state_store("s")
            store.put(record.key, given)
            seen.append(store.get(record.key))

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.Long).process(Work)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Long).pipe_input("k", 1)
    assert seen == [Frozen(1)]
