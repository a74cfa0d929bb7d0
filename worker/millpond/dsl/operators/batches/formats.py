"""The forms in which map_batches passes a batch: values, records, an Arrow table or a pandas data frame.

pyarrow and pandas are imported when a batch is made, so only applications that use them need them.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.topology import FixedKeyRecord
from millpond.topology.headers import NO_HEADERS, RecordHeaders

from .held import HeldRecord

__all__ = ("FORMATS", "BatchFormat", "Format", "batch_format")

BatchFormat: TypeAlias = Literal["values", "records", "arrow", "pandas"]
"""The form of a batch: a list of values, a list of records, a `pyarrow.Table` or a `pandas.DataFrame`."""

_KEY, _TIMESTAMP, _VALUE = "_key", "_timestamp", "value"


class Format(NamedTuple):
    """How a batch is passed, and how its result is read."""

    batch: Callable[[Sequence[HeldRecord]], Any]
    """Makes the function's argument of records."""
    rows: Callable[[Any], Sequence[Any]]
    """Makes a sequence of values of the function's result."""
    library: str | None = None
    """The library that it needs."""


def batch_format(name: str) -> Format:
    """Return a form by its name.

    Raises:
        TopologyError: there is no such form, or its library is not installed.
    """
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise TopologyError(f"map_batches() has batch={name!r}; use one of {', '.join(map(repr, FORMATS))}.")
    if found.library is not None:
        _library(found.library)
    return found


def _library(name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise TopologyError(
            f"map_batches() needs {name} for its form of batches, which is not installed; run `pip install {name}`, or "
            "use batch='values'."
        ) from None


def _values(records: Sequence[HeldRecord]) -> list[Any]:
    return [record.value for record in records]


def _records(records: Sequence[HeldRecord]) -> list[FixedKeyRecord[Any, Any]]:
    return [
        FixedKeyRecord(
            record.key, record.value, record.timestamp, RecordHeaders(record.headers) if record.headers else NO_HEADERS
        )
        for record in records
    ]


def _listed(result: Any) -> Sequence[Any]:
    if isinstance(result, Sequence) and not isinstance(result, str | bytes | bytearray):
        return result
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | bytearray | Mapping):
        return list(result)
    raise TypeError(f"map_batches() needs a list with one value for each row, not {kind_of(result)}")


def _columns(records: Sequence[HeldRecord]) -> dict[str, list[Any]]:
    """Return the columns of a table: those of the values' fields, or `value`; then `_key` and `_timestamp`."""
    plain = [msgspec.to_builtins(record.value, builtin_types=_KEPT) for record in records]
    columns: dict[str, list[Any]] = {}
    if all(isinstance(each, dict) for each in plain):
        names = dict.fromkeys(name for each in plain for name in each)
        columns = {str(name): [each.get(name) for each in plain] for name in names}
    else:
        columns[_VALUE] = plain
    columns[_KEY] = [msgspec.to_builtins(record.key, builtin_types=_KEPT) for record in records]
    columns[_TIMESTAMP] = [record.timestamp for record in records]
    return columns


_KEPT: tuple[type, ...] = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal)
"""Types that a table has as they are."""


def _arrow(records: Sequence[HeldRecord]) -> Any:
    return _library("pyarrow").table(_columns(records))


def _arrow_rows(result: Any) -> Sequence[Any]:
    if not hasattr(result, "to_pylist"):
        raise TypeError(f"map_batches() needs a table or an array of Arrow with its rows, not {kind_of(result)}")
    rows: list[Any] = result.to_pylist()
    return _without_own(rows)


def _pandas(records: Sequence[HeldRecord]) -> Any:
    return _library("pandas").DataFrame(_columns(records))


def _pandas_rows(result: Any) -> Sequence[Any]:
    if hasattr(result, "to_dict") and hasattr(result, "columns"):
        return _without_own(result.to_dict("records"))
    if hasattr(result, "tolist"):
        rows: list[Any] = result.tolist()
        return rows
    raise TypeError(f"map_batches() needs a data frame or a series of pandas with its rows, not {kind_of(result)}")


def _without_own(rows: list[Any]) -> list[Any]:
    """Return rows without the key and the timestamp, which a record has anyway."""
    return [
        {name: value for name, value in row.items() if name not in (_KEY, _TIMESTAMP)} if isinstance(row, dict) else row
        for row in rows
    ]


FORMATS: dict[str, Format] = {
    "values": Format(_values, _listed),
    "records": Format(_records, _listed),
    "arrow": Format(_arrow, _arrow_rows, "pyarrow"),
    "pandas": Format(_pandas, _pandas_rows, "pandas"),
}
