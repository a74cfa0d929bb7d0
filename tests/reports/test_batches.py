"""Reports about tables of pandas and Arrow that functions of users get, from the trackers of peers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.errors import ProcessingFailed


class Reading(msgspec.Struct):
    sensor: int
    level: int | None = None


@pytest.mark.parametrize("form", ["pandas", "arrow"])
def test_an_integer_beside_a_null_stays_an_integer(form: Any) -> None:
    """Functions over pandas frames get floats where a column of integers has a null: 2^53 + 1 is another number."""
    pytest.importorskip("pyarrow" if form == "arrow" else "pandas")
    builder = mp.StreamsBuilder()
    readings = builder.stream("in", key=mp.String, value=mp.Json(Reading))
    readings.map_batches(lambda table: table, batch=form, value=mp.Json()).to("out", key=mp.String)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Json(Reading)).pipe_value_list(
            [Reading(1, 2**53 + 1), Reading(2)]
        )
        rows = driver.create_output_topic("out", key=mp.String, value=mp.Json()).read_values_to_list()
    assert rows == [{"level": 2**53 + 1, "sensor": 1}, {"level": None, "sensor": 2}]


class Price(msgspec.Struct):
    price: float | None


def _written(mapper: Any) -> Any:
    builder = mp.StreamsBuilder()
    prices = builder.stream("in", key=mp.String, value=mp.Json(Price))
    prices.map_batches(mapper, batch="pandas", value=mp.Json()).to("out", key=mp.String)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Json(Price)).pipe_value_list([Price(1.5), Price(None)])
        return driver.create_output_topic("out", key=mp.String, value=mp.Json()).read_values_to_list()


def test_a_calculation_with_a_null_is_refused_or_null() -> None:
    """A calculation of pandas yields NaN for a null; msgspec wrote it as null, and an infinity, too.

    https://github.com/msgspec/msgspec/issues/826
    """
    pytest.importorskip("pandas")

    def doubled(frame: Any) -> Any:
        return frame.assign(price=frame["price"] * 2)

    with pytest.raises(ProcessingFailed, match=re.escape("$.price is NaN, which JSON does not have")):
        _written(doubled)
    rows = _written(lambda frame: doubled(frame).assign(price=lambda given: given["price"].astype("Float64")))
    assert [row["price"] for row in rows] == [3.0, None]
