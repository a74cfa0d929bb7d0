"""The versions of an application's tables: complete with their index, else not listed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.catalog import indexes
from millpond.catalog.indexes import CatalogVersion, StoreTable
from millpond.catalog.metadata import completed
from millpond.errors import SnapshotError
from millpond.snapshots.locations import Location, open_location

NAMES = ("20260101T000000Z-00000a", "20260102T000000Z-00000b", "20260103T000000Z-00000c")
DAY_MS = 86_400_000
NOW_MS = 1_767_398_400_000  # 2026-01-03T00:00:00Z


def index(version: str) -> CatalogVersion:
    table = StoreTable(store="s", snapshot_id=5, changelog="app-s-changelog", offsets={0: 7, 1: 0}, rows=2, bytes=9)
    return CatalogVersion(application="app", version=version, as_of_ms=1, tables=(table,))


@pytest.fixture
def location(tmp_path: Path) -> Location:
    """Three versions, of which the last has no index."""
    made = open_location(str(tmp_path))
    for name in NAMES:
        made.put(f"{indexes.table_path('app', name, 's')}/data/file", b"data")
    for name in NAMES[:2]:
        indexes.publish(made, index(name))
    return made


def test_a_version_without_an_index_is_not_there(location: Location) -> None:
    """The newest version is first, and the index is read as it was written."""
    assert indexes.versions(location, "app") == [NAMES[1], NAMES[0]]
    assert indexes.versions(location, "other") == []
    assert indexes.read(location, "app", NAMES[0]) == index(NAMES[0])
    assert index(NAMES[0]).offsets == {"s": {0: 7, 1: 0}}


def test_retention_deletes_old_versions_with_their_files(location: Location) -> None:
    """Tables that a job is writing are kept."""
    assert indexes.retain(location, "app", 1) == [NAMES[0]]
    assert indexes.versions(location, "app") == [NAMES[1]]
    assert {path.split("/")[2] for path, _ in location.list("app/catalog")} == {"versions", *NAMES[1:]}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("s3://bucket/", "s3://bucket/app/catalog/v/s"),
        ("file:///a%20b", "file:///a b/app/catalog/v/s"),
        ("file://localhost/a", "file:///a/app/catalog/v/s"),
        ("/a b", "file:///a b/app/catalog/v/s"),
    ],
)
def test_a_table_has_a_uri_for_icebergs_libraries(uri: str, expected: str) -> None:
    """The URI is the version's folder in the location."""
    pytest.importorskip("obstore")
    assert indexes.table_uri(open_location(uri), "app", "v", "s") == expected


def test_what_a_killed_job_left_is_deleted_after_a_while(location: Location) -> None:
    """Complete versions are kept, however old they are."""
    assert indexes.sweep(location, "app", older_than_ms=DAY_MS, now_ms=NOW_MS) == []
    assert indexes.sweep(location, "app", older_than_ms=DAY_MS, now_ms=NOW_MS + DAY_MS) == [NAMES[2]]
    assert indexes.versions(location, "app") == [NAMES[1], NAMES[0]]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"{", "cannot be read"), (b'{"format": 9}', "has format 9"), (b'{"format": 1}', "cannot be read")],
)
def test_an_index_that_cannot_be_understood_is_said_in_one_sentence(
    location: Location, data: bytes, message: str
) -> None:
    """The error differs for a newer format and for damage."""
    location.put(f"app/catalog/versions/{NAMES[0]}.json", data)
    with pytest.raises(SnapshotError, match=message):
        indexes.read(location, "app", NAMES[0])


def test_a_store_that_is_not_there_is_named_with_those_that_are() -> None:
    """For example a misspelt name."""
    with pytest.raises(SnapshotError, match="no store 'x'; it has 's'"):
        index(NAMES[0]).table("x")


def test_metadata_gets_the_versions_tag_and_loses_what_is_gone() -> None:
    """The summary has the version, its time and its offsets; snapshots of kept versions do not change."""
    snapshots = [
        {
            "snapshot-id": number,
            "summary": {"operation": "overwrite", "millpond.version": name},
            "parent-snapshot-id": 1,
        }
        for number, name in enumerate(NAMES[:2], 3)
    ]
    tags = {name: {"snapshot-id": number, "type": "tag"} for number, name in enumerate(NAMES[:2], 3)}
    written = {
        "current-snapshot-id": 5,
        "snapshots": [*snapshots, {"snapshot-id": 5, "summary": {"operation": "append"}, "parent-snapshot-id": 4}],
        "refs": {**tags, "main": {"snapshot-id": 5, "type": "branch"}},
        "snapshot-log": [{"snapshot-id": number, "timestamp-ms": number} for number in (3, 4, 5)],
        "metadata-log": [{"metadata-file": "gone", "timestamp-ms": 1}],
        "location": "there",
    }
    found = completed(written, index(NAMES[2]), index(NAMES[2]).tables[0], NAMES[1:2])
    assert found["location"] == "there"
    assert found["snapshots"][0] == snapshots[1]
    assert found["snapshots"][1:] == [
        {
            "snapshot-id": 5,
            "summary": {
                "operation": "append",
                "millpond.application": "app",
                "millpond.version": NAMES[2],
                "millpond.as-of-ms": "1",
                "millpond.changelog": "app-s-changelog",
                "millpond.offsets": '{"0":7,"1":0}',
                "millpond.undecoded-keys": "0",
                "millpond.undecoded-values": "0",
            },
        }
    ]
    assert found["refs"] == {
        NAMES[1]: tags[NAMES[1]],
        NAMES[2]: {"snapshot-id": 5, "type": "tag"},
        "main": {"snapshot-id": 5, "type": "branch"},
    }
    assert [entry["snapshot-id"] for entry in found["snapshot-log"]] == [4, 5]
    assert found["metadata-log"] == []
