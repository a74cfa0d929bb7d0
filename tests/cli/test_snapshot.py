"""`millpond snapshot`: list, verify and delete, and their errors."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from millpond.snapshots.layouts import StoreKind, StoreLayout
from millpond.snapshots.locations import open_location
from millpond.snapshots.manifest import Manifest
from tests.cli.conftest import COUNT, Application, Ended, Millpond
from tests.conftest import CreateTopic
from tests.snapshots.reference import write_snapshot
from tests.support.broker import Broker

VERSIONS = ("20260101T000000Z-00000a", "20260102T000000Z-00000b")
ROWS = [(b"k%d" % number, b"v", 1, None) for number in range(7)]


@pytest.fixture
def made(tmp_path: Path) -> list[Manifest]:
    """Two snapshots of the application `app`."""
    location = open_location(str(tmp_path / "snapshots"))
    layout = StoreLayout(StoreKind.KEY_VALUE)
    stores = {"counts": (layout, "app-counts-changelog", "id", {0: (ROWS, 9), 1: ([], 0)})}
    return [write_snapshot(location, "app", version, stores, as_of_ms=1_767_225_600_000) for version in VERSIONS]


@pytest.fixture
def run(millpond: Millpond, tmp_path: Path):
    """Run a sub-command for the application `app`."""

    def with_location(name: str, *more: object) -> Ended:
        return millpond("snapshot", name, "--location", tmp_path / "snapshots", "--application-id", "app", *more)

    return with_location


@pytest.mark.usefixtures("made")
def test_list_shows_the_newest_first(run) -> None:
    """Each version has its time, rows and size."""
    ended = run("list")
    assert ended.status == 0
    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(reversed(VERSIONS))
    assert "2026-01-01 00:00:00Z" in lines[1]
    assert " 7 " in lines[1]


def test_an_empty_location_is_no_error_to_list(run) -> None:
    """Listing is no error if there is no snapshot."""
    ended = run("list")
    assert (ended.status, ended.out) == (0, "No snapshot of 'app'.\n")


def test_verify_checks_the_newest_version_or_the_one_that_is_named(run, made: list[Manifest], tmp_path: Path) -> None:
    """A changed byte is reported with its file, and the exit status is not 0."""
    assert "20260102T000000Z-00000b of 'app' is complete: 1 files, 7 rows" in run("verify").out
    file = tmp_path / "snapshots" / "app" / VERSIONS[0] / made[0].files[0].path
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    assert run("verify").status == 0
    ended = run("verify", VERSIONS[0])
    assert ended.status == 1
    assert f"'{made[0].files[0].path}' is damaged" in ended.err
    assert f"millpond: snapshot {VERSIONS[0]} of 'app': 1 of 1 files are missing or damaged" in ended.err


@pytest.mark.usefixtures("made")
def test_the_location_is_the_one_that_workers_load_snapshots_from(
    millpond: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless --location is given; without both, the error names the option."""
    assert "--location URI" in millpond("snapshot", "list", "--application-id", "app").err
    monkeypatch.setenv("MILLPOND_BOOTSTRAP_LOCATION", str(tmp_path / "snapshots"))
    assert VERSIONS[0] in millpond("snapshot", "list", "--application-id", "app").out
    ended = millpond("snapshot", "list", "--application-id", "app", "--location", tmp_path / "other")
    assert "No snapshot of" in ended.out


@pytest.mark.usefixtures("made")
def test_delete_leaves_nothing_of_a_version(run, tmp_path: Path) -> None:
    """Other versions are kept."""
    ended = run("delete", VERSIONS[0], "--yes")
    assert ended.status == 0
    assert [each.name for each in (tmp_path / "snapshots" / "app").iterdir()] == [VERSIONS[1]]


@pytest.mark.usefixtures("made")
def test_delete_changes_nothing_when_a_version_is_misspelled(run, tmp_path: Path) -> None:
    """An unknown version is an error, and nothing is deleted."""
    ended = run("delete", VERSIONS[0], "20260103T000000Z-00000c", "--yes")
    assert ended.status == 1
    assert "snapshot 20260103T000000Z-00000c of 'app' does not exist" in ended.err
    assert len(list((tmp_path / "snapshots" / "app").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["verify", "--location", "hdfs://host/x", "--application-id", "app"], "of an unknown kind: use s3://"),
        (["verify", "--location", "snapshots", "--application-id", "other"], "application 'other' has no snapshot"),
        (["list", "--location", "snapshots"], "application.id"),
        (["create", "nothing:here", "--location", "snapshots"], "module 'nothing' does not exist"),
        (["create", "--location", "snapshots"], "MODULE:ATTRIBUTE"),
    ],
)
def test_bad_input_is_one_sentence(millpond: Millpond, arguments: list[str], told: str) -> None:
    """The error is shown, and the exit status is not 0."""
    ended = millpond("snapshot", *arguments)
    assert ended.status != 0
    assert told in ended.err
    assert "Traceback" not in ended.err


def test_without_spark_the_extra_is_named(
    millpond: Millpond, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before any request to a broker."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "pyspark" else find(name, *more)
    )
    ended = millpond(
        "snapshot", "create", f"{application(COUNT)}:count", "--location", "snapshots", "--application-id", "app",
        "--bootstrap-servers", "127.0.0.1:1",
    )  # fmt: skip
    assert ended.status == 1
    assert "pip install 'millpond[spark]'" in ended.err


@pytest.mark.parametrize("java", [True, False])
def test_create_says_what_is_missing(
    broker: Broker,
    millpond: Millpond,
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    java: bool,
) -> None:
    """The changelog is missing, since the application never ran, or Java is. Nothing is written."""
    pytest.importorskip("pyspark")
    monkeypatch.setenv("WORDS", create_topic("words"))
    monkeypatch.setenv("COUNTS", create_topic("counts"))
    told = f"changelog '{app_id}-counts-changelog' of store 'counts' does not exist"
    if not java:
        create_topic_named(broker, f"{app_id}-counts-changelog")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        told = "Spark needs a full Java runtime from 17 to 23"
    ended = millpond(
        "snapshot", "create", f"{application(COUNT)}:count", "--location", tmp_path / "snapshots",
        "--application-id", app_id, "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip
    assert ended.status == 1
    assert told in ended.err
    assert not list((tmp_path / "snapshots").rglob("*.*"))


def create_topic_named(broker: Broker, name: str) -> None:
    """An internal topic, which the application's fixture deletes."""
    from tests.support import kafka

    kafka.create_topic(broker.bootstrap_servers, name)
