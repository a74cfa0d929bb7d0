"""Conversion of keys and values between JSON and a store's bytes, with the store's serdes.

A key is received as text, JSON, or base64 of its bytes. A value is sent as JSON, or base64 of its bytes. Types that
JSON does not have are sent as text: bytes as base64, UUIDs and times in their standard form, NaN and infinities as
their names.
"""

from __future__ import annotations

import base64
import binascii
import enum
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from millpond.errors import BrokerError, MillpondError
from millpond.serdes import Serde, Windowed
from millpond.serdes.plain import plain_json, readable_json
from millpond.state.unreadable_rows import cure_of
from millpond.texts import said

from .catalog import QueryableKind, StoreInfo
from .failures import FailureReason, QueryFailed
from .messages import Row

__all__ = ("Format", "KeyFormat", "raw_key", "registry_unavailable", "renderer")


class KeyFormat(enum.StrEnum):
    """The format of a key in a request."""

    TEXT = "text"
    """The key itself if the store's keys are text; else JSON, or a string if it is not valid JSON."""
    JSON = "json"
    BASE64 = "base64"
    """The serialised key."""


class Format(enum.StrEnum):
    """The format of keys and values in an answer."""

    JSON = "json"
    BASE64 = "base64"


def raw_key(info: StoreInfo, text: str, form: KeyFormat) -> bytes:
    """Return the serialised key for a key in a request.

    Raises:
        QueryFailed: the text is not a key of the store, or a schema registry does not answer.
    """
    try:
        return _raw_key(info, text, form)
    except BrokerError as error:
        raise registry_unavailable(info, error) from error


def registry_unavailable(info: StoreInfo, error: BrokerError) -> QueryFailed:
    """Return the failure of a query whose keys or values need a schema registry that does not answer."""
    return QueryFailed(FailureReason.REGISTRY_UNAVAILABLE, f"cannot read store '{info.name}': {error}")


def _raw_key(info: StoreInfo, text: str, form: KeyFormat) -> bytes:
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
            raise QueryFailed(FailureReason.BAD_REQUEST, "the key is not valid JSON: put quotes around text.")
    problem: Exception = ValueError("nothing to encode")
    for candidate in candidates:
        for value in _possible_values(candidate):
            try:
                # A round trip turns a dictionary into the typed object, whose bytes are those in the store.
                return serde.serialize(serde.deserialize(serde.serialize(value)))
            except BrokerError:
                raise
            except Exception as error:  # noqa: BLE001 - serdes are user code
                problem = error
    raise QueryFailed(
        FailureReason.BAD_REQUEST, f"this is not a key of store '{info.name}', whose keys are {serde.name} ({problem})."
    )


def _is_text(serde: Serde[Any], text: str) -> bool:
    try:
        return serde.serialize(text) == text.encode()
    except BrokerError:
        raise
    except Exception:  # noqa: BLE001 - serdes are user code
        return False


def _parsed(text: str) -> list[Any]:
    try:
        return [msgspec.json.decode(text)]
    except msgspec.DecodeError:
        return []


def _possible_values(value: Any) -> Iterator[Any]:
    """Yield the JSON value, then values of other types with the same JSON form."""
    if isinstance(value, dict) and value.keys() >= {"key", "start_ms", "end_ms"}:
        for key in _possible_values(value["key"]):
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


_encode = readable_json(msgspec.json.Encoder(enc_hook=plain_json).encode)


def renderer(info: StoreInfo, form: Format) -> Callable[[Row], dict[str, Any]]:
    """Return the function that turns a row into the object to `encode`.

    The object has `key` and `value`, and if the store has them, `window` (start and end, epoch ms) and `timestamp`
    (epoch ms). That of a versioned store has `valid_to` (epoch ms; null for the latest version). The function raises
    QueryFailed if a serde cannot decode the row, or a schema registry does not answer.
    """
    split, versions = info.split, info.kind is QueryableKind.VERSIONED
    decode_key: Callable[[bytes], Any]
    decode_value: Callable[[bytes], Any]
    if form is Format.BASE64:
        decode_key = decode_value = _base64
    else:
        decode_key, decode_value = _decoder(info, info.key), _decoder(info, info.value)

    def render(row: Row) -> dict[str, Any]:
        key, window, value, timestamp = split(row[0], row[2])
        rendered = {"key": decode_key(key)}
        if versions and window is not None:
            rendered["valid_to"] = None if window[1] < 0 else window[1]
        elif window is not None:
            rendered["window"] = {"start": window[0], "end": window[1]}
        rendered["value"] = decode_value(value)
        if timestamp is not None:
            rendered["timestamp"] = timestamp
        return rendered

    return render


def encode(content: Any) -> bytes:
    """Encode as JSON.

    Raises:
        QueryFailed: the content has a value that JSON cannot represent.
    """
    try:
        return _encode(content)
    except Exception as error:
        raise QueryFailed(
            FailureReason.STORE_EXCEPTION,
            f"a key or value cannot be written as JSON ({said(error)}): use format=base64.",
        ) from error


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoder(info: StoreInfo, serde: Serde[Any]) -> Callable[[bytes], Any]:
    decode = serde.deserialize

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except BrokerError as error:
            away = registry_unavailable(info, error)
            raise QueryFailed(away.reason, f"{away} Ask again later, or use format=base64 to get the bytes.") from error
        except Exception as error:
            failed = error if isinstance(error, MillpondError) else serde.decoding_failed(data, error)
            cure = cure_of(error)
            older = f", because it was written as another type: {cure}, or" if cure else ";"
            raise QueryFailed(
                FailureReason.STORE_EXCEPTION,
                f"store '{info.name}': {failed}{older} use format=base64 to get the bytes.",
            ) from error

    return decoded
