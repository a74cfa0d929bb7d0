"""An afternoon of a site: views of 40 users, impressions of advertisements, and clicks.

The records are generated with a fixed seed. Some arrive minutes late, some clicks arrive before their impression, and
some impressions are clicked twice, or after their ten minutes. The last records are of the next day: time has to pass
before the last visits and impressions are final.

    python -m examples.clicks.feed localhost:9092
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from examples.clicks.app import Click, Impression, View
from examples.feeding import Sent, run, seconds

__all__ = ("closing", "records")

_NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
_NEXT_DAY = _NOON + timedelta(days=1)
_USERS = 40
_PAGES = ("/", "/boots", "/coats", "/hats", "/sale", "/tents")
_ADS = ("coffee", "skis", "trains")
_CLOSING = 40
"""Keys of the last records: so many that each partition gets one."""


def records() -> Iterator[Sent]:
    """Return all records in the order in which they are sent."""
    rng = random.Random(17)
    yield from sorted(_visits(rng), key=lambda sent: sent.at)
    yield from closing()


def closing() -> Iterator[Sent]:
    """Return the last records, by which time passes in all partitions."""
    for number in range(_CLOSING):
        yield Sent("views", f"closing-{number}", View("/", _NEXT_DAY), _NEXT_DAY)
        yield Sent("impressions", f"closing-{number}", Impression("none", "/", _NEXT_DAY), _NEXT_DAY)


def _visits(rng: random.Random) -> Iterator[Sent]:
    number = 0
    for user in range(1, _USERS + 1):
        at = _NOON + seconds(rng.uniform(0, 3600))
        for _ in range(rng.randint(2, 5)):
            for _ in range(rng.randint(1, 8)):
                number += 1
                yield from _view(rng, f"user-{user}", f"impression-{number}", at)
                at += seconds(rng.uniform(5, 20 * 60))
            at += seconds(rng.uniform(25 * 60, 90 * 60))


def _view(rng: random.Random, user: str, impression: str, at: datetime) -> Iterator[Sent]:
    page = rng.choice(_PAGES)
    yield Sent("views", user, View(page, at), at + _delay(rng))
    shown = at + seconds(rng.uniform(1, 5))
    yield Sent("impressions", impression, Impression(rng.choice(_ADS), page, shown), shown + _delay(rng))
    for _ in range(rng.choices((0, 1, 2), (70, 25, 5))[0]):
        clicked = shown + seconds(rng.uniform(1, 12 * 60))
        yield Sent("clicks", impression, Click(clicked), clicked + _delay(rng))


def _delay(rng: random.Random) -> timedelta:
    return seconds(rng.choices((0, rng.uniform(10, 200)), (85, 15))[0])


if __name__ == "__main__":
    run(records())
