"""The pure functions make the rows that restoring writes, for every kind of store."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millpond as mp
from millpond import serdes
from millpond.dsl.operators.table_source import MaterializedSource
from millpond.errors import StateError
from millpond.runtime.restoring.global_tables import reason_not_plain
from millpond.snapshots.layouts import StoreKind, covered, expired_before, layout_of, row, time_of
from millpond.state import MemoryBackend, builders
from millpond.state.formats import session_key, window_key
from millpond.topology import GlobalStore, ProcessorNode, SourceNode
from tests.snapshots.changelogs import BUILDERS, changelogs
from tests.snapshots.reference import newest_rows
from tests.support import generated


def replayed(builder, records, batch, partition=3):
    """Rows and metadata after restoring records in batches of some size."""
    backend = MemoryBackend()
    store = builder.build(partition, backend)
    for first in range(0, len(records), batch):
        rows = store.restore(records[first : first + batch])
        backend.write([(builder.name, partition, rows)], {(builder.name, partition): (first, store.metadata())})
    return list(backend.range(builder.name, b"", None)), store.metadata()


def test_every_store_builder_has_a_layout():
    """Snapshots must cover each new kind of store."""
    kinds = [
        each
        for _, each in inspect.getmembers(builders, inspect.isclass)
        if issubclass(each, builders.StoreBuilder) and each is not builders.StoreBuilder
    ]
    subscriptions = builders.SubscriptionStoreBuilder(name="fk", value=serdes.Bytes)
    assert covered(subscriptions)
    assert layout_of(subscriptions).kind == StoreKind.TIMESTAMPED_KEY_VALUE
    kinds.remove(type(subscriptions))  # its rows are those of another kind
    kinds.remove(builders.SlidingWindowStoreBuilder)  # as those of a WindowStoreBuilder
    assert {type(each) for each in BUILDERS.values()} == set(kinds)
    assert {layout_of(each).kind for each in BUILDERS.values()} == set(StoreKind)
    for name, each in BUILDERS.items():
        assert layout_of(each).kind == name


def test_global_versioned_stores_are_not_covered():
    """Their rows would depend on the order of records of different partitions."""
    builder = builders.VersionedKeyValueStoreBuilder(
        name="v", key=serdes.String, value=serdes.Long, history_retention_ms=1
    )
    source = SourceNode("source", ("topic",), serdes.String, serdes.Long)
    processor = ProcessorNode("table", MaterializedSource("v", send_old=False), ("source",))
    definition = GlobalStore(0, source, processor, builder)
    assert reason_not_plain(definition, None) == "is a global store of a kind that snapshots do not cover"


def test_the_layout_of_a_versioned_store_has_all_that_its_rows_depend_on():
    """Rows of another retention or segment are not used."""
    options = {"name": "v", "key": serdes.String, "value": serdes.Long, "history_retention_ms": 90_000}
    layout = layout_of(builders.VersionedKeyValueStoreBuilder(**options))
    assert (layout.kind, layout.retention_ms, layout.segment_ms) == (StoreKind.VERSIONED, 90_000, 20_000)
    assert layout != layout_of(builders.VersionedKeyValueStoreBuilder(**options, segment_interval_ms=7))


def test_stores_of_ones_own_have_the_rows_of_key_value_stores_with_timestamps():
    """So snapshots cover them."""
    builder = mp.StateStoreBuilder(name="own", supplier=mp.StateStore)
    assert covered(builder)
    assert layout_of(builder).kind is StoreKind.TIMESTAMPED_KEY_VALUE


def test_unknown_store_builder_is_rejected():
    """Otherwise the snapshot would lack the store without notice."""

    class Other(builders.StoreBuilder):
        pass

    with pytest.raises(StateError, match="do not cover stores of Other: exclude store 'x'"):
        layout_of(Other(name="x"))


@pytest.mark.parametrize("kind", BUILDERS)
@settings(max_examples=generated.examples(150))
@given(data=st.data(), batch=st.integers(1, 70))
def test_newest_rows_are_what_replay_leaves(kind, data, batch):
    """Rows and checkpoint are equal by bytes, whatever the batches."""
    records = data.draw(changelogs(kind))
    builder = BUILDERS[kind]
    rows, metadata = newest_rows(layout_of(builder), 3, records)
    left, left_metadata = replayed(builder, records, batch)
    assert metadata == left_metadata
    if kind == "versioned":
        assert set(rows) <= set(left)  # expired versions stay until a sweep
    else:
        assert rows == left


def test_expired_windows_begin_where_restoring_drops_them():
    """Whole segments of half the retention expire."""
    layout = layout_of(BUILDERS["window"])
    assert expired_before(layout, 1_000_000) == 800_000
    assert expired_before(layout, 1_099_999) == 800_000
    assert expired_before(layout, None) == 0
    assert expired_before(layout_of(BUILDERS["key_value"]), 5) is None


def test_window_start_is_read_from_changelog_keys_and_rows():
    """Both end with the window start."""
    layout = layout_of(BUILDERS["timestamped_window"])
    key = window_key(b"k", 120_000)
    assert time_of(layout, key) == 120_000
    assert time_of(layout, row(layout, 1, key, b"v", 5, None)[0]) == 120_000
    assert time_of(layout_of(BUILDERS["key_value"]), key) is None


def test_session_end_is_read_from_changelog_keys_and_rows():
    """Sessions expire by their ends."""
    layout = layout_of(BUILDERS["session"])
    key = session_key(b"k", 90_000, 120_000)
    assert time_of(layout, key) == 120_000
    assert time_of(layout, row(layout, 1, key, b"v", 5, None)[0]) == 120_000


def test_stores_with_a_maximum_of_entries_are_not_covered():
    """They are restored from the changelog, in whose order they have their entries."""
    builder = builders.KeyValueStoreBuilder(name="recent", max_entries=5)
    assert not covered(builder)
    with pytest.raises(StateError, match="do not cover stores of KeyValueStoreBuilder with max_entries=: exclude"):
        layout_of(builder)


@pytest.mark.parametrize(
    ("value", "headers"),
    [(b"x", None), (b"x", [("v", b"\x02")]), (b"x", [("v", b"\x03")]), (b"x", [("v", b"\x03"), ("v", None)])],
)
def test_buffer_records_of_another_format_are_rejected(value, headers):
    """They would become rows that no worker can read."""
    with pytest.raises(StateError, match="Kafka Streams writes version 3"):
        row(layout_of(BUILDERS["buffer"]), 0, b"k", value, 0, headers)


def test_deletion_that_nothing_precedes_is_in_no_row():
    """A replay may have removed it before the next version of its key came."""
    records = [(b"a", None, 0, None), (b"b", b"v", 240_000, None), (b"a", b"v", 60_000, None)]
    rows, _ = newest_rows(layout_of(BUILDERS["versioned"]), 3, records)
    left, _ = replayed(BUILDERS["versioned"], records, 1)
    assert rows == left
    assert len(rows) == 2
