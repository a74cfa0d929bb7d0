"""The part of a turn that copies get beside running tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.worker import loop as loop_module
from millpond.runtime.worker.loop import Loop

#: What it takes to apply one changelog record.
EACH_S = 0.000_01


class _Turn:
    """A turn of a worker whose copies have a large lag; applying a record advances the test's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, processing_s: float, behind: int) -> None:
        self.now = 100.0
        self.applied = 0
        self._behind = behind
        monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        unused: Any = None
        parts: Any = SimpleNamespace(
            assembly=SimpleNamespace(copier=SimpleNamespace(consume=self._consume)),
            executor=SimpleNamespace(reader=SimpleNamespace(expired=[])),
            dispatcher=SimpleNamespace(copied=self._copied),
            pace=SimpleNamespace(processing_s=processing_s),
        )
        self.loop = Loop(parts, unused, unused, unused)

    def _consume(self, most: int, _timeout: float) -> list[None]:
        return [None] * min(most, self._behind - self.applied)

    def _copied(self, messages: list[None]) -> None:
        self.applied += len(messages)
        self.now += EACH_S * len(messages)


@pytest.mark.parametrize("processing_s", [0.05, 0.25])
def test_copies_that_are_behind_get_as_long_as_the_tasks(monkeypatch: pytest.MonkeyPatch, processing_s: float) -> None:
    """However busy the tasks are, so that the lag of a standby stays bounded."""
    turn = _Turn(monkeypatch, processing_s, behind=1_000_000)
    turn.loop._copy(busy=True)
    assert processing_s <= turn.applied * EACH_S < processing_s + 0.01


def test_copies_that_caught_up_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The available records are applied, and the turn continues."""
    turn = _Turn(monkeypatch, 0.25, behind=30)
    turn.loop._copy(busy=True)
    assert turn.applied == 30


def test_copies_get_a_whole_batch_while_tasks_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are polled after each batch."""
    turn = _Turn(monkeypatch, 0.0, behind=1_000_000)
    turn.loop._copy(busy=False)
    assert turn.applied == loop_module._RESTORE_RECORDS
