"""Joins by a foreign key whose left table's type is changed between two runs: no update of the other table is lost."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.dsl.operators.table_joins.foreign_key.wire import hash128
from millpond.state.backend import OrderedBackend, Rows
from millpond.state.formats import partition_prefix
from millpond.state.memory.backend import MemoryBackend
from tests.support.changed_types import Order, WithCoupon

CONFIG = {"application.id": "app"}
RESPONSES = "app-fk-subscription-response-topic"

Table = mp.KTable[str, Any]


NOISY: mp.Serde[Any] = mp.Serde(
    "Noisy",
    lambda value: os.urandom(8) + mp.Json(Order).serialize(value),
    lambda data: mp.Json(Order).deserialize(data[8:]),
)
"""A serde with a nonce in each value, as one that encrypts has it."""


def numbered(kind: type) -> mp.Serde[Any]:
    """A serde that begins values with the number of their schema, which is another one in each topic."""

    def of(topic: str, _is_key: bool) -> mp.Serde[Any]:
        plain, number = mp.Json(kind), f"{topic} {kind.__name__} ".encode()
        return mp.Serde(
            "Numbered",
            lambda value: number + plain.serialize(value),
            lambda data: plain.deserialize(data[data.index(b"{") :]),
        )

    plain = mp.Json(kind)
    return mp.Serde("Numbered", plain.serialize, plain.deserialize, specialize=of)


def numbered_source(b: mp.StreamsBuilder, kind: type) -> Table:
    return b.stream("orders", key=mp.String, value=mp.Json(kind)).to_table(
        key=mp.String, value=numbered(kind), store="orders"
    )


def noisy_source(b: mp.StreamsBuilder, _kind: type) -> Table:
    return b.stream("orders", key=mp.String, value=mp.Json(Order)).to_table(key=mp.String, value=NOISY, store="orders")


class Kept(MemoryBackend):
    """The rows that one run leaves to the next one."""

    def close(self) -> None:
        """Keep the rows."""


class Run(mp.testing.TopologyTestDriver):
    """A run of the application on the rows of the run before."""

    def __init__(self, topology: mp.Topology, rows: Kept) -> None:
        self._rows = rows
        super().__init__(topology, CONFIG)

    def _open_backend(self) -> OrderedBackend:
        return self._rows

    def put(self, topic: str, key: str, value: Any) -> None:
        data = value if isinstance(value, bytes) else b"" if value is None else mp.Json(type(value)).serialize(value)
        self.create_input_topic(topic, key=mp.String, value=mp.Bytes).pipe_input(
            key, None if value is None else data, 9
        )

    def results(self) -> list[tuple[str, str | None]]:
        if "out" not in self.produced_topic_names():
            return []
        return self.create_output_topic("out", key=mp.String, value=mp.String).read_key_values_to_list()

    def answered(self, key: str, left: bytes, right: bytes) -> None:
        """An answer to a subscription with the hash of a left value arrives."""
        topic = self.create_input_topic(RESPONSES, key=mp.String, value=mp.Bytes)
        topic.pipe_input(key, b"\0" + hash128(left) + right, 9)

    @property
    def drops(self) -> int:
        return self.metrics()["dropped"]


def source(b: mp.StreamsBuilder, kind: type, **options: Any) -> Table:
    return b.table("orders", key=mp.String, value=mp.Json(kind), store="orders", **options)


def add(_key: str, order: Any, _total: Any) -> Any:
    return order


def aggregated(b: mp.StreamsBuilder, kind: Any) -> Table:
    orders = b.stream("orders", key=mp.String, value=mp.Json(kind)).group_by_key()
    return orders.aggregate(lambda: kind("", 0), add, store="orders", value=mp.Json(kind))


def same(order: Any) -> Any:
    return order


#: The left tables, and whether their store has the bytes that were hashed.
LEFT: dict[str, tuple[Callable[[mp.StreamsBuilder, Any], Table], bool]] = {
    "source": (source, True),
    "in memory": (lambda b, kind: source(b, kind, persistent=False), True),
    "cached": (lambda b, kind: source(b, kind, caching=True), True),
    "versioned": (lambda b, kind: source(b, kind, history_retention=timedelta(hours=1)), True),
    "aggregate": (aggregated, True),
    "filter": (lambda b, kind: source(b, kind).filter(lambda _, order: order.cents > 0), True),
    "stored filter": (
        lambda b, kind: source(b, kind).filter(lambda _, order: order.cents > 0, store="kept", value=mp.Json(kind)),
        True,
    ),
    "stored map": (lambda b, kind: source(b, kind).map_values(same, store="kept", value=mp.Json(kind)), True),
    "map": (lambda b, kind: source(b, kind).map_values(same, value=mp.Json(kind)), False),
    "map of a map": (lambda b, kind: source(b, kind).map_values(same).map_values(same, value=mp.Json(kind)), False),
    "map of another type": (
        lambda b, kind: b.table("orders", key=mp.String, value=mp.Json(Order), store="orders").map_values(
            lambda order: kind(order.customer, order.cents), value=mp.Json(kind)
        ),
        False,
    ),
    "join": (
        lambda b, kind: source(b, kind).left_join(
            b.table("notes", key=mp.String, value=mp.String, store="notes"), lambda order, _: order, value=mp.Json(kind)
        ),
        True,
    ),
}


def joined(
    table: Callable[[mp.StreamsBuilder, Any], Table], kind: Any, *, left: bool = False, optimized: bool = False
) -> mp.Topology:
    b = mp.StreamsBuilder()
    mine, customers = table(b, kind), b.table("customers", key=mp.String, value=mp.String, store="customers")
    join: Any = mine.left_join if left else mine.join
    result = join(customers, lambda order, city: f"{order.cents} {city}", on=lambda o: o.customer, name="fk")
    result.to_stream().to("out", key=mp.String, value=mp.String)
    return b.build(optimization="all" if optimized else "none")


def first_run(table: Callable[[mp.StreamsBuilder, Any], Table], kind: Any = Order, **options: Any) -> Kept:
    rows = Kept()
    with Run(joined(table, kind, **options), rows) as run:
        run.put("customers", "c1", b"Rome")
        run.put("orders", "o1", kind("c1", 5))
        assert run.results()[-1] == ("o1", "5 Rome")
    return rows


@pytest.mark.parametrize("back", [False, True], ids=["update", "rollback"])
@pytest.mark.parametrize("left", [False, True], ids=["inner", "left"])
@pytest.mark.parametrize("table", LEFT)
def test_update_of_the_other_table_reaches_a_row_that_asked_as_an_older_type(
    table: str, left: bool, back: bool
) -> None:
    """Once, with its own timestamp, and so do the ones after it and a deletion."""
    make, from_store = LEFT[table]
    old, new = (WithCoupon, Order) if back else (Order, WithCoupon)
    with Run(joined(make, new, left=left), first_run(make, old, left=left)) as run:
        run.put("customers", "c1", b"Oslo")
        assert (run.results(), run.drops) == ([("o1", "5 Oslo")], 0 if from_store else 1)
        run.put("customers", "c1", b"Bern")
        run.put("customers", "c1", None)
        assert run.results() == [("o1", "5 Bern"), ("o1", "5 None" if left else None)]
        assert run.drops <= (0 if from_store else 1)


@pytest.mark.parametrize("table", LEFT)
def test_answers_to_an_earlier_value_are_outdated_after_the_change(table: str) -> None:
    """The row was put by the second version; an answer to what the first one put, or to nothing it ever was, comes."""
    make, _ = LEFT[table]
    with Run(joined(make, WithCoupon), first_run(make)) as run:
        run.put("orders", "o1", WithCoupon("c1", 6, 2))
        assert run.results() == [("o1", "6 Rome")]
        run.answered("o1", mp.Json(Order).serialize(Order("c1", 5)), b"Oslo")
        run.answered("o1", b"never", b"Oslo")
        run.answered("gone", b"never", b"Oslo")
        assert (run.results(), run.drops) == ([], 3)


def test_row_as_its_producer_wrote_it_is_subscribed_once_more() -> None:
    """The store was restored from the source topic: no bytes are those that the first version hashed."""
    rows = first_run(source, optimized=True)
    written = b'{"cents":5, "customer":"c1", "coupon":0}'
    rows.write([("orders", 0, Rows([(partition_prefix(0) + b"o1", (9).to_bytes(8, "big") + written)]))], {})
    with Run(joined(source, WithCoupon, optimized=True), rows) as run:
        run.put("customers", "c1", b"Oslo")
        run.put("customers", "c1", b"Bern")
        assert (run.results(), run.drops) == ([("o1", "5 Oslo"), ("o1", "5 Bern")], 1)
        run.put("orders", "o1", WithCoupon("c1", 6))
        run.answered("o1", mp.Json(WithCoupon).serialize(WithCoupon("c1", 5)), b"Oslo")
        assert (run.results(), run.drops) == ([("o1", "6 Bern")], 2)


def test_row_whose_hash_and_store_have_different_bytes_is_subscribed_once_more() -> None:
    """So it is if a registry numbers the schemas of each subject."""
    with Run(joined(numbered_source, WithCoupon), first_run(numbered_source)) as run:
        run.put("customers", "c1", b"Oslo")
        run.put("customers", "c1", b"Bern")
        assert (run.results(), run.drops) == ([("o1", "5 Oslo"), ("o1", "5 Bern")], 1)


def test_serde_that_encodes_a_value_as_other_bytes_each_time_is_an_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is sent in circles."""
    with Run(joined(noisy_source, Order), Kept()) as run:
        run.put("customers", "c1", b"Rome")
        for key in ("o1", "o2"):
            run.put("orders", key, Order("c1", 5))
        assert (run.results(), run.drops) == ([], 2)
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.getMessage() for each in errors] == [
        "join() by a foreign key ('fk-subscription-registration-processor'): the serde of the left table's values "
        "encodes one value as other bytes each time, so no answer can be matched with its row, and results are "
        "missing. Use a serde whose bytes depend on the value only."
    ]
