"""Tables of map_batches: values pass unchanged, or the step is refused when it is built, however batches are made."""

from __future__ import annotations

import dataclasses
import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond.errors import ProcessingFailed, TopologyError
from millpond.testing import TopologyTestDriver

Form = Literal["arrow", "pandas"]
FORMS: tuple[Form, ...] = ("arrow", "pandas")
Zoned = Annotated[datetime, msgspec.Meta(tz=True)]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Inner(msgspec.Struct, omit_defaults=True):
    left: int = 1


class Order(msgspec.Struct, omit_defaults=True):
    item: str
    count: int | None = None
    price: float | None = None
    share: float = 0.5
    paid: bool = False
    at: Zoned = NOON
    raw: bytes = b"\xff"
    tags: list[str] = []
    inner: Inner = msgspec.field(default_factory=Inner)


class Anything(msgspec.Struct):
    value: Any
    number: int = 0
    decimal: Decimal | None = None
    day: date | None = None


def _mapped(values: list[Any], given: Any, form: Form, *, together: bool, mapper: Any = None) -> list[Any]:
    """Return what a step makes of values, all in one batch or each alone."""
    out: list[Any] = []
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String).map_values(
        lambda number: values[int(number)], value=given
    )
    stream.map_batches(mapper or (lambda table: table), batch=form, value=mp.Json()).foreach(
        lambda _key, value: out.append(value)
    )
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        numbers = [(None, str(number)) for number in range(len(values))]
        if together:
            topic.pipe_key_value_list(numbers)
        else:
            for key, number in numbers:
                topic.pipe_input(key, number)
    return out


def _exact(value: Any) -> Any:
    """Return a value with its types, in which 1, 1.0 and True differ, and NaN is equal to itself."""
    match value:
        case dict():
            return {name: _exact(each) for name, each in value.items()}
        case list():
            return [_exact(each) for each in value]
        case float() if math.isnan(value):
            return "NaN"
        case _:
            return type(value).__name__, value


orders = st.builds(
    Order,
    item=st.text(st.characters(exclude_categories=["Cs"])),
    count=st.none() | st.integers(-(2**63), 2**63 - 1),
    price=st.none() | st.floats(),
    share=st.floats(),
    paid=st.booleans(),
    at=st.datetimes(timezones=st.just(UTC)),
    raw=st.binary(max_size=4),
    tags=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=3),
    inner=st.builds(Inner, left=st.integers(-(2**63), 2**63 - 1)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(orders, min_size=1, max_size=4), st.sampled_from(FORMS))
def test_rows_are_the_fields_unchanged_however_records_fall_into_batches(values: list[Order], form: Form) -> None:
    """Integers stay integers beside nulls, times stay times, and fields with their defaults are there."""
    pytest.importorskip("pyarrow" if form == "arrow" else "pandas")
    expected = [
        _exact(
            {
                each.name: _inner(value.inner, form) if each.name == "inner" else getattr(value, each.name)
                for each in msgspec.structs.fields(Order)
            }
        )
        for value in values
    ]
    for together in (True, False):
        rows = [_without_zone_name(row) for row in _mapped(values, mp.Json(Order), form, together=together)]
        assert [_exact(row) for row in rows] == expected


def _inner(value: Inner, form: Form) -> Any:
    return {"left": value.left} if form == "arrow" else msgspec.to_builtins(value)  # as in JSON, or all fields


def _without_zone_name(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"at": row["at"].astimezone(UTC)}


def test_pandas_passes_every_object_of_a_field_on() -> None:
    """Numbers of any size, mixed numbers, decimals, dates, dictionaries with other fields each."""
    pytest.importorskip("pandas")
    values = [
        Anything(2**53 + 1, 2**63), Anything(1.5, 2**64, Decimal("1.10")),
        Anything({"a": 1}, 1, None, date(2026, 1, 1)),
        Anything({"b": None}, -(2**80)), Anything(None), Anything([NOON, timedelta(1)]),
    ]  # fmt: skip
    expected = [_exact(msgspec.structs.asdict(each)) for each in values]
    for together in (True, False):
        found = _mapped(values, mp.Json(Anything), "pandas", together=together)
        assert [_exact(row) for row in found] == expected


def test_a_row_that_does_not_fit_a_column_goes_alone_to_the_handler() -> None:
    """A number of more than 64 bits, a null value and an integer among fractions fail, each as if it were alone."""
    arrow = pytest.importorskip("pyarrow")
    assert arrow is not None
    for values, serde, form in (
        ([Order("a", 2**63)], mp.Json(Order), "arrow"),
        ([None], mp.Json(Order), "pandas"),
        ([None], mp.Double, "arrow"),
        ([Order("a", share=2**53 + 1)], mp.Json(Order), "pandas"),
        ([Order("a", share=1)], mp.Json(Order), "arrow"),
        ([[1]], mp.Json(list[float]), "arrow"),
        ([Order("a", inner=Inner(2**63))], mp.Json(Order), "arrow"),
    ):
        with pytest.raises(ProcessingFailed):
            _mapped(values, serde, form, together=True)  # type: ignore[arg-type]


def test_columns_have_the_same_types_in_every_batch() -> None:
    """A function sees the same columns for one record and for many."""
    pytest.importorskip("pandas")
    seen: set[Any] = set()

    def look(table: Any) -> Any:
        seen.add(tuple((name, str(table[name].dtype)) for name in table.columns))
        return table

    values = [Order("a"), Order("b", 1, 2.0)]
    for together in (True, False):
        _mapped(values, mp.Json(Order), "pandas", together=together, mapper=look)
    assert len(seen) == 1
    types = dict(seen.pop())
    assert (types["count"], types["share"], types["paid"], types["_timestamp"]) == (
        "object",
        "float64",
        "bool",
        "int64",
    )


def test_results_of_numpy_and_pandas_are_written() -> None:
    """Their cells are Python's objects for the serde; nanoseconds, which Python lacks, are an error."""
    pandas = pytest.importorskip("pandas")

    def times(frame: Any) -> Any:
        return frame.assign(
            at=pandas.Timestamp(NOON), long=pandas.Series([7], dtype="int64"), none=pandas.NaT,
            gap=pandas.Timedelta(seconds=1), absent=pandas.array([None], dtype="Int64"),
        )[["at", "long", "none", "gap", "absent"]]  # fmt: skip

    [row] = _mapped([Order("a")], mp.Json(Order), "pandas", together=True, mapper=times)
    expected = {"at": NOON, "long": 7, "none": None, "gap": timedelta(seconds=1), "absent": None}
    assert _exact(row) == _exact(expected)
    assert mp.Json().serialize(row).startswith(b'{"absent":null,"at":"2026-01-31T12:00:00')
    with pytest.raises(ProcessingFailed, match="has nanoseconds"):
        _mapped(
            [Order("a")], mp.Json(Order), "pandas", together=True,
            mapper=lambda frame: pandas.Series([pandas.Timestamp(1, unit="ns")] * len(frame)),
        )  # fmt: skip


class Reserved(msgspec.Struct):
    key: str = msgspec.field(name="_key")


class Partial(TypedDict, total=False):
    name: str


class Unset(msgspec.Struct):
    name: str | msgspec.UnsetType = msgspec.UNSET


class Naive(msgspec.Struct):
    at: datetime


class Mixed(msgspec.Struct):
    number: int | float


class Mapping(msgspec.Struct):
    counts: dict[str, int]


@pytest.mark.parametrize(
    ("serde", "form", "cause"),
    [
        (mp.Json(), "pandas", "makes a column of each field, and the values before it have the serde Json"),
        (mp.Json(dict[str, int]), "arrow", "does not say their fields"),
        (None, "pandas", "the values before it have no serde"),
        (mp.Json(Reserved), "pandas", "has the column '_key' of the records, and Reserved has a field of this name"),
        (mp.Json(Partial), "pandas", "the field 'name' of Partial may be missing"),
        (mp.Json(Unset), "arrow", "the field 'name' of Unset may be missing"),
        (mp.Json(Naive), "arrow", "Times have to say whether they have a zone"),
        (mp.Json(Mixed), "arrow", "has no column for 'number'"),
        (mp.Json(Mapping), "arrow", "has no column for 'counts'"),
        (mp.Json(Anything), "arrow", "has no column for 'value'"),
        (mp.Json(list[Any]), "arrow", "has no column for 'value'"),
    ],
)
def test_values_that_a_table_would_change_are_refused_where_the_step_is_built(
    serde: Any, form: Form, cause: str
) -> None:
    pytest.importorskip("pyarrow" if form == "arrow" else "pandas")
    stream: mp.KStream[str, Any] = mp.StreamsBuilder().stream("in", key=mp.String, value=serde)
    with pytest.raises(TopologyError, match=cause):
        stream.map_batches(lambda table: table, batch=form, value=mp.Json())


def test_arrow_needs_the_type_of_the_keys() -> None:
    pytest.importorskip("pyarrow")
    stream = mp.StreamsBuilder().stream("in", value=mp.Json(Order))
    with pytest.raises(TopologyError, match="needs the type of the keys for the column _key, and they have no serde"):
        stream.map_batches(lambda table: table, batch="arrow", value=mp.Json())


@dataclasses.dataclass
class Point:
    x: int


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    first_name: str


class Total(TypedDict):
    name: str
    id: uuid.UUID


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("value", "serde", "row"),
    [
        (Point(2), mp.Json(Point), {"x": 2}),
        (Tagged("x"), mp.Json(Tagged), {"type": "t", "firstName": "x"}),
        ({"name": "n", "id": uuid.UUID(int=1)}, mp.Json(Total), {"name": "n", "id": uuid.UUID(int=1)}),
        (2.5, mp.Double, {"value": 2.5}),
        (2**62, mp.Long, {"value": 2**62}),
        (["a"], mp.Json(list[str]), {"value": ["a"]}),
    ],
)
def test_values_of_each_kind_have_columns(value: Any, serde: Any, row: Any, form: Form) -> None:
    pytest.importorskip("pyarrow" if form == "arrow" else "pandas")
    [found] = _mapped([value], serde, form, together=True)
    if form == "arrow" and "id" in row:
        row = row | {"id": str(row["id"])}  # as in JSON
    assert _exact(found) == _exact(row)


def test_the_driver_gives_a_list_of_records_to_a_step_together() -> None:
    """So a test sees the batches that a worker makes; single records come alone."""
    sizes: list[int] = []

    def mapper(values: list[str]) -> list[str]:
        sizes.append(len(values))
        return values

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).map_batches(mapper).to("out", key=mp.String, value=mp.String)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        topic.pipe_value_list(["a", "b", "c"])
        topic.pipe_record_list([mp.Record("k", "d", 7), mp.Record("k", "e", 8)])
        topic.pipe_input("k", "f")
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        assert out.read_values_to_list() == list("abcdef")
    assert sizes == [3, 2, 1]


def test_the_driver_empties_several_inputs_at_once() -> None:
    """A step over batches takes the records of all inputs, so none of them may be left."""
    builder = mp.StreamsBuilder()
    source = builder.stream("in", key=mp.String, value=mp.String)
    inputs = [builder.stream(name, key=mp.String, value=mp.String) for name in ("left", "right")]
    for name in ("left", "right"):
        source.to(name, key=mp.String, value=mp.String)
    merged = inputs[0].merge(inputs[1]).map_batches(lambda values: values)
    merged.to("out", key=mp.String, value=mp.String)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_value_list(["a", "b", "c"])
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        assert sorted(out.read_values_to_list()) == list("aabbcc")
