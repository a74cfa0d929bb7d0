"""The state file: atomic commits, one process at a time, and clear errors when the disk fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.errors import StateCorrupted, StateDirectoryLocked, StateError
from millpond.state import MemoryBackend, Rows, StateFile, StateFileOptions
from millpond.state.provenance import Provenance
from tests.state import helpers
from tests.support import generated

PREFIX = b"\0\0\0\0"


def rows(count, tag=b"", size=50):
    """Rows of partition 0 whose values do not compress."""
    return [(PREFIX + tag + b"%06d" % number, os.urandom(size)) for number in range(count)]


def content(file, store):
    """All rows of a store."""
    return list(file.range(store, b"", None))


def to_disk(file):
    """Flush everything into SST files."""
    for family in file._database.families.values():
        family.rows.flush()
    file._database.db.flush()


def sst_files(file, store):
    """The SST files of a store."""
    listing = file._database.families[store].rows.property_value("rocksdb.sstables")
    numbers = [line.strip().split(":")[0] for line in listing.splitlines() if not line.startswith("---")]
    return [file.path / "db" / f"{int(number):06d}.sst" for number in numbers]


def damage(path: Path, at: float):
    """Flip 100 bytes at a fraction of a file."""
    data = bytearray(path.read_bytes())
    middle = int(len(data) * at)
    for position in range(max(0, middle - 50), min(len(data), middle + 50)):
        data[position] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app" / "worker-0"


@pytest.fixture
def two_stores(path):
    """A closed file with stores a and b of 5,000 rows each, and offsets."""
    with StateFile.open(path, helpers.SMALL) as file:
        for store in "ab":
            file.write([(store, 0, rows(5000))], {(store, 0): (7, b"meta")})
        to_disk(file)
        return {store: sst_files(file, store) for store in "ab"}


# Reading and writing.


@pytest.mark.parametrize("place", helpers.BACKENDS)
@given(
    before=st.dictionaries(st.binary(max_size=3), st.binary(max_size=3)),
    writes=st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3))),
    gone=st.tuples(st.binary(max_size=2), st.binary(max_size=2)),
    low=st.binary(max_size=2),
    high=st.none() | st.binary(max_size=2),
    reverse=st.booleans(),
)
@settings(max_examples=generated.examples(30))
def test_a_backend_is_a_sorted_dict(place, before, writes, gone, low, high, reverse):
    """Puts, deletions and range deletions of a batch apply in order; ranges are half-open, both ways."""
    backend = helpers.BACKENDS[place]()
    try:
        backend.backend.write([("s", 0, [*before.items()])])
        model = dict(before)
        for key, value in writes:
            model.pop(key, None) if value is None else model.update({key: value})
        model = {key: value for key, value in model.items() if not gone[0] <= key < gone[1]}
        ranges = [gone] if gone[0] < gone[1] else []
        backend.backend.write([("s", 0, Rows(writes, ranges))], {("s", 0): (3, b"m")})
        expected = sorted(
            ((k, v) for k, v in model.items() if k >= low and (high is None or k < high)), reverse=reverse
        )
        assert list(backend.backend.range("s", low, high, reverse=reverse)) == expected
        read = backend.backend.reader("s")
        assert all(read(key) == model.get(key) for key in {*before, *dict(writes)})
        assert (backend.backend.offset("s", 0), backend.backend.metadata("s", 0)) == (3, b"m")
    finally:
        backend.end()


@pytest.mark.parametrize(("first", "last"), [(b"z", b"a"), (b"z", None), (None, b"a")])
def test_the_last_row_of_a_key_in_a_batch_counts(path, first, last):
    """Rows are inserted in key order, and rows of one key in the given order."""
    with StateFile.open(path) as file:
        file.write([("s", 0, [(PREFIX + b"k", first), (PREFIX + b"a", b"1"), (PREFIX + b"k", last)])])
        kept = [] if last is None else [(PREFIX + b"k", last)]
        assert content(file, "s") == [(PREFIX + b"a", b"1"), *kept]


@pytest.mark.parametrize("place", helpers.BACKENDS)
def test_several_scans_at_once_keep_their_own_bounds(place):
    """Scans that are read at the same time each end at their own bound."""
    backend = helpers.BACKENDS[place]()
    backend.backend.write([("s", 0, [(b"%03d" % number, b"") for number in range(100)])])
    scans = [backend.backend.range("s", b"%03d" % at, b"%03d" % (at + 10)) for at in range(0, 100, 10)]
    assert [[int(key) for key, _ in scan] for scan in scans] == [list(range(at, at + 10)) for at in range(0, 100, 10)]
    backend.end()


@pytest.mark.parametrize("place", helpers.BACKENDS)
def test_dropping_a_partition_leaves_the_others(place):
    """Only rows, offset and metadata of one partition of one store are deleted."""
    chosen = helpers.BACKENDS[place]()
    backend = chosen.backend
    for store in "ab":
        for partition in (0, 1, 255, 256):
            key = partition.to_bytes(4, "big") + b"k"
            backend.write([(store, partition, [(key, b"v")])], {(store, partition): (partition, b"m")})
    backend.drop("a", 255)
    assert [key[:4] for key, _ in backend.range("a", b"", None)] == [b"\0\0\0\0", b"\0\0\0\1", b"\0\0\1\0"]
    assert (backend.offset("a", 255), backend.metadata("a", 255)) == (None, b"")
    assert backend.partitions("a") == [0, 1, 256]
    assert backend.partitions("b") == [0, 1, 255, 256]
    backend.rebuild("a")
    assert (list(backend.range("a", b"", None)), backend.partitions("a")) == ([], [])
    assert backend.partitions("b") == [0, 1, 255, 256]
    assert len(list(backend.range("b", b"", None))) == 4
    chosen.end()


def test_offsets_and_metadata_outlive_the_process_together_with_their_rows(path):
    """A store without a changelog has metadata and no offset."""
    with StateFile.open(path) as file:
        file.write([("a", 3, [(b"k", b"v")])], {("a", 3): (2**50, b"\0meta"), ("b", 4): (None, b"x")})
    with StateFile.open(path) as file:
        assert (file.offset("a", 3), file.metadata("a", 3), file.reader("a")(b"k")) == (2**50, b"\0meta", b"v")
        assert (file.offset("b", 4), file.metadata("b", 4)) == (None, b"x")
        assert (file.offset("a", 4), file.metadata("a", 4)) == (None, b"")
        assert file.stores() == ["a"]


def test_closing_ends_open_scans_and_frees_the_directory(path):
    """An iterator that is still referenced does not keep the database locked."""
    file = StateFile.open(path)
    file.write([("a", 0, rows(10))])
    scan, read = file.range("a", b"", None), file.reader("a")
    next(scan)
    file.close()
    file.close()
    assert list(scan) == []
    with pytest.raises(StateError, match="closed"):
        read(b"k")
    with pytest.raises(StateError, match="closed"):
        file.write([("a", 0, rows(1))])
    StateFile.open(path).close()


# Kill -9.

WRITER = """
import sys
from millpond.state import StateFile, StateFileOptions
file = StateFile.open(sys.argv[1], StateFileOptions(cache_bytes=1 << 20, write_buffer_bytes=256 << 10))
for number in range(10 ** 9):
    value = b"%d" % number * 50
    file.write(
        [(s, 0, [(b"\\0\\0\\0\\0%d" % (number % 500), value), (b"\\0\\0\\0\\0last", b"%d" % number)]) for s in "ab"],
        {(s, 0): (number, b"%d" % number) for s in "ab"},
    )
    print(number, flush=True)
"""


@pytest.mark.usefixtures("processes")
def test_a_killed_process_leaves_the_last_commit_whole(path):
    """After SIGKILL at any moment rows and offsets are of the same commit, the last confirmed one or a later one."""
    for confirmed in (1, 300, 2500):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, env=environment())
        last = -1
        while last < confirmed:
            last = int(child.stdout.readline())
        child.kill()
        child.wait()
        child.stdout.close()
        with StateFile.open(path, helpers.SMALL) as file:
            assert file.set_aside is None
            assert file.offset("a", 0) >= last
            offset = file.offset("a", 0)
            assert file.offset("b", 0) == offset
            for store in "ab":
                assert file.reader(store)(PREFIX + b"last") == file.metadata(store, 0) == b"%d" % offset


def environment():
    """Return the environment for child processes, with the same packages."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


# Memory.

HOARDER = """
import os, sys
from millpond.runtime.worker.memory.malloc import keep_few_arenas
from millpond.state import StateFile, StateFileOptions

keep_few_arenas()  # as workers do

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024

file = StateFile.open(sys.argv[1], StateFileOptions(cache_bytes=8 << 20, write_buffer_bytes=4 << 20))
before = resident()
for number in range(160):
    store = "s%d" % (number % 10)
    file.write([(store, 0, [(b"\\0\\0\\0\\0" + os.urandom(16), os.urandom(1000)) for _ in range(1000)])])
for store in file.stores():
    sum(1 for _ in file.range(store, b"", None))
print(resident() - before)
"""


@pytest.mark.usefixtures("processes")
def test_memory_is_bounded_by_the_options_whatever_is_written(path):
    """160 MB in ten stores, written and read, take at most the cache and three write buffers per store.

    That much is used where the processor is so busy that flushes fall behind; mostly it is a third of it.
    """
    cache, buffers, slack = 8, 10 * 3 * 2, 12
    child = [sys.executable, "-c", HOARDER, str(path)]
    grown = int(subprocess.run(child, env=environment(), check=True, capture_output=True).stdout)
    assert grown < cache + buffers + slack, f"the process grew by {grown} MiB"


# Locking.

HOLDER = """
import sys
from millpond.state import StateFile
file = StateFile.open(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("processes")
def test_second_process_learns_who_locks_the_directory(path):
    """The error names the process; when that process is killed, the directory is free at once."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )
    assert child.stdout.readline() == b"open\n"
    with pytest.raises(StateDirectoryLocked, match=rf"in use by process {child.pid}: stop it, or give .*'state\.dir'"):
        StateFile.open(path)
    child.kill()
    child.communicate()
    StateFile.open(path).close()


def test_one_process_cannot_open_a_directory_twice(path):
    """The error differs from that for two processes, and the first worker is not disturbed."""
    with StateFile.open(path) as file:
        with pytest.raises(StateDirectoryLocked, match="this very process"):
            StateFile.open(path)
        file.write([("a", 0, rows(1))])


# What cannot be opened.


def test_unknown_format_is_not_touched(path):
    """A directory of a newer version is neither read nor changed."""
    StateFile.open(path).close()
    (path / "format").write_text("millpond state 99\n")
    with pytest.raises(StateError, match=r"has the format 'millpond state 99'.*use the version that wrote it"):
        StateFile.open(path)
    (path / "format").write_text("millpond state 1\n")
    StateFile.open(path).close()


def test_unusable_directory_is_named(tmp_path):
    """The error says which path, why, and what to set."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"/file/worker' cannot be used \(Not a directory\).*'state\.dir'"):
        StateFile.open(tmp_path / "file" / "worker")


def test_write_buffers_larger_than_the_cache_are_rejected():
    """Write buffers are part of the cache, so the settings contradict each other."""
    with pytest.raises(ValueError, match="do not fit"):
        StateFileOptions(cache_bytes=1, write_buffer_bytes=2)


@pytest.mark.parametrize("name", ["MANIFEST-*", "CURRENT"])
@pytest.mark.parametrize("how", ["damaged", "removed", "emptied"])
def test_a_database_that_cannot_be_opened_is_set_aside_whole(path, two_stores, name, how):
    """Nothing is deleted, the worker starts empty, and the old database's path and the cause are reported."""
    (file_name,) = (path / "db").glob(name)
    if how == "damaged":
        damage(file_name, 0.5)
    elif how == "removed":
        file_name.unlink()
    else:
        file_name.write_bytes(b"")
    with StateFile.open(path, helpers.SMALL) as file:
        assert file.set_aside.parent == path
        assert file.set_aside.name.startswith("corrupt-")
        assert "cannot be opened" in file.reason or "CURRENT" in file.reason
        assert all((file.set_aside / old.name).exists() for files in two_stores.values() for old in files)
        assert (file.offset("a", 0), file.stores()) == (None, [])
        file.write([("a", 0, rows(1))], {("a", 0): (1, b"")})
    with StateFile.open(path, helpers.SMALL) as file:
        assert (file.set_aside, file.offset("a", 0)) == (None, 1)


@pytest.mark.parametrize("how", ["footer", "truncated", "missing"])
def test_a_broken_file_costs_only_its_store(path, two_stores, how):
    """A store whose file keeps the database from opening is emptied and named; the others keep rows and offsets."""
    broken = two_stores["a"][0]
    if how == "footer":
        damage(broken, 1.0)
    elif how == "truncated":
        broken.write_bytes(broken.read_bytes()[:1000])
    else:
        broken.unlink()
    with StateFile.open(path, helpers.SMALL) as file:
        assert file.set_aside is None
        assert list(file.rebuilt) == ["a"]
        assert broken.name in file.rebuilt["a"]
        assert (file.offset("a", 0), content(file, "a")) == (None, [])
        assert (file.offset("b", 0), file.metadata("b", 0), len(content(file, "b"))) == (7, b"meta", 5000)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.6])
def test_damage_found_while_reading_names_a_rebuildable_store(path, two_stores, at):
    """A checksum that fails in a get or a scan is StateCorrupted with the store; rebuild empties that store alone."""
    damage(two_stores["a"][0], at)
    with StateFile.open(path, helpers.SMALL) as file:
        read = file.reader("a")
        with pytest.raises(StateCorrupted, match=r"store 'a' in .* is corrupted") as found:
            for number in range(5000):
                read(PREFIX + b"%06d" % number)
        assert found.value.store == "a"
        with pytest.raises(StateCorrupted) as found:
            content(file, "a")
        assert found.value.store == "a"
        other = file.reader("b")
        file.rebuild("a")
        assert (file.offset("a", 0), file.offset("b", 0), file.rebuilt) == (None, 7, {})
        assert (content(file, "a"), len(content(file, "b"))) == ([], 5000)
        file.write([("a", 0, [(PREFIX + b"k", b"v")])], {("a", 0): (1, b"")})
        assert read(PREFIX + b"k") == b"v", "functions handed out before the rebuild read the new rows"
        assert other(PREFIX + b"000000") is not None
    with StateFile.open(path, helpers.SMALL) as file:
        assert (file.offset("a", 0), file.reader("a")(PREFIX + b"k")) == (1, b"v")


# A full disk.


@pytest.fixture
def small_disk(tmp_path, processes):
    """A 24 MiB file system of its own."""
    where = tmp_path / "disk"
    where.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", where], check=False, capture_output=True)
    if mount.returncode != 0:
        pytest.skip(f"a full disk needs a small file system, which this user may not mount: {mount.stderr!r}")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def test_full_disk_is_reported_and_leaves_no_partial_write(small_disk):
    """The failed commit is not written, later commits are rejected, and after freeing space and a restart all work."""
    file = StateFile.open(small_disk / "w", helpers.SMALL)
    written = -1

    def commit(number):
        file.write(
            [("a", 0, rows(500, b"%04d" % number, size=200)), ("b", 0, [(PREFIX + b"n", b"%d" % number)])],
            {("a", 0): (number, b""), ("b", 0): (number, b"")},
        )

    with pytest.raises(StateError, match=rf"no space is left for state in '{small_disk}/w'.*free some") as first:
        for number in range(10_000):
            commit(number)
            written = number
    assert not isinstance(first.value, StateCorrupted)
    assert (file.offset("a", 0), file.reader("b")(PREFIX + b"n")) == (written, b"%d" % written)

    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    with pytest.raises(StateError, match="no space is left"):
        commit(written + 2)

    file.close()
    with StateFile.open(small_disk / "w", helpers.SMALL) as file:
        assert (file.set_aside, file.rebuilt) == (None, {})
        offset = file.offset("a", 0)
        assert file.offset("b", 0) == offset
        assert file.reader("b")(PREFIX + b"n") == b"%d" % offset
        assert len(content(file, "a")) == (offset + 1) * 500
        assert offset in (written, written + 1), "the rejected commit is complete or absent"
        commit(offset + 1)
        assert file.offset("a", 0) == offset + 1


@pytest.mark.parametrize("left_kib", [100, 300, 480, 500, 520, 540, 700])
def test_disk_full_during_a_flush_is_an_error(small_disk, left_kib):
    """Whether the log or a write buffer meets the full disk first, the commit ends with the same clear error."""
    file = StateFile.open(small_disk / "w", helpers.SMALL)

    def commit(number):
        file.write([("a", 0, rows(50, b"%04d" % number, size=200))], {("a", 0): (number, b"")})

    for number in range(100):
        commit(number)
    filler = small_disk / "filler"
    with suppress(OSError):  # a compaction may take the space first: then the disk is full already
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - left_kib * 1024))
    with pytest.raises(StateError, match="no space is left for state"):
        for number in range(100, 1000):
            commit(number)
    written = file.offset("a", 0)
    file.close()

    filler.unlink()
    with StateFile.open(small_disk / "w", helpers.SMALL) as file:
        assert file.set_aside is None
        assert file.offset("a", 0) in (written, written + 1)
        assert len(content(file, "a")) == (file.offset("a", 0) + 1) * 50


def test_memory_backend_keeps_partitions_apart():
    """Rows are counted by partition."""
    backend = MemoryBackend()
    backend.write([("s", 0, [(PREFIX + b"k", b"")]), ("s", 1, [(b"\0\0\0\1k", b""), (b"\0\0\0\1l", b"")])])
    assert (backend.count("s", 0), backend.count("s", 1), backend.count("s", 2)) == (1, 2, 0)


def test_where_rows_come_from_lives_and_goes_with_them(tmp_path):
    """Provenance survives a restart, belongs to one partition, and is deleted by a drop and by a rebuild."""
    come_from = Provenance("id", 1_700_000_000_000)
    with StateFile(tmp_path) as file:
        assert file.last_used_ms is None
        for store in ("a", "b"):
            for partition in (0, 1):
                key = (store, partition)
                file.write([(*key, [])], {key: (5, b"m")}, {key: come_from})
    with StateFile(tmp_path) as file:
        assert file.last_used_ms is not None
        assert (file.provenance("a", 0), file.offset("a", 0), file.metadata("a", 0)) == (come_from, 5, b"m")
        assert file.partitions("a") == [0, 1]
        file.drop("a", 0)
        file.rebuild("b")
    with StateFile(tmp_path) as file:
        kept = {(store, partition): file.provenance(store, partition) for store in ("a", "b") for partition in (0, 1)}
    assert kept == {("a", 0): None, ("a", 1): come_from, ("b", 0): None, ("b", 1): None}
