"""The cost of events does not grow with the number of tasks that they do not concern."""

from __future__ import annotations

from typing import Any

from millpond.protocol import Role, TaskState
from millpond.runtime.tasks.events import Release
from millpond.runtime.tasks.lifecycle import TaskLifecycle, TaskRecord
from millpond.topology import TaskId

TASKS = 1_000


class _CountedTasks(dict[TaskId, TaskRecord]):
    """Tasks that count how often all of them were visited."""

    visits = 0

    def values(self) -> Any:
        self.visits += 1
        return super().values()


def test_orders_for_many_tasks_do_not_visit_all_tasks_each_time() -> None:
    """A worker with 1,000 tasks releases half of them with one answer, and again whenever one of its tasks changes."""
    lifecycle = TaskLifecycle()
    ids = [TaskId(0, number) for number in range(TASKS)]
    lifecycle.tasks = tasks = _CountedTasks({id: TaskRecord(id, Role.ACTIVE, TaskState.RUNNING) for id in ids})
    for id in ids[::2]:
        lifecycle.apply(Release(id, "other"))
    assert tasks.visits == 0
    assert lifecycle.to_release == ids[::2]
    assert lifecycle.settled
    lifecycle.apply(Release(ids[1], "other"))
    assert lifecycle.to_release == [*ids[:2], *ids[2::2]]
    assert tasks.visits == 4
