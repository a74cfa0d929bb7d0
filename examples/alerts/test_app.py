"""The application, tested without a broker, in event time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import millpond as mp
from examples.alerts.app import Alert, Change, Customer, CustomerKey, Payment, alerts
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ANN = CustomerKey(1)


class Bank:
    """The application's topics, and a customer with a limit of 100."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.customers: TestInputTopic[CustomerKey, Change] = driver.create_input_topic(
            "bank.customers", key=mp.Json(CustomerKey), value=mp.Json(Change)
        )
        self.payments: TestInputTopic[CustomerKey, Payment] = driver.create_input_topic(
            "payments", key=mp.Json(CustomerKey), value=mp.Json(Payment)
        )
        self.alerts: TestOutputTopic[CustomerKey, Alert] = driver.create_output_topic(
            "alerts", key=mp.Json(CustomerKey), value=mp.Json(Alert)
        )
        self.limit(100, at=-60)

    def limit(self, limit: int, *, at: int) -> None:
        """The database has a new limit, so many minutes after noon."""
        self.customers.pipe_input(ANN, Change("u", None, Customer(1, "Ann", limit)), NOON + timedelta(minutes=at))

    def pay(self, cents: int, *, at: int) -> None:
        """Ann pays, so many minutes after noon."""
        self.payments.pipe_input(ANN, Payment(cents, "Books", NOON + timedelta(minutes=at)))

    def alerted(self) -> list[tuple[str, int, int]]:
        """Return new alerts: the reason, the cents, and the first minute of the window after noon."""
        return [
            (alert.reason, alert.cents, (alert.since - NOON) // timedelta(minutes=1))
            for alert in self.alerts.read_values_to_list()
        ]


@pytest.fixture
def bank() -> Iterator[Bank]:
    with TopologyTestDriver(alerts()) as driver:
        yield Bank(driver)


def test_each_window_alerts_once_at_the_payment_that_crosses_the_limit(bank: Bank) -> None:
    bank.pay(60, at=1)
    assert bank.alerted() == []
    bank.pay(60, at=6)
    assert bank.alerted() == [("over limit", 120, 0)]  # the window from 12:05 has only one of both
    bank.pay(60, at=7)
    assert bank.alerted() == [("over limit", 120, 5)]
    bank.pay(60, at=8)
    assert bank.alerted() == []


def test_slow_spending_does_not_alert(bank: Bank) -> None:
    for minute in range(0, 100, 10):
        bank.pay(90, at=minute)
    assert bank.alerted() == []


def test_a_payment_is_checked_against_the_limit_of_its_own_time(bank: Bank) -> None:
    bank.limit(1000, at=30)
    bank.pay(200, at=29)
    assert bank.alerted() == [("over limit", 200, 20), ("over limit", 200, 25)]
    bank.pay(200, at=30)
    assert bank.alerted() == []


def test_a_late_payment_counts_until_its_window_is_closed(bank: Bank) -> None:
    bank.pay(60, at=5)
    bank.pay(10, at=19)
    bank.pay(60, at=6)  # the window from 12:00 closed at 12:15, the one from 12:05 closes at 12:20
    assert bank.alerted() == [("over limit", 120, 5)]
    bank.pay(10, at=30)
    bank.pay(500, at=6)
    assert bank.alerted() == []


def test_a_deleted_customer_has_no_limit(bank: Bank) -> None:
    bank.customers.pipe_input(ANN, Change("d", Customer(1, "Ann", 100), None), NOON)
    bank.customers.pipe_input(ANN, None, NOON)
    bank.pay(10, at=1)
    assert bank.alerted() == [("no such customer", 10, 1)]


def test_messages_of_debezium_are_understood() -> None:
    """The bytes that Debezium's JSON converter writes, with fields that the application does not need."""
    with TopologyTestDriver(alerts()) as driver:
        customers = driver.create_input_topic("bank.customers", key=mp.Bytes, value=mp.Bytes)
        payments = driver.create_input_topic("payments", key=mp.Bytes, value=mp.Bytes)
        customers.pipe_input(
            b'{"id":7}',
            b'{"before":null,"after":{"id":7,"name":"Bo","limit":100,"city":"Bergen"},'
            b'"source":{"connector":"postgresql","table":"customers"},"op":"c","ts_ms":1772445600000}',
            NOON,
        )
        payments.pipe_input(b'{"id":7}', b'{"cents":101,"shop":"Books","at":"2026-03-02T12:00:00Z"}')
        found = driver.create_output_topic("alerts", key=mp.Bytes, value=mp.Json(Alert)).read_key_values_to_list()
    assert [(key, alert.reason) for key, alert in found] == [(b'{"id":7}', "over limit")] * 2
