"""A day of a shop: orders, which are changed and cancelled, and customers, who move.

The records are generated with a fixed seed. Some customers are known only after their first order, and one is deleted.

    python -m examples.orders.feed localhost:9092
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.feeding import Sent, run
from examples.orders.app import Customer, Order

__all__ = ("records",)

_MORNING = datetime(2026, 3, 2, 8, tzinfo=UTC)
_CITIES = ("Aarhus", "Bergen", "Oslo", "Turku", "Umea")
_ITEMS = ("boots", "lamp", "stove", "tent")
_CUSTOMERS = 80
_ORDERS = 600


def records() -> Iterator[Sent]:
    """Return all records in the order in which they are sent."""
    rng = random.Random(17)
    minutes = timedelta(minutes=1)
    changes: list[Sent] = []
    for number in range(_CUSTOMERS):
        key, at = f"c{number}", _MORNING + rng.choice((-60, rng.randrange(300))) * minutes
        changes.append(Sent("customers", key, _customer(rng, number), at))
        if number % 4 == 0:
            changes.append(Sent("customers", key, _customer(rng, number), at + rng.randrange(60, 300) * minutes))
    changes.append(Sent("customers", "c7", None, _MORNING + 700 * minutes))
    for number in range(_ORDERS):
        key, at = f"o{number}", _MORNING + rng.randrange(600) * minutes
        changes.append(Sent("orders", key, _order(rng), at))
        if number % 10 == 0:
            changes.append(Sent("orders", key, rng.choice((None, _order(rng))), at + 5 * minutes))
    yield from sorted(changes, key=lambda sent: sent.at)


def _customer(rng: random.Random, number: int) -> Customer:
    return Customer(f"Customer {number}", rng.choice(_CITIES))


def _order(rng: random.Random) -> Order:
    return Order(f"c{rng.randrange(_CUSTOMERS + 3)}", rng.choice(_ITEMS), rng.randrange(10_00, 300_00))


if __name__ == "__main__":
    run(records())
