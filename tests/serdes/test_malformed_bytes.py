"""Bytes and values that serdes reject, with errors that do not show them."""

from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from millpond import serdes
from millpond.errors import SerializationError

windowed = serdes.TimeWindowedSerde(serdes.String, timedelta(seconds=1))
session = serdes.SessionWindowedSerde(serdes.String)
strings = serdes.ListSerde(serdes.String)
numbers = serdes.ListSerde(serdes.Int)
change = serdes.ChangeSerde(serdes.Int)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (serdes.String, b"\xff\xfe"),
        (serdes.Short, b"\x00"),
        (serdes.Int, b"\x00\x00\x00"),
        (serdes.Int, b"\x00\x00\x00\x00\x00"),
        (serdes.Long, b""),
        (serdes.Float, b"\x00" * 8),
        (serdes.Double, b"\x00" * 4),
        (serdes.Boolean, b""),
        (serdes.Boolean, b"\x02"),
        (serdes.Boolean, b"\x01\x01"),
        (serdes.UUID, b"0123456789abcdef0123456789abcdef"),
        (serdes.UUID, b"{1234567-89ab-cdef-0123-456789abcdef}"),
        (serdes.UUID, b"\xff" * 36),
        (serdes.Void, b""),
        (serdes.Json(int), b'"text"'),
        (serdes.Json(int), b"12 34"),
        (serdes.MsgPack(int), b""),
        (windowed, b"1234567"),
        (session, b"123456789012345"),
        (strings, b""),
        (strings, b"\x02\x00\x00\x00\x00"),
        (strings, b"\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
        (strings, b"\x01\x00\x00\x00\x01\x00\x00\x00\x02a"),
        (strings, b"\x01\x00\x00\x00\x01\xff\xff\xff\xfe"),
        (strings, b"\x01\x00\x00\x00\x00more"),
        (strings, b"\x01\x7f\xff\xff\xff"),
        (numbers, b"\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00"),
        (numbers, b"\x00\xff\xff\xff\xff\x00\x00\x00\x00"),
        (change, b""),
        (change, b"\x06"),
        (change, b"\x00\x00\x00\x01\x02\x04"),
        (change, b"\x10\x00\x00\x00\x01\x02"),
        (change, b"\xff\xff\xff\xff\xff\xff\x02"),
        (change, b"\x01\x02"),
    ],
)
def test_malformed_bytes_are_rejected(serde: serdes.Serde[Any], data: bytes) -> None:
    """Bytes of the wrong length, range or form raise instead of becoming some value."""
    with pytest.raises(Exception) as refused:
        serde.deserialize(data)
    assert serde.name in str(serde.decoding_failed(data, refused.value))


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.Bytes, "text"),
        (serdes.Bytes, 5),
        (serdes.String, b"bytes"),
        (serdes.String, "\ud800"),
        (serdes.Short, 2**15),
        (serdes.Int, 2**31),
        (serdes.Int, 1.5),
        (serdes.Long, "1"),
        (serdes.Float, "1"),
        (serdes.Boolean, 1),
        (serdes.UUID, "00000000-0000-0000-0000-000000000000"),
        (serdes.Void, "anything"),
        (serdes.ByteBuffer, 5),
        (serdes.ByteBuffer, "text"),
        (strings, "text"),
        (strings, ("a",)),
        (strings, [1]),
        (serdes.Json(), object()),
        (change, (None, None)),
    ],
)
def test_values_of_another_type_are_rejected(serde: serdes.Serde[Any], value: object) -> None:
    """A value of another type raises instead of being written as something else."""
    with pytest.raises(Exception) as refused:
        serde.serialize(value)
    assert type(value).__qualname__ in str(serde.encoding_failed(value, refused.value))


class Card(msgspec.Struct):
    number: int


class Kind(enum.Enum):
    A = "a"


OWN: serdes.Serde[int] = serdes.Serde("Own", lambda number: b"%d" % number, int)
SECRET = "4111-1111-1111-1111"


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (serdes.Json(Card), b'{"number": "%s"}' % SECRET.encode()),
        (serdes.Json(Card), b'"%s"' % SECRET.encode()),
        (serdes.Json(Kind), b'"%s"' % SECRET.encode()),
        (serdes.MsgPack(Card), SECRET.encode()),
        (serdes.Int, SECRET.encode()),
        (serdes.UUID, SECRET.encode()),
        (OWN, SECRET.encode()),
    ],
)
def test_errors_never_show_the_payload(serde: serdes.Serde[Any], data: bytes) -> None:
    """A record that cannot be decoded may be secret: the message has its size and the cause, not its text."""
    with pytest.raises(Exception) as refused:
        serde.deserialize(data)
    told = serde.decoding_failed(data, refused.value)
    assert isinstance(told, SerializationError)
    assert SECRET not in str(told)
    assert f"{serde.name} cannot decode {len(data)} bytes: " in str(told)


def test_long_causes_are_cut() -> None:
    """A library's message of many lines becomes the beginning of one."""
    told = str(serdes.String.decoding_failed(b"x", ValueError("long\n" * 1000)))
    assert len(told) < 300
    assert "\n" not in told


def test_a_window_size_is_positive() -> None:
    """A window without a size has no end, so the serde is rejected when it is made."""
    with pytest.raises(ValueError, match="at least a millisecond"):
        serdes.TimeWindowedSerde(serdes.String, timedelta(0))


def test_a_quoted_name_does_not_control_a_terminal() -> None:
    """Whoever writes a record chooses the names of its fields, and the error is in logs and messages."""

    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        x: int = 0

    serde = serdes.Json(Strict)
    data = b'{"y\\u001b]0;title\\u0007\\n2026-01-01 ERROR \\u202e": 1}'
    with pytest.raises(msgspec.ValidationError) as error:
        serde.deserialize(data)
    text = str(serde.decoding_failed(data, error.value))
    assert text.isprintable()
    assert "unknown field `y\ufffd]0;title\ufffd 2026-01-01 ERROR \ufffd`" in text
