"""What several modules of tests of the runtime need."""

from __future__ import annotations

import pytest

from millpond.runtime.restoring import snapshot_choice


@pytest.fixture
def no_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small states are worth a snapshot, too."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 0.0)
