"""The version that `--as-of` means: by id, by time, by offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.catalog.as_of import choose, parse_offsets, parse_time
from millpond.catalog.indexes import CatalogVersion, StoreTable
from millpond.errors import SnapshotError

HOUR_MS = 3_600_000
BEGIN_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def version(number: int, **stores: int) -> CatalogVersion:
    """Return the version of an hour, whose stores end at the same offset in both partitions."""
    tables = tuple(
        StoreTable(
            store=name, snapshot_id=number, changelog=f"app-{name}-changelog", offsets={0: end, 1: end}, rows=0, bytes=0
        )
        for name, end in stores.items()
    )
    name = datetime.fromtimestamp((BEGIN_MS + number * HOUR_MS) / 1000, UTC).strftime("%Y%m%dT%H%M%SZ") + "-00000a"
    return CatalogVersion(application="app", version=name, as_of_ms=BEGIN_MS + number * HOUR_MS, tables=tables)


def chosen(made: list[CatalogVersion], as_of: str | None, store: str | None = None) -> int:
    """Return the index of the chosen version."""
    by_name = {each.version: each for each in made}
    return made.index(choose(sorted(by_name, reverse=True), by_name.__getitem__, as_of, store))


MADE = [version(number, left=10 * number, right=7) for number in range(3)]


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        (None, 2),
        (MADE[1].version, 1),
        ("2026-01-01T01:59:59", 1),
        ("2026-01-01T03:00:00+01:00", 2),
        ("2026-01-01 01:00:00Z", 1),
        ("2026-01-01", 0),
        ("2027-01-01", 2),
        ("0=10,1=19", 1),
        ("left:0=20", 2),
        ("right:0=7, left:1=0", 0),
    ],
)
def test_a_moment_is_the_newest_version_that_is_not_later(as_of: str | None, expected: int) -> None:
    """Times without a zone are UTC; offsets without a store belong to the given store."""
    assert chosen(MADE, as_of, "left") == expected


@pytest.mark.parametrize(
    ("as_of", "message"),
    [
        ("20260101T000000Z-ffffff", "version 20260101T000000Z-ffffff does not exist"),
        ("2025-12-31T23:59:59", "no version is as old as 2025"),
        ("left:0=-1", "is not a moment"),
        ("right:1=6", "no version ends at or before right:1=6"),
        ("0=5,1", "is not a moment"),
        ("yesterday", "'yesterday' is not a moment: write a version, a time such as"),
        ("middle:0=5", "no store 'middle'; it has 'left', 'right'"),
        ("left:2=5", "store 'left' has no partition 2: it has 2"),
        ("0=5", "name the store of each offset"),
    ],
)
def test_a_moment_that_is_none_is_said_in_one_sentence(as_of: str, message: str) -> None:
    """The error shows valid forms."""
    with pytest.raises(SnapshotError, match=message):
        chosen(MADE, as_of)


def test_without_versions_the_option_is_named() -> None:
    """No tables were written yet, or at another location."""
    with pytest.raises(SnapshotError, match="--catalog"):
        chosen([], None)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True), st.integers(-1, 52))
def test_by_time_and_by_offsets_the_same_version_is_chosen_when_offsets_grow_with_time(
    hours: list[int], at: int
) -> None:
    """The newest version that fits is chosen."""
    made = [version(hour, left=hour) for hour in hours]
    time = (datetime.fromtimestamp(BEGIN_MS / 1000, UTC) + timedelta(hours=at)).isoformat()
    fitting = [hour for hour in hours if hour <= at]
    if not fitting:
        with pytest.raises(SnapshotError, match="no version is as old as"):
            chosen(made, time)
        return
    assert hours[chosen(made, time)] == max(fitting)
    assert hours[chosen(made, f"0={at},1={at}")] == max(fitting)


@given(
    st.dictionaries(st.tuples(st.sampled_from(["a.b", "c-1"]), st.integers(0, 9)), st.integers(0, 2**63), min_size=1)
)
def test_offsets_are_read_as_they_are_written(offsets: dict[tuple[str, int], int]) -> None:
    """Any number of stores and partitions."""
    text = ",".join(f"{store}:{partition}={offset}" for (store, partition), offset in offsets.items())
    assert parse_offsets(text) == offsets
    assert parse_time(text) is None
