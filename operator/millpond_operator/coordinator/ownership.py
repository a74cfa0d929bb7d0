"""What the coordinator knows of who owns which task in Kafka.

It learns it from workers, and it may be wrong for a while: Kafka decides. Each heartbeat is compared with the worker's
previous one, and only what is new in it counts, so that a worker that lost tasks without noticing does not claim
them back by repeating itself. What is wrong nevertheless shows when the task is granted: its new worker looks into
Kafka first, and reports what it finds.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.protocol import NOBODY
from millpond.topology import TaskId

from .members import Membership, News

__all__ = ("KnownOwners",)


class KnownOwners:
    """Owners of tasks, as workers report them.

    Args:
        members: all workers that are remembered. Somebody else changes them.

    Attributes:
        tasks: the tasks that there are, by their ids as text.
        owners: who owns each task: a live or a dead worker, or one that was never heard of. Missing: not known.
    """

    def __init__(self, members: Mapping[str, Membership]) -> None:
        self.tasks: dict[str, TaskId] = {}
        self.owners: dict[TaskId, str] = {}
        self._members = members

    def learn(self, member: Membership, news: News, *, first: bool, back: bool) -> bool:
        """Take in what is new in a heartbeat.

        Args:
            member: the worker that tells.
            news: what is new.
            first: it is the first heartbeat of the process, as far as this coordinator knows.
            back: the process counted as gone before.

        Returns:
            Whether any task has another owner now.
        """
        changed = False
        for text, owner in news.found.items():
            task = self.tasks.get(text)
            if task is None or (self.owners.get(task) or NOBODY) == owner:
                continue
            # The first heartbeat after a restart of ours repeats what may be long past; and whoever runs a task is not nobody.
            if (first or owner == NOBODY) and self._claimed(task, text):
                continue
            if owner == NOBODY:
                # Brokers forget offsets, and owners with them, when an application rested for too long or was reset.
                del self.owners[task]
            else:
                self.owners[task] = owner
            changed = True
        for text in news.claimed:
            task = self.tasks.get(text)
            if task is None or self.owners.get(task) == member.id:
                continue
            # Who was away may not know yet what it lost. If it is right nevertheless, the other one will find out.
            if back and self._lives(self.owners.get(task)):
                continue
            self.owners[task] = member.id
            changed = True
        return changed

    def _lives(self, worker: str | None) -> bool:
        member = self._members.get(worker or "")
        return member is not None and member.alive

    def _claimed(self, task: TaskId, text: str) -> bool:
        """Whether a live worker says by itself that it owns the task."""
        owner = self.owners.get(task)
        return owner is not None and self._lives(owner) and text in self._members[owner].claims
