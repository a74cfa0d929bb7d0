"""The rows of Arrow tables as Python's objects, with times of any year."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.times import iso

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("python_rows",)


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as dictionaries. Times beyond the year 9999, which Python has no `datetime` for, are ISO text."""
    columns = [_objects(rows[name]) for name in rows.column_names]
    return [dict(zip(rows.column_names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _objects(column: Any) -> list[Any]:
    import pyarrow as pa

    try:
        found: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # some time is beyond the years of Python
        if not pa.types.is_timestamp(column.type):
            raise
        return [_time(each) for each in column]
    return found


def _time(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        per_s = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[cell.type.unit]
        return iso(cell.value * 1_000 // per_s)
