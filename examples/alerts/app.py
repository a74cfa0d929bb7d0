"""Alerts on card payments: more than the customer's limit within ten minutes, or no such customer."""

from datetime import datetime, timedelta

import millpond as mp


class CustomerKey(mp.Struct, frozen=True):
    """The primary key as Debezium writes it: `{"id":7}`. Payments have the same key."""

    id: int


class Customer(mp.Struct):
    id: int
    name: str
    limit: int  # cents within ten minutes


class Change(mp.Struct):
    """Debezium's envelope. A delete has no `after`; a tombstone, which follows it, has no envelope."""

    op: str  # c: created, u: updated, d: deleted, r: read by the first snapshot
    before: Customer | None
    after: Customer | None


class Payment(mp.Struct):
    cents: int
    shop: str
    at: datetime


class Checked(mp.Struct):
    """A payment with the limit that the customer had at its time."""

    payment: Payment
    limit: int | None  # None: no such customer


class Spending(mp.Struct):
    """What a customer has spent in one window."""

    cents: int = 0
    payments: int = 0
    over: int = 0  # payments since the limit was crossed, with the one that crossed it


class Alert(mp.Struct):
    reason: str
    cents: int
    payments: int
    since: datetime


WINDOWS = mp.TimeWindows(timedelta(minutes=10), advance=timedelta(minutes=5), grace=timedelta(minutes=5))


def check(payment: Payment, customer: Customer | None) -> Checked:
    return Checked(payment, None if customer is None else customer.limit)


def add(_customer: CustomerKey, checked: Checked, spending: Spending) -> Spending:
    assert checked.limit is not None, "payments without a customer are no part of this stream"
    cents = spending.cents + checked.payment.cents
    over = spending.over + 1 if spending.over or cents > checked.limit else 0
    return Spending(cents, spending.payments + 1, over)


def over_limit(customer: mp.Windowed[CustomerKey], spending: Spending) -> tuple[CustomerKey, Alert]:
    return customer.key, Alert("over limit", spending.cents, spending.payments, customer.window.start_time)


def no_customer(checked: Checked) -> Alert:
    return Alert("no such customer", checked.payment.cents, 1, checked.payment.at)


def alerts() -> mp.Topology:
    builder = mp.StreamsBuilder()
    customers = builder.table(
        "bank.customers",
        key=mp.Json(CustomerKey),
        value=mp.Json(Change),
        store="customers",
        history_retention=timedelta(days=2),  # payments are checked against the row of their own time
    ).map_values(lambda change: change.after)  # None: the row is deleted
    payments = builder.stream(
        "payments", key=mp.Json(CustomerKey), value=mp.Json(Payment), timestamp=lambda payment: payment.at
    )
    checked = payments.left_join(customers, check, value=mp.Json(Checked))
    unknown = checked.filter(lambda _customer, checked: checked.limit is None).map_values(no_customer)
    over = (
        checked.filter(lambda _customer, checked: checked.limit is not None)
        .group_by_key()
        .windowed_by(WINDOWS)
        # Without the cache each payment is seen, and not only the last one before a commit.
        .aggregate(Spending, add, store="spending", value=mp.Json(Spending), caching=False)
        .to_stream()
        .filter(lambda _customer, spending: spending.over == 1)  # one alert for each window
        .map(over_limit)
    )
    over.merge(unknown).to("alerts", key=mp.Json(CustomerKey), value=mp.Json(Alert))
    return builder.build()
