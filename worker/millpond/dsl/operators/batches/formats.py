"""The forms in which map_batches passes a batch: values, records, an Arrow table or a pandas data frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import FixedKeyRecord
from millpond.topology.headers import NO_HEADERS, RecordHeaders

from .held import HeldRecord
from .tables import arrow_batches, arrow_rows, pandas_batches, pandas_rows

__all__ = ("BatchFormat", "Format", "batch_format")

BatchFormat: TypeAlias = Literal["values", "records", "arrow", "pandas"]
"""The form of a batch: a list of values, a list of records, a `pyarrow.Table` or a `pandas.DataFrame`."""


class Format(NamedTuple):
    """How a batch is passed, and how its result is read."""

    batch: Callable[[Sequence[HeldRecord]], Any]
    """Makes the function's argument of records."""
    rows: Callable[[Any], Sequence[Any]]
    """Makes a sequence of values of the function's result."""


_FORMATS = ("values", "records", "arrow", "pandas")


def batch_format(name: str, key: Serde[Any] | None, value: Serde[Any] | None) -> Format:
    """Return a form by its name.

    Args:
        name: the name.
        key: the serde of the keys before the step; None if it is not known.
        value: that of the values, from which the columns of tables follow.

    Raises:
        TopologyError: there is no such form, its library is not installed, or a table would change the values.
    """
    match name:
        case "values":
            return Format(_values, _listed)
        case "records":
            return Format(_records, _listed)
        case "arrow":
            return Format(arrow_batches(key, value), arrow_rows)
        case "pandas":
            return Format(pandas_batches(value), pandas_rows)
    raise TopologyError(f"map_batches() has batch={name!r}; use one of {', '.join(map(repr, _FORMATS))}.")


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
