"""Readings of 50 thermometers, one a minute for four hours; some go offline, and most of those come back.

The records are generated with a fixed seed. Some readings are sent twice.

    python -m examples.devices.feed localhost:9092
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.devices.app import Reading
from examples.feeding import Sent, run, seconds

__all__ = ("records",)

_MORNING = datetime(2026, 3, 2, 6, tzinfo=UTC)
_MINUTES = 240
_DEVICES = 50


def records() -> Iterator[Sent]:
    """Return all records in the order in which they are sent."""
    rng = random.Random(17)
    devices = [f"store-{number:02}" for number in range(1, _DEVICES + 1)]
    offline = dict(_outages(rng, devices))
    for minute in range(_MINUTES):
        for number, device in enumerate(devices):
            celsius = round(rng.gauss(-18, 0.8), 1)
            sent = Sent("readings", device, Reading(celsius), _MORNING + timedelta(minutes=minute) + seconds(number))
            if not any(start <= minute < end for start, end in offline.get(device, ())):
                yield from [sent] * rng.choices((1, 2), (98, 2))[0]


def _outages(rng: random.Random, devices: list[str]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    for device in rng.sample(devices, 12):
        start = rng.randint(20, 100)
        yield device, [(start, start + rng.randint(3, 60)), (start + 80, start + 80 + rng.randint(3, 20))]
    yield devices[16], [(200, _MINUTES)]  # does not come back


if __name__ == "__main__":
    run(records())
