"""Serdes: bytes to values and back, byte for byte those of Kafka's own serializers."""

from __future__ import annotations

from millpond.serdes.change import ChangeSerde
from millpond.serdes.primitives import UUID, Boolean, Bytes, Double, Float, Int, Long, Short, String, Void
from millpond.serdes.serde import Serde
from millpond.serdes.structured import Json, MsgPack
from millpond.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde, Window, Windowed

__all__ = (
    "UUID",
    "Boolean",
    "Bytes",
    "ChangeSerde",
    "Double",
    "Float",
    "Int",
    "Json",
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
