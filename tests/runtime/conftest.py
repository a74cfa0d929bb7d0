"""Fixtures of the runtime's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.runtime.restoring import snapshot_choice
from tests.runtime.restoring.snapshot_scene import SnapshotScene


@pytest.fixture
def no_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use snapshots for small states, too."""
    monkeypatch.setattr(snapshot_choice, "OVERHEAD_S", 0.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SnapshotScene]:
    """An application that has counted 1,000 records. Modules with another scene have a fixture of their own."""
    made = SnapshotScene(tmp_path)
    made.begin()
    yield made
    made.end()
