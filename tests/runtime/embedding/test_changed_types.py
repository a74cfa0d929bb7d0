"""A program's next version has another type for the rows of a join by a foreign key."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from tests.runtime.running import config
from tests.support import kafka
from tests.support.changed_types import Order, WithCoupon

SOON = timedelta(seconds=40)


def joined(orders: str, customers: str, out: str, kind: Any, *, computed: bool) -> mp.Topology:
    builder = mp.StreamsBuilder()
    table: mp.KTable[str, Any] = builder.table(orders, key=mp.String, value=mp.Json(kind), store="orders")
    if computed:
        table = table.map_values(lambda order: order, value=mp.Json(kind))
    cities = builder.table(customers, key=mp.String, value=mp.String, store="customers")
    result = table.join(cities, lambda order, city: f"{order.cents} {city}", on=lambda o: o.customer, name="fk")
    result.to_stream().to(out, key=mp.String, value=mp.String)
    return builder.build()


@pytest.mark.parametrize(("computed", "lost"), [(False, True), (True, False)], ids=["restored table", "map_values"])
def test_join_by_a_foreign_key_loses_no_update_to_a_new_type(
    broker: Any, create_topic: Any, app_id: str, tmp_path: Any, computed: bool, lost: bool
) -> None:
    """Each row that the first version wrote has each update of the other table after the restart, exactly once."""
    orders, customers, out = create_topic("orders", 2), create_topic("customers", 3), create_topic("out", 1)
    servers = broker.bootstrap_servers
    numbers = range(6)

    def results() -> list[str]:
        return sorted(row.value.decode() for row in kafka.read(servers, out))

    expected: list[str] = []
    for kind, city in ((Order, "Rome"), (WithCoupon, "Oslo")):
        kafka.produce(servers, customers, [("c1", city)])
        if kind is Order:
            rows = [(f"o{each}", f'{{"customer":"c1","cents":{each}}}') for each in numbers]
            kafka.produce(servers, orders, rows)
        elif lost:
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
        expected = sorted([*expected, *(f"{each} {city}" for each in numbers)])
        settings = {"processing.guarantee": "exactly_once"}
        with mp.Worker(
            joined(orders, customers, out, kind, computed=computed), config(servers, app_id, tmp_path, settings)
        ) as worker:
            assert worker.wait_for(mp.WorkerState.RUNNING, SOON)
            kafka.eventually(lambda wanted=set(expected): set(results()) >= wanted, "the results are complete")
    assert results() == expected
