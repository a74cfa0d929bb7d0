"""Rows of a previous version are taken over only where replaying the rest gives what replaying everything gives."""

from __future__ import annotations

import msgspec
import pytest

from millpond.runtime.ownership import Partition
from millpond.runtime.topic_facts import TopicFacts
from millpond.snapshots.manifest import Manifest, Part, StoreSnapshot
from millpond.snapshots.rows import StoreKind, StoreLayout
from millpond_spark.boundaries import Boundaries, Range
from millpond_spark.incremental import Base
from millpond_spark.stores import LoggedStore

LAYOUT = StoreLayout(StoreKind.WINDOW, 200_000)
STORE = LoggedStore("s", LAYOUT, "app-s-changelog", 2, False)
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
    """A changelog as it is now; partition 1 is always the same."""
    ranges = {Partition(STORE.topic, 0): Range(first, end), Partition(STORE.topic, 1): Range(0, 200)}
    return Boundaries(NOW_MS, ranges, {STORE.topic: TopicFacts(id, delete_retention_ms)})


def changed(**fields: object) -> Manifest:
    """The previous version with another store, or another part 0."""
    store = PREVIOUS.stores[0]
    if fields.keys() <= {"offset", "as_of_ms"}:
        fields = {"parts": (msgspec.structs.replace(PARTS[0], **fields), PARTS[1])}
    return msgspec.structs.replace(PREVIOUS, stores=(msgspec.structs.replace(store, **fields),))


@pytest.mark.parametrize("first", [0, 100])
@pytest.mark.parametrize("end", [100, 200])
def test_parts_that_the_changelog_continues_are_taken_over(first: int, end: int) -> None:
    """The changelog may begin where the part ends, and have nothing after it."""
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
    """What is wrong with one partition says nothing of another."""
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
    """Then there is no base at all."""
    assert Base.of(previous, [STORE], now, NOW_MS) == Base(None, {})
