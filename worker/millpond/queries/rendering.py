"""Keys and values on their way between JSON and a store's bytes, by the store's serdes.

A key comes as text, as JSON, or as base64 of its bytes. A value goes out as JSON, or as base64 of its bytes. What JSON
has no type for is text in its usual form: bytes are base64, UUIDs and times their standard text; not-a-number is null.
"""

from __future__ import annotations

import base64
import binascii
import enum
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from millpond.errors import MillpondError
from millpond.serdes import Serde, Windowed
from millpond.serdes.plain import plain_json

from .catalog import StoreInfo
from .failures import FailureReason, QueryFailed
from .messages import Row

__all__ = ("Format", "KeyFormat", "raw_key", "renderer")


class KeyFormat(enum.StrEnum):
    """How a key is written in a request."""

    TEXT = "text"
    """Where keys are text, the key itself; else JSON, and what is no JSON is a JSON string."""
    JSON = "json"
    BASE64 = "base64"
    """The serialised key."""


class Format(enum.StrEnum):
    """How keys and values are written in an answer."""

    JSON = "json"
    BASE64 = "base64"


def raw_key(info: StoreInfo, text: str, form: KeyFormat) -> bytes:
    """The serialised key that a request means.

    Raises:
        QueryFailed: the store has no such keys.
    """
    serde = info.key
    if form is KeyFormat.BASE64:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise QueryFailed(FailureReason.BAD_REQUEST, f"the key is not base64 ({error}).") from error
    if form is KeyFormat.TEXT:
        if _is_text(serde, text):
            return text.encode()
        candidates = [*_parsed(text), text]
    else:
        candidates = _parsed(text)
        if not candidates:
            raise QueryFailed(FailureReason.BAD_REQUEST, "the key is not JSON: text needs its quotes there.")
    problem: Exception = ValueError("nothing to encode")
    for candidate in candidates:
        for form_of_it in _forms(candidate):
            try:
                # There and back: a dictionary becomes the typed object, whose bytes are the store's.
                return serde.serialize(serde.deserialize(serde.serialize(form_of_it)))
            except Exception as error:
                problem = error
    raise QueryFailed(
        FailureReason.BAD_REQUEST, f"this is no key of store '{info.name}', whose keys are {serde.name} ({problem})."
    )


def _is_text(serde: Serde[Any], text: str) -> bool:
    try:
        return serde.serialize(text) == text.encode()
    except Exception:
        return False


def _parsed(text: str) -> list[Any]:
    try:
        return [msgspec.json.decode(text)]
    except msgspec.DecodeError:
        return []


def _forms(value: Any) -> Iterator[Any]:
    """The value, and what JSON writes in the same way."""
    if isinstance(value, dict) and value.keys() >= {"key", "start_ms", "end_ms"}:
        for key in _forms(value["key"]):
            yield Windowed(key, value["start_ms"], value["end_ms"])
    yield value
    if isinstance(value, str):
        try:
            yield uuid.UUID(value)
        except ValueError:
            pass
        try:
            yield base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass


_encode = msgspec.json.Encoder(enc_hook=plain_json).encode


def renderer(info: StoreInfo, form: Format) -> Callable[[Row], dict[str, Any]]:
    """The function from a row to what is sent of it, apart from `encode`.

    Its result has `key`, `value`, and where the store has them `window` (start and end, epoch ms) and `timestamp`
    (epoch ms). It raises QueryFailed for what the serdes cannot decode.
    """
    split = info.split
    decode_key: Callable[[bytes], Any]
    decode_value: Callable[[bytes], Any]
    if form is Format.BASE64:
        decode_key = decode_value = _base64
    else:
        decode_key, decode_value = _careful(info, info.key), _careful(info, info.value)

    def render(row: Row) -> dict[str, Any]:
        key, window, value, timestamp = split(row[0], row[2])
        rendered = {"key": decode_key(key)}
        if window is not None:
            rendered["window"] = {"start": window[0], "end": window[1]}
        rendered["value"] = decode_value(value)
        if timestamp is not None:
            rendered["timestamp"] = timestamp
        return rendered

    return render


def encode(content: Any) -> bytes:
    """JSON.

    Raises:
        QueryFailed: it has something that JSON has no form for.
    """
    try:
        return _encode(content)
    except Exception as error:
        raise QueryFailed(
            FailureReason.STORE_EXCEPTION,
            f"a key or value cannot be shown as JSON ({error}): ask for it with format=base64.",
        ) from error


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _careful(info: StoreInfo, serde: Serde[Any]) -> Callable[[bytes], Any]:
    decode = serde.deserialize

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except Exception as error:
            failed = error if isinstance(error, MillpondError) else serde.decoding_failed(data, error)
            raise QueryFailed(
                FailureReason.STORE_EXCEPTION,
                f"store '{info.name}': {failed}; its bytes can be had with format=base64.",
            ) from error

    return decoded
