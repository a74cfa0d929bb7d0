"""Payments of 60 customers from 8 to 20 o'clock, and changes of the customers, as Debezium writes them.

The records are generated with a fixed seed. Some customers are deleted, some get another limit, some spend much within
minutes. Some payments arrive minutes late, and those of a terminal that was offline arrive hours late.

    python -m examples.alerts.feed localhost:9092
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.alerts.app import Change, Customer, CustomerKey, Payment
from examples.feeding import Sent, run, seconds

__all__ = ("records",)

_OPENS = datetime(2026, 3, 2, 8, tzinfo=UTC)
_CLOSES = _OPENS + timedelta(hours=12)
_CUSTOMERS = 60
_PAYMENTS = 1_500
_BURSTS = 25
_SHOPS = ("Bakery", "Books", "Fuel", "Games", "Groceries", "Shoes", "Tickets")


def records() -> Iterator[Sent]:
    """Return all records in the order in which they are sent."""
    rng = random.Random(17)
    customers = {
        number: Customer(number, f"Customer {number}", rng.randrange(400_00, 900_00, 50_00))
        for number in range(1, _CUSTOMERS + 1)
    }
    for customer in customers.values():  # Debezium's first snapshot of the table
        yield _change(_OPENS - timedelta(hours=1), "r", None, customer)
    yield from sorted([*_changes(rng, customers), *_payments(rng)], key=lambda sent: sent.at)


def _changes(rng: random.Random, customers: dict[int, Customer]) -> Iterator[Sent]:
    chosen = rng.sample(sorted(customers), 16)
    for number in chosen[:10]:
        before = customers[number]
        after = Customer(number, before.name, before.limit // 2)
        yield _change(_time(rng), "u", before, after)
    for number in chosen[10:]:
        at = _CLOSES - seconds(rng.uniform(0, 2 * 3600))
        yield _change(at, "d", customers[number], None)
        yield Sent("bank.customers", CustomerKey(number), None, at)  # the tombstone lets Kafka forget the key


def _payments(rng: random.Random) -> Iterator[Sent]:
    for _ in range(_PAYMENTS):
        yield _payment(rng, rng.randint(1, _CUSTOMERS), _time(rng), rng.randrange(5_00, 150_00))
    for _ in range(_BURSTS):
        customer, at = rng.randint(1, _CUSTOMERS), _time(rng)
        for _ in range(rng.randint(5, 12)):
            at += seconds(rng.uniform(10, 90))
            yield _payment(rng, customer, at, rng.randrange(50_00, 200_00))
    yield _payment(rng, _CUSTOMERS + 1, _time(rng), 20_00)  # of nobody


def _payment(rng: random.Random, customer: int, at: datetime, cents: int) -> Sent:
    late = rng.choices((0, rng.uniform(30, 240), 4 * 3600), (90, 8, 2))[0]
    return Sent("payments", CustomerKey(customer), Payment(cents, rng.choice(_SHOPS), at), at + seconds(late))


def _change(at: datetime, op: str, before: Customer | None, after: Customer | None) -> Sent:
    key = CustomerKey((after or before or Customer(0, "", 0)).id)
    return Sent("bank.customers", key, Change(op, before, after), at)


def _time(rng: random.Random) -> datetime:
    return _OPENS + seconds(rng.uniform(0, (_CLOSES - _OPENS).total_seconds()))


if __name__ == "__main__":
    run(records())
