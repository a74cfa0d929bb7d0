"""Reports about JSON: numbers that it does not have."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import millpond as mp
from millpond.cli.catalog import _encode
from millpond.cli.records.coders import NotEncodable, json_value, named
from millpond.errors import MillpondError
from millpond.inspection.decoding import _plain
from millpond.queries.rendering import encode


class Reading(msgspec.Struct):
    sensor: str
    level: float
    note: str | None = None


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Reading("a", math.nan), r"\$.level is NaN"),
        (Reading("a", -math.inf, "x"), r"\$.level is infinite"),
        (math.inf, r"\$ is infinite"),
        ({"rows": [None, {"mean": math.nan}]}, r"\$.rows\[1\].mean is NaN"),
        ([None, 2**70, (1.5, math.nan)], r"\$\[2\]\[1\] is NaN"),
    ],
)
@pytest.mark.parametrize("type", [Any, Reading])
def test_numbers_that_json_does_not_have_are_refused(type: Any, value: Any, where: str) -> None:
    """The library msgspec writes NaN and infinities as null: another value, or one that cannot be read again.

    https://github.com/msgspec/msgspec/issues/826
    """
    serde = mp.Json(type)
    with pytest.raises(ValueError, match=f"^{where}, which JSON does not have: replace it, .*, or use MsgPack or Avro"):
        serde.serialize(value)


@pytest.mark.parametrize(
    "value",
    [None, [None], {"a": None, "b": 1e308}, [None, 2**70], ["null", b"\xcb\x7f\xf8", 1.5], [None, "\x7f" * 203]],
)
def test_null_is_written(value: Any) -> None:
    """A null beside finite numbers is no number that JSON does not have."""
    assert mp.Json().serialize(value) == msgspec.json.encode(value, order="deterministic")


def test_a_value_with_nan_does_not_reach_a_topic() -> None:
    """The error names the topic, the serde and the field; MsgPack writes the same value.

    https://github.com/msgspec/msgspec/issues/486
    """
    builder = mp.StreamsBuilder()
    readings = builder.stream("in", key=mp.String, value=mp.MsgPack(Reading))
    readings.to("packed")
    readings.filter(lambda sensor, _: sensor == "json").to("out", value=mp.Json(Reading))
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.MsgPack(Reading))
        topic.pipe_input("packed", Reading("a", math.nan))
        packed = driver.create_output_topic("packed", key=mp.String, value=mp.MsgPack(Reading)).read_value()
        assert packed is not None
        assert math.isnan(packed.level)
        refusal = r"topic 'out': Json\(Reading\) cannot encode .*: \$.level is NaN, which JSON does not have"
        with pytest.raises(MillpondError, match=refusal):
            topic.pipe_input("json", Reading("a", math.nan))
        assert driver.create_output_topic("out", key=mp.String, value=mp.Json(Reading)).is_empty()


@pytest.mark.parametrize("form", ["double", "float", "msgpack"])
def test_a_number_over_the_limit_of_floats_is_not_produced_as_infinity(form: str) -> None:
    """`millpond produce` rejects a line whose number only infinity could stand for."""
    with pytest.raises(NotEncodable, match="too large for a float"):
        named(form, "t", is_key=False).encode(json_value(b"1e400"))


@pytest.mark.parametrize("serde", [mp.Double, mp.MsgPack(), mp.MsgPack(Reading)])
def test_stores_with_such_numbers_are_not_shown_with_null(serde: Any) -> None:
    """Queries and tables of past state showed null, which is another value.

    https://github.com/msgspec/msgspec/issues/826
    """

    def value(number: float) -> Any:
        return number if serde is mp.Double else Reading("a", number)

    shown = {math.nan: "NaN", math.inf: "Infinity", -math.inf: "-Infinity", 1.5: 1.5}
    for number, name in shown.items():
        row = {"key": "k", "value": serde.deserialize(serde.serialize(value(number))), "share": Decimal("0.10")}
        level = name if serde is mp.Double else {"sensor": "a", "level": name, "note": None}
        assert msgspec.json.decode(encode(row)) == {"key": "k", "value": level, "share": "0.10"}
        assert _plain(row["value"]) == level


def test_the_catalog_keeps_decimals_beside_nan() -> None:
    """Lines of `millpond catalog` have decimals as numbers, with all digits."""
    assert _encode({"share": Decimal("0.10"), "mean": math.nan, "none": None}) == (
        b'{"share":0.10,"mean":"NaN","none":null}'
    )
