"""What a release is made of: the same bytes from the same sources."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from pathlib import Path

import pytest

from release.archives import normalised
from release.failures import ReleaseFailed
from release.images import Image, base_image, differing
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


@pytest.mark.slow
def test_the_same_sources_give_the_same_packages(tmp_path):
    first = packages(_sources(tmp_path / "one"), tmp_path / "first")
    second = _sources(tmp_path / "two")
    for path in second.directory.rglob("*"):
        os.utime(path, (1, 1))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in packages(second, tmp_path / "again")]


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


def test_a_release_is_made_of_a_commit(tmp_path):
    with pytest.raises(ReleaseFailed, match="git cannot read"):
        committed(tmp_path / "sources", root=tmp_path)


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
