"""Converts values that msgspec cannot write as JSON, for queries and printed rows."""

from __future__ import annotations

from typing import Any

__all__ = ("plain_json",)


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
