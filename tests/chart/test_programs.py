"""Helm for tests is built once, and its absence is reported with the cure."""

from __future__ import annotations

import pytest

from tests.support import helm


def test_missing_programs_are_reported_with_their_cure(tmp_path, monkeypatch):
    """Tests that need Helm are skipped with this sentence."""
    monkeypatch.setattr(helm, "cache_directory", lambda: tmp_path)
    for look in (lambda: helm.find(helm.HELM_3), helm.definitions):
        with pytest.raises(helm.HelmMissing, match="`make helm`, which needs Go"):
            look()
    monkeypatch.setattr(helm, "find_go", lambda: None)
    with pytest.raises(helm.HelmMissing, match="install Go"):
        helm.build()
