"""Checks that an object from the user is a serde; if not, the error suggests a serde."""

from __future__ import annotations

import inspect
import uuid
from typing import Any

from millpond.checks import hides_frames, kind_of, nearest
from millpond.errors import TopologyError

from .serde import Serde

__all__ = ("check_inner", "check_serde")

__tracebackhide__ = hides_frames

_NAMES = ("Boolean", "ByteBuffer", "Bytes", "Double", "Float", "Int", "Long", "Short", "String", "UUID", "Void")
_MAKERS = (
    "Json",
    "ListSerde",
    "MsgPack",
    "SessionWindowedSerde",
    "TimeWindowedSerde",
    "Avro",
    "JsonSchema",
    "Protobuf",
)

_OF_CLASS: dict[type, str] = {
    str: "mp.String",
    bytes: "mp.Bytes",
    bytearray: "mp.ByteBuffer",
    memoryview: "mp.ByteBuffer",
    bool: "mp.Boolean",
    int: "mp.Long (8 bytes) or mp.Int (4 bytes)",
    float: "mp.Double",
    uuid.UUID: "mp.UUID",
    dict: "mp.Json()",
    list: "mp.ListSerde(…) or mp.Json()",
}


def check_serde(what: str, given: object) -> None:
    """Check that an object is a serde or None, which stands for a default.

    Args:
        what: the argument, such as `stream(key=…)`, for messages.
        given: what the user gave.

    Raises:
        TopologyError: the object is neither; the message suggests a serde.
    """
    if given is None or isinstance(given, Serde):
        return
    raise TopologyError(f"{what} needs a serde, not {kind_of(given)}; {_cure(given)}.")


def check_inner(maker: str, given: object) -> None:
    """Check that an object is a serde, for a function that makes a serde of it.

    Raises:
        TopologyError: it is none; the message suggests a serde.
    """
    if given is None:
        raise TopologyError(f"{maker} needs the serde inside it, not None; such as {maker}(mp.String, …).")
    check_serde(maker, given)


def _cure(given: Any) -> str:
    if isinstance(given, str):
        near = nearest(given.removeprefix("mp."), _NAMES)
        return f"write mp.{near}, without quotes" if near else "such as mp.String or mp.Json(Type)"
    if isinstance(given, type):
        if issubclass(given, Serde):
            return "give an object, such as mp.String or mp.Json(Type)"
        return f"use {_OF_CLASS.get(given, f'mp.Json({given.__name__})')}"
    if inspect.isroutine(given) and given.__name__ in _MAKERS:
        arguments = "(Type)" if given.__name__ in ("Json", "MsgPack") else "(…)"
        return f"it makes serdes, so call it: {given.__name__}{arguments}"
    return "such as mp.String or mp.Json(Type)"
