"""The Python side, tested without a broker and a JVM, and with the bytes that Java reads and writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import millpond as mp
from examples.migration.app import payments
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver


class Bank:
    """The application's topics."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        self.customers: TestInputTopic[str, str] = driver.create_input_topic(
            "customers", key=mp.String, value=mp.String
        )
        self.payments: TestInputTopic[str, int] = driver.create_input_topic("payments", key=mp.String, value=mp.Long)
        self.totals: TestOutputTopic[str, int] = driver.create_output_topic("totals", key=mp.String, value=mp.Long)


@pytest.fixture
def bank() -> Iterator[Bank]:
    with TopologyTestDriver(payments()) as driver:
        yield Bank(driver)


def test_payments_add_up_by_country(bank: Bank) -> None:
    bank.customers.pipe_key_value_list([("ann", "NL"), ("bob", "FR"), ("cy", "NL")])
    bank.payments.pipe_key_value_list([("ann", 5), ("bob", 7), ("cy", 11)])
    assert bank.totals.read_key_values_to_list() == [("NL", 5), ("FR", 7), ("NL", 16)]


def test_a_payment_of_an_unknown_customer_is_left_out(bank: Bank) -> None:
    bank.payments.pipe_input("nobody", 5)
    assert bank.totals.is_empty()


def test_results_have_the_bytes_of_java(bank: Bank) -> None:
    written = bank.driver.create_output_topic("totals", key=mp.Bytes, value=mp.Bytes)
    bank.customers.pipe_input("ann", "NL")
    bank.payments.pipe_input("ann", 258)
    assert written.read_key_value() == (b"NL", b"\0\0\0\0\0\0\x01\x02")


def test_names_are_those_that_java_gives() -> None:
    """The stores' changelogs and the repartition topic are found by these names."""
    description = str(payments().describe())
    assert "stores: [countries]" in description
    assert "stores: [totals]" in description
    assert "topics: [totals-repartition]" in description
