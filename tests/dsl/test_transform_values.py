"""KTable.transform_values: stores, deletions, lookups by joins, wrong suppliers, and errors of user code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import millpond as mp
from millpond.errors import ProcessingFailed, TopologyError

CONFIG = {"application.id": "app", "processing.exception.handler": "fail"}
SEEN = mp.KeyValueStoreBuilder(name="seen", key=mp.String, value=mp.Long, logging=False)


class Numbered(mp.ValueTransformerWithKey[str, str, str]):
    """Adds how often the row has changed, and where the change came from."""

    closed = 0

    def init(self, context: mp.ValueTransformerContext) -> None:
        self.seen = context.get_state_store("seen", mp.KeyValueStore[str, int])

    def transform(self, key: str, value: str | None) -> str | None:
        at = self.context.record_metadata()
        times = (self.seen.get(key) or 0) + 1
        self.seen.put(key, times)
        where = "-" if at is None else f"{at.topic}/{at.offset}@{at.timestamp}"
        return f"{value}{times} {where}"

    def close(self) -> None:
        Numbered.closed += 1


class Supplied(Numbered):
    stores = (SEEN,)


class Bare(mp.ValueTransformerWithKey[str, str, str]):
    """Glues key and value; "x" becomes a deletion."""

    def transform(self, key: str, value: str | None) -> str | None:
        return None if value == "x" else f"{key}~{value}"


def table(b: mp.StreamsBuilder, topic: str = "in") -> mp.KTable[str, str]:
    return b.table(topic, key=mp.String, value=mp.String)


def pipe(driver: mp.testing.TopologyTestDriver, key: str, value: str | None, timestamp: int, topic: str = "in") -> None:
    driver.create_input_topic(topic, key=mp.String, value=mp.String).pipe_input(key, value, timestamp)


def read(driver: mp.testing.TopologyTestDriver) -> list[tuple[Any, Any, int]]:
    records = driver.create_output_topic("out", key=mp.String, value=mp.String).read_records_to_list()
    return [(each.key, each.value, each.timestamp) for each in records]


@pytest.mark.parametrize("connected", [True, False])
def test_transformer_uses_stores_and_knows_the_record_and_is_closed(connected: bool) -> None:
    """The stores are its own, or connected by their names; a deletion is transformed, too."""
    b = mp.StreamsBuilder()
    if connected:
        b.add_state_store(SEEN)
        changed = table(b).transform_values(Numbered, stores=["seen"], name="numbered")
    else:
        changed = table(b).transform_values(Supplied, name="numbered")
    changed.to_stream().to("out", key=mp.String, value=mp.String)
    topology = b.build()
    assert "Processor: numbered (stores: [seen])" in str(topology.describe())
    before = Numbered.closed
    with mp.testing.TopologyTestDriver(topology, CONFIG) as driver:
        pipe(driver, "k", "a", 5)
        pipe(driver, "k", None, 7)
        assert read(driver) == [("k", "a1 in/0@5", 5), ("k", "None2 in/1@7", 7)]
    assert Numbered.closed == before + 1


def test_row_that_a_join_looks_up_is_transformed_with_the_same_stores() -> None:
    """Of such a row only the timestamp is known; in Kafka Streams it has no access to stores (docs)."""
    b = mp.StreamsBuilder()
    changed = table(b).transform_values(Supplied)
    table(b, "other").join(changed, lambda one, two: f"{one} {two}").to_stream().to(
        "out", key=mp.String, value=mp.String
    )
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        pipe(driver, "k", "a", 5)
        pipe(driver, "k", "b", 9, "other")
        assert read(driver) == [("k", "b a2 None/-1@5", 9)]


@pytest.mark.parametrize("store", [None, "stored"])
def test_old_values_are_transformed_or_read_from_the_store(store: str | None) -> None:
    """A table grouped from it subtracts what it added before; a missing old value is transformed without a store."""
    b = mp.StreamsBuilder()
    options: dict[str, Any] = {} if store is None else {"store": store, "value": mp.String, "caching": False}
    grouped = table(b).transform_values(Bare, **options).group_by(lambda k, v: ("all", v), value=mp.String)
    reduced = grouped.reduce(lambda a, v: f"{a}+{v}", lambda a, v: f"{a}-{v}", caching=False)
    reduced.to_stream().to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(b.build(), {**CONFIG, "default.key.serde": mp.String}) as driver:
        for value in ("a", "b", "x"):
            pipe(driver, "k", value, 1)
        found = [value for _, value, _ in read(driver)]
    assert found[-1].endswith("-k~a+k~b-k~b" if store else "-k~b"), found


def fails() -> Any:
    raise ValueError("no")


class Failing(Bare):
    def transform(self, key: str, value: str | None) -> str | None:
        return fails()


class Sending(Bare):
    def transform(self, key: str, value: str | None) -> str | None:
        self.context.forward(value)  # type: ignore[attr-defined]
        return value


@pytest.mark.parametrize("supplier, cause", [(Failing, "no"), (Sending, "cannot forward records, since its table has")])
def test_error_of_a_transformer_goes_to_the_processing_handler(supplier: Any, cause: str) -> None:
    """Forwarding is an error, which says what to do instead."""
    b = mp.StreamsBuilder()
    table(b).transform_values(supplier, name="changed")
    with mp.testing.TopologyTestDriver(b.build(), CONFIG) as driver:
        with pytest.raises(ProcessingFailed, match="changed") as caught:
            pipe(driver, "k", "a", 1)
        assert cause in str(caught.value.__cause__)


ONE = Bare()


class Misspelled(mp.ValueTransformerWithKey[str, str, str]):
    def tranform(self, key: str, value: str) -> str:
        return value


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "an instance": (lambda: ONE, r"was given an instance of Bare; give the class or a function that makes a new one"),
    "a class of another kind": (lambda: str, r"needs a transformer's class, not the class str; derive it from mp\.Val"),
    "a text": (lambda: "Bare", r"was given the text 'Bare' as a supplier, which cannot be called"),
    "a mapper": (lambda: lambda value: value, r"'s supplier calls the lambda .* but it takes \(value\)"),
    "another object": (
        lambda: lambda: "a",
        r"made the text 'a'; make a ValueTransformerWithKey, or use map",
    ),
    "the same each time": (
        lambda: lambda: ONE,
        r"makes the same Bare each time it is called, but every task",
    ),
    "no transform": (lambda: Misspelled, r"Transformer Misspelled has no transform\(\); .* in place of tranform"),
}


@pytest.mark.parametrize("supplier, message", MISTAKES.values(), ids=MISTAKES)
def test_wrong_supplier_raises_in_the_call_and_names_the_operator(supplier: Callable[[], Any], message: str) -> None:
    """The message has the cause and the cure."""
    with pytest.raises(TopologyError, match=message):
        table(mp.StreamsBuilder()).transform_values(supplier())


def test_transformer_with_other_parameters_is_an_error_of_its_class() -> None:
    """So it is found before the topology is built."""
    with pytest.raises(TopologyError, match=r"write def transform\(self, key, value\)"):

        class Wrong(mp.ValueTransformerWithKey[str, str, str]):
            def transform(self, value: str) -> str:  # type: ignore[override]
                return value


def test_unknown_store_is_an_error_of_the_topology() -> None:
    """The message has the name of the node and of the store."""
    b = mp.StreamsBuilder()
    table(b).transform_values(Bare, stores=["gone"], name="changed")
    with pytest.raises(TopologyError, match=r"'changed' uses store 'gone', which does not exist"):
        b.build()
