"""Coders: JSON values to the bytes of keys or values and back. Named ones, and those of an application's serdes."""

from __future__ import annotations

import base64
import binascii
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from millpond.errors import BrokerError
from millpond.serdes import (
    UUID,
    Boolean,
    ByteBuffer,
    Bytes,
    Double,
    Float,
    Int,
    Json,
    Long,
    MsgPack,
    Serde,
    Short,
    String,
    Windowed,
)
from millpond.serdes.finite import writes_json
from millpond.serdes.plain import named_numbers, plain_json

__all__ = (
    "FORMATS",
    "Coder",
    "NotEncodable",
    "base64_of",
    "json_bytes",
    "json_value",
    "named",
    "of_serde",
    "serde_named",
    "text_of",
)

FORMATS = (
    "auto", "string", "json", "long", "int", "short", "double", "float", "boolean", "uuid", "bytes", "msgpack",
    "avro", "protobuf", "jsonschema",
)  # fmt: skip
"""The names of formats for options."""

_SERDES: dict[str, Serde[Any]] = {
    "string": String,
    "json": Json(),
    "long": Long,
    "int": Int,
    "short": Short,
    "double": Double,
    "float": Float,
    "boolean": Boolean,
    "uuid": UUID,
    "bytes": Bytes,
    "msgpack": MsgPack(),
}

_BASE64 = "base64"
_INTEGERS = (Long, Int, Short)
_FRACTIONS = (Double, Float)


def _number(text: str) -> float | Decimal:
    """Return a number of JSON as a float, or as a Decimal if a float would change it."""
    found, exact = float(text), Decimal(text)
    return found if Decimal(repr(found)) == exact else exact


_DECODER = msgspec.json.Decoder(float_hook=_number)
_ENCODER = msgspec.json.Encoder(order="deterministic", decimal_format="number")
_LINES = msgspec.json.Encoder(decimal_format="number")
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class NotEncodable(ValueError):
    """A JSON value that cannot be written in a format; the message has the cause and the cure."""


class Coder(NamedTuple):
    """Two functions for the keys or the values of a topic. Neither gets null."""

    name: str
    """The name of the format or of the serde."""
    encode: Callable[[Any], bytes]
    """f(JSON value or `Windowed`) -> bytes; raises any exception for a value that has another form."""
    decode: Callable[[bytes], Any]
    """f(bytes) -> JSON value, or `Windowed` with one as its key; raises any exception for bytes of another format."""
    windowed: bool = False
    """Whether it is for keys in windows."""
    partition_by: Callable[[bytes], bytes] | None = None
    """See `Serde.partition_by`."""
    header: str | None = None
    """See `Serde.header`."""
    as_text: bool = False
    """Whether text without JSON's quotes is a value of it, in lines with a separator."""


def json_value(data: bytes) -> Any:
    """Return the value of JSON, in which numbers that a float cannot represent are Decimals.

    Raises:
        msgspec.DecodeError: it is not JSON.
    """
    return _DECODER.decode(data)


def json_bytes(value: Any) -> bytes:
    """Return a value of `json_value` as JSON, with each number as it was, and fields in their order."""
    return _LINES.encode(value)


def named(name: str, topic: str, *, is_key: bool, registry: str | None = None, schema: Path | None = None) -> Coder:
    """Return the coder of a format.

    Args:
        name: one of `FORMATS`.
        topic: the topic, for formats with a schema registry.
        is_key: whether it is for keys.
        registry: the URL of the schema registry; None for `SCHEMA_REGISTRY_URL`.
        schema: the file of the schema to write with; None for the newest one of the subject.

    Raises:
        ConfigError: the schema cannot be read, the registry has no address, or the extra is not installed.
    """
    if name == "auto":
        return Coder("auto", _encode_auto, _decode_auto_key if is_key else _decode_auto, as_text=True)
    if name == "json":
        return of_serde(_SERDES[name], is_key=is_key)._replace(decode=json_value)
    if name not in _SERDES:
        from .registry_formats import registry_serde

        return of_serde(registry_serde(name, topic, is_key=is_key, registry=registry, schema=schema), is_key=is_key)
    return of_serde(_SERDES[name], is_key=is_key)


def serde_named(name: str) -> Serde[Any] | None:
    """Return the serde of a format; None for auto and those of a registry, which need a topic."""
    return _SERDES.get(name)


def of_serde(serde: Serde[Any], *, is_key: bool = False) -> Coder:
    """Return the coder of a serde. Bytes that it writes are read again, since only reading checks types.

    Args:
        serde: the serde.
        is_key: whether it is for keys, whose bytes have to be those of the application, with its order of fields.
    """
    windowed = serde.partition_by is not None
    given = _windowed_conversion(serde) if windowed else _conversion(serde)
    is_json = writes_json(serde.serialize)

    def encode(value: Any) -> bytes:
        found = value
        try:
            found = given(value if is_json else _with_floats(value))
            data = _ENCODER.encode(found) if is_json else serde.serialize(found)
        except (NotEncodable, BrokerError):
            raise
        except Exception as error:  # serdes may be user code
            raise NotEncodable(str(serde.encoding_failed(found, error)).removesuffix(".")) from error
        try:
            read = serde.deserialize(data)
        except BrokerError:
            raise
        except Exception as error:  # as above
            raise NotEncodable(f"{serde.name} does not accept it: {_line(error)}") from error
        return serde.serialize(read) if is_key else data

    def decode(data: bytes) -> Any:
        try:
            value = serde.deserialize(data)
        except BrokerError:  # a schema registry that cannot be reached, which is no fault of the bytes
            raise
        except Exception as error:
            raise serde.decoding_failed(data, error) from error
        if isinstance(value, Windowed):
            return Windowed(_plain(value.key), value.start_ms, value.end_ms)
        return _plain(value)

    return Coder(
        serde.name, encode, decode, windowed, serde.partition_by, serde.header, as_text=serde in (String, Bytes, UUID)
    )


def _conversion(serde: Serde[Any]) -> Callable[[Any], Any]:
    """Return the function from a JSON value to what a serde takes; it raises NotEncodable for other JSON types."""
    if serde is String:
        return lambda value: _of_type(value, str, "String", "a string")
    if serde in _INTEGERS:
        return lambda value: _of_type(value, int, serde.name, "an integer")
    if serde in _FRACTIONS:
        return lambda value: (
            _NOT_FINITE[value]
            if value in _NOT_FINITE
            else _of_type(float(value) if type(value) is int else value, float, serde.name, "a number")
        )
    if serde in (Bytes, ByteBuffer):
        return lambda value: _bytes_of(_of_type(value, str, serde.name, "a string in base64"))
    if serde is UUID:
        return lambda value: _uuid_of(_of_type(value, str, "UUID", "a string"))
    return serde.from_json or (lambda value: value)


def _windowed_conversion(serde: Serde[Any]) -> Callable[[Any], Windowed[Any]]:
    inner = None if serde.inner is None else serde.inner.from_json

    def convert(value: Any) -> Windowed[Any]:
        if not isinstance(value, Windowed):
            raise NotEncodable('the key is windowed: give "window": {"start": …, "end": …} beside "key"')
        return Windowed(value.key if inner is None else inner(value.key), value.start_ms, value.end_ms)

    return convert


def _of_type(value: Any, wanted: type, name: str, shown: str) -> Any:
    if type(value) is not wanted:
        raise NotEncodable(f"{name} needs {shown}, not {_kind(value)}")
    return value


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotEncodable("Bytes needs a string in base64, and this is none") from None


def _uuid_of(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise NotEncodable("UUID needs a string such as 123e4567-e89b-12d3-a456-426614174000") from None


def _encode_auto(value: Any) -> bytes:
    if isinstance(value, Windowed):
        raise NotEncodable('"window" needs the size of the windows: give --window, or --application')
    if isinstance(value, dict) and value.keys() == {_BASE64}:
        raise NotEncodable(
            f'an object with only "{_BASE64}" stands for bytes in what `millpond consume` shows: choose a format, such '
            "as bytes or json"
        )
    return value.encode() if isinstance(value, str) else _ENCODER.encode(value)


def _decode_auto_key(data: bytes) -> Any:
    """Return a key as `_decode_auto` does, but as text if `_encode_auto` would give its JSON other bytes.

    Keys are equal if their bytes are, and decide the partition.
    """
    found = _decode_auto(data)
    return data.decode() if isinstance(found, dict | list) and _is_other(found, data) else found


def _is_other(found: Any, data: bytes) -> bool:
    return found != base64_of(data) and _ENCODER.encode(found) != data


def _decode_auto(data: bytes) -> Any:
    """Return JSON objects and arrays as they are, text as a string, and other bytes as `{"base64": …}`."""
    if data[:1] in (b"{", b"["):
        try:
            return json_value(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return text_of(data)


def text_of(data: bytes) -> str | dict[str, str]:
    """Return text as a string, and other bytes as `{"base64": …}`."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return base64_of(data)
    return text if all(each.isprintable() or each in "\t\r\n" for each in text) else base64_of(data)


def base64_of(data: bytes) -> dict[str, str]:
    """Return how bytes are shown that are no text, or cannot be decoded."""
    return {_BASE64: base64.b64encode(data).decode()}


def _with_floats(value: Any) -> Any:
    """Return a value of `json_value` with floats only, as formats have them that are not JSON."""
    match value:
        case Decimal():
            found = float(value)
            if not math.isfinite(found):
                raise NotEncodable("a number is too large for a float: its limit is 1.8e308")
            return found
        case dict():
            return {key: _with_floats(each) for key, each in value.items()}
        case list():
            return [_with_floats(each) for each in value]
        case Windowed():
            return Windowed(_with_floats(value.key), value.start_ms, value.end_ms)
        case _:
            return value


def _plain(value: Any) -> Any:
    return named_numbers(msgspec.to_builtins(value, str_keys=True, enc_hook=plain_json))


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "an array"
        case _:
            return "an object"
