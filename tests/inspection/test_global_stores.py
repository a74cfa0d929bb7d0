"""Global tables and stores in memory in `millpond state`: shown from a snapshot, and never reported as wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from millpond import serdes
from millpond.inspection.directory import StateDirectory
from millpond.inspection.snapshot import SnapshotSource
from millpond.inspection.verifying import verify
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest
from millpond.state import StateFile
from millpond.state.provenance import Provenance
from tests.cli.conftest import Application, Millpond
from tests.snapshots.reference import write_snapshot

VERSION = "20260101T000000Z-00000a"
KIND = StoreKind.TIMESTAMPED_KEY_VALUE
APP = """
    import millpond as mp

    def build():
        builder = mp.StreamsBuilder()
        builder.global_table("airports", key=mp.String, value=mp.Long, store="airports")
        builder.stream("in", key=mp.String, value=mp.Long).group_by_key().count(store="recent", persistent=False)
        return builder.build()
"""


@pytest.fixture
def location(tmp_path: Path) -> Location:
    """The location of the snapshot."""
    return open_location(str(tmp_path / "snapshots"))


@pytest.fixture
def manifest(location: Location) -> Manifest:
    """Write a snapshot with rows of two partitions of a global table, and of a store in memory."""
    one, two = ([(key, serdes.Long.serialize(7), 1_000, None)] for key in (b"JFK", b"LGA"))
    stores: dict[str, Any] = {
        "airports": (
            StoreLayout(KIND, is_global=True, serdes="String, Long"),
            "airports",
            "id",
            {0: (one, 1), 1: (two, 1)},
        ),
        "recent": (StoreLayout(KIND), "app-recent-changelog", "id", {0: (one, 1)}),
    }
    return write_snapshot(location, "app", VERSION, stores, as_of_ms=1_767_225_600_000)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    """The directory of a stopped worker with the global table."""
    with StateFile(tmp_path / "state/app/w0") as file:
        rows: Any = [(bytes(4) + key, bytes(16)) for key in (b"JFK", b"LGA")]
        ends: Any = {("airports", each): (1, b"") for each in range(2)}
        file.write([("airports", 0, rows)], ends, dict.fromkeys(ends, Provenance("id", 1)))
    with closing(StateDirectory(tmp_path / "state/app/w0")) as opened:
        yield opened


@pytest.mark.parametrize(("store", "keys"), [("airports", ["JFK", "LGA"]), ("recent", ["JFK"])])
def test_their_rows_are_shown_with_the_applications_serdes(
    millpond: Millpond, application: Application, manifest: Manifest, tmp_path: Path, store: str, keys: list[str]
) -> None:
    """Those of all partitions."""
    ended = millpond(
        "state", "show", store, "--app", f"{application(APP)}:build", "--location", tmp_path / "snapshots",
        "--application-id", "app", "-o", "json",
    )  # fmt: skip
    assert ended.status == 0, ended.err
    shown = [msgspec.json.decode(line) for line in ended.out.splitlines()]
    assert [(row["key"], row["value"], row["timestamp"]) for row in shown] == [(key, 7, 1_000) for key in keys]


class _NoChangelogs:
    """Changelogs that must not be read."""

    def logs(self, topics: object, partitions: object) -> dict[Any, Any]:
        return {}


def test_partitions_that_are_not_compared_have_a_reason(
    location: Location, manifest: Manifest, directory: StateDirectory
) -> None:
    """All rows of a global store are in one partition, so rows of two topic partitions would seem to differ."""
    changelogs: Any = _NoChangelogs()
    source = SnapshotSource(location, manifest)
    found = list(verify(source, [directory], changelogs, now_ms=lambda: 2_000_000_000_000))
    assert all(each.comparison is None for each in found)
    assert [(each.source, each.held.store, each.held.partition, each.reason) for each in found] == [
        ("w0", "airports", 0, "global stores are not compared"),
        ("w0", "airports", 1, "global stores are not compared"),
        ("", "recent", 0, "no source has this partition on disk"),
    ]
