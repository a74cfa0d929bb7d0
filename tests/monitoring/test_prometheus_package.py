"""Prometheus for tests, where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import prometheus


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "cache_directory", lambda: tmp_path)


def test_without_prometheus_one_sentence_has_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are skipped with it."""
    monkeypatch.setattr(prometheus.shutil, "which", lambda _: None)
    with pytest.raises(prometheus.PrometheusMissing, match="get it with `make prometheus`, which needs apt"):
        prometheus.find()


def test_without_apt_the_programs_have_to_be_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems have other packages."""
    monkeypatch.setattr(prometheus.shutil, "which", lambda _: None)
    with pytest.raises(
        prometheus.PrometheusMissing, match="this machine has no apt-get and no apt-cache and no dpkg-deb"
    ):
        prometheus.install()


def test_another_file_than_debians_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is not in the lists that Debian signs."""

    def run(command: list[str], where: Path) -> str:
        if command[:2] == ["apt-get", "download"]:
            (where / "prometheus_1_amd64.deb").write_bytes(b"something else")
        return f"SHA256: {'0' * 64}\n"

    monkeypatch.setattr(prometheus, "_run", run)
    monkeypatch.setattr(prometheus.shutil, "which", lambda name: name)
    with pytest.raises(prometheus.PrometheusMissing, match="is not the package of apt's lists"):
        prometheus.install()
    assert not (tmp_path / "prometheus/package").exists()


def test_programs_on_the_path_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where Prometheus is installed."""
    monkeypatch.setattr(prometheus.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert prometheus.find() == (Path("/usr/bin/prometheus"), Path("/usr/bin/promtool"))
