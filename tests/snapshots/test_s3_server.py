"""The S3 server of the tests: which program is used."""

from __future__ import annotations

import pytest

from tests.support import versitygw


def test_the_program_that_was_built_counts_before_the_one_on_path(tmp_path, monkeypatch):
    """The program that was built has the version for which the tests are written."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(versitygw.VersitygwMissing, match="make versitygw"):
        versitygw.find()
    for directory in (tmp_path / "bin", tmp_path / "cache/versitygw" / versitygw.RELEASE):
        directory.mkdir(parents=True)
        (directory / "versitygw").touch(mode=0o755)
        assert versitygw.find().parent == directory


def test_missing_go_is_explained_in_one_sentence(tmp_path, monkeypatch):
    """A skipped test shows this reason."""
    monkeypatch.setenv("MILLPOND_CACHE", str(tmp_path))
    monkeypatch.setattr(versitygw.shutil, "which", lambda name, path: None)
    with pytest.raises(versitygw.VersitygwMissing, match="needs Go"):
        versitygw.build()
