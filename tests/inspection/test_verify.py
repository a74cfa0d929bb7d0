"""`millpond state verify` finds rows that differ from snapshot and changelogs, and no others."""

from __future__ import annotations

from millpond.state import StateFile
from millpond.state.formats import partition_prefix
from tests.cli.conftest import Millpond
from tests.inspection.conftest import APP, LATER, VERSION, Stage

STORES = ("counts", "hourly", "seen", "versions")


def damage(stage: Stage, store: str, value: bytes) -> bytes:
    """Change the first row of partition 1 in the stopped worker's database; return its key."""
    with StateFile(stage.state / stage.app_id / "w0") as file:
        key, _ = next(file.range(store, partition_prefix(1), partition_prefix(2)))
        file.write([(store, 1, [(key, value)])])
        return key


def test_a_running_worker_equals_snapshot_and_changelogs(millpond: Millpond, stage: Stage) -> None:
    """Every kind of store, right after the snapshot, and after many commits, expired windows and changed keys."""
    stage.produce(400)
    with stage.running() as running:
        stage.await_committed(running)
        stage.snapshot()
        for _ in range(2):
            ended = millpond("state", "verify", *stage.options, "--url", running.worker.metrics.http.url)
            # The worker logs its own warnings there, such as slow commits on a busy machine.
            assert ended.status == 0, ended.err
            assert "differ" not in ended.err
            lines = [line.split() for line in ended.out.splitlines()]
            rows = {(line[2], line[3]): line[4:] for line in lines if line[0] == "w0"}
            assert {store for store, _ in rows} >= set(STORES)
            assert any(store.startswith("KTABLE-SUPPRESS") for store, _ in rows)
            assert all(counts[2:] == ["0", "0", "0"] for counts in rows.values()), ended.out
            assert sum(int(counts[1]) for (store, _), counts in rows.items() if store == "counts") == 40
            stage.produce(700)
            stage.await_committed(running)


def test_one_damaged_row_is_found_and_named(millpond: Millpond, stopped) -> None:
    """Only that row: in the directory of the stopped worker, and when that worker runs again."""
    stage = stopped(400)
    stage.snapshot()
    key = damage(stage, "counts", b"\0" * 15 + b"\x63")
    ended = millpond("state", "verify", *stage.options, "--app", APP, "--state-dir", stage.state)
    assert ended.status == 1
    counts = {tuple(line.split()[1:3]): line.split()[3:] for line in ended.out.splitlines() if line.startswith("w0 ")}
    assert {where: found[2:] for where, found in counts.items() if found[2:] != ["0", "0", "0"]} == {
        ("counts", "1"): ["1", "0", "0"]
    }
    assert f"w0, store counts, partition 1: key {key[4:].decode()}\n  expected 10 (" in ended.out
    assert "  found    99 (1970-01-01T00:00:00Z)" in ended.out
    assert "1 keys differ from snapshot" in ended.err

    with stage.running() as running:
        running.wait_running()
        ended = millpond("state", "verify", *stage.options, "--url", running.worker.metrics.http.url)
        assert (ended.status, f"key {key[4:].hex()}" in ended.out) == (1, True), ended.out
        assert ended.out.count("expected") == 1


def test_a_wrong_version_is_found_and_named(millpond: Millpond, stopped) -> None:
    """A versioned store has several rows for a key, each with its time."""
    stage = stopped(400)
    stage.snapshot()
    with StateFile(stage.state / stage.app_id / "w0") as file:
        *_, (key, _) = file.range("versions", partition_prefix(1), partition_prefix(2))
        file.write([("versions", 1, [(key, b"\x01wrong")])])
    ended = millpond("state", "verify", *stage.options, "--app", APP, "--state-dir", stage.state)
    assert ended.status == 1
    assert f"w0, store versions, partition 1: key {key[4:-8].decode()}\n  expected v" in ended.out
    assert "\n  found    wrong (" in ended.out
    assert "1 keys differ from snapshot" in ended.err


def test_a_directory_that_is_behind_is_compared_unless_deletions_may_be_missing(millpond: Millpond, stopped) -> None:
    """Missing changes are read from the changelogs, without changing the directory. An old snapshot is not used."""
    stage = stopped(300)
    directory = stage.state / stage.app_id / "w0"
    stage.snapshot(VERSION, as_of_ms=1)
    # Another worker goes on where this one stopped.
    stage.state = stage.directory / "other"
    stopped(300)
    stage.snapshot(LATER)
    before = {each: (each.stat().st_mtime_ns, each.stat().st_size) for each in directory.rglob("*")}
    ended = millpond("state", "verify", *stage.options, "--state-dir", directory)
    assert (ended.status, ended.err) == (0, ""), ended.out
    assert {each: (each.stat().st_mtime_ns, each.stat().st_size) for each in directory.rglob("*")} == before

    ended = millpond("state", "verify", VERSION, *stage.options, "--state-dir", stage.state)
    assert ended.status == 1
    assert "the topic may have lost deletions since" in " ".join(ended.out.split())
    assert "nothing was compared: the table shows why." in ended.err
