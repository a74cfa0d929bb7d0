"""`millpond catalog`: list, show, diff and sql, and their errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millpond.snapshots.locations import open_location
from tests.cli.conftest import Ended, Millpond

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")
written = pytest.importorskip("tests.catalog.written")

OLD, NEW = "20260101T000000Z-00000a", "20260102T000000Z-00000b"
DAY_MS = 86_400_000
BEGIN_MS = 1_767_225_600_000
HOUR = datetime(2026, 1, 1, 10, tzinfo=UTC)


def counts(values: dict[str, int], raw: dict[str, bytes] | None = None) -> Any:
    """A store of counts with some undecoded values."""
    raw = raw or {}
    return pa.table(
        {
            "key": pa.array([*values, *raw], pa.string()),
            "value": pa.array([*values.values(), *([None] * len(raw))], pa.int64()),
            "timestamp": pa.array([HOUR] * (len(values) + len(raw)), pa.timestamp("us", "UTC")),
            "partition": pa.array([0] * (len(values) + len(raw)), pa.int32()),
            "key_raw": pa.array([None] * (len(values) + len(raw)), pa.binary()),
            "value_raw": pa.array([*([None] * len(values)), *raw.values()], pa.binary()),
        }
    )


def flights(rows: list[tuple[str, dict[str, Any]]], kind: Any) -> Any:
    """A window store with values that have fields."""
    return pa.table(
        {
            "key": pa.array([key for key, _ in rows], pa.string()),
            "window_start": pa.array([HOUR] * len(rows), pa.timestamp("us", "UTC")),
            "window_end": pa.array([HOUR + timedelta(hours=1)] * len(rows), pa.timestamp("us", "UTC")),
            "value": pa.array([value for _, value in rows], kind),
            "partition": pa.array([1] * len(rows), pa.int32()),
        }
    )


@pytest.fixture
def run(millpond: Millpond, tmp_path: Path) -> Callable[..., Ended]:
    """Run a sub-command on two versions of the application `app`; values of the later one have one more field."""
    location = open_location(str(tmp_path / "tables"))
    few = pa.struct([("late", pa.int64())])
    more = pa.struct([("late", pa.int64()), ("tags", pa.list_(pa.string()))])
    before = {
        "counts": (counts({"a": 1, "b": 2, "c": 3}), {0: 10, 1: 5}),
        "delays-by-hour": (flights([("JFK", {"late": 5}), ("LGA", {"late": 6})], few), {0: 0, 1: 9}),
    }
    after = {
        "counts": (counts({"a": 1, "c": 4, "d": 5}, {"e": b"\xff"}), {0: 20, 1: 5}),
        "delays-by-hour": (
            flights([("JFK", {"late": 5, "tags": None}), ("LGA", {"late": 7, "tags": ["x"]})], more), {0: 0, 1: 12},
        ),
    }  # fmt: skip
    written.write_version(location, "app", OLD, before, BEGIN_MS)
    written.write_version(location, "app", NEW, after, BEGIN_MS + DAY_MS + 789, undecoded_values=1)

    def with_location(name: str, *more: object) -> Ended:
        return millpond("catalog", name, *more, "--location", tmp_path / "tables", "--application-id", "app")

    return with_location


def lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.status == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_list_shows_the_newest_first(run: Callable[..., Ended]) -> None:
    """It shows each store with its rows and undecoded values; as JSON also the offsets."""
    ended = run("list")
    assert ended.status == 0
    found = [line.split() for line in ended.out.splitlines()[1:]]
    assert [line[0] for line in found if line[0] in (OLD, NEW)] == [NEW, OLD]
    assert "2026-01-02 00:00:00.789Z" in ended.out
    assert found[0][-3:] == ["0", "/", "1"]
    newest, _ = lines(run("list", "--json"))
    assert newest["version"] == NEW
    assert newest["tables"][0]["offsets"] == {"0": 20, "1": 5}


def test_the_times_of_the_list_are_moments(run: Callable[..., Ended]) -> None:
    """A version is found by the time that the list shows for it."""
    shown = [" ".join(line.split()[1:3]) for line in run("list").out.splitlines()[1:] if line.startswith("2026")]
    assert len(shown) == 2
    for moment, version in zip(shown, (NEW, OLD), strict=True):
        assert f"version {version}" in run("show", "counts", "--as-of", moment).out


def test_times_after_the_year_9999_are_shown(run: Callable[..., Ended]) -> None:
    """A window without an end, or a record of a wrong clock, ends no command."""
    query = "SELECT key, TIMESTAMP '10000-01-01' AS late FROM counts WHERE key = 'a'"
    assert lines(run("sql", query, "--json")) == [{"key": "a", "late": "+10000-01-01T00:00:00.000Z"}]
    assert "+10000-01-01T00:00:00.000Z" in run("sql", query).out


@pytest.mark.parametrize(
    ("as_of", "version"),
    [((), NEW), (("--as-of", OLD), OLD), (("--as-of", "2026-01-01T12:00"), OLD), (("--as-of", "0=19"), OLD)],
)
def test_show_shows_a_store_at_a_moment(run: Callable[..., Ended], as_of: tuple[str, ...], version: str) -> None:
    """A moment is a version, a time or offsets."""
    found = {row["key"]: row["value"] for row in lines(run("show", "counts", *as_of, "--json"))}
    assert found == ({"a": 1, "b": 2, "c": 3} if version == OLD else {"a": 1, "c": 4, "d": 5, "e": None})
    ended = run("show", "counts", *as_of)
    assert f"version {version}" in ended.out
    assert ("value_raw" in ended.out) == (version == NEW), "bytes are shown where there are some"


def test_show_has_nested_columns_and_tells_how_many_rows_it_leaves_out(run: Callable[..., Ended]) -> None:
    """Windows are shown as times, fields as JSON."""
    ended = run("show", "delays-by-hour", "--limit", "1")
    assert "2026-01-01 10:00:00Z" in ended.out
    assert '{"late":5,"tags":null}' in ended.out
    assert "1 of 2 rows" in ended.out


def test_diff_names_the_rows_that_differ(run: Callable[..., Ended]) -> None:
    """It shows added, removed and changed rows between moments of any form; none between a version and itself."""
    found = {
        row["key"]: (row["change"], row["value_before"], row["value_after"])
        for row in lines(run("diff", "counts", OLD, NEW, "--json"))
    }
    assert found == {
        "b": ("removed", 2, None),
        "c": ("changed", 3, 4),
        "d": ("added", None, 5),
        "e": ("added", None, None),
    }
    assert lines(run("diff", "counts", "2026-01-01", OLD, "--json")) == []
    assert "changed" in run("diff", "counts", OLD, NEW).out


def test_diff_compares_values_across_a_change_of_their_type(run: Callable[..., Ended]) -> None:
    """A new field is null in older versions: rows without it are equal."""
    (row,) = lines(run("diff", "delays-by-hour", OLD, NEW, "--json"))
    assert (row["change"], row["key"]) == ("changed", "LGA")
    assert row["value_before"] == {"late": 6, "tags": None}
    assert row["value_after"] == {"late": 7, "tags": ["x"]}


def test_sql_sees_all_stores_of_one_moment(run: Callable[..., Ended]) -> None:
    """Joins, times and nested fields work without DuckDB extensions, which would have to be downloaded."""
    query = (
        "SELECT count(*) AS n, sum(c.value) AS total, max(d.value.late) AS late, "
        "any_value(strftime(d.window_start, '%H')) AS hour FROM counts c CROSS JOIN \"delays-by-hour\" d"
    )
    assert lines(run("sql", query, "--json")) == [{"n": 8, "total": 20, "late": 7, "hour": "10"}]
    assert lines(run("sql", query, "--as-of", OLD, "--json")) == [{"n": 6, "total": 12, "late": 6, "hour": "10"}]
    since = "SELECT key FROM counts WHERE timestamp >= TIMESTAMP '2026-01-01 10:00:00' AND value > 3 ORDER BY key"
    assert [row["key"] for row in lines(run("sql", since, "--json"))] == ["c", "d"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC 1", "DuckDB rejects the query (Parser Error"),
        ("SELECT * FROM nosuch", 'The stores are "counts", "delays-by-hour"'),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("COPY counts TO 'out.csv'", "the catalog is read-only"),
        ("CREATE TABLE t AS SELECT 1", "the catalog is read-only"),
        ("SELECT 1; DROP VIEW counts", "write one SELECT"),
    ],
)
def test_sql_reads_tables_and_nothing_else(run: Callable[..., Ended], query: str, message: str, tmp_path: Path) -> None:
    """SQL cannot read files, use the network or write: the error is one sentence."""
    ended = run("sql", query)
    assert (ended.status, ended.out) == (1, "")
    assert message in ended.err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nosuch"), "no store 'nosuch'; it has 'counts', 'delays-by-hour'"),
        (("show", "counts", "--as-of", "2020-01-01"), "no version is as old as 2020-01-01"),
        (("show", "counts", "--as-of", "soon"), "'soon' is not a moment"),
        (("diff", "counts", OLD, "20260109T000000Z-00000a"), "version 20260109T000000Z-00000a does not exist"),
    ],
)
def test_what_is_not_there_is_said_in_one_sentence(
    run: Callable[..., Ended], arguments: tuple[str, ...], message: str
) -> None:
    """The error lists what exists."""
    ended = run(*arguments)
    assert (ended.status, ended.out) == (1, "")
    assert message in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_table_that_lost_a_file_is_said_in_one_sentence(run: Callable[..., Ended], tmp_path: Path) -> None:
    """A table was deleted by hand, or by retention while it was read."""
    for path in (tmp_path / "tables").rglob("*.parquet"):
        path.unlink()
    ended = run("show", "counts")
    assert (ended.status, ended.out) == (1, "")
    assert f"the table of store 'counts' in version {NEW} cannot be read" in ended.err


def test_the_location_may_be_a_setting(millpond: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a location, the error names the option; listing an empty location is no error."""
    assert "--location URI" in millpond("catalog", "list", "--application-id", "app").err
    monkeypatch.setenv("MILLPOND_CATALOG_LOCATION", str(tmp_path / "none"))
    assert millpond("catalog", "list", "--application-id", "app").out == "No tables of 'app'.\n"
    ended = millpond("catalog", "show", "counts", "--application-id", "app")
    assert ended.status == 1
    assert "the location has no tables yet: make a snapshot with --catalog" in ended.err
