"""The application, tested without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import millpond as mp
from examples.orders.app import Customer, Order, Sales, Shipment, orders
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

ANN = Customer("Ann", "Oslo")


class Shop:
    """The application's topics."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.orders: TestInputTopic[str, Order] = driver.create_input_topic(
            "orders", key=mp.String, value=mp.Json(Order)
        )
        self.customers: TestInputTopic[str, Customer] = driver.create_input_topic(
            "customers", key=mp.String, value=mp.Json(Customer)
        )
        self.shipments: TestOutputTopic[str, Shipment] = driver.create_output_topic(
            "shipments", key=mp.String, value=mp.Json(Shipment)
        )
        self.sales: TestOutputTopic[str, Sales] = driver.create_output_topic(
            "sales-by-city", key=mp.String, value=mp.Json(Sales)
        )


@pytest.fixture
def shop() -> Iterator[Shop]:
    with TopologyTestDriver(orders()) as driver:
        yield Shop(driver)


def test_an_order_waits_for_its_customer(shop: Shop) -> None:
    shop.orders.pipe_input("o1", Order("c1", "tent", 100))
    assert shop.shipments.is_empty()
    shop.customers.pipe_input("c1", ANN)
    assert shop.shipments.read_key_values_to_list() == [("o1", Shipment("tent", 100, "Ann", "Oslo"))]


def test_all_orders_move_with_their_customer(shop: Shop) -> None:
    shop.customers.pipe_input("c1", ANN)
    shop.orders.pipe_input("o1", Order("c1", "tent", 100))
    shop.orders.pipe_input("o2", Order("c1", "lamp", 20))
    shop.customers.pipe_input("c1", Customer("Ann", "Turku"))
    assert {key: each.city for key, each in shop.shipments.read_key_values_to_map().items()} == {
        "o1": "Turku",
        "o2": "Turku",
    }
    assert shop.sales.read_key_values_to_map() == {"Oslo": Sales(0, 0), "Turku": Sales(2, 120)}


def test_a_changed_order_counts_once(shop: Shop) -> None:
    shop.customers.pipe_input("c1", ANN)
    shop.customers.pipe_input("c2", Customer("Bo", "Bergen"))
    shop.orders.pipe_input("o1", Order("c1", "tent", 100))
    shop.orders.pipe_input("o1", Order("c1", "tent", 90))
    assert shop.sales.read_key_values_to_map() == {"Oslo": Sales(1, 90)}
    shop.orders.pipe_input("o1", Order("c2", "tent", 90))
    assert shop.sales.read_key_values_to_map() == {"Oslo": Sales(0, 0), "Bergen": Sales(1, 90)}


def test_cancelled_orders_and_deleted_customers_have_no_shipment(shop: Shop) -> None:
    shop.customers.pipe_input("c1", ANN)
    shop.orders.pipe_input("o1", Order("c1", "tent", 100))
    shop.orders.pipe_input("o2", Order("c1", "lamp", 20))
    shop.orders.pipe_input("o1", None)
    assert shop.sales.read_key_values_to_map() == {"Oslo": Sales(1, 20)}
    shop.customers.pipe_input("c1", None)
    assert shop.shipments.read_key_values_to_map() == {"o1": None, "o2": None}
    assert shop.sales.read_key_values_to_map() == {"Oslo": Sales(0, 0)}
