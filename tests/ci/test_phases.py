"""A run of one phase."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ci import __main__ as ci


def test_a_phase_asked_for_by_name_fails_where_it_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever runs nothing else would take its absence for success."""
    monkeypatch.setattr(ci, "_BUILD", tmp_path)
    monkeypatch.setattr(ci, "_CHOICES", tmp_path / "choices")
    monkeypatch.setattr(ci, "choose", lambda _: "there is no cluster")
    assert ci.main(["--only", "e2e"]) == 1
    assert "e2e was left out: there is no cluster." in capsys.readouterr().out
