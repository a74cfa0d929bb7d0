"""JSON and MessagePack by msgspec: typed if a type is given, else plain dictionaries and lists."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec
from msgspec import inspect

from .finite import finite_json
from .serde import Serde

__all__ = ("Json", "MsgPack")

T = TypeVar("T")


@overload
def Json() -> Serde[Any]: ...
@overload
def Json(type: type[T], /) -> Serde[T]: ...
@overload
def Json(type: object, /) -> Serde[Any]: ...  # unions and other types that are no class
def Json(type: Any = Any, /) -> Serde[Any]:
    """Return a serde for JSON. With a type, values are decoded and checked in one pass.

    Args:
        type: anything that msgspec can decode to: a `msgspec.Struct`, dataclass, TypedDict, NamedTuple, `list[int]`, …;
            default: dictionaries, lists and plain values. Fields that the type does not have are skipped; missing ones,
            and ones of another type, are a decoding error.

    Dictionaries are written with sorted keys, so that equal keys have equal bytes and go to the same partition. JSON
    has no NaN and no infinity: a value with one cannot be encoded.

    Raises:
        TypeError: msgspec cannot decode to the type.
    """
    return _cached(_json, type)


@overload
def MsgPack() -> Serde[Any]: ...
@overload
def MsgPack(type: type[T], /) -> Serde[T]: ...
@overload
def MsgPack(type: object, /) -> Serde[Any]: ...  # unions and other types that are no class
def MsgPack(type: Any = Any, /) -> Serde[Any]:
    """Return a serde for MessagePack, which has NaN and infinities. See `Json` for types and the order of keys."""
    return _cached(_msgpack, type)


def _json(type: Any) -> Serde[Any]:
    encode = finite_json(msgspec.json.Encoder(order="deterministic").encode)
    decoder = msgspec.json.Decoder(type)
    return Serde(_name("Json", type), encode, decoder.decode, immutable=is_immutable(type), type=type)


def _msgpack(type: Any) -> Serde[Any]:
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    decoder = msgspec.msgpack.Decoder(type)

    def from_json(value: Any) -> Any:  # bytes are base64 in JSON, and bytes in MessagePack
        return msgspec.json.decode(msgspec.json.encode(value), type=type)

    immutable = is_immutable(type)
    return Serde(_name("MsgPack", type), encoder.encode, decoder.decode, immutable, from_json=from_json, type=type)


@functools.lru_cache(maxsize=1024)
def _hashable(build: Callable[[Any], Serde[Any]], type: Any) -> Serde[Any]:
    return build(type)


def _cached(build: Callable[[Any], Serde[Any]], type: Any) -> Serde[Any]:
    try:
        return _hashable(build, type)
    except TypeError:  # it cannot be hashed, or not decoded to: the latter is raised again
        return build(type)


def _name(format: str, type: Any) -> str:
    if type is Any:
        return format
    return f"{format}({type.__qualname__ if isinstance(type, builtins.type) else type})"


_SCALARS = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.StrType,
    inspect.BytesType,
    inspect.UUIDType,
    inspect.EnumType,
    inspect.LiteralType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.DecimalType,
    inspect.FloatType,
)


def is_immutable(type: Any) -> bool:
    """Return whether values of a type are immutable, with all their fields."""
    return _immutable(inspect.type_info(type), set())


def _immutable(info: inspect.Type, seen: set[type]) -> bool:
    match info:
        case inspect.Metadata():
            return _immutable(info.type, seen)
        case inspect.UnionType():
            return all(_immutable(one, seen) for one in info.types)
        case inspect.TupleType():
            return all(_immutable(one, seen) for one in info.item_types)
        case inspect.VarTupleType() | inspect.FrozenSetType():
            return _immutable(info.item_type, seen)
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
            if info.cls in seen:  # a recursive type is judged by its other fields
                return True
            seen.add(info.cls)
            return _is_frozen(info.cls) and all(_immutable(field.type, seen) for field in info.fields)
        case _:
            return isinstance(info, _SCALARS)


def _is_frozen(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    if issubclass(cls, tuple):
        return True
    parameters = getattr(cls, "__dataclass_params__", None)
    return bool(getattr(parameters, "frozen", False))
