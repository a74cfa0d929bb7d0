"""What a release is made of: the same bytes from the same sources."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.archives import normalised, normalised_wheel
from release.failures import ReleaseFailed
from release.images import Image, base_image, differing
from release.output import emptied
from release.packages import packages
from release.sources import Sources, committed

_ROOT = Path(__file__).parents[2]
_EPOCH = 1_700_000_000
_DIGEST = "sha256:" + "5" * 64


def _sources(directory: Path) -> Sources:
    directory.mkdir()
    for name in ("worker", "operator", "spark"):
        shutil.copytree(_ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(_ROOT / name, directory)
    return Sources(directory, "c" * 40, _EPOCH)


@pytest.mark.long
@pytest.mark.slow
def test_the_same_sources_give_the_same_packages(tmp_path):
    first = packages(_sources(tmp_path / "one"), tmp_path / "first")
    second = _sources(tmp_path / "two")
    for path in second.directory.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700 if path.is_dir() else 0o600)
    former = os.umask(0o077)
    try:
        again = packages(second, tmp_path / "again")
    finally:
        os.umask(former)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_an_archive_does_not_show_when_and_by_whom_it_was_made(tmp_path):
    for number, mode in ((1, 0o600), (2, 0o644)):
        file = tmp_path / "file"
        file.write_text("content")
        file.chmod(mode)
        os.utime(file, (number, number))
        with tarfile.open(tmp_path / f"{number}.tar.gz", "w:gz") as tar:
            tar.add(file, arcname="a/file")
            tar.add(_ROOT / ".ci" / "run", arcname="a/run")
        normalised(tmp_path / f"{number}.tar.gz", _EPOCH)
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        assert [(each.name, each.mtime, stat.filemode(each.mode)) for each in tar] == [
            ("a/file", _EPOCH, "?rw-r--r--"),
            ("a/run", _EPOCH, "?rwxr-xr-x"),
        ]


def test_a_wheel_does_not_show_the_umask_of_its_maker(tmp_path):
    for name, mode in (("one", 0o600), ("other", 0o664)):
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            entry = zipfile.ZipInfo("a.py", (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | mode) << 16
            wheel.writestr(entry, "content", zipfile.ZIP_DEFLATED)
        normalised_wheel(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as wheel:
        assert [(each.filename, each.date_time, each.external_attr >> 16) for each in wheel.infolist()] == [
            ("a.py", (2020, 1, 1, 0, 0, 0), stat.S_IFREG | 0o644)
        ]
        assert wheel.read("a.py") == b"content"


def test_a_release_is_made_of_a_commit(tmp_path, monkeypatch):
    with pytest.raises(ReleaseFailed, match="git cannot read"):
        committed(tmp_path / "sources", root=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseFailed, match="needs git, which is not on PATH"):
        committed(tmp_path / "sources", root=tmp_path)


def test_a_release_deletes_only_a_former_release(tmp_path):
    """`--output` may name any directory by mistake, such as the home directory."""
    precious = tmp_path / "home" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(ReleaseFailed, match="has other files than a release's: name a new or empty directory"):
        emptied(precious.parent)
    with pytest.raises(ReleaseFailed, match="is no directory"):
        emptied(precious)
    assert precious.read_text() == "years of work"
    former = emptied(tmp_path / "dist")
    (former / "SHA256SUMS").touch()
    (former / "sbom").mkdir()
    assert not list(emptied(former).iterdir())
    (former / "started.whl").touch()
    assert not list(emptied(former, default=former).iterdir())


@pytest.mark.parametrize(
    ("known", "base"),
    [(None, f"python:3@{_DIGEST}"), ('["python@sha256:1"]', f"python:3@{_DIGEST}"), ("[]", "python:3")],
)
def test_a_base_image_of_this_machine_does_without_a_digest(tmp_path, known, base):
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"ARG BASE_IMAGE=python:3@{_DIGEST}\nFROM ${{BASE_IMAGE}}\n")
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n" + ("exit 1\n" if known is None else f"echo '{known}'\n"))
    docker.chmod(0o755)
    assert base_image(str(docker), dockerfile) == base


def test_a_base_image_without_a_digest_is_rejected(tmp_path):
    (tmp_path / "Dockerfile").write_text("ARG BASE_IMAGE=python:3\n")
    with pytest.raises(ReleaseFailed, match="by digest"):
        base_image("docker", tmp_path / "Dockerfile")


def test_images_are_compared_by_the_contents_of_their_layers():
    one, other = Image("worker", "a:1", "b", ("sha256:1",)), Image("worker", "a:2", "b", ("sha256:2",))
    assert differing([one], [one]) == []
    assert differing([one], [other]) == ["worker"]
