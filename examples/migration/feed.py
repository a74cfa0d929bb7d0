"""Payments of three days, and the countries of the customers, which are sent with the first day.

    python -m examples.migration.feed localhost:9092 --day 1

The records are generated with a fixed seed.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import millpond as mp
from examples.feeding import Sent, send

__all__ = ("DAYS", "records")

DAYS = (1, 2, 3)

_MORNING = datetime(2026, 3, 1, 8, tzinfo=UTC)
_COUNTRIES = ("DE", "FR", "NL", "SE")
_CUSTOMERS = 50
_PAYMENTS = 500


def records(day: int) -> Iterator[Sent]:
    """Return the records of a day in the order in which they are sent, in the bytes that Java's serdes read."""
    rng = random.Random(day)
    morning = _MORNING + timedelta(days=day)
    if day == DAYS[0]:
        for number in range(_CUSTOMERS):
            country = mp.String.serialize(_COUNTRIES[number % len(_COUNTRIES)])
            yield Sent("customers", f"customer-{number}", country, morning - timedelta(hours=1))
    for number in range(_PAYMENTS):
        # A few payments are of customers whom nobody knows: the join drops them.
        customer, cents = rng.randrange(_CUSTOMERS + 3), rng.randrange(1_00, 900_00)
        at = morning + timedelta(seconds=60 * number)
        yield Sent("payments", f"customer-{customer}", mp.Long.serialize(cents), at)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send the payments of a day.")
    parser.add_argument("servers", help="the broker")
    parser.add_argument("--day", type=int, choices=DAYS, required=True)
    given = parser.parse_args()
    print(f"sent {send(given.servers, records(given.day)):,} records to {given.servers}")


if __name__ == "__main__":
    main()
