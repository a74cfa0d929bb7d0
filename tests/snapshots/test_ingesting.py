"""A store that was ingested from a snapshot equals a store that was restored by a replay."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import SnapshotError, StateError
from millpond.snapshots.layouts import expired_before, layout_of, time_of
from millpond.snapshots.sst import file_sha256, write_sst
from millpond.state import MemoryBackend, StateFile
from millpond.state.formats import partition_prefix, segment_interval, window_key
from millpond.state.ingestion import Checkpoint
from millpond.state.memory import ingestion as memory_ingestion
from millpond.state.provenance import Provenance
from millpond.state.rocksdb.database import Database
from tests.snapshots.changelogs import BUILDERS, changelogs, seen_through_interface
from tests.snapshots.reference import newest_rows
from tests.state import helpers
from tests.support import generated

PARTITION = 3
FROM = Provenance("id", 1)


def replay(file, builder, records, batch, first=0):
    """Restore the store from changelog records; return it."""
    store = builder.build(PARTITION, file)
    for at in range(first, len(records), batch):
        chunk = records[at : at + batch]
        rows = store.restore(chunk)
        key = (builder.name, PARTITION)
        file.write([(*key, rows)], {key: (at + len(chunk), store.metadata())}, {key: FROM})
    return store


def ingest(backend, builder, records, directory, per_file):
    """Ingest a snapshot of changelog records."""
    rows, metadata = newest_rows(layout_of(builder), PARTITION, records)
    paths = []
    for first in range(0, len(rows), per_file):
        paths.append(directory / f"{first}.sst")
        write_sst(rows[first : first + per_file], paths[-1])
    ingestion = backend.ingestion(builder.name, PARTITION)
    for path in paths:
        while not ingestion.add(path):
            pass
        assert not path.exists()
    ingestion.finish({PARTITION: Checkpoint(len(records), metadata, FROM)})


def raw(file, builder):
    """Return all live rows of the partition, and its checkpoint."""
    name = builder.name
    rows = list(file.range(name, partition_prefix(PARTITION), partition_prefix(PARTITION + 1)))
    return rows, file.metadata(name, PARTITION), file.offset(name, PARTITION), file.provenance(name, PARTITION)


def of_bytes(kind, found):
    """Return what has to be equal by bytes: expired versions stay until a sweep, and no method returns them."""
    return found[1:] if kind == "versioned" else found


@pytest.fixture(params=BUILDERS)
def builder(request):
    return BUILDERS[request.param]


@pytest.mark.parametrize("kind", BUILDERS)
@settings(max_examples=generated.examples(25))
@given(data=st.data(), batch=st.integers(1, 70), per_file=st.integers(1, 30), cut=st.floats(0, 1), dirty=st.booleans())
def test_ingested_store_is_the_replayed_one(kind, data, batch, per_file, cut, dirty):
    """The two are equal by bytes and by methods, also with records after the snapshot, and with older rows."""
    builder = BUILDERS[kind]
    records = data.draw(changelogs(kind))
    snapshot = records[: round(cut * len(records))]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        at = Path(scratch)
        with StateFile(at / "a", helpers.SMALL) as one, StateFile(at / "b", helpers.SMALL) as other:
            replayed = replay(one, builder, records, batch)
            if not records:
                one.write([], {(builder.name, PARTITION): (0, replayed.metadata())}, {(builder.name, PARTITION): FROM})
            if dirty:
                replay(other, builder, data.draw(changelogs(kind)), 10).close()
            ingest(other, builder, snapshot, at, per_file)
            continued = replay(other, builder, records, batch, len(snapshot))
            assert of_bytes(kind, raw(one, builder)) == of_bytes(kind, raw(other, builder))
            assert seen_through_interface(builder, replayed) == seen_through_interface(builder, continued)


@pytest.mark.parametrize("kind", BUILDERS)
@settings(max_examples=generated.examples(15))
@given(data=st.data(), batch=st.integers(1, 70), step=st.integers(1, 7), cut=st.floats(0, 1))
def test_store_in_memory_that_was_ingested_is_the_replayed_one(kind, data, batch, step, cut):
    """The two are equal whatever the number of rows per step, and whatever rows were there before."""
    builder = replace(BUILDERS[kind], persistent=False)
    records = data.draw(changelogs(kind))
    snapshot = records[: round(cut * len(records))]
    one, other = MemoryBackend(), MemoryBackend()
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch,
        patch.object(memory_ingestion, "_ROWS", step),
    ):
        replayed = replay(one, builder, records, batch)
        if not records:
            one.write([], {(builder.name, PARTITION): (0, replayed.metadata())}, {(builder.name, PARTITION): FROM})
        replay(other, builder, data.draw(changelogs(kind)), 10).close()
        ingest(other, builder, snapshot, Path(scratch), 25)
        assert list(Path(scratch).iterdir()) == []
        continued = replay(other, builder, records, batch, len(snapshot))
        assert of_bytes(kind, raw(one, builder)) == of_bytes(kind, raw(other, builder))
        assert seen_through_interface(builder, replayed) == seen_through_interface(builder, continued)


def test_memory_takes_a_file_in_steps_and_forgets_them_all(tmp_path):
    """Running tasks continue between two steps; files of an ingestion that was killed do not disturb."""
    rows = [(partition_prefix(PARTITION) + b"%06d" % each, b"v") for each in range(memory_ingestion._ROWS * 2)]
    backend = MemoryBackend()
    (tmp_path / "x.rows").mkdir()
    (tmp_path / "x.rows/CURRENT").write_text("of a process that was killed")
    write_sst(rows, tmp_path / "x.sst")
    ingestion = backend.ingestion("kv", PARTITION)
    assert not ingestion.add(tmp_path / "x.sst")
    assert list(backend.range("kv", b"", None)) == rows[: memory_ingestion._ROWS]
    ingestion.abandon()
    assert list(backend.range("kv", b"", None)) == []
    assert backend.offset("kv", PARTITION) is None
    assert list(tmp_path.iterdir()) == []


def test_file_that_memory_cannot_read_is_rejected(tmp_path):
    """The error is one sentence; no rows are left."""
    backend = MemoryBackend()
    for content in (b"", b"junk" * 1000):
        (tmp_path / "x.sst").write_bytes(content)
        ingestion = backend.ingestion("kv", PARTITION)
        with pytest.raises(StateError, match=r"file 'x\.sst' cannot be read") as failed:
            ingestion.add(tmp_path / "x.sst")
        assert "\n" not in str(failed.value)
        ingestion.abandon()
        assert not (tmp_path / "x.rows").exists()


def test_snapshot_of_an_empty_partition_has_an_offset_and_no_rows(builder, tmp_path):
    """All its records may be deletions."""
    with StateFile(tmp_path / "w", helpers.SMALL) as file:
        ingest(file, builder, [], tmp_path, 10)
        rows, _, offset, provenance = raw(file, builder)
        assert (rows, offset, provenance) == ([], 0, FROM)
        store = builder.build(PARTITION, file)
        assert seen_through_interface(builder, store) == seen_through_interface(
            builder, builder.build(PARTITION + 1, file)
        )


def test_a_snapshot_of_versions_has_what_the_store_accepted():
    """Puts that were too late, deletions, replaced and expired versions are as after a replay, and so is a late put."""
    builder = BUILDERS["versioned"]
    assert builder.history_retention_ms == 200_000
    records = [
        (b"a", b"1", 100_000, None), (b"a", b"2", 110_000, None), (b"a", b"2b", 110_000, None),
        (b"b", b"old", 100_000, None), (b"gone", b"x", 120_000, None), (b"gone", None, 130_000, None),
        (b"trace", b"x", 300_000, None), (b"trace", None, 300_000, None), (b"a", b"3", 500_000, None),
        (b"late", b"x", 299_999, None), (b"just", b"x", 300_000, None), (b"a", None, 510_000, None),
    ]  # fmt: skip
    rows, _ = newest_rows(layout_of(builder), PARTITION, records)
    assert [(key[4:-8], int.from_bytes(key[-8:], "big"), value) for key, value in rows] == [
        (b"a", 110_000, b"\x012b"), (b"a", 500_000, b"\x013"), (b"a", 510_000, b"\x00"), (b"b", 100_000, b"\x01old"),
        (b"just", 300_000, b"\x01x"),
    ]  # fmt: skip
    later = [*records, (b"late", b"y", 309_000, None), (b"late", b"y", 310_000, None), (b"b", b"new", 320_000, None)]
    one, other = MemoryBackend(), MemoryBackend()
    replayed = replay(one, builder, later, 5)
    for key, value in rows:
        other.write([(builder.name, PARTITION, [(key, value)])])
    other.write([], {(builder.name, PARTITION): (len(records), newest_rows(layout_of(builder), PARTITION, records)[1])})
    continued = replay(other, builder, later, 1, len(records))
    assert seen_through_interface(builder, replayed) == seen_through_interface(builder, continued)


def test_no_expired_window_is_in_a_snapshot():
    """A replay drops them, too."""
    builder = BUILDERS["window"]
    layout = layout_of(builder)
    records = [(b"k" + start.to_bytes(8, "big") + bytes(4), b"v", 0, None) for start in range(0, 2_000_000, 30_000)]
    rows, _ = newest_rows(layout, 0, records)
    starts = [time_of(layout, key) for key, _ in rows]
    bound = expired_before(layout, max(starts))
    assert min(starts) - 30_000 < bound <= min(starts)
    assert len(starts) < len(records)


def test_marker_outlives_a_crash_of_the_machine(builder, tmp_path, monkeypatch):
    """Ingested files survive it. Without the marker, keys that were deleted long ago would reappear."""
    database = tmp_path / "w/db"
    synced = {}
    sync = Database.sync

    def noted(database_):
        sync(database_)
        synced.update((each.name, each.stat().st_size) for each in database.glob("*.log"))

    monkeypatch.setattr(Database, "sync", noted)
    write_sst([(partition_prefix(PARTITION) + b"key", b"value")], tmp_path / "x.sst")
    with StateFile(tmp_path / "w", helpers.SMALL) as file:
        file.ingestion(builder.name, PARTITION).add(tmp_path / "x.sst")
        shutil.copytree(tmp_path / "w", tmp_path / "after")
    for log in (tmp_path / "after/db").glob("*.log"):
        os.truncate(log, synced.get(log.name, 0))
    with StateFile(tmp_path / "after", helpers.SMALL) as file:
        assert raw(file, builder)[0] == []


def test_sst_files_need_ascending_keys(tmp_path):
    """No incomplete file is left behind."""
    with pytest.raises(SnapshotError, match="do not ascend"):
        write_sst([(b"b", b"1"), (b"a", b"1")], tmp_path / "x.sst")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SnapshotError, match="cannot be written"):
        write_sst([(b"b", b"1")], tmp_path / "no" / "x.sst")


def test_sst_files_tell_rows_bytes_and_sha256(tmp_path):
    """Without rows there is no file."""
    path = tmp_path / "x.sst"
    written = write_sst(((b"%04d" % each, b"v") for each in range(500)), path)
    assert written == (500, path.stat().st_size, file_sha256(path))
    assert write_sst([], tmp_path / "y.sst") == (0, 0, "")
    assert not (tmp_path / "y.sst").exists()


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in BUILDERS if kind != "versioned"])
@settings(max_examples=generated.examples(25))
@given(data=st.data(), batch=st.integers(1, 70))
def test_replayed_rows_do_not_depend_on_how_records_are_batched(kind, persistent, data, batch):
    """Also rows of windows that expire within a batch: a snapshot equals any replay."""
    builder = replace(BUILDERS[kind], persistent=persistent)
    records = data.draw(changelogs(kind))
    one, other = MemoryBackend(), MemoryBackend()
    replay(one, builder, records, 1)
    replay(other, builder, records, batch)
    assert raw(one, builder) == raw(other, builder)


def test_window_that_expires_in_the_batch_it_came_with_is_as_one_that_expires_later():
    """A deletion advances stream time, too; the window's segment is still live, but reads do not return the window."""
    builder = replace(BUILDERS["window"], persistent=False)
    later = builder.retention_ms + 10
    records = [
        (window_key(b"a", segment_interval(builder.retention_ms)), b"1", 0, None),
        (window_key(b"a", segment_interval(builder.retention_ms) + later), None, 0, None),
    ]
    together, apart = MemoryBackend(), MemoryBackend()
    seen = [seen_through_interface(builder, replay(together, builder, records, 2))]
    seen.append(seen_through_interface(builder, replay(apart, builder, records, 1)))
    assert raw(together, builder) == raw(apart, builder)
    assert seen[0] == seen[1]
