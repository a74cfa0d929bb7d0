"""The columns of a table for the values of a serde, known when the step is built: no batch decides about them.

A column would otherwise depend on the records that a batch happens to have: a field that none of them has, an integer
beside a null, or a fraction beside an integer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import inspect

from millpond.errors import TopologyError
from millpond.serdes import UUID, Boolean, Bytes, Double, Float, Int, Long, Serde, Short, String

__all__ = ("KEY", "TIMESTAMP", "Field", "fields_of", "fields_of_record", "is_record", "type_of")

KEY, TIMESTAMP = "_key", "_timestamp"
"""The columns of the records' keys and timestamps."""
_VALUE = "value"

_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: dict[Serde[Any], Any] = {
    String: str,
    Bytes: bytes,
    UUID: uuid.UUID,
    Boolean: bool,
    Short: _INT64,
    Int: _INT64,
    Long: _INT64,
    Float: float,
    Double: float,
}


class Field(NamedTuple):
    """A column: its name, the function from a value to the object of a cell, and the type of these objects."""

    name: str
    read: Callable[[Any], Any]
    type: inspect.Type


def type_of(serde: Serde[Any] | None) -> inspect.Type | None:
    """Return the type of a serde's objects; None if it is not known."""
    if serde is None:
        return None
    found = _TYPES.get(serde, serde.type)
    return None if found is None else inspect.type_info(found)


def fields_of(serde: Serde[Any] | None, batch: str) -> list[Field]:
    """Return the columns of a step's values: one for each field, or `value`.

    Raises:
        TopologyError: the columns do not follow from the serde.
    """
    info = type_of(serde)
    if info is None or isinstance(info, inspect.AnyType | inspect.DictType):
        shown = "no serde" if serde is None else f"the serde {serde.name}"
        raise TopologyError(
            f"map_batches() with batch={batch!r} makes a column of each field, and the values before it have {shown}, "
            "which does not say their fields: give value=mp.Json(Order) to the step before it, with a type such as "
            "Order, or use batch='values'."
        )
    if not is_record(info):
        return [Field(_VALUE, lambda value: value, info)]
    found = fields_of_record(info)
    taken = [each.name for each in found if each.name in (KEY, TIMESTAMP)]
    if taken:
        raise TopologyError(
            f"map_batches() with batch={batch!r} has the column '{taken[0]}' of the records, and {_name(info)} has a "
            "field of this name: rename the field, or use batch='records'."
        )
    return found


def is_record(info: inspect.Type) -> bool:
    """Return whether a type has fields with names."""
    if isinstance(info, inspect.StructType):
        return not info.array_like
    return isinstance(info, inspect.DataclassType | inspect.TypedDictType)


def fields_of_record(info: Any) -> list[Field]:
    """Return the fields of a struct, a dataclass or a TypedDict, by the names that they have in JSON.

    Raises:
        TopologyError: a field may be missing, which a table cannot say.
    """
    found = []
    tag = getattr(info, "tag_field", None)
    if tag is not None:
        found.append(Field(tag, lambda _value: info.tag, inspect.type_info(type(info.tag))))
    typed_dict = isinstance(info, inspect.TypedDictType)
    for each in info.fields:
        if not each.required and each.default is msgspec.NODEFAULT and each.default_factory is msgspec.NODEFAULT:
            raise TopologyError(
                f"map_batches() makes a column of each field, and the field '{each.name}' of {_name(info)} may be "
                "missing, which a table cannot say: let it be None instead, or use batch='values'."
            )
        found.append(Field(each.encode_name, _reader(each.name, is_entry=typed_dict), each.type))
    return found


def _reader(name: str, *, is_entry: bool) -> Callable[[Any], Any]:
    if is_entry:
        return lambda value: value[name]
    return lambda value: getattr(value, name)


def _name(info: Any) -> str:
    return str(info.cls.__qualname__)
