"""Values as JSON for people, in queries and printed rows: also those that msgspec or JSON cannot write."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import msgspec

from .finite import Encode, not_finite

__all__ = ("named_numbers", "plain_json", "readable_json")


def plain_json(value: Any) -> Any:
    """Return a Protobuf message as a dictionary; for msgspec's `enc_hook`.

    Raises:
        NotImplementedError: the value cannot be written as JSON.
    """
    descriptor = getattr(value, "DESCRIPTOR", None)
    if descriptor is not None and hasattr(value, "SerializeToString"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    raise NotImplementedError(f"{type(value).__qualname__} cannot be written as JSON")


def readable_json(encode: Encode) -> Encode:
    """Return a function that encodes values as JSON for people, with NaN and infinities as text.

    Args:
        encode: the method of an encoder of msgspec with `plain_json`.
    """

    def encoded(value: Any, /) -> bytes:
        data = encode(value)
        if b"null" not in data or not_finite(value) is None:
            return data
        found = msgspec.to_builtins(value, str_keys=True, builtin_types=(Decimal,), enc_hook=plain_json)
        return encode(named_numbers(found))

    return encoded


def named_numbers(value: Any) -> Any:
    """Return a JSON value with text for the numbers that JSON does not have: NaN, Infinity and -Infinity."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: named_numbers(each) for key, each in value.items()}
        case list() | tuple():
            return [named_numbers(each) for each in value]
        case _:
            return value
