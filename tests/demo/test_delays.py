"""The demo's application, tested without a broker, in event time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import millpond as mp
from examples.flights.app import Airline, Flight, Hour, Plane, delays
from examples.flights.stage import data, player, truth
from examples.flights.stage.topics import TOPICS
from millpond.testing import TestInputTopic, TestOutputTopic, TopologyTestDriver

MORNING = datetime(2013, 7, 4, 6, tzinfo=UTC)


def flight(minutes: int, delay: int | None = 0, origin: str = "JFK", carrier: str = "HA") -> Flight:
    """Return a flight scheduled so many minutes after six."""
    return Flight(carrier, origin, MORNING + timedelta(minutes=minutes), delay)


@dataclass
class Delays:
    """The application's topics."""

    flights: TestInputTopic[str, Flight]
    planes: TestInputTopic[str, Plane]
    hours: TestOutputTopic[mp.Windowed[str], Hour]

    def results(self) -> dict[tuple[str, datetime], Hour]:
        """Return the output since the last call."""
        found = self.hours.read_key_values_to_list()
        assert len({str(windowed) for windowed, _ in found}) == len(found)
        return {(windowed.key, windowed.window.start_time): hour for windowed, hour in found}


@pytest.fixture
def app() -> Iterator[Delays]:
    with TopologyTestDriver(delays()) as driver:
        driver.create_input_topic("airlines", key=mp.String, value=mp.Json(Airline)).pipe_key_value_list(
            [("HA", Airline("Hawaiian")), ("UA", Airline("United"))]
        )
        yield Delays(
            driver.create_input_topic("flights", key=mp.String, value=mp.Json(Flight)),
            driver.create_input_topic("planes", key=mp.String, value=mp.Json(Plane), start=MORNING),
            driver.create_output_topic(
                "delays-by-airport",
                key=mp.TimeWindowedSerde(mp.String, timedelta(hours=1)),
                value=mp.Json(Hour),
            ),
        )


def test_a_late_flight_within_grace_counts() -> None:
    """The README's test: stream time passes the end of an hour, and a flight of that hour is still within the grace."""
    six = datetime(2013, 7, 4, 6, tzinfo=UTC)
    with mp.testing.TopologyTestDriver(delays()) as driver:
        airlines = driver.create_input_topic("airlines", key=mp.String, value=mp.Json(Airline))
        flights = driver.create_input_topic("flights", key=mp.String, value=mp.Json(Flight))
        windows = mp.TimeWindowedSerde(mp.String, timedelta(hours=1))
        hours = driver.create_output_topic("delays-by-airport", key=windows, value=mp.Json(Hour))
        airlines.pipe_input("HA", Airline("Hawaiian"))
        for minute, delay in ((5, 30), (62, 0), (50, 0), (75, 0)):  # 50 comes late, within the grace of ten minutes
            flights.pipe_input("N1", Flight("HA", "JFK", six + timedelta(minutes=minute), delay))
        [(window, hour)] = hours.read_key_values_to_list()
        assert (window.key, window.window.start_time) == ("JFK", six)
        assert (hour.departures, hour.mean_delay, hour.worst) == (2, 15.0, (30, "Hawaiian"))


def test_each_hour_is_reported_once_and_only_when_final(app: Delays) -> None:
    """Nothing is sent before stream time is past the hour and its grace; then each airport's hour comes once."""
    for minute in (0, 30, 59, 69):
        app.flights.pipe_input("N1", flight(minute))
        assert app.results() == {}
    app.flights.pipe_input("N1", flight(70))
    assert {at: hour.departures for at, hour in app.results().items()} == {("JFK", MORNING): 3}
    app.flights.pipe_input("N1", flight(131))
    assert {at: hour.departures for at, hour in app.results().items()} == {("JFK", MORNING + timedelta(hours=1)): 2}


def test_a_flight_after_the_grace_is_left_out(app: Delays) -> None:
    """A record of a final hour changes nothing."""
    for minute in (10, 70, 20, 140):
        app.flights.pipe_input("N1", flight(minute))
    assert [hour.departures for hour in app.results().values()] == [1, 1]


def test_hours_are_counted_per_airport(app: Delays) -> None:
    """The windowed key has the airport and the hour."""
    for origin in ("JFK", "EWR", "JFK"):
        app.flights.pipe_input("N1", flight(10, origin=origin))
    app.flights.pipe_input("N1", flight(80))
    assert {at: hour.departures for at, hour in app.results().items()} == {("JFK", MORNING): 2, ("EWR", MORNING): 1}


def test_cancelled_flights_are_counted_apart(app: Delays) -> None:
    """A flight without a delay was cancelled: it is no departure, and not in the mean."""
    for delay in (10, None, -4):
        app.flights.pipe_input(None, flight(10, delay))
    app.flights.pipe_input(None, flight(80))
    [hour] = app.results().values()
    assert (hour.departures, hour.cancelled, hour.minutes, hour.mean_delay) == (2, 1, 6, 3.0)


def test_both_tables_are_joined(app: Delays) -> None:
    """Seats come from the plane's row of the flight's moment, names from the airlines; unknown planes have no seats."""
    app.planes.pipe_input("N1", Plane(200))
    app.flights.pipe_input("N1", flight(1, 5, carrier="UA"))
    app.flights.pipe_input("N9", flight(2, 6))
    app.planes.pipe_input("N1", Plane(150))
    app.flights.pipe_input("N1", flight(3, 4))
    app.flights.pipe_input("N1", flight(70))
    [hour] = app.results().values()
    assert (hour.seats, hour.worst) == (350, (6, "Hawaiian"))


@pytest.mark.slow
def test_two_days_of_flights_match_a_plain_loop() -> None:
    """The application and the demo's expected output agree on real data."""
    rows = data.year(days=2)
    with TopologyTestDriver(delays()) as driver:
        topics = {name: driver.create_input_topic(name, key=mp.String, value=mp.Json()) for name in TOPICS}
        for row in data.airlines():
            topics["airlines"].pipe_input(row["carrier"], {"name": row["name"]})
        for row in data.planes():
            topics["planes"].pipe_input(row["tailnum"], {"seats": int(row["seats"])}, 0)
        for row in rows:
            topics["flights"].pipe_input(row["tailnum"], player.flight(row))
        for airport in ("EWR", "JFK", "LGA"):
            topics["flights"].pipe_input("none", player.closing_flight(airport))
        output = driver.create_output_topic("delays-by-airport", key=mp.Bytes, value=mp.Bytes)
        found = truth.compare(truth.compute(rows, data.airlines(), data.planes()), output.read_key_values_to_list())
    assert found.equal, found
    assert found.total.flights_read == len(rows) == 1785
    assert found.total.hours_read > 100
