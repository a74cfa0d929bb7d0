"""JSON and MessagePack through msgspec: typed when given a type, plain dictionaries and lists when not."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec
from msgspec import inspect

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
    """JSON, decoded and checked in one pass when given a type.

    Args:
        type: anything msgspec can decode to: a `msgspec.Struct`, dataclass, TypedDict, NamedTuple, `list[int]`, … .
            Fields the type does not name are skipped; missing or ill-typed ones are a decoding error.

    Dictionaries are written with sorted keys, so that equal keys of a topic have equal bytes and land on one partition.

    Raises:
        TypeError: the type cannot be decoded to.
    """
    return _cached(_json, type)


@overload
def MsgPack() -> Serde[Any]: ...
@overload
def MsgPack(type: type[T], /) -> Serde[T]: ...
@overload
def MsgPack(type: object, /) -> Serde[Any]: ...  # unions and other types that are no class
def MsgPack(type: Any = Any, /) -> Serde[Any]:
    """MessagePack, decoded and checked in one pass when given a type; see `Json` for which types and which order."""
    return _cached(_msgpack, type)


def _json(type: Any) -> Serde[Any]:
    encoder = msgspec.json.Encoder(order="deterministic")
    decoder = msgspec.json.Decoder(type)
    return Serde(_name("Json", type), encoder.encode, decoder.decode, immutable=is_immutable(type))


def _msgpack(type: Any) -> Serde[Any]:
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    decoder = msgspec.msgpack.Decoder(type)
    return Serde(_name("MsgPack", type), encoder.encode, decoder.decode, immutable=is_immutable(type))


@functools.lru_cache(maxsize=1024)
def _hashable(build: Callable[[Any], Serde[Any]], type: Any) -> Serde[Any]:
    return build(type)


def _cached(build: Callable[[Any], Serde[Any]], type: Any) -> Serde[Any]:
    try:
        return _hashable(build, type)
    except TypeError:  # a type that cannot be hashed, or cannot be decoded to: the latter is raised again
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
    """Whether no value of this type can be changed in place, down to its last field."""
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
