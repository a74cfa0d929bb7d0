"""What the examples should send, computed by plain loops over the records of their feeds.

The loops share no code with the applications. Each returns the results of each key, in the order in which they are
sent.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from examples.feeding import Sent

__all__ = ("Results", "alerts")

Results = Mapping[str, list[Any]]
"""The values by key, both as plain JSON."""

MINUTE_S = 60


def alerts(records: Iterable[Sent]) -> Results:
    """Return what each customer's payments alert."""
    limits: dict[int, list[tuple[float, int | None]]] = defaultdict(list)
    spent: dict[tuple[int, float], list[int]] = {}  # cents, payments and whether an alert is sent, by window
    stream_time = 0.0
    found: dict[str, list[Any]] = defaultdict(list)
    for topic, key, value in map(plain, records):
        customer = key["id"]
        if topic == "bank.customers":
            at, change = value
            limits[customer].append((at, change["after"]["limit"] if change and change["after"] else None))
            continue
        _, payment = value
        at, cents = datetime.fromisoformat(payment["at"]).timestamp(), payment["cents"]
        limit = next((limit for since, limit in reversed(limits[customer]) if since <= at), None)
        if limit is None:
            alert = {"reason": "no such customer", "cents": cents, "payments": 1, "since": payment["at"]}
            found[text(key)].append(alert)
            continue
        stream_time = max(stream_time, at)
        last = at // (5 * MINUTE_S) * (5 * MINUTE_S)
        for start in (last - 5 * MINUTE_S, last):
            if start + 15 * MINUTE_S <= stream_time:
                continue  # ten minutes and five of grace are over
            window = spent.setdefault((customer, start), [0, 0, 0])
            window[0] += cents
            window[1] += 1
            if window[0] > limit and not window[2]:
                window[2] = 1
                since = datetime.fromtimestamp(start, UTC).isoformat().replace("+00:00", "Z")
                alert = {"reason": "over limit", "cents": window[0], "payments": window[1], "since": since}
                found[text(key)].append(alert)
    return found


def plain(sent: Sent) -> tuple[str, Any, tuple[float, Any]]:
    """Return a record as a topic, a key, and its time in seconds with its value, as they are in Kafka."""
    key = sent.key if isinstance(sent.key, str) else msgspec.to_builtins(sent.key)
    return sent.topic, key, (sent.at.timestamp(), json.loads(msgspec.json.encode(sent.value)))


def text(key: Any) -> str:
    """Return a key as its bytes in Kafka are decoded."""
    return key if isinstance(key, str) else json.dumps(key, separators=(",", ":"))
