"""A day of scanners: some of them old, some new, and some that are replaced during the day.

The records are generated with a fixed seed, and written with the schema of the scanner that sends them.

    SCHEMA_REGISTRY_URL=http://localhost:8081 python -m examples.registry.feed localhost:9092
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from examples.feeding import Sent, run
from examples.registry.app import PARCEL, SCAN, TIME, Parcel, record
from millpond.serdes.registry import Avro, SchemaRegistry

__all__ = ("OLD_SCAN", "encoded", "records")

OLD_SCAN = record("Scan", {"name": "site", "type": "string"}, {"name": "at", "type": TIME})
"""Version 1 of the schema: no weight, and another name for the depot."""

_MORNING = datetime(2026, 3, 2, 4, tzinfo=UTC)
_DEPOTS = ("Aachen", "Basel", "Ghent", "Lyon", "Turin")
_UPGRADES = {"Aachen": 0, "Basel": 0, "Ghent": 300, "Lyon": 500}
"""After how many minutes a depot has new scanners; Turin keeps its old ones."""
_PARCELS = 200


def records() -> Iterator[Sent]:
    """Return all records in the order in which they are sent; values have the fields of their schema."""
    rng = random.Random(17)
    sent: list[Sent] = []
    for number in range(_PARCELS):
        parcel, grams = Parcel(rng.choice(("north", "south")), 1000 + number), rng.randrange(100, 20_000)
        minute = rng.randrange(400)
        for depot in rng.sample(_DEPOTS, rng.randint(1, 4)):
            at = _MORNING + timedelta(minutes=minute)
            new = minute >= _UPGRADES.get(depot, 10_000)
            value = {"depot": depot, "at": at, "grams": grams} if new else {"site": depot, "at": at}
            sent.append(Sent("scans", parcel, value, at))
            minute += rng.randrange(20, 120)
    yield from sorted(sent, key=lambda each: each.at)


def encoded(registry: SchemaRegistry) -> Iterator[Sent]:
    """Return the records in Avro. The first record of each schema registers it."""
    key: Any = Avro(Parcel, registry=registry, schema=PARCEL).for_topic("scans", is_key=True)
    old, new = (_values(registry, schema) for schema in (OLD_SCAN, SCAN))
    for each in records():
        value: Any = each.value
        write = old if "site" in value else new
        yield each._replace(key=key.serialize(each.key), value=write.serialize(value))


def _values(registry: SchemaRegistry, schema: dict[str, Any]) -> Any:
    return Avro(registry=registry, schema=schema).for_topic("scans", is_key=False)


if __name__ == "__main__":
    run(encoded(SchemaRegistry()))
