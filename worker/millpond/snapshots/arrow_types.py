"""The Arrow columns for the objects of serdes. Pure; needs pyarrow.

| type | column |
|---|---|
| bool, int, float, str, bytes | bool, int64 (as wide as the serde writes it), double, string, binary |
| datetime, date | timestamp (microseconds; UTC unless it is declared naive), date32 |
| UUID, Decimal, time, timedelta | string, as in JSON |
| enum, Literal | of their values: string or int64 |
| Struct, dataclass, NamedTuple, TypedDict | struct |
| list, set, frozenset, tuple[X, ...] | list |
| tuple[X, Y] | struct with the fields `_1`, `_2` |
| dict | map, if its keys are strings or integers |
| X or None | that of X, with nulls |
| all others: unions, Any, types that contain themselves, serdes without a type | string with JSON |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect

from millpond.serdes import UUID, Boolean, ByteBuffer, Bytes, Double, Float, Int, Long, Serde, Short, String
from millpond.serdes.plain import plain_json, readable_json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("Column", "bytes_column", "column_of_serde", "column_of_type")

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """A column of scalars.

    Attributes:
        type: the Arrow type of the column.
        convert: converts an object other than None for pyarrow; None if pyarrow accepts the object itself.
    """

    type: pa.DataType
    convert: Convert | None = None

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return the objects as an array; None is null.

        Raises:
            Exception: an object does not have the type.
        """
        import pyarrow as pa

        convert = self.convert
        if convert is not None:
            values = [None if each is None else convert(each) for each in values]
        return pa.array(values, self.type)


@dataclass(frozen=True)
class _Struct(Column):
    """Nested columns."""

    fields: tuple[tuple[Callable[[Any], Any], Column], ...] = ()
    """The function that reads a field, and its column; in the order of the type's fields."""

    def array(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        arrays = [
            column.array([None if each is None else read(each) for each in values]) for read, column in self.fields
        ]
        missing = pa.array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=list(self.type), mask=missing)


@dataclass(frozen=True)
class _List(Column):
    item: Column = None  # type: ignore[assignment]  # always given

    def array(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        items = self.item.array([item for each in values if each is not None for item in each])
        return pa.ListArray.from_arrays(_offsets(values), items, type=self.type)


@dataclass(frozen=True)
class _Map(Column):
    key: Column = None  # type: ignore[assignment]
    item: Column = None  # type: ignore[assignment]

    def array(self, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        keys = self.key.array([key for each in values if each is not None for key in each])
        items = self.item.array([item for each in values if each is not None for item in each.values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=self.type)


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Return the index at which each list begins (null for a null), and the end of the last list."""
    import pyarrow as pa

    offsets: list[int | None] = []
    at = 0
    for each in values:
        offsets.append(None if each is None else at)
        at += 0 if each is None else len(each)
    return pa.array([*offsets, at], pa.int32())


def bytes_column() -> Column:
    """Return the column of values that are not decoded."""
    import pyarrow as pa

    return Column(pa.binary())


def column_of_serde(serde: Serde[Any], *, inner: bool = False) -> Column:
    """Return the column of a serde's objects.

    Args:
        serde: the serde of the key or value.
        inner: whether to return the column of the key within a windowed key.
    """
    import pyarrow as pa

    if inner:
        return _json_text() if serde.inner is None else column_of_serde(serde.inner)
    primitive: dict[Serde[Any], Column] = {
        String: Column(pa.string()),
        Bytes: Column(pa.binary()),
        ByteBuffer: Column(pa.binary(), bytes),
        Boolean: Column(pa.bool_()),
        Short: Column(pa.int32()),
        Int: Column(pa.int32()),
        Long: Column(pa.int64()),
        Float: Column(pa.float32()),
        Double: Column(pa.float64()),
        UUID: Column(pa.string(), str),
    }
    if serde in primitive:
        return primitive[serde]
    if serde.entries is not None:
        item = column_of_serde(serde.entries)
        return _List(pa.list_(item.type), item=item)
    # The serdes Json and MsgPack decode with a method of msgspec's decoder, which has the type.
    decoder = getattr(serde.deserialize, "__self__", None)
    if isinstance(decoder, msgspec.json.Decoder | msgspec.msgpack.Decoder):
        return column_of_type(decoder.type)
    return _json_text()


def column_of_type(type: Any) -> Column:
    """Return the column of the objects of a type that msgspec knows."""
    return _column(inspect.type_info(type), ())


def _json_text() -> Column:
    import pyarrow as pa

    encode = readable_json(msgspec.json.Encoder(enc_hook=plain_json).encode)
    return Column(pa.string(), lambda value: encode(value).decode())


def _text() -> Column:
    """Return the column of objects that JSON writes as strings, without the quotes."""
    import pyarrow as pa

    return Column(pa.string(), msgspec.to_builtins)


def _column(info: inspect.Type, above: tuple[type, ...]) -> Column:  # noqa: C901  # a flat table of types
    """Return the column of a type; `above` are the types that it is part of."""
    import pyarrow as pa

    match info:
        case inspect.Metadata():
            return _column(info.type, above)
        case inspect.UnionType():
            return _of_union(info, above)
        case inspect.BoolType():
            return Column(pa.bool_())
        case inspect.IntType():
            return Column(pa.int64())
        case inspect.FloatType():
            return Column(pa.float64(), float)
        case inspect.StrType():
            return Column(pa.string())
        case inspect.BytesType() | inspect.ByteArrayType() | inspect.MemoryViewType():
            return Column(pa.binary(), bytes)
        case inspect.DateTimeType():
            return Column(pa.timestamp("us", None if info.tz is False else "UTC"))
        case inspect.DateType():
            return Column(pa.date32())
        case inspect.UUIDType() | inspect.DecimalType() | inspect.TimeType() | inspect.TimeDeltaType():
            return _text()
        case inspect.EnumType():
            return _of_values([each.value for each in info.cls], lambda each: each.value)
        case inspect.LiteralType():
            return _of_values(list(info.values), None)
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            item = _column(info.item_type, above)
            return _List(pa.list_(item.type), item=item)
        case inspect.TupleType():
            each = tuple(_column(one, above) for one in info.item_types)
            return _struct([(f"_{at + 1}", itemgetter(at), column) for at, column in enumerate(each)])
        case inspect.DictType():
            key, item = _column(info.key_type, above), _column(info.value_type, above)
            if key.type not in (pa.string(), pa.int64()) or _may_be_null(info.key_type):
                return _json_text()
            return _Map(pa.map_(key.type, item.type), key=key, item=item)
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() | inspect.TypedDictType():
            if info.cls in above:
                return _json_text()
            above = (*above, info.cls)
            reader = _entry if isinstance(info, inspect.TypedDictType) else _attribute
            return _struct([(field.name, reader(field.name), _column(field.type, above)) for field in info.fields])
        case _:
            return _json_text()


def _of_union(info: inspect.UnionType, above: tuple[type, ...]) -> Column:
    types = [each for each in info.types if not isinstance(each, inspect.NoneType)]
    if len(types) == 1:
        return _column(types[0], above)
    if all(isinstance(each, inspect.IntType | inspect.FloatType) for each in types):
        return _column(inspect.FloatType(), above)
    return _json_text()


def _may_be_null(info: inspect.Type) -> bool:
    return isinstance(info, inspect.UnionType) and info.includes_none


def _of_values(values: list[Any], convert: Convert | None) -> Column:
    import pyarrow as pa

    kinds = {type(each) for each in values}
    if kinds <= {str}:
        return Column(pa.string(), convert)
    if kinds <= {int}:
        return Column(pa.int64(), convert)
    return _json_text()


def _struct(fields: list[tuple[str, Convert, Column]]) -> Column:
    import pyarrow as pa

    if not fields:  # Parquet has no columns without fields
        return _json_text()
    kind = pa.struct([(name, column.type) for name, _, column in fields])
    return _Struct(kind, fields=tuple((read, column) for _, read, column in fields))


def _attribute(name: str) -> Convert:
    def read(value: Any) -> Any:
        found = getattr(value, name)
        return None if found is msgspec.UNSET else found

    return read


def _entry(name: str) -> Convert:
    return lambda value: value.get(name)
