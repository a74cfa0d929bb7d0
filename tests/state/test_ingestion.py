"""Ingestion replaces a store partition by SST files: completely or not at all, whenever the process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millpond.errors import StateError
from millpond.snapshots.sst import write_sst
from millpond.state import StateFile
from millpond.state.formats import partition_prefix
from millpond.state.ingestion import Checkpoint
from millpond.state.provenance import Provenance
from tests.state import helpers

ROOT = Path(__file__).parents[2]
FROM = Provenance("topic-id", 1_700_000_000_000)
FILES = 3

pytestmark = pytest.mark.usefixtures("processes")


def prefixed(partition, keys, value):
    """Rows of a partition."""
    return [(partition_prefix(partition) + b"%05d" % key, value) for key in keys]


def new_rows():
    """The rows to ingest, with some of the old rows' keys."""
    return prefixed(0, range(50, 350), b"new")


def filled(path):
    """A state file with old rows in three partitions of a store and one of another."""
    file = StateFile(path, helpers.SMALL)
    for partition in (0, 1, 2):
        rows = prefixed(partition, range(100), b"old")
        beside = {("s", partition): (100, b"old")}
        file.write([("s", partition, rows)], beside, {("s", partition): Provenance("old-id", 5)})
    file.write([("other", 0, prefixed(0, range(10), b"old"))], {("other", 0): (10, b"")})
    return file


def files(directory):
    """The new rows as SST files."""
    directory.mkdir(parents=True, exist_ok=True)
    rows, paths = new_rows(), []
    for number in range(FILES):
        path = directory / f"{number}.sst"
        write_sst(rows[number * 100 : (number + 1) * 100], path)
        paths.append(path)
    return paths


def content(file, store, partition):
    """Rows of a partition."""
    return list(file.range(store, partition_prefix(partition), partition_prefix(partition + 1)))


def others_untouched(file):
    """Return whether other partitions and stores are as `filled` made them."""
    return (
        all(content(file, "s", each) == prefixed(each, range(100), b"old") for each in (1, 2))
        and content(file, "other", 0) == prefixed(0, range(10), b"old")
        and [file.offset("s", 1), file.offset("s", 2), file.offset("other", 0)] == [100, 100, 10]
        and file.provenance("s", 2) == Provenance("old-id", 5)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app" / "w0"


def test_ingested_rows_replace_all_old_ones(path, tmp_path):
    """Rows, offset, metadata and provenance are the new ones, also after the next open."""
    with filled(path) as file:
        file.ingest("s", 0, files(tmp_path / "in"), 777, b"meta", FROM)
        for partition in (0, 9):
            file.ingest("new", partition, [], 5, b"", FROM)
        assert file.reader("s")(partition_prefix(0) + b"00051") == b"new"
        assert file.reader("s")(partition_prefix(0) + b"00049") is None
        file.write([("s", 0, prefixed(0, [60], b"later"))], {("s", 0): (778, b"meta2")})
    with StateFile(path, helpers.SMALL) as file:
        expected = dict(new_rows()) | dict(prefixed(0, [60], b"later"))
        assert content(file, "s", 0) == sorted(expected.items())
        assert (file.offset("s", 0), file.metadata("s", 0), file.provenance("s", 0)) == (778, b"meta2", FROM)
        assert file.partitions("new") == [0, 9]
        assert others_untouched(file)
        file.drop("s", 0)
        assert content(file, "s", 0) == []


def test_ingested_rows_survive_compaction_and_another_ingestion(path, tmp_path):
    """Deletions that precede the ingestion do not delete ingested rows."""
    with filled(path) as file:
        for number in range(3):
            file.ingest("s", 0, files(tmp_path / str(number)), number, b"", FROM)
            family = file._database.families["s"].rows
            family.flush()
            family.compact_range(None, None)
            assert content(file, "s", 0) == new_rows()
        assert others_untouched(file)


def test_old_rows_are_gone_before_the_first_file_comes(path, tmp_path):
    """An unfinished partition must not look like a restored one."""
    with filled(path) as file:
        ingestion = file.ingestion("s", 0)
        assert file.offset("s", 0) is None
        assert file.provenance("s", 0) is None
        assert content(file, "s", 0) == []
        ingestion.add(files(tmp_path / "in")[0])
        assert file.partitions("s") == [1, 2]
        ingestion.abandon()
        assert content(file, "s", 0) == []
        assert others_untouched(file)
        file.write([("s", 0, prefixed(0, range(3), b"replayed"))], {("s", 0): (3, b"")})
    with StateFile(path, helpers.SMALL) as file:
        assert content(file, "s", 0) == prefixed(0, range(3), b"replayed")


def test_unfinished_ingestion_ends_when_the_database_is_opened_anew(path, tmp_path):
    """The ingested rows are deleted, and the ingestion cannot continue."""
    with filled(path) as file:
        first, *others = files(tmp_path / "in")
        ingestion = file.ingestion("s", 0)
        ingestion.add(first)
        file.rebuild("other")
        assert content(file, "s", 0) == []
        for attempt in (lambda: ingestion.add(others[0]), lambda: ingestion.finish({0: Checkpoint(1, b"", FROM)})):
            with pytest.raises(StateError, match="opened again"):
                attempt()
        ingestion.abandon()
        assert file.offset("s", 0) is None


@pytest.mark.parametrize("damage", ["garbage", "missing", "cut"])
def test_unusable_file_leaves_an_empty_partition_and_a_good_database(path, tmp_path, damage):
    """The error names the cause; the state file stays usable."""
    with filled(path) as file:
        paths = files(tmp_path / "in")
        if damage == "missing":
            paths[1].unlink()
        else:
            data = paths[1].read_bytes()
            paths[1].write_bytes(data[:-20] if damage == "cut" else os.urandom(5000))
        with pytest.raises(StateError):
            file.ingest("s", 0, paths, 777, b"", FROM)
        assert file.offset("s", 0) is None
        assert content(file, "s", 0) == []
        file.ingest("s", 0, files(tmp_path / "again"), 777, b"", FROM)
    with StateFile(path, helpers.SMALL) as file:
        assert file.set_aside is None
        assert content(file, "s", 0) == new_rows()
        assert others_untouched(file)


KILLED = """
import os, signal, sys
from pathlib import Path
from rocksdict import Rdict
from millpond.state import StateFile
from tests.state import helpers
from tests.state.test_ingestion import FROM, files, filled

file = filled(Path(sys.argv[1]))
paths = files(Path(sys.argv[2]))
left = int(sys.argv[3])

def step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Database:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        return getattr(self.inner, name)
    def write(self, *given):
        step()
        self.inner.write(*given)
        step()
    def ingest_external_file(self, *given):
        step()
        self.inner.ingest_external_file(*given)
        step()
    def flush(self, *given):
        self.inner.flush(*given)
        step()

file._database.db = Database(file._database.db)
family = file._database.families["s"]
family.rows = Database(family.rows)
file.ingest("s", 0, paths, 777, b"meta", FROM)
print("done", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_at_every_step_it_leaves_nothing_or_all(tmp_path):
    """The process is killed before and after each write to the database."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT)])}
    seen = []
    for step in range(100):
        path = tmp_path / str(step)
        ended = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(tmp_path / f"in{step}"), str(step)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        with StateFile(path, helpers.SMALL) as file:
            assert file.set_aside is None
            found = content(file, "s", 0)
            offset = file.offset("s", 0)
            assert others_untouched(file)
            seen.append(offset)
            if offset == 100:
                assert found == prefixed(0, range(100), b"old")
            elif offset is None:
                assert found == []
                assert file.provenance("s", 0) is None
            else:
                assert found == new_rows()
                assert (offset, file.metadata("s", 0), file.provenance("s", 0)) == (777, b"meta", FROM)
        if "done" in ended.stdout:
            break
    # Old rows until the first write, then nothing, then all: never back and forth.
    assert seen == sorted(seen, key=[100, None, 777].index)
    assert len(seen) == 2 + 1 + 2 * FILES + 2 + 1
    assert set(seen) == {100, None, 777}
