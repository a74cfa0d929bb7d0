"""Unusable locations: each command reports cause and cure, and leaves no incomplete files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Ended, Millpond, require_spark
from tests.snapshots.s3_server import KEY, SECRET, serving
from tests.support.broker import Broker

Run = Callable[..., Ended]

COMMANDS = ("list", "verify", "create", "create --catalog")
FULL_BYTES = 64 * 1024


@pytest.fixture
def run(
    broker: Broker,
    millpond: Millpond,
    counted: Callable[[int], str],
    app_id: str,
    tmp_path: Path,
) -> Run:
    """Run a command on a location; there is a changelog, so that `create` reaches the location."""
    target = counted(0)

    def with_location(command: str, uri: object) -> Ended:
        name, *catalog = command.split()
        if name == "create":
            require_spark()
        place = ("--location", tmp_path / "good", "--catalog", uri) if catalog else ("--location", uri)
        more = (target, "--bootstrap-servers", broker.bootstrap_servers) if name == "create" else ()
        return millpond("snapshot", name, *more, *place, "--application-id", app_id)

    return with_location


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versitygw: Path) -> Iterator[Path]:
    """The directory of a real S3 server with one bucket; the environment has the credentials."""
    root = tmp_path / "served"
    (root / "bucket").mkdir(parents=True)
    with serving(root) as endpoint:
        for name, value in {"ENDPOINT_URL": endpoint, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield root


def check(ended: Ended, *told: str) -> None:
    """Check that the output is one message of millpond without a secret."""
    assert ended.status == 1
    said = [line for line in ended.err.splitlines() if line.startswith("millpond: ")]
    assert len(said) == 1
    for text in told:
        assert text in said[0]
    assert "Traceback" not in ended.err
    for secret in (SECRET, "another-s3cr3t"):
        assert secret not in ended.out + ended.err


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("command", COMMANDS)
def test_bucket_that_does_not_exist(run: Run, command: str) -> None:
    """It is not treated as an empty one."""
    check(run(command, "s3://elsewhere/states"), "'s3://elsewhere/states'", "bucket does not exist; check the location")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_credentials(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials are in no message."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-s3cr3t")
    check(
        run(command, "s3://bucket/states"), "'s3://bucket/states'", "credentials were rejected; check AWS_ACCESS_KEY_ID"
    )


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("command", COMMANDS)
def test_endpoint_that_does_not_answer(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does not answer."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    check(
        run(command, "s3://bucket/states"),
        "'s3://bucket/states'",
        "at 127.0.0.1:1 does not answer",
        "check AWS_ENDPOINT_URL",
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_location_that_is_a_file(run: Run, command: str, tmp_path: Path) -> None:
    """It may be a typing error."""
    (tmp_path / "file").write_text("x")
    check(run(command, tmp_path / "file"), "Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")
@pytest.mark.parametrize("command", COMMANDS)
def test_directory_that_cannot_be_read(run: Run, command: str, tmp_path: Path) -> None:
    """The message has the reason of the operating system."""
    (tmp_path / "closed").mkdir(mode=0o000)
    check(run(command, tmp_path / "closed"), "Permission denied", "check the path, its rights")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a full disk."""
    at = tmp_path / "disk"
    at.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root mounts a file system")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "none", str(at)]
    made = subprocess.run(mount, check=False, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted: {made.stderr.strip()}")
    try:
        (at / "filler").write_bytes(bytes(FULL_BYTES))
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


@pytest.mark.parametrize("command", ["create", "create --catalog"])
def test_full_disk(run: Run, command: str, small_disk: Path) -> None:
    """No file is left."""
    check(run(command, small_disk), "No space left on device", "free space")
    assert [each.name for each in small_disk.rglob("*") if each.is_file()] == ["filler"]
