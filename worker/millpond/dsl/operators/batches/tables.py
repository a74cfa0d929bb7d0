"""Batches as tables of Arrow and of pandas, with the columns of `columns.py`, and their rows as Python's objects.

pyarrow and pandas are imported when a step is built that uses them, so only such applications need them.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec
from msgspec import inspect

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde

from .columns import KEY, TIMESTAMP, Field, fields_of, fields_of_record, is_record, type_of
from .held import HeldRecord

__all__ = ("arrow_batches", "arrow_rows", "pandas_batches", "pandas_rows")

Batches = Callable[[Sequence[HeldRecord]], Any]
Convert = Callable[[Any], Any]

_KEPT: tuple[type, ...] = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)
"""Types that a data frame has as they are; of others it has what JSON has."""


def pandas_batches(value: Serde[Any] | None) -> Batches:
    """Return the function from records to a data frame.

    Columns of fractions, of booleans and of `Long` have pandas' types. All others have Python's objects: pandas has no
    type for an integer that may be missing, or may be larger than 64 bits, which it would not sometimes change.

    Raises:
        TopologyError: pandas is not installed, or the columns do not follow from the serde.
    """
    pandas = _library("pandas")
    fields = [(each, *_pandas_type(each)) for each in fields_of(value, "pandas")]

    def batch(records: Sequence[HeldRecord]) -> Any:
        values = [_present(record.value) for record in records]
        columns = {
            field.name: pandas.Series([cell(field.read(each)) for each in values], dtype=dtype)
            for field, dtype, cell in fields
        }
        columns[KEY] = pandas.Series([record.key for record in records], dtype=object)
        columns[TIMESTAMP] = pandas.Series([record.timestamp for record in records], dtype="int64")
        return pandas.DataFrame(columns)

    return batch


def pandas_rows(result: Any) -> Sequence[Any]:
    """Return the rows of a data frame as dictionaries, or those of a series."""
    if hasattr(result, "to_dict") and hasattr(result, "columns"):
        return _rows(result.to_dict("records"))
    if hasattr(result, "tolist"):
        return _rows(result.tolist())
    raise TypeError(f"map_batches() needs a data frame or a series of pandas with its rows, not {kind_of(result)}")


def arrow_batches(key: Serde[Any] | None, value: Serde[Any] | None) -> Batches:
    """Return the function from records to a `pyarrow.Table`.

    Raises:
        TopologyError: pyarrow is not installed, the columns do not follow from the serdes, or Arrow has no type whose
            cells are the same objects.
    """
    arrow = _library("pyarrow")
    fields = [(each, *_arrow_type(arrow, each.type, each.name)) for each in fields_of(value, "arrow")]
    key_info = type_of(key)
    if key_info is None:
        shown = "no serde" if key is None else f"the serde {key.name}"
        raise TopologyError(
            f"map_batches() with batch='arrow' needs the type of the keys for the column {KEY}, and they have {shown}: "
            "give key= to the step before it, or use batch='records'."
        )
    key_type, key_cell = _arrow_type(arrow, key_info, KEY)

    def batch(records: Sequence[HeldRecord]) -> Any:
        values = [_present(record.value) for record in records]
        columns = {
            field.name: arrow.array([_nullable(cell, field.read(each)) for each in values], type)
            for field, type, cell in fields
        }
        columns[KEY] = arrow.array([_nullable(key_cell, record.key) for record in records], key_type)
        columns[TIMESTAMP] = arrow.array([record.timestamp for record in records], arrow.int64())
        return arrow.table(columns)

    return batch


def arrow_rows(result: Any) -> Sequence[Any]:
    """Return the rows of a table as dictionaries, or those of an array."""
    if not hasattr(result, "to_pylist"):
        raise TypeError(f"map_batches() needs a table or an array of Arrow with its rows, not {kind_of(result)}")
    return _rows(result.to_pylist())


def _library(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise TopologyError(
            f"map_batches() needs {name} for its form of batches, which is not installed; run `pip install {name}`, or "
            "use batch='values'."
        ) from None


def _present(value: Any) -> Any:
    if value is None:
        raise ValueError("a table has no row for a null value: filter null values before map_batches()")
    return value


def _nullable(convert: Convert, cell: Any) -> Any:
    return None if cell is None else convert(cell)


def _exactly(kind: type, name: str) -> Convert:
    """Return the function that raises TypeError for an object of another type, which a column would change."""

    def cell(given: Any) -> Any:
        if type(given) is not kind:
            raise TypeError(f"the column '{name}' has {kind.__name__}, and not {kind_of(given)}")
        return given

    return cell


def _without_none(info: inspect.Type) -> inspect.Type:
    if isinstance(info, inspect.Metadata):
        return _without_none(info.type)
    if isinstance(info, inspect.UnionType):
        others = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        return _without_none(others[0]) if len(others) == 1 else info
    return info


def _pandas_type(field: Field) -> tuple[Any, Convert]:
    """Return the type of a column, and the function from the object of a field to a cell."""
    match field.type:
        case inspect.FloatType():
            return "float64", _exactly(float, field.name)
        case inspect.BoolType():
            return "bool", _exactly(bool, field.name)
        case inspect.IntType(ge=int() as least, le=int() as most) if least >= -(2**63) and most < 2**63:
            return "int64", _exactly(int, field.name)
    return object, lambda given: msgspec.to_builtins(given, builtin_types=_KEPT)


def _rows(rows: list[Any]) -> list[Any]:
    """Return rows without the key and the timestamp, which a record has anyway, with Python's objects as cells."""
    return [
        {name: _python(value) for name, value in row.items() if name not in (KEY, TIMESTAMP)}
        if isinstance(row, dict)
        else _python(row)
        for row in rows
    ]


def _python(cell: Any) -> Any:
    """Return a cell of NumPy or pandas as Python's object; raises ValueError for nanoseconds, which Python lacks."""
    kind = type(cell)
    if kind.__module__ == "builtins":
        return cell
    if kind.__name__ in ("NaTType", "NAType"):
        return None
    if kind.__name__ in ("Timestamp", "Timedelta"):
        if getattr(cell, "nanosecond", getattr(cell, "nanoseconds", 0)):
            raise ValueError(f"{cell} has nanoseconds; round it to microseconds")
        return cell.to_pydatetime() if kind.__name__ == "Timestamp" else cell.to_pytimedelta()
    return cell.item() if hasattr(cell, "dtype") and hasattr(cell, "item") else cell


def _arrow_type(arrow: Any, info: inspect.Type, name: str) -> tuple[Any, Convert]:
    """Return the type of Arrow whose cells are the same objects, and the function from such an object to its cell."""
    info = _without_none(info)
    plain = _arrow_scalar(arrow, info)
    if plain is not None:
        type, kind = plain
        return type, _same if kind is None else _exactly(kind, name)
    match info:
        case inspect.UUIDType():
            return arrow.string(), str
        case inspect.ListType() | inspect.VarTupleType():
            item, cell = _arrow_type(arrow, info.item_type, name)
            return arrow.list_(item), lambda cells: [_nullable(cell, each) for each in cells]
        case _ if is_record(info):
            fields = [(each, *_arrow_type(arrow, each.type, name)) for each in fields_of_record(info)]
            return arrow.struct([(field.name, type) for field, type, _ in fields]), lambda given: {
                field.name: _nullable(cell, field.read(given)) for field, _, cell in fields
            }
    raise TopologyError(
        f"map_batches() with batch='arrow' has no column for '{name}': Arrow has no type that keeps "
        f"{info.__class__.__name__.removesuffix('Type').lower()} unchanged. Times have to say whether they have a "
        "zone, as in Annotated[datetime, msgspec.Meta(tz=True)]; for other types use batch='values' or batch='pandas'."
    )


def _arrow_scalar(arrow: Any, info: inspect.Type) -> tuple[Any, type | None] | None:
    """Return the type of Arrow for a scalar, and Python's if Arrow would change objects of others."""
    match info:
        case inspect.DateTimeType(tz=bool() as zone):
            return arrow.timestamp("us", "UTC" if zone else None), None
        case inspect.TimeType(tz=False):
            return arrow.time64("us"), None
    return {
        inspect.BoolType: (arrow.bool_(), bool),
        inspect.IntType: (arrow.int64(), int),
        inspect.FloatType: (arrow.float64(), float),
        inspect.StrType: (arrow.string(), str),
        inspect.BytesType: (arrow.binary(), bytes),
        inspect.DateType: (arrow.date32(), None),
        inspect.TimeDeltaType: (arrow.duration("us"), None),
    }.get(type(info))


def _same(cell: Any) -> Any:
    return cell
