"""Rows of the previous version are reused only where replaying the rest equals replaying everything."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millpond.errors import SnapshotError
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.manifest import Manifest, Part, StoreSnapshot
from millpond_spark.cuts.boundaries import Boundaries, Range
from millpond_spark.incremental import Base
from millpond_spark.stores import ChangelogStore

LAYOUT = StoreLayout(StoreKind.WINDOW, 200_000)
STORE = ChangelogStore("s", LAYOUT, "app-s-changelog", 2, False)
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
PARTS = (
    Part(partition=0, offset=100, as_of_ms=NOW_MS - 1_000),
    Part(partition=1, offset=50, as_of_ms=NOW_MS - 1_000),
)
PREVIOUS = Manifest(
    application="app", topology="t", version="20260101T000000Z-000000", created_ms=0,
    stores=(StoreSnapshot(store="s", layout=LAYOUT, topic=STORE.topic, topic_id="id", partitions=2, parts=PARTS),),
)  # fmt: skip


def boundaries(first: int = 0, end: int = 200, id: str = "id", delete_retention_ms: int | None = DAY_MS) -> Boundaries:
    """Return the boundaries of a changelog; those of partition 1 are always the same."""
    ranges = {Partition(STORE.topic, 0): Range(first, end), Partition(STORE.topic, 1): Range(0, 200)}
    return Boundaries(NOW_MS, ranges, {STORE.topic: TopicIdentity(id, delete_retention_ms)})


def test_changelog_that_lost_its_beginning_is_rejected_unless_the_previous_version_has_it() -> None:
    """The snapshot would lack keys, and workers would not notice."""
    lost = boundaries(first=90)
    lost = Boundaries(NOW_MS, lost.ranges, {STORE.topic: TopicIdentity("id", DAY_MS, only_compacted=True)})
    assert Base.of(PREVIOUS, [STORE], lost, NOW_MS).parts.keys() == {("s", 0), ("s", 1)}
    with pytest.raises(SnapshotError, match="begins at offset 90 in partition 0: records were deleted"):
        Base.of(None, [STORE], lost, NOW_MS)
    assert Base.of(None, [STORE._replace(is_input=True)], lost, NOW_MS).parts == {}


def changed(**fields: object) -> Manifest:
    """Return the previous version with another store, or another part 0."""
    store = PREVIOUS.stores[0]
    if fields.keys() <= {"offset", "as_of_ms"}:
        fields = {"parts": (msgspec.structs.replace(PARTS[0], **fields), PARTS[1])}
    return msgspec.structs.replace(PREVIOUS, stores=(msgspec.structs.replace(store, **fields),))


@pytest.mark.parametrize("first", [0, 100])
@pytest.mark.parametrize("end", [100, 200])
def test_parts_that_the_changelog_continues_are_taken_over(first: int, end: int) -> None:
    """The changelog may begin where the part ends, and have no records after it."""
    base = Base.of(PREVIOUS, [STORE], boundaries(first, end), NOW_MS)
    assert base.version == PREVIOUS.version
    assert base.parts == {("s", 0): PARTS[0], ("s", 1): PARTS[1]}


@pytest.mark.parametrize(
    ("previous", "now"),
    [
        (PREVIOUS, boundaries(first=101)),
        (PREVIOUS, boundaries(end=99)),
        (changed(as_of_ms=NOW_MS - DAY_MS), boundaries()),
        (changed(as_of_ms=NOW_MS + DAY_MS), boundaries()),
    ],
    ids=["changelog begins later", "changelog ends earlier", "deletions may be gone", "clock was wrong"],
)
def test_a_part_is_left_out_alone(previous: Manifest, now: Boundaries) -> None:
    """An unusable partition does not affect the others."""
    assert Base.of(previous, [STORE], now, NOW_MS).parts == {("s", 1): PARTS[1]}


@pytest.mark.parametrize(
    ("previous", "now"),
    [
        (None, boundaries()),
        (PREVIOUS, boundaries(id="other")),
        (changed(topic_id=""), boundaries(id="")),
        (changed(layout=StoreLayout(StoreKind.WINDOW, 300_000)), boundaries()),
        (changed(layout=StoreLayout(StoreKind.TIMESTAMPED_WINDOW, 200_000)), boundaries()),
        (changed(partitions=3), boundaries()),
        (changed(store="another"), boundaries()),
    ],
    ids=["none", "topic made again", "no ids", "other retention", "other kind", "other partitions", "other store"],
)
def test_a_store_of_another_kind_or_topic_is_read_from_the_beginning(
    previous: Manifest | None, now: Boundaries
) -> None:
    """Then there is no base."""
    assert Base.of(previous, [STORE], now, NOW_MS) == Base(None, {})


@pytest.mark.parametrize(("first", "only_compacted", "kept"), [(0, False, True), (90, False, False), (90, True, True)])
def test_global_tables_build_upon_nothing_that_retention_may_have_deleted_since(
    first: int, only_compacted: bool, kept: bool
) -> None:
    """A replay would not have these rows. Compaction alone is harmless: it removes only records with newer ones."""
    layout = StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE, is_global=True)
    now = boundaries(first=first)
    now = Boundaries(NOW_MS, now.ranges, {STORE.topic: TopicIdentity("id", DAY_MS, only_compacted)})
    base = Base.of(changed(layout=layout), [STORE._replace(layout=layout)], now, NOW_MS)
    assert base.parts.keys() == ({("s", 0), ("s", 1)} if kept else {("s", 1)})


def test_topic_of_a_global_table_needs_no_beginning() -> None:
    """It is an input: its records are the truth."""
    layout = StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE, is_global=True)
    lost = Boundaries(
        NOW_MS, boundaries(first=90).ranges, {STORE.topic: TopicIdentity("id", DAY_MS, only_compacted=True)}
    )
    assert Base.of(None, [STORE._replace(layout=layout)], lost, NOW_MS).parts == {}


def test_rows_need_the_deletions_since_the_oldest_of_them_unless_nothing_came_since() -> None:
    """Part 0 is older; where it ends at the end of its changelog, part 1 decides."""
    old = changed(as_of_ms=NOW_MS - 5_000)
    for end, expected in ((200, NOW_MS - 5_000), (100, NOW_MS - 1_000)):
        now = boundaries(end=end)
        assert Base.of(old, [STORE], now, NOW_MS).oldest_ms([STORE], now) == {STORE.topic: expected}
    assert Base.of(None, [STORE], boundaries(), NOW_MS).oldest_ms([STORE], boundaries()) == {}


def test_global_table_with_other_serdes_is_read_from_the_beginning() -> None:
    """Its rows depend on the serdes, and are not the bytes of the topic's records."""
    before, after = (
        StoreLayout(StoreKind.TIMESTAMPED_KEY_VALUE, is_global=True, serdes=f"String, {value}")
        for value in ("String", "Json(Account)")
    )
    for layout, parts in ((before, {("s", 0), ("s", 1)}), (after, set())):
        base = Base.of(changed(layout=before), [STORE._replace(layout=layout)], boundaries(), NOW_MS)
        assert base.parts.keys() == parts


def test_previous_version_that_is_deleted_meanwhile_is_named_with_the_cure(tmp_path: Path) -> None:
    """Another job's retention may delete it while this job reads."""
    pa = pytest.importorskip("pyarrow")
    from millpond_spark.previous_snapshot import PreviousFile, Reader

    file = PreviousFile(0, 0, "app/20260101T000000Z-000000/s/0.sst", "0" * 64)
    batch = pa.RecordBatch.from_pylist([file._asdict()])
    with pytest.raises(SnapshotError, match=r"No such file.* may have been deleted meanwhile.*: make this one again$"):
        list(Reader(str(tmp_path), None, (LAYOUT,))([batch]))
