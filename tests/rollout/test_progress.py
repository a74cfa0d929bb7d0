"""A worker that restores is not blamed as long as it makes progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from millpond_operator.controllers.rollout.observation import ObservedWorker
from millpond_operator.controllers.rollout.restore_progress import RestoreProgress

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_KEY = ("money", "pay")


def _seen(progress: RestoreProgress, lag: int, minutes: float, *, running: int = 0) -> bool:
    worker = ObservedWorker("pay-0", alive=True, active=2, running=running, lag=lag)
    now = _NOW + timedelta(minutes=minutes)
    return progress.noted(_KEY, {"pay-0": worker}, now, timedelta(minutes=5))["pay-0"].restoring


def test_worker_with_falling_lag_may_restore_for_long():
    """It may take hours."""
    progress = RestoreProgress()
    assert all(_seen(progress, 1_000_000 - minute, minute) for minute in range(60))


def test_a_worker_whose_lag_does_not_fall_is_stuck():
    """It counts as stuck after the deadline."""
    progress = RestoreProgress()
    assert _seen(progress, 100, 0)
    assert _seen(progress, 100, 4)
    assert not _seen(progress, 150, 6)
    assert _seen(progress, 99, 7)


def test_a_worker_that_runs_all_of_its_tasks_restores_nothing():
    """Whatever it did before the restart."""
    progress = RestoreProgress()
    _seen(progress, 100, 0)
    assert not _seen(progress, 0, 1, running=2)
