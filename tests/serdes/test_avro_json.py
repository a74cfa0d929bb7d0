"""A record that `millpond consume` shows can be written again by `millpond produce`, with the same bytes."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond.cli.records.coders import NotEncodable, of_serde
from millpond.serdes.registry import Avro, SchemaRegistry

pytest.importorskip("fastavro", reason="needs the extra avro")

_numbers = itertools.count()
_REGISTRY = SchemaRegistry("mock://json")
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_micros = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
_millis = _micros.map(lambda when: when.replace(microsecond=when.microsecond // 1000 * 1000))
_times = st.times()


def _decimals(digits: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(lambda number: Decimal(number).scaleb(-2))


def _named(kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "name": f"N{next(_numbers)}", **rest}


def _logical(kind: str, logical: str, **rest: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **rest}


_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", _text),
    ("bytes", st.binary(max_size=5)),
    (_logical("long", "timestamp-millis"), _millis),
    (_logical("long", "timestamp-micros"), _micros),
    (_logical("long", "local-timestamp-millis"), _millis.map(lambda when: when.replace(tzinfo=None))),
    (_logical("long", "local-timestamp-micros"), _micros.map(lambda when: when.replace(tzinfo=None))),
    (_logical("int", "date"), st.dates()),
    (_logical("int", "time-millis"), _times.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000))),
    (_logical("long", "time-micros"), _times),
    (_logical("bytes", "decimal", precision=9, scale=2), _decimals(9)),
    (_logical("string", "uuid"), st.uuids()),
    (_logical("long", "of-another-program"), st.integers(-5, 5)),
]


def _leaf() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    named = st.sampled_from(
        [
            lambda: (_named("enum", symbols=["A", "B"]), st.sampled_from("AB")),
            lambda: (_named("fixed", size=3), st.binary(min_size=3, max_size=3)),
            lambda: (_named("fixed", size=8, logicalType="decimal", precision=9, scale=2), _decimals(9)),
        ]
    ).map(lambda make: make())
    return st.sampled_from(_LEAVES) | named


def _inside(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def record(fields: list[Any]) -> tuple[Any, st.SearchStrategy[Any]]:
        names = [f"f{number}" for number in range(len(fields))]
        schema = _named("record", fields=[{"name": n, "type": t} for n, (t, _) in zip(names, fields, strict=True)])
        return schema, st.fixed_dictionaries(dict(zip(names, (each for _, each in fields), strict=True)))

    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(record),
        inner.map(lambda one: ({"type": "array", "items": one[0]}, st.lists(one[1], max_size=3))),
        inner.map(lambda one: ({"type": "map", "values": one[0]}, st.dictionaries(_text, one[1], max_size=3))),
        inner.map(lambda one: (["null", one[0]] if not isinstance(one[0], list) else one[0], st.none() | one[1])),
    )


@settings(max_examples=60)
@given(st.recursive(_leaf(), _inside, max_leaves=5).flatmap(lambda one: st.tuples(st.just(one[0]), one[1])))
def test_a_shown_value_of_any_schema_can_be_written_again(case: tuple[Any, Any]) -> None:
    """The JSON goes through text, as in a file, and the bytes are those of the record."""
    field, value = case
    schema = _named("record", fields=[{"name": "value", "type": field}])
    serde = Avro(registry=_REGISTRY, schema=schema).for_topic("t")
    coder, data = of_serde(serde), serde.serialize({"value": value})
    assert coder.encode(json.loads(json.dumps(coder.decode(data)))) == data


class Grade(Enum):
    A = "A"
    B = "B"


class Part(mp.Struct):
    weight: Decimal
    made: date


class Event(mp.Struct):
    at: datetime
    local: datetime
    opens: time
    id: UUID
    raw: bytes
    grade: Grade
    parts: list[Part]
    note: str | None = None


_PART = {
    "type": "record",
    "name": "Part",
    "fields": [
        {"name": "weight", "type": _logical("bytes", "decimal", precision=9, scale=2)},
        {"name": "made", "type": _logical("int", "date")},
    ],
}
_EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "at", "type": _logical("long", "timestamp-millis")},
        {"name": "local", "type": _logical("long", "local-timestamp-micros")},
        {"name": "opens", "type": _logical("long", "time-micros")},
        {"name": "id", "type": _logical("string", "uuid")},
        {"name": "raw", "type": "bytes"},
        {"name": "grade", "type": {"type": "enum", "name": "Grade", "symbols": ["A", "B"]}},
        {"name": "parts", "type": {"type": "array", "items": _PART}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
_EXAMPLE = Event(
    datetime(2026, 1, 31, 12, 0, 10, 5000, tzinfo=UTC), datetime(2026, 1, 31, 12, 0, 10, 5), time(9, 30), UUID(int=7),
    b"\0\xff", Grade.B, [Part(Decimal("1.25"), date(2026, 1, 1))],
)  # fmt: skip


def test_a_shown_struct_can_be_written_again_with_avro_and_message_pack() -> None:
    serdes: list[mp.Serde[Event]] = [
        Avro(Event, registry=_REGISTRY, schema=_EVENT).for_topic("events"),
        Avro(Event, registry=_REGISTRY).for_topic("events"),  # the newest schema of the subject
        mp.MsgPack(Event),
    ]
    for serde in serdes:
        coder, data = of_serde(serde), serde.serialize(_EXAMPLE)
        shown = json.loads(json.dumps(coder.decode(data)))
        assert shown["at"] == "2026-01-31T12:00:10.005000Z"
        assert coder.encode(shown) == data


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"at": "2026-01-31T12:00:10"}, "at: it has no time zone"),
        ({"at": "soon"}, "at: it is not text such as 2026-01-31T12:00:10Z"),
        ({"local": "2026-01-31T12:00:10Z"}, "local: it has a time zone"),
        ({"id": "7"}, "id: it is not the text of a UUID"),
        ({"raw": "ü"}, "raw: it is not base64"),
        ({"grade": "C"}, "grade: it is none of A, B"),
        ({"parts": [{"weight": "one", "made": "2026-01-01"}]}, "parts: weight: it is not text such as 1.25"),
        ({"parts": [{"made": "2026-01-01"}]}, "the field 'weight' of the record Part is missing"),
        ({"note": 5}, "note: it is not null and it is not text"),
        ({"nots": "lost"}, "the record Event has no field 'nots'"),
    ],
)
def test_a_line_that_the_schema_does_not_allow_names_the_field(changed: dict[str, Any], cause: str) -> None:
    """A field that the schema does not have would be left out in silence."""
    coder = of_serde(Avro(registry=_REGISTRY, schema=_EVENT).for_topic("events"))
    shown = json.loads(
        json.dumps(coder.decode(Avro(Event, registry=_REGISTRY, schema=_EVENT).for_topic("events").serialize(_EXAMPLE)))
    )
    with pytest.raises(NotEncodable) as error:
        coder.encode({**shown, **changed})
    assert cause in str(error.value)


def test_a_text_that_two_types_of_a_union_can_be_is_not_guessed() -> None:
    schema = _named("record", fields=[{"name": "x", "type": ["string", _logical("int", "date"), "long"]}])
    coder = of_serde(Avro(registry=_REGISTRY, schema=schema).for_topic("t"))
    assert coder.decode(coder.encode({"x": "tea"})) == {"x": "tea"}
    assert coder.decode(coder.encode({"x": 2**40})) == {"x": 2**40}
    with pytest.raises(NotEncodable, match="it can be str or date in this union"):
        coder.encode({"x": "2026-01-31"})


def test_keys_that_are_written_have_the_bytes_of_the_application() -> None:
    """A struct's fields are in its order, and not in that of the line: other bytes would be another key."""

    class Place(mp.Struct):
        town: str
        country: str = "NZ"

    serde = mp.Json(Place)
    given = {"country": "NZ", "town": "Nelson"}
    assert of_serde(serde, is_key=True).encode(given) == serde.serialize(Place("Nelson"))
    window = of_serde(mp.SessionWindowedSerde(serde), is_key=True)
    assert window.encode(mp.Windowed(given, 1, 2)).startswith(serde.serialize(Place("Nelson")))
