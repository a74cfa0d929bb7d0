"""JSON without NaN and infinities, which msgspec writes as null."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ("Encode", "finite_json", "not_finite", "writes_json")

Encode = Callable[[Any], bytes]

#: MessagePack of a float whose exponent has only ones: NaN or an infinity.
_may_have_one = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search
_packed = msgspec.msgpack.Encoder(enc_hook=lambda _: None).encode


def finite_json(encode: Encode) -> Encode:
    """Return a function that encodes values as JSON, and raises ValueError for NaN and infinities.

    Args:
        encode: the method of an encoder of msgspec.
    """
    return functools.partial(_encode, encode)


def writes_json(function: object) -> bool:
    """Return whether a function is the method of a JSON encoder of msgspec, or `finite_json` of one."""
    if isinstance(function, functools.partial) and function.func is _encode:
        (function,) = function.args
    return isinstance(getattr(function, "__self__", None), msgspec.json.Encoder)


def _encode(encode: Encode, value: Any, /) -> bytes:
    data = encode(value)
    if b"null" in data and (found := not_finite(value)):
        raise ValueError(f"{found}, which JSON does not have: replace it, for example by None, or use MsgPack or Avro")
    return data


def not_finite(value: Any) -> str | None:
    """Return where a value is NaN or infinite, such as `$.price is NaN`; None if it is finite."""
    try:
        if not _may_have_one(_packed(value)):
            return None
    except OverflowError:  # MessagePack has no integers of more than 64 bits
        pass
    return _found(msgspec.to_builtins(value, enc_hook=lambda _: None), "$")


def _found(value: Any, path: str) -> str | None:
    match value:
        case float() if not math.isfinite(value):
            return f"{path} is {'NaN' if math.isnan(value) else 'infinite'}"
        case dict():
            inner = ((each, f"{path}.{key}") for key, each in value.items())
        case list() | tuple():
            inner = ((each, f"{path}[{index}]") for index, each in enumerate(value))
        case _:
            return None
    return next(filter(None, (_found(each, below) for each, below in inner)), None)
