"""Differences between two moments of a store, whatever rows its keys have."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")
queries = pytest.importorskip("millpond.catalog.queries")

HOUR = datetime(2026, 1, 1, 10, tzinfo=UTC)
#: The end of a window without an end, in microseconds; Python has no `datetime` for the year 294247.
LATE_US = 9_223_372_036_854_775_000


def rows(*cells: tuple[str, int, Any], window: bool = False) -> Any:
    """Rows of key, hour and value."""
    times = pa.array([HOUR + timedelta(hours=hour) for _, hour, _ in cells], pa.timestamp("us", "UTC"))
    columns = {"key": pa.array([key for key, _, _ in cells], pa.string())}
    if window:
        columns |= {"window_start": times, "window_end": pa.nulls(len(cells), pa.timestamp("us", "UTC"))}
    columns["value"] = pa.array([value for _, _, value in cells], pa.int64())
    if not window:
        columns["timestamp"] = times
    return pa.table(columns | {"partition": pa.array([0] * len(cells), pa.int32())})


def changes(before: Any, after: Any) -> list[tuple[Any, ...]]:
    return [
        (row["change"], row["key"], row["value_before"], row["value_after"])
        for row in queries.diff(before, after).to_pylist()
    ]


@pytest.mark.parametrize("window", [False, True])
def test_a_store_beside_itself_has_no_changes(window: bool) -> None:
    """Also where a key has several versions, or a join keeps several records of a key and a time, equal ones, too."""
    store = rows(("a", 0, 1), ("a", 1, 2), ("a", 1, 3), ("a", 1, 3), ("b", 0, None), ("b", 0, None), window=window)
    assert changes(store, store) == []
    assert changes(store, store.take(pa.array([5, 2, 0, 3, 1, 4]))) == []


def test_versions_of_a_key_are_compared_at_their_times() -> None:
    before = rows(("a", 0, 1), ("a", 1, 2), ("b", 0, 5))
    after = rows(("a", 1, 3), ("a", 2, 4), ("b", 0, 5))
    assert changes(before, after) == [("added", "a", None, 4), ("changed", "a", 2, 3), ("removed", "a", 1, None)]
    assert "timestamp" in queries.diff(before, after).column_names


def test_a_key_with_one_row_is_compared_whatever_its_time_is() -> None:
    assert changes(rows(("a", 0, 1), ("b", 0, 1)), rows(("a", 5, 1), ("b", 5, 2))) == [("changed", "b", 1, 2)]


def test_rows_of_one_key_and_time_are_added_and_removed(seed: int) -> None:
    """They are counted: the differences turn the first rows into the second."""
    chance = random.Random(seed)
    for _ in range(20):
        one, two = (
            [
                (chance.choice("ab"), chance.randrange(2), chance.choice([None, 1, 2]))
                for _ in range(chance.randrange(9))
            ]
            for _ in range(2)
        )
        found = Counter(one)
        table = queries.diff(rows(*one, ("z", 0, 1), ("z", 0, 1)), rows(*two, ("z", 0, 1), ("z", 0, 1)))
        for row in table.to_pylist():
            hour = (row["timestamp"] - HOUR) // timedelta(hours=1)
            if row["change"] == "removed":
                found[row["key"], hour, row["value_before"]] -= 1
            else:
                assert row["change"] == "added"
                found[row["key"], hour, row["value_after"]] += 1
        assert +found == Counter(two)


def test_stores_whose_names_differ_by_case_are_views_of_their_own() -> None:
    """SQL ignores case, so both get a number; an error says which view is which store."""
    stores = {"Counts": rows(("a", 0, 1)), "counts": rows(("b", 0, 2)), "counts_1": rows(("c", 0, 3)), "sums": rows()}
    names = queries.view_names(stores)
    assert names == {"Counts_2": "Counts", "counts_3": "counts", "counts_1": "counts_1", "sums": "sums"}
    for view, store in names.items():
        found = queries.select(f'SELECT key FROM "{view}"', stores, stores.__getitem__).to_pylist()
        assert found == stores[store].select(["key"]).to_pylist()
    with pytest.raises(Exception, match="\"Counts_2\" is the store 'Counts', \"counts_3\" is the store 'counts'"):
        queries.select("SELECT * FROM counts", stores, stores.__getitem__)


def test_times_of_every_year_are_rows() -> None:
    """Windows without an end, and records of a clock that is wrong, are after the year 9999."""
    from millpond.catalog.rows import python_rows

    store = pa.table({"at": pa.array([0, LATE_US, None], pa.timestamp("us", "UTC")), "n": [1, 2, 3]})
    late = "+294247-01-10T04:00:54.775Z"
    assert [row["at"] for row in python_rows(store)] == [datetime(1970, 1, 1, tzinfo=UTC), late, None]
    [batch] = store.to_batches()
    assert [row["at"] for row in python_rows(batch)][1:] == [late, None]
