"""Programs that are built from Go modules: which one is used, and what is said when there is none."""

from __future__ import annotations

import pytest

from tests.support.programs import go, helm, releases, versitygw
from tests.support.programs.go import GoProgramMissing


def test_the_program_that_was_built_counts_before_the_one_on_path(tmp_path, monkeypatch):
    """The program that was built has the version for which the tests are written."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(GoProgramMissing, match="make versitygw"):
        versitygw.find()
    for directory in (tmp_path / "bin", tmp_path / "cache/versitygw" / versitygw.PROGRAM.release):
        directory.mkdir(parents=True)
        (directory / "versitygw").touch(mode=0o755)
        assert versitygw.find().parent == directory


def test_the_one_on_path_is_not_used_where_the_version_matters(tmp_path, monkeypatch):
    """A test of Helm 3 must not run another Helm."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "helm").touch(mode=0o755)
    with pytest.raises(GoProgramMissing, match="`make helm`, which needs Go"):
        helm.find(helm.HELM_3)
    with pytest.raises(GoProgramMissing, match="`make helm`, which needs Go"):
        helm.definitions()


@pytest.mark.parametrize("build", [versitygw.build, helm.build])
def test_missing_go_is_explained_in_one_sentence(tmp_path, monkeypatch, build):
    """A skipped test shows this reason."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path))
    monkeypatch.setattr(releases, "reachable", lambda _: frozenset())
    monkeypatch.setattr(go, "find_go", lambda: None)
    with pytest.raises(GoProgramMissing, match="needs Go"):
        build()
