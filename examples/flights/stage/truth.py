"""The expected output, computed by a plain loop over the same rows, and the comparison with the real output.

Nothing here uses millpond or the application.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime

from examples.flights.stage.data import Row

__all__ = ("AirportDifference", "Comparison", "compare", "compute")

AirportHour = tuple[str, int]
"""An airport, and the start of an hour in epoch milliseconds."""

_HOUR_MS = 3_600_000


def compute(
    rows: Iterable[Row], airlines: Iterable[Row], planes: Iterable[Row]
) -> dict[AirportHour, dict[str, object]]:
    """Return departures and delays per airport and hour, in the form of the output topic's JSON."""
    names = {row["carrier"]: row["name"] for row in airlines}
    seats = {row["tailnum"]: int(row["seats"]) for row in planes}
    groups: dict[AirportHour, list[Row]] = {}
    for row in rows:
        second = int(datetime.fromisoformat(row["scheduled"]).timestamp())
        groups.setdefault((row["origin"], second // 3600 * _HOUR_MS), []).append(row)
    hours: dict[AirportHour, dict[str, object]] = {}
    for at, group in groups.items():
        departed = [row for row in group if row["dep_delay"] != "NA"]
        delays = [int(row["dep_delay"]) for row in departed]
        late = [(int(row["dep_delay"]), names[row["carrier"]]) for row in departed if int(row["dep_delay"]) >= 0]
        hours[at] = {
            "departures": len(departed),
            "cancelled": len(group) - len(departed),
            "minutes": sum(delays),
            "mean_delay": sum(delays) / len(delays) if delays else 0.0,
            "seats": sum(seats.get(row["tailnum"], 0) for row in departed),
            "worst": list(max(late, default=(0, ""))),
        }
    return hours


@dataclass
class AirportDifference:
    """One airport: expected results, results read, and their differences."""

    airport: str
    flights_read: int = 0
    """Departures and cancellations in the results that were read."""
    departures: int = 0
    minutes: int = 0
    hours_expected: int = 0
    hours_read: int = 0
    """Results read, including repeated ones."""
    missing: int = 0
    wrong: int = 0
    """Results with wrong values, or for hours without flights."""
    repeated: int = 0
    """Results beyond the first of their hour: a final result comes once."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.wrong or self.repeated)


@dataclass
class Comparison:
    """The comparison of all airports."""

    airports: list[AirportDifference] = field(default_factory=list)
    longest: tuple[int, str, str, int] = (0, "", "", 0)
    """The longest delay that was read: minutes, airline, airport, start of the hour in epoch milliseconds."""

    @property
    def equal(self) -> bool:
        """Whether the output is as expected, with every hour once."""
        return all(each.equal for each in self.airports)

    @property
    def total(self) -> AirportDifference:
        """The sums of all airports."""
        everything = AirportDifference("all")
        for each in fields(AirportDifference)[1:]:
            setattr(everything, each.name, sum(getattr(airport, each.name) for airport in self.airports))
        return everything


def compare(expected: dict[AirportHour, dict[str, object]], records: Iterable[tuple[bytes, bytes]]) -> Comparison:
    """Compare the output topic with the expected output.

    Args:
        expected: from `compute`.
        records: keys (the airport's three letters, then the window's start in 8 bytes) and values (JSON) that were
            read.
    """
    by_airport = {airport: AirportDifference(airport) for airport in sorted({airport for airport, _ in expected})}
    for airport, _ in expected:
        by_airport[airport].hours_expected += 1
    longest = Comparison().longest
    read: Counter[AirportHour] = Counter()
    for key, value in records:
        at = (key[:-8].decode(), int.from_bytes(key[-8:], "big"))
        hour = json.loads(value)
        read[at] += 1
        longest = max(longest, (*hour["worst"], *at))
        difference = by_airport.setdefault(at[0], AirportDifference(at[0]))
        difference.hours_read += 1
        difference.flights_read += hour["departures"] + hour["cancelled"]
        difference.departures += hour["departures"]
        difference.minutes += hour["minutes"]
        if read[at] > 1:
            difference.repeated += 1
        elif hour != expected.get(at):
            difference.wrong += 1
    for at in expected.keys() - read.keys():
        by_airport[at[0]].missing += 1
    return Comparison(list(by_airport.values()), longest)
