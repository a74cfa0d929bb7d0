"""A chaos run checks the state of workers only when every task runs where it is assigned."""

from __future__ import annotations

import pytest

from millpond.protocol import Epoch, Member, Role, TaskReport, TaskState, View
from tests.chaos.stage import unsettled

RUNNING = TaskReport(Role.ACTIVE)


def _view(report: TaskReport, *, alive: bool = True, waiting: dict[str, str] | None = None) -> View:
    member = Member("w0", alive=alive, tasks={"0_0": report})
    return View("chaos", Epoch(1, 1), members=(member,), active={"0_0": "w0"}, waiting=waiting or {})


def test_a_task_that_runs_is_settled() -> None:
    """Nothing is said about it."""
    assert unsettled(_view(RUNNING)) is None


@pytest.mark.parametrize(
    "view",
    [
        None,
        _view(TaskReport(Role.ACTIVE, TaskState.RESTORING)),
        _view(TaskReport(Role.STANDBY)),
        _view(RUNNING, alive=False),
        _view(RUNNING, waiting={"0_0": "another worker has not handed it over"}),
    ],
    ids=["no answer", "restoring", "only a copy", "dead worker", "waiting"],
)
def test_what_is_not_settled_is_named(view: View | None) -> None:
    """A run that gets stuck tells what it waited for."""
    assert unsettled(view)
