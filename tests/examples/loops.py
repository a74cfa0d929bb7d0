"""What the examples should send, computed by plain loops over the records of their feeds.

The loops share no code with the applications. Each returns the values of each output topic by key, in the order in
which they are sent, as plain JSON; of tables only the last value of each key.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from examples.feeding import Sent

__all__ = ("Results", "alerts", "clicks", "devices", "orders", "registry")

Results = dict[str, dict[str, list[Any]]]

MINUTE = 60.0


def alerts(records: Iterable[Sent]) -> Results:
    """Return what each customer's payments alert: at once, in windows of ten minutes that begin every five."""
    limits: dict[int, list[tuple[float, int | None]]] = defaultdict(list)
    spent: dict[tuple[int, float], list[int]] = {}  # cents, payments and whether an alert is sent, by window
    stream_time = 0.0
    found: dict[str, list[Any]] = defaultdict(list)
    for topic, key, value, sent_at in map(plain, records):
        name, customer = json.dumps(key, separators=(",", ":")), key["id"]
        if topic == "bank.customers":
            limits[customer].append((sent_at, value["after"]["limit"] if value and value["after"] else None))
            continue
        at, cents = seconds(value["at"]), value["cents"]
        limit = next((limit for since, limit in reversed(limits[customer]) if since <= at), None)
        if limit is None:
            found[name].append({"reason": "no such customer", "cents": cents, "payments": 1, "since": value["at"]})
            continue
        stream_time = max(stream_time, at)
        last = at // (5 * MINUTE) * (5 * MINUTE)
        for start in (last - 5 * MINUTE, last):
            if start + 15 * MINUTE <= stream_time:
                continue  # ten minutes and five of grace are over
            window = spent.setdefault((customer, start), [0, 0, 0])
            window[0] += cents
            window[1] += 1
            if window[0] > limit and not window[2]:
                window[2] = 1
                alert = {"reason": "over limit", "cents": window[0], "payments": window[1], "since": moment(start)}
                found[name].append(alert)
    return {"alerts": found}


def clicks(records: Iterable[Sent]) -> Results:
    """Return each impression's clicks, or that it has none, and each user's visits; both once they are final."""
    rows = [plain(each) for each in records]
    end = max(seconds(value["at"]) for _, _, value, _ in rows)
    outcomes: dict[str, list[Any]] = defaultdict(list)
    shown: dict[str, Any] = {}
    clicked: dict[str, list[float]] = defaultdict(list)
    views: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for topic, key, value, _ in rows:
        at = seconds(value["at"])
        if topic == "views":
            views[key].append((at, value["page"]))
        elif topic == "clicks":
            clicked[key].append(at)
            if key in shown:
                outcomes[key] += outcomes_of(shown[key], [at])
        else:
            shown[key] = value
            outcomes[key] += outcomes_of(value, sorted(clicked[key]))
    for key, impression in shown.items():
        if not outcomes[key] and seconds(impression["at"]) + 15 * MINUTE < end:
            outcomes[key].append({"ad": impression["ad"], "page": impression["page"], "seconds": None})
    visits: dict[str, list[Any]] = {}
    for user, seen in views.items():
        for visit in visits_of(sorted(seen)):
            (first, landing), (last, left) = visit[0], visit[-1]
            if last + 35 * MINUTE < end:
                visits[f"{user} {int(first * 1000)} {int(last * 1000)}"] = [
                    {"views": len(visit), "landing": [moment(first), landing], "exit": [moment(last), left]}
                ]
    return {"outcomes": {key: each for key, each in outcomes.items() if each}, "visits": visits}


def outcomes_of(impression: Any, clicks: Iterable[float]) -> list[Any]:
    """Return the outcomes of an impression and those of its clicks that are within ten minutes after it."""
    shown = seconds(impression["at"])
    return [
        {"ad": impression["ad"], "page": impression["page"], "seconds": int(at - shown)}
        for at in clicks
        if 0 <= at - shown <= 10 * MINUTE
    ]


def visits_of(seen: list[tuple[float, str]]) -> list[list[tuple[float, str]]]:
    """Divide views, by time, where a user is inactive for more than half an hour."""
    visits: list[list[tuple[float, str]]] = []
    for each in seen:
        if visits and each[0] - visits[-1][-1][0] <= 30 * MINUTE:
            visits[-1].append(each)
        else:
            visits.append([each])
    return visits


def devices(records: Iterable[Sent]) -> Results:
    """Return when each device was online and offline: silent for five minutes."""
    times: dict[str, list[float]] = defaultdict(list)
    for _, device, _, at in map(plain, records):
        times[device].append(at)
    end = max(each[-1] for each in times.values())
    found: dict[str, list[Any]] = {}
    for device, seen in times.items():
        found[device] = [{"online": True, "since": moment(seen[0])}]
        for before, after in zip(seen, [*seen[1:], None], strict=True):
            if (after or end) - before >= 5 * MINUTE:
                found[device].append({"online": False, "since": moment(before + 5 * MINUTE)})
                if after:
                    found[device].append({"online": True, "since": moment(after)})
    return {"device-status": found}


def orders(records: Iterable[Sent]) -> Results:
    """Return the last shipment of each order that has a customer, and the sums of each city."""
    tables: dict[str, dict[str, Any]] = {"orders": {}, "customers": {}}
    for topic, key, value, _ in map(plain, records):
        tables[topic][key] = value
    shipments: dict[str, list[Any]] = {}
    sales: dict[str, list[Any]] = {}
    for key, order in tables["orders"].items():
        customer = order and tables["customers"].get(order["customer"])
        if customer:
            shipments[key] = [{"item": order["item"], "cents": order["cents"], **customer}]
            [city] = sales.setdefault(customer["city"], [{"orders": 0, "cents": 0}])
            city["orders"] += 1
            city["cents"] += order["cents"]
    return {"shipments": shipments, "sales-by-city": sales}


def registry(records: Iterable[Sent]) -> Results:
    """Return the last state of each parcel, and the sums of each depot, from scans of both versions."""
    journeys: dict[str, list[Any]] = {}
    loads: dict[str, list[Any]] = {}
    for _, parcel, scan, _ in map(plain, records):
        depot, grams = scan.get("depot") or scan["site"], scan.get("grams")
        key = json.dumps(parcel, separators=(",", ":"))
        [journey] = journeys.setdefault(key, [{"origin": depot, "depot": depot, "scans": 0, "grams": None}])
        journey.update(depot=depot, scans=journey["scans"] + 1, grams=grams or journey["grams"])
        [load] = loads.setdefault(depot, [{"scans": 0, "grams": 0, "not_weighed": 0}])
        load["scans"] += 1
        load["grams"] += grams or 0
        load["not_weighed"] += grams is None
    return {"journeys": journeys, "loads-by-depot": loads}


def plain(sent: Sent) -> tuple[str, Any, Any, float]:
    """Return a record as topic, key and value in plain JSON, and the seconds at which it is sent."""
    key, value = (json.loads(msgspec.json.encode(each)) for each in (sent.key, sent.value))
    return sent.topic, key, value, sent.at.timestamp()


def seconds(moment: str) -> float:
    """Return a moment in seconds since the epoch."""
    return datetime.fromisoformat(moment).timestamp()


def moment(seconds: float) -> str:
    """Return seconds since the epoch as JSON has them."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
