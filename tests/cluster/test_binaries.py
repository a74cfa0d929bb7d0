"""The programs of a control plane, and where they are found."""

from __future__ import annotations

import pytest

from tests.cluster import binaries
from tests.support.programs import releases


def programs(directory, *names):
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).touch(mode=0o755)


def test_programs_come_from_one_directory_only(tmp_path, monkeypatch):
    """A directory without one of them is not used; nothing is searched besides a directory that the user names."""
    monkeypatch.delenv("MILLPOND_KUBE_BIN", raising=False)
    monkeypatch.setenv("KIND_HOME", str(tmp_path / "kind"))
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    programs(binaries.build_directory(), "etcd")
    programs(tmp_path / "kind/bin", *binaries.PROGRAMS)
    assert {path.parent for path in binaries.find().values()} == {tmp_path / "kind/bin"}
    assert binaries.find(["etcd"])["etcd"].parent == binaries.build_directory()
    monkeypatch.setenv("MILLPOND_KUBE_BIN", str(binaries.build_directory()))
    with pytest.raises(binaries.BinariesMissing, match=r"python -m tests\.cluster\.binaries"):
        binaries.find()


def test_missing_go_and_programs_are_explained_in_one_sentence(tmp_path, monkeypatch):
    """A skipped test shows it."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path))
    monkeypatch.setattr(releases, "reachable", lambda _: frozenset())
    monkeypatch.setattr(binaries.shutil, "which", lambda name, path: None)
    with pytest.raises(binaries.BinariesMissing, match="needs Go"):
        binaries.build()
