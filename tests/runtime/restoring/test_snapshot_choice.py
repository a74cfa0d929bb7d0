"""When a snapshot is used, and when the changelog is replayed."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.runtime.restoring.global_tables import global_layout
from millpond.runtime.restoring.rate_meter import RateMeter
from millpond.runtime.restoring.reusable_state import ChangelogFacts
from millpond.runtime.restoring.snapshot_choice import (
    OVERHEAD_S,
    Rates,
    RestoreMethod,
    Unusable,
    WantedStore,
    choose,
    choose_parts,
    estimate,
    usable_part,
)
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots.layouts import StoreKind, StoreLayout, check_metadata, metadata
from millpond.snapshots.manifest import Manifest, Part, StoreSnapshot

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
LAYOUT = StoreLayout(StoreKind.TIMESTAMPED_WINDOW, 60_000)


def manifest(
    *,
    application="app",
    store="s",
    layout=LAYOUT,
    topic="t",
    topic_id="id",
    partitions=2,
    offset=500,
    age_ms=1000,
    beside=None,
):
    """Return the manifest of a snapshot of one partition."""
    beside = metadata(layout, 5_000) if beside is None else beside
    part = Part(partition=1, offset=offset, as_of_ms=NOW_MS - age_ms, metadata_b64=base64.b64encode(beside).decode())
    stored = StoreSnapshot(
        store=store, layout=layout, topic=topic, topic_id=topic_id, partitions=partitions, parts=(part,)
    )
    return Manifest(
        application=application, topology="", version="20260101T000000Z-aaaaaa", created_ms=NOW_MS, stores=(stored,)
    )


def wanted(*, first=0, end=1000, offset=None, partition=1, id="id", retention=DAY_MS):
    """Return a store partition without local rows."""
    return WantedStore("s", LAYOUT, "t", partition, 2, ChangelogFacts(first, end, TopicIdentity(id, retention)), offset)


def two_partitions(offsets=(9_000_000, 9_000_000)):
    """Return the manifest of a snapshot with both partitions of a store."""
    parts = tuple(
        Part(partition=number, offset=offset, as_of_ms=NOW_MS, bytes=1_000_000, metadata_b64=part.metadata_b64)
        for (number, offset), part in zip(enumerate(offsets), manifest().stores[0].parts * 2, strict=True)
    )
    stored = StoreSnapshot(store="s", layout=LAYOUT, topic="t", topic_id="id", partitions=2, parts=parts)
    return msgspec.structs.replace(manifest(), stores=(stored,))


@pytest.mark.parametrize(
    ("offsets", "quicker"),
    [((None, None), True), ((None, 8_900_000), True), ((8_900_000, 8_900_000), False), ((9_000_000, 9_000_000), False)],
)
def test_partitions_that_are_restored_together_are_estimated_together(offsets, quicker):
    """The gain of one may exceed the loss of the other."""
    both = [wanted(end=9_000_000, partition=number, offset=offset) for number, offset in enumerate(offsets)]
    found = choose_parts(two_partitions(), both, "app", NOW_MS, Rates())
    assert [part.partition for part in found.parts] == ([0, 1] if quicker else [])
    assert found.estimate.replay_s == sum(each.replay_records for each in both) / Rates().replay


def test_partitions_that_are_restored_together_are_rejected_together():
    """A snapshot that is unusable for one is not used for the other."""
    both = [wanted(end=9_000_000, partition=0), wanted(end=9_000_000, first=9_000_000, partition=1)]
    with pytest.raises(Unusable, match="the topic begins at 9000000"):
        choose_parts(two_partitions(offsets=(9_000_000, 8_000_000)), both, "app", NOW_MS, Rates())


def test_snapshot_of_the_same_store_is_usable():
    """Also without topic ids, at the end and at the beginning of the changelog."""
    assert usable_part(manifest(), wanted(), "app", NOW_MS).offset == 500
    assert usable_part(manifest(), wanted(id=""), "app", NOW_MS).offset == 500
    assert usable_part(manifest(topic_id=""), wanted(), "app", NOW_MS).offset == 500
    assert usable_part(manifest(), wanted(first=500, end=500), "app", NOW_MS).offset == 500


@pytest.mark.parametrize(
    ("snapshot", "store", "reason"),
    [
        (manifest(application="other"), wanted(), "belongs to application 'other'"),
        (manifest(store="x"), wanted(), "does not have store s"),
        (
            manifest(layout=StoreLayout(StoreKind.TIMESTAMPED_WINDOW, 70_000)),
            wanted(),
            r"another layout \(timestamped_window, retention 70000 ms instead of .* 60000 ms",
        ),
        (manifest(layout=StoreLayout(StoreKind.BUFFER)), wanted(), r"another layout \(buffer instead of"),
        (manifest(topic="u"), wanted(), "from topic u instead of t"),
        (manifest(topic_id="former"), wanted(), r"from another topic of that name \(id former, now id\)"),
        (manifest(partitions=3), wanted(), "has 3 partitions of t, but the topic has 2 now"),
        (manifest(), wanted(partition=0), "does not have partition 0"),
        (manifest(offset=1001), wanted(), "are at offset 1001, but the topic ends at 1000"),
        (manifest(), wanted(first=501), "are at offset 500, but the topic begins at 501"),
        (manifest(beside=b""), wanted(), "unreadable metadata for store s"),
        (manifest(beside=b"\x81\xa1x\x01"), wanted(), "unreadable metadata for store s .*other fields"),
        (manifest(age_ms=DAY_MS), wanted(), "the topic may have lost deletions since"),
        (manifest(age_ms=-DAY_MS), wanted(), "a clock was wrong"),
    ],
)
def test_snapshot_that_does_not_fit_is_rejected_with_its_reason(snapshot, store, reason):
    """It would be wrong state."""
    with pytest.raises(Unusable, match=reason):
        usable_part(snapshot, store, "app", NOW_MS)


def _global_table(key, value):
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).foreach(lambda key, value: None)
    builder.global_table("t", store="s", key=key, value=value)
    (definition,) = builder.build().global_stores
    return definition


def test_snapshot_of_a_global_table_with_other_serdes_is_rejected():
    """Its rows depend on the serdes: they could not be read, and a replay makes others."""
    before, named, after = (
        global_layout(_global_table(mp.String, value), mp.String, mp.Long) for value in (None, mp.Long, mp.String)
    )
    assert before == named, "default serdes count like those that the topology names"
    made = manifest(layout=before, beside=b"")
    assert usable_part(made, wanted()._replace(layout=named), "app", NOW_MS)
    with pytest.raises(
        Unusable, match=r"global timestamped_key_value of String, Long instead of .* of String, String\)"
    ):
        usable_part(made, wanted()._replace(layout=after), "app", NOW_MS)


def test_old_snapshot_of_a_changelog_without_deletions_is_usable():
    """Such a changelog loses no deletion."""
    assert usable_part(manifest(age_ms=100 * DAY_MS), wanted(retention=None), "app", NOW_MS)


@given(
    replay=st.integers(0, 10**9),
    rate=st.floats(1e3, 1e6),
    size=st.integers(0, 10**12),
    bytes_rate=st.floats(1e5, 1e9),
    tail=st.integers(0, 10**9),
)
def test_the_faster_method_is_chosen(replay, rate, size, bytes_rate, tail):
    """A snapshot never wins with a tail as long as the replay, nor below its overhead; longer replays favour it."""
    way = choose(replay, rate, size, bytes_rate, tail)
    each = estimate(replay, rate, size, bytes_rate, tail)
    assert (way is RestoreMethod.SNAPSHOT) == (each.snapshot_s < each.replay_s)
    if tail >= replay or replay <= OVERHEAD_S * rate:
        assert way is RestoreMethod.REPLAY
    if way is RestoreMethod.SNAPSHOT:
        assert choose(replay * 2 + 1, rate, size, bytes_rate, tail) is RestoreMethod.SNAPSHOT


@pytest.mark.parametrize(("offset", "records"), [(None, 900), (100, 900), (400, 600), (1000, 0), (1200, 0)])
def test_replay_is_counted_from_the_end_of_local_rows(offset, records):
    """Or from the first offset of the changelog."""
    assert wanted(first=100, offset=offset).replay_records == records


def test_rate_is_measured_while_many_records_are_restored():
    """Neither pauses nor a few records count."""
    meter = RateMeter()
    for tick in range(100):
        meter.add(10, tick * 0.1)
    assert meter.rate is None
    for tick in range(100):
        meter.add(10_000, 1000 + tick * 0.1)
    assert meter.rate == pytest.approx(100_000, rel=0.1)
    meter.add(1, 2000.0)
    meter.add(1_000_000, 2100.0)
    assert meter.rate == pytest.approx(100_000, rel=0.1)


@pytest.mark.parametrize("kind", StoreKind)
@pytest.mark.parametrize("stream_time", [None, -5, 0, 10**12])
def test_metadata_of_every_kind_passes_its_own_check(kind, stream_time):
    """A restored store's metadata is readable."""
    layout = StoreLayout(kind, 60_000 if "window" in kind else 0)
    check_metadata(layout, metadata(layout, stream_time))
    with pytest.raises(ValueError, match=r"."):
        check_metadata(layout, b"\xff\xff")


def test_tasks_that_are_activated_together_share_the_rates() -> None:
    """One loop replays them all, so the faster method for one of eight tasks is the faster one for all eight."""
    rates = Rates(replay=100_000, snapshot=40e6)
    size = (1_000_000 // 8, 54_000_000 // 8)
    alone = choose(size[0], rates.replay, size[1], rates.snapshot, 0)
    each = rates.shared(8)
    together = choose(size[0], each.replay, size[1], each.snapshot, 0)
    assert (alone, together) == (RestoreMethod.REPLAY, RestoreMethod.SNAPSHOT)
    assert rates.shared(0) == rates.shared(1) == rates
