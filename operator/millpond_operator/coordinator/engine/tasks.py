"""The tasks of the application's topology, by id and by name."""

from __future__ import annotations

from millpond.protocol import Heartbeat, TopologySummary
from millpond.topology import TaskId
from millpond_operator.assignment import Task

from .rejections import some
from .topologies import only_known, tasks_of

__all__ = ("KnownTasks",)

#: Unknown tasks that are logged, each once for each worker.
_MAX_LOGGED = 1_000


class KnownTasks:
    """The tasks of the application's topology; none until the topology is known.

    Attributes:
        all: every task by id.
        ids: ids by name.
        names: names by id.
    """

    def __init__(self) -> None:
        self.all: dict[TaskId, Task] = {}
        self.ids: dict[str, TaskId] = {}
        self.names: dict[TaskId, str] = {}
        self._logged: set[tuple[str, str]] = set()

    def use(self, topology: TopologySummary) -> None:
        """Replace the tasks by those of this topology."""
        self.all = tasks_of(topology)
        self.names = {task: str(task) for task in self.all}
        self.ids = {name: task for task, name in self.names.items()}

    def without_unknown(self, heartbeat: Heartbeat) -> tuple[Heartbeat, str | None]:
        """Remove tasks that the topology does not have, so that a worker cannot fill the memory with invented tasks.

        Returns:
            The heartbeat, and a log line if it named an unknown task for the first time.
        """
        worker, ids = heartbeat.worker, self.ids
        if not ids:
            return heartbeat, None
        event = None
        unknown = [name for name in heartbeat.tasks if name not in ids and (worker, name) not in self._logged]
        if unknown and len(self._logged) < _MAX_LOGGED:
            self._logged.update((worker, name) for name in unknown[:_MAX_LOGGED])
            event = f"worker {worker}: holds {some(unknown)}, not in the topology; the next answer revokes them"
        return only_known(heartbeat, ids), event

    def forget_unknown(self) -> None:
        """Forget which unknown tasks were logged."""
        self._logged.clear()
