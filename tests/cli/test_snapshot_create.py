"""`millpond snapshot create` in a child process: killed, stopped, and undisturbed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.catalog import indexes as catalog
from millpond.snapshots import versions
from millpond.snapshots.locations import open_location
from tests.cli.conftest import Process, require_spark
from tests.support import kafka
from tests.support.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # as all jobs

KEYS = 3_000


@pytest.fixture
def create(
    broker: Broker,
    start: Callable[..., Process],
    counted: Callable[[int], str],
    app_id: str,
    tmp_path: Path,
) -> Callable[[], Process]:
    """Start a snapshot of an application that has counted words."""
    require_spark()
    target = counted(KEYS)
    return lambda: start(
        "snapshot", "create", target, "--location", tmp_path / "snapshots", "--catalog", tmp_path / "tables",
        "--master", "local[2]",
        "--application-id", app_id, "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip


@pytest.mark.long
def test_a_command_makes_a_snapshot_and_tables(create: Callable[[], Process], app_id: str, tmp_path: Path) -> None:
    """It says what is in them."""
    check(create(), app_id, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(900)  # three jobs, on a busy machine
def test_a_job_that_ends_early_disturbs_no_later_one(
    create: Callable[[], Process], app_id: str, tmp_path: Path
) -> None:
    """Killed, it leaves an incomplete version; stopped, it leaves no files; then a complete one is made."""
    location = open_location(str(tmp_path / "snapshots"))
    killed = create()
    kafka.eventually(lambda: killed.says("writing files"), "Spark writes", 240)
    killed.signal(signal.SIGKILL)
    killed.wait()
    assert versions.versions(location, app_id) == []
    left = location.list(app_id)
    assert left

    stopped = create()
    kafka.eventually(lambda: stopped.says("reading changelogs"), "Spark reads", 240)
    stopped.signal(signal.SIGTERM)
    assert stopped.wait() == 130
    assert stopped.said.rstrip().endswith("millpond: interrupted.")
    assert "Traceback" not in stopped.said
    assert {path.split("/")[1] for path, _ in location.list(app_id)} == {path.split("/")[1] for path, _ in left}

    check(create(), app_id, tmp_path)


def check(done: Process, app_id: str, tmp_path: Path) -> None:
    """Wait for a job, and compare its result and output with the expected rows."""
    location = open_location(str(tmp_path / "snapshots"))
    assert done.wait(240) == 0, done.said
    (version,) = versions.versions(location, app_id)
    manifest = versions.read(location, app_id, version)
    assert versions.verify(location, manifest) == []
    assert sum(part.rows for part in manifest.stores[0].parts) == KEYS
    row = next(line for line in done.said.splitlines() if line.startswith("counts"))
    assert row.split()[:4] == ["counts", "2", f"{KEYS:,}", f"{KEYS:,}"]
    assert f"Snapshot {version} of '{app_id}'" in done.said
    tables = open_location(str(tmp_path / "tables"))
    assert catalog.versions(tables, app_id) == [version]
    (counts,) = catalog.read(tables, app_id, version).tables
    assert (counts.rows, counts.undecoded_keys, counts.undecoded_values, counts.undecoded_reason) == (KEYS, 0, 0, None)
    assert "undecoded keys / values" in done.said
