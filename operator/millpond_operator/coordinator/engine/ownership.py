"""The known owners of tasks in Kafka.

Kafka's offset metadata is the authority. The coordinator learns owners from workers, and may be wrong for a while. A
report of an owner counts only if the worker's previous heartbeat did not contain it. So a worker that lost tasks
without noticing cannot win them back by repeating its report. A remaining error is found when the task is assigned:
the new worker reads Kafka's offset metadata first, and reports the owner that it finds.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.protocol import NOBODY
from millpond.topology import TaskId

from .members import HeartbeatChanges, Membership

__all__ = ("KnownOwners",)


class KnownOwners:
    """The known owner of each task, from workers' reports.

    Args:
        members: all known workers; read only.

    Attributes:
        tasks: the ids of all tasks, by name.
        owners: the owner of each task: a live or a dead worker, or one that is not known. Tasks of unknown owner are
            missing.
    """

    def __init__(self, members: Mapping[str, Membership]) -> None:
        self.tasks: dict[str, TaskId] = {}
        self.owners: dict[TaskId, str] = {}
        self._members = members

    def learn(self, member: Membership, changes: HeartbeatChanges, *, first: bool, returned: bool) -> bool:
        """Update owners from the changes in a heartbeat.

        Args:
            member: the worker that sent it.
            changes: the changes since its previous heartbeat.
            first: it is the first heartbeat of the process at this coordinator.
            returned: the process counted as dead before.

        Returns:
            Whether any task has another owner now.
        """
        changed = False
        for text, owner in changes.found_owners.items():
            task = self.tasks.get(text)
            if task is None or (self.owners.get(task) or NOBODY) == owner:
                continue
            # The first heartbeat after a restart may repeat old findings; and a running task has an owner.
            if (first or owner == NOBODY) and self._claimed(task, text):
                continue
            if owner == NOBODY:
                # Brokers drop offsets, and owners with them, when an application was stopped for too long or reset.
                del self.owners[task]
            else:
                self.owners[task] = owner
            changed = True
        for text in changes.claimed:
            task = self.tasks.get(text)
            if task is None or self.owners.get(task) == member.id:
                continue
            # A returned worker may not know yet which tasks it lost. If it still owns the task, the other worker's
            # ownership lookup shows it.
            if returned and self._lives(self.owners.get(task)):
                continue
            self.owners[task] = member.id
            changed = True
        return changed

    def _lives(self, worker: str | None) -> bool:
        member = self._members.get(worker or "")
        return member is not None and member.alive

    def _claimed(self, task: TaskId, text: str) -> bool:
        """Return whether a live worker reports the task as its own."""
        owner = self.owners.get(task)
        return owner is not None and self._lives(owner) and text in self._members[owner].claims
