"""Serdes: bytes to values and back, byte for byte those of Kafka's own serializers."""

from __future__ import annotations

from .change import ChangeSerde
from .lists import ListSerde
from .primitives import UUID, Boolean, ByteBuffer, Bytes, Double, Float, Int, Long, Short, String, Void
from .serde import Serde
from .structured import Json, MsgPack
from .windowed import SessionWindowedSerde, TimeWindowedSerde, Window, Windowed

__all__ = (
    "UUID",
    "Boolean",
    "ByteBuffer",
    "Bytes",
    "ChangeSerde",
    "Double",
    "Float",
    "Int",
    "Json",
    "ListSerde",
    "Long",
    "MsgPack",
    "Serde",
    "SessionWindowedSerde",
    "Short",
    "String",
    "TimeWindowedSerde",
    "Void",
    "Window",
    "Windowed",
)
