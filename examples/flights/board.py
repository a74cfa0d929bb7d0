"""The application behind airport boards: the last update of every flight, and the totals of each airport."""

from __future__ import annotations

import millpond as mp


class Update(mp.Struct):  # sent by an airline several times before a flight departs
    origin: str
    dest: str
    carrier: str
    scheduled: str
    status: str
    delay: int | None = None  # minutes; known once it has departed


class Line(mp.Struct):  # one line of a board
    origin: str = ""
    dest: str = ""
    carrier: str = ""
    scheduled: str = ""
    status: str = ""
    delay: int | None = None
    updates: int = 0


class Airport(mp.Struct):
    departed: int = 0
    cancelled: int = 0
    minutes: int = 0
    mean_delay: float = 0.0


def show(_flight: str, update: Update, line: Line) -> Line:
    return Line(
        update.origin, update.dest, update.carrier, update.scheduled, update.status, update.delay, line.updates + 1
    )


def add(_airport: str, update: Update, airport: Airport) -> Airport:
    if update.delay is None:
        airport.cancelled += 1
        return airport
    airport.departed += 1
    airport.minutes += update.delay
    airport.mean_delay = round(airport.minutes / airport.departed, 2)
    return airport


def boards() -> mp.Topology:
    builder = mp.StreamsBuilder()
    updates = builder.stream("updates", key=mp.String, value=mp.Json(Update))
    updates.group_by_key().aggregate(Line, show, store="board", value=mp.Json(Line))
    (
        updates.filter(lambda _flight, update: update.status in {"departed", "cancelled"})
        .group_by(lambda _flight, update: update.origin, key=mp.String, value=mp.Json(Update), name="by-airport")
        .aggregate(Airport, add, store="airports", value=mp.Json(Airport))
    )
    return builder.build()
