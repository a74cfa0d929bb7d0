"""The primitive serdes. Each writes the bytes of the Kafka serializer of the same name.

One difference is intended: Java's String deserializer replaces malformed UTF-8 by U+FFFD. This one rejects it, so
that bad input goes to the deserialization handler and not into state.
"""

from __future__ import annotations

import struct
import uuid
from typing import NoReturn

import msgspec

from millpond.errors import SerializationError

from .serde import Serde

__all__ = ("UUID", "Boolean", "ByteBuffer", "Bytes", "Double", "Float", "Int", "Long", "Short", "String", "Void")

_short = struct.Struct(">h")
_int = struct.Struct(">i")
_long = struct.Struct(">q")
_float = struct.Struct(">f")
_double = struct.Struct(">d")

_UUID_LENGTH = 36
_encode_json = msgspec.json.Encoder().encode
_convert = msgspec.convert


def _short_from(data: bytes, /) -> int:
    (value,) = _short.unpack(data)
    return value  # type: ignore[no-any-return]


def _int_from(data: bytes, /) -> int:
    (value,) = _int.unpack(data)
    return value  # type: ignore[no-any-return]


def _long_from(data: bytes, /) -> int:
    (value,) = _long.unpack(data)
    return value  # type: ignore[no-any-return]


def _float_from(data: bytes, /) -> float:
    (value,) = _float.unpack(data)
    return value  # type: ignore[no-any-return]


def _double_from(data: bytes, /) -> float:
    (value,) = _double.unpack(data)
    return value  # type: ignore[no-any-return]


def _boolean_to(value: bool, /) -> bytes:  # noqa: FBT001 - the value itself
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise TypeError("expected True or False")


def _boolean_from(data: bytes, /) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise ValueError("expected one byte, 0 or 1")


def _uuid_to(value: uuid.UUID, /) -> bytes:
    if type(value) is not uuid.UUID:
        raise TypeError("expected a uuid.UUID")
    # msgspec writes the canonical text four times faster than str() does; its quotes are cut off.
    return _encode_json(value)[1:-1]


def _uuid_from(data: bytes, /) -> uuid.UUID:
    if len(data) != _UUID_LENGTH:
        raise ValueError(f"expected the {_UUID_LENGTH} characters of a UUID")
    return _convert(data.decode("ascii"), uuid.UUID)


def _buffer_to(value: bytes | bytearray | memoryview, /) -> bytes:
    return bytes(memoryview(value))


def _void(_: object, /) -> NoReturn:
    raise SerializationError(
        "Void is for keys or values that are always null, so it encodes and decodes nothing; use another serde"
    )


# `bytes.__bytes__` returns the object itself and, unlike `bytes(...)`, rejects everything that is not bytes.
Bytes: Serde[bytes] = Serde("Bytes", bytes.__bytes__, bytes.__bytes__, immutable=True)
"""Bytes, unchanged."""

ByteBuffer: Serde[bytes | bytearray | memoryview] = Serde("ByteBuffer", _buffer_to, memoryview)
"""Anything with a buffer, such as a bytearray, a memoryview or an array: all of its bytes, read as a memoryview.

The bytes are those of the whole buffer, as in Kafka, whose serializer takes a ByteBuffer from its beginning to its
limit.
"""

String: Serde[str] = Serde("String", str.encode, bytes.decode, immutable=True)
"""A string as UTF-8."""

Short: Serde[int] = Serde("Short", _short.pack, _short_from, immutable=True)
"""A signed integer of 2 bytes, big-endian."""

Int: Serde[int] = Serde("Int", _int.pack, _int_from, immutable=True)
"""A signed integer of 4 bytes, big-endian."""

Long: Serde[int] = Serde("Long", _long.pack, _long_from, immutable=True)
"""A signed integer of 8 bytes, big-endian."""

Float: Serde[float] = Serde("Float", _float.pack, _float_from)
"""An IEEE 754 number of 4 bytes, big-endian. Not `immutable`: it is rounded, so stores must not keep the original."""

Double: Serde[float] = Serde("Double", _double.pack, _double_from, immutable=True)
"""An IEEE 754 number of 8 bytes, big-endian."""

Boolean: Serde[bool] = Serde("Boolean", _boolean_to, _boolean_from, immutable=True)
"""One byte, 0 or 1."""

UUID: Serde[uuid.UUID] = Serde("UUID", _uuid_to, _uuid_from, immutable=True)
"""A UUID as its 36 characters in lower case."""

Void: Serde[None] = Serde("Void", _void, _void, immutable=True)
"""Keys or values that are always null."""
