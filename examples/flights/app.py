"""Departures and mean delay per airport and hour."""

from datetime import datetime, timedelta

import millpond as mp


class Flight(mp.Struct):  # a msgspec Struct: typed, fast, JSON by default
    carrier: str
    origin: str
    scheduled: datetime
    delay: int | None  # minutes; None: cancelled
    airline: str = ""
    seats: int = 0


class Airline(mp.Struct):
    name: str


class Plane(mp.Struct):
    seats: int


class Hour(mp.Struct):
    departures: int = 0
    cancelled: int = 0
    minutes: int = 0
    mean_delay: float = 0.0
    seats: int = 0
    worst: tuple[int, str] = (0, "")  # the longest delay, and its airline


def add(_airport: str, flight: Flight, hour: Hour) -> Hour:
    if flight.delay is None:
        hour.cancelled += 1
        return hour
    hour.departures += 1
    hour.minutes += flight.delay
    hour.mean_delay = hour.minutes / hour.departures
    hour.seats += flight.seats
    hour.worst = max(hour.worst, (flight.delay, flight.airline))
    return hour


def delays() -> mp.Topology:
    builder = mp.StreamsBuilder()
    airlines = builder.global_table("airlines", key=mp.String, value=mp.Json(Airline))
    planes = builder.table("planes", key=mp.String, value=mp.Json(Plane))  # keyed by tail number, as flights are
    flights = builder.stream("flights", key=mp.String, value=mp.Json(Flight), timestamp=lambda flight: flight.scheduled)
    (
        flights.join(
            airlines,
            lambda flight, airline: mp.replace(flight, airline=airline.name),
            on=lambda _tail, flight: flight.carrier,
        )
        .left_join(planes, lambda flight, plane: mp.replace(flight, seats=plane.seats) if plane else flight)
        .select_key(lambda _tail, flight: flight.origin)
        .repartition(
            partitions=4, key=mp.String, value=mp.Json(Flight), name="by-airport"
        )  # airports in separate tasks
        .group_by_key()
        .windowed_by(mp.TimeWindows(timedelta(hours=1), grace=timedelta(minutes=10)))
        .aggregate(Hour, add, store="delays", value=mp.Json(Hour))
        .suppress(mp.until_window_closes())
        .to_stream()
        .to("delays-by-airport")
    )
    return builder.build()
