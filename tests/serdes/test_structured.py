"""JSON and MessagePack, and what counts as immutable."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import serdes


class Flight(msgspec.Struct):
    carrier: str
    delay: float | None = None


class Frozen(msgspec.Struct, frozen=True):
    carrier: str
    parent: Frozen | None = None


class FrozenAroundList(msgspec.Struct, frozen=True):
    carriers: list[str]


class Point(NamedTuple):
    x: int
    y: float


class Loose(TypedDict):
    x: int


@dataclasses.dataclass(frozen=True)
class FrozenData:
    at: datetime


@dataclasses.dataclass
class Data:
    at: datetime


documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize("kind", [serdes.Json, serdes.MsgPack])
@given(document=documents)
def test_documents_round_trip(kind: Any, document: object) -> None:
    """Every JSON value is read back equal."""
    serde = kind()
    assert serde.deserialize(serde.serialize(document)) == document


@pytest.mark.parametrize("kind", [serdes.Json, serdes.MsgPack])
@given(
    document=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9), min_size=2),
    seed=st.randoms(),
)
def test_equal_dictionaries_have_equal_bytes(kind: Any, document: dict[str, int], seed: Any) -> None:
    """Equal dictionaries have equal bytes, in whatever order they were filled, so as keys they are in one partition."""
    items = list(document.items())
    seed.shuffle(items)
    assert kind().serialize(dict(items)) == kind().serialize(document)


@pytest.mark.parametrize("kind", [serdes.Json, serdes.MsgPack])
def test_typed_values_round_trip(kind: Any) -> None:
    """With a type, decoding returns objects of it, and rejects other data."""
    serde = kind(Flight)
    assert serde.deserialize(serde.serialize(Flight("AA", 1.5))) == Flight("AA", 1.5)
    with pytest.raises(msgspec.ValidationError):
        serde.deserialize(kind().serialize({"carrier": 7}))


def test_json_leaves_out_what_the_type_does_not_name() -> None:
    """Fields that producers add later do not disturb readers."""
    assert serdes.Json(Flight).deserialize(b'{"carrier": "AA", "new": [1, 2]}') == Flight("AA")


def test_serde_names_include_the_type() -> None:
    """Errors name the serde as it was written."""
    assert repr(serdes.Json(Flight)) == "Json(Flight)"
    assert repr(serdes.Json()) == "Json"
    assert repr(serdes.MsgPack(dict[str, int])) == "MsgPack(dict[str, int])"
    assert repr(serdes.Json(Flight | None)).startswith("Json(")
    assert "TimeWindowed(Long" in repr(serdes.TimeWindowedSerde(serdes.Long, timedelta(seconds=1)))


def test_the_same_type_gives_the_same_serde() -> None:
    """The serde of a type is built once, because building encoders is slow."""
    assert serdes.Json(Flight) is serdes.Json(Flight)


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (int, True),
        (str | None, True),
        (bytes, True),
        (uuid.UUID, True),
        (Literal["a", "b"], True),
        (tuple[int, str], True),
        (tuple[str, ...], True),
        (frozenset[int], True),
        (Point, True),
        (Frozen, True),
        (FrozenData, True),
        (Any, False),
        (list[int], False),
        (dict[str, int], False),
        (set[int], False),
        (tuple[list[int], ...], False),
        (Flight, False),
        (Flight | None, False),
        (FrozenAroundList, False),
        (Data, False),
        (Loose, False),
        (bytearray, False),
    ],
)
def test_only_values_that_cannot_change_are_immutable(type: Any, expected: bool) -> None:
    """State stores keep immutable objects, so a type with a list anywhere inside is not immutable."""
    assert serdes.Json(type).immutable is expected
    assert serdes.MsgPack(type).immutable is expected


def test_wrapping_serdes_are_as_immutable_as_what_they_wrap() -> None:
    """A windowed or change serde is immutable exactly if its inner serde is."""
    for inner in (serdes.String, serdes.Json()):
        assert serdes.TimeWindowedSerde(inner, timedelta(seconds=1)).immutable is inner.immutable
        assert serdes.SessionWindowedSerde(inner).immutable is inner.immutable
        assert serdes.ChangeSerde(inner).immutable is inner.immutable


def test_windows_are_printed_in_utc() -> None:
    """The text of a windowed key is that of Kafka Streams, and its window has datetimes."""
    windowed = serdes.Windowed("JFK", 0, 3_600_000)
    assert str(windowed) == "[JFK@0/3600000]"
    assert windowed.window == serdes.Window(0, 3_600_000)
    assert windowed.window.end_time - windowed.window.start_time == timedelta(hours=1)
    assert windowed.window.start_time.isoformat() == "1970-01-01T00:00:00+00:00"


def test_wrapping_serdes_pass_the_topic_on() -> None:
    """A registry serde inside a windowed or change serde gets the topic too."""
    asked: list[tuple[str, bool]] = []

    def specialize(topic: str, is_key: bool) -> serdes.Serde[str]:
        asked.append((topic, is_key))
        return serdes.Serde("Of" + topic, serdes.String.serialize, serdes.String.deserialize)

    inner = serdes.Serde("Any", serdes.String.serialize, serdes.String.deserialize, specialize=specialize)
    assert "Oft" in serdes.TimeWindowedSerde(inner, timedelta(seconds=1)).for_topic("t", is_key=True).name
    assert "Oft" in serdes.SessionWindowedSerde(inner).for_topic("t", is_key=True).name
    assert "Oft" in serdes.ChangeSerde(inner).for_topic("t", is_key=False).name
    assert asked == [("t", True), ("t", True), ("t", False)]
    assert serdes.String.for_topic("t", is_key=True) is serdes.String
