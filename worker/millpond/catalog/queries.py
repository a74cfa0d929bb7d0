"""Query tables with DuckDB, in memory: DuckDB reads Arrow tables, and has no access to files or the network."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millpond.errors import SnapshotError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("CHANGE", "diff", "select", "view_names")

CHANGE = "change"
"""The column of `diff` with the kind of a change: `added`, `removed` or `changed`."""

_NO_ACCESS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_READING = (["SELECT"], ["EXPLAIN"])
_KEY = ("key", "key_raw", "window_start", "window_end", "partition")
_TIME = "timestamp"
_VALUE = ("value", "value_raw")


def select(query: str, stores: Iterable[str], rows_of: Callable[[str], pa.Table]) -> pa.Table:
    """Return the result of an SQL query over stores at one moment; each store is a view.

    Args:
        query: only stores whose name occurs in it are read. Times are in UTC, without a zone: DuckDB's functions for
            zones are in an extension that would have to be downloaded.
        stores: names of all stores.
        rows_of: returns the rows of a store.

    Raises:
        SnapshotError: DuckDB rejects the query, or the query is not a single SELECT.
    """
    import duckdb

    names = view_names(stores)
    text = query.lower()
    with _connection() as connection:
        try:
            statements = connection.extract_statements(query)
            if [each.type.name for each in statements] not in _READING:
                raise SnapshotError("the catalog is read-only: write one SELECT.")
            for view, store in names.items():
                if view.lower() in text:
                    connection.register(view, _without_zones(rows_of(store)))
            return connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise SnapshotError(
                f"DuckDB rejects the query ({_first_line(error)}). The stores are {_quoted(names)}; quote names that "
                f"are not plain words.{_renamed(names)}"
            ) from error


def view_names(stores: Iterable[str]) -> dict[str, str]:
    """Return the views and their stores. Stores whose names differ only by case, which SQL ignores, get a number."""
    known = sorted(stores)
    count = Counter(store.lower() for store in known)
    taken = set(count)
    names = {}
    for store in known:
        view = store
        if count[store.lower()] > 1:
            numbers = (f"{store}_{number}" for number in itertools.count(1))
            view = next(each for each in numbers if each.lower() not in taken)
            taken.add(view.lower())
        names[view] = store
    return names


def _renamed(names: Mapping[str, str]) -> str:
    numbered = [f"\"{view}\" is the store '{store}'" for view, store in names.items() if view != store]
    return f" SQL does not tell upper case from lower case: {', '.join(numbered)}." if numbered else ""


def diff(before: pa.Table, after: pa.Table) -> pa.Table:
    """Return the rows of a store that differ between two moments, by key.

    The columns are `change`, the columns of the row's key, and the value before and after. A row with the same value
    has not changed, whatever its timestamp is. If a key has several rows, as in a versioned store, their times are a
    part of the key; if it has several at one time, as in the buffer of a join, their values, too.

    Args:
        before: rows of the store at the first moment.
        after: rows of the store at the second moment.

    Raises:
        SnapshotError: the keys of the two have different types.
    """
    import duckdb

    keys = [name for name in _KEY if name in before.column_names and name in after.column_names]
    for name in keys:
        if before.schema.field(name).type != after.schema.field(name).type:
            raise SnapshotError(
                f"cannot compare rows: their keys were {before.schema.field(name).type}, and are now "
                f"{after.schema.field(name).type}."
            )
    with _connection() as connection:
        try:
            before, after = _comparable(connection, before, after)
            connection.register("a_rows", before)
            connection.register("b_rows", after)
            both = [name for name in before.column_names if name in after.column_names]
            values = [name for name in _VALUE if name in both]
            if not _unique(connection, keys) and _TIME in both:
                keys.append(_TIME)
            numbered = not _unique(connection, keys)
            return connection.sql(_difference(keys, values, numbered=numbered)).to_arrow_table()
        except duckdb.Error as error:
            raise SnapshotError(f"cannot compare the two versions ({_first_line(error)}).") from error


def _comparable(connection: Any, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return both tables with values of one type: the type of `after`, or text if values cannot be converted."""
    import duckdb

    if before.schema.field("value").type == after.schema.field("value").type:
        return before, after
    connection.register("before", before)
    connection.register("after", after)
    kind = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE after)").fetchall())["value"]
    as_type = "SELECT * REPLACE (CAST(value AS {}) AS value) FROM {}"
    try:
        return connection.sql(as_type.format(kind, "before")).to_arrow_table(), after
    except duckdb.Error:
        both = [connection.sql(as_type.format("VARCHAR", name)).to_arrow_table() for name in ("before", "after")]
        return both[0], both[1]


def _unique(connection: Any, keys: list[str]) -> bool:
    names = ", ".join(keys)
    repeated = "SELECT 1 FROM {} GROUP BY {} HAVING count(*) > 1 LIMIT 1"
    return all(not connection.execute(repeated.format(rows, names)).fetchall() for rows in ("a_rows", "b_rows"))


def _difference(keys: list[str], values: list[str], *, numbered: bool) -> str:
    """Return the query; with `numbered`, equal rows are numbered, and rows are compared as a whole."""
    whole = ", ".join([*keys, *values])
    number = f", row_number() OVER (PARTITION BY {whole}) AS n" if numbered else ""
    same = [*keys, *values, "n"] if numbered else keys
    same_key = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in same)
    differs = " OR ".join(f"a.{name} IS DISTINCT FROM b.{name}" for name in values)
    columns = [f"CASE WHEN b.partition IS NULL THEN a.{name} ELSE b.{name} END AS {name}" for name in keys]
    for name in values:
        columns += [f"a.{name} AS {name}_before", f"b.{name} AS {name}_after"]
    change = "CASE WHEN a.partition IS NULL THEN 'added' WHEN b.partition IS NULL THEN 'removed' ELSE 'changed' END"
    template = (
        "WITH a AS (SELECT *{} FROM a_rows), b AS (SELECT *{} FROM b_rows) "
        "SELECT {} AS {}, {} FROM a FULL JOIN b ON {} "
        "WHERE a.partition IS NULL OR b.partition IS NULL OR {} ORDER BY ALL"
    )
    return template.format(number, number, change, CHANGE, ", ".join(columns), same_key, differs)


def _without_zones(rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    schema = pa.schema([field.with_type(_without_zone(field.type)) for field in rows.schema])
    return rows if schema.equals(rows.schema) else rows.cast(schema)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    """Return a type in which no time has a zone, in nested fields, too."""
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_zone(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_without_zone(kind.item_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_without_zone(kind.value_type)))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_zone(kind.value_type)))
    return kind


def _connection() -> Any:
    import duckdb

    return duckdb.connect(":memory:", config=dict(_NO_ACCESS))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
