"""Fixtures of the runtime's tests."""

from __future__ import annotations

import pytest

from millpond.runtime.restoring import snapshot_choice


@pytest.fixture
def no_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use snapshots for small states, too."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 0.0)
