"""How far tasks were committed, as workers told it: their next owners compare with it what Kafka tells them.

Kafka may tell less for a while (docs/decisions/0039-offsets-of-the-past.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millpond.protocol import Mark

from .members import Membership

__all__ = ("CommittedMarks",)


class CommittedMarks:
    """The last marks of tasks that nobody tells any more."""

    def __init__(self) -> None:
        self._last: dict[str, Mark] = {}

    def left(self, marks: Mapping[str, Mark]) -> None:
        """A worker told these, and does not any more: it handed the tasks over, lost them, or ended."""
        for task, mark in marks.items():
            self._last[task] = max(mark, self._last.get(task, mark))

    def for_worker(
        self, member: Membership, tasks: Iterable[str], previous: Mapping[str, Membership]
    ) -> dict[str, Mark]:
        """What a worker should know of the tasks that it has or gets, unless it told as much itself.

        Args:
            member: the worker.
            tasks: these tasks.
            previous: who owns those that it is to take over.
        """
        found: dict[str, Mark] = {}
        for task in tasks:
            mark = self._last.get(task, _NONE)
            if (owner := previous.get(task)) is not None:
                mark = max(mark, owner.committed.get(task, _NONE))
            if mark > member.committed.get(task, _NONE):
                found[task] = mark
        return found

    def known(self, members: Iterable[Membership]) -> dict[str, Mark]:
        """All that is known, for a later coordinator; it is as old as the assignment beside it."""
        found = dict(self._last)
        for member in members:
            for task, mark in member.committed.items():
                found[task] = max(mark, found.get(task, mark))
        return found

    def forget(self) -> None:
        """Whoever is next may begin elsewhere: all workers ended in order, or the tasks are others."""
        self._last.clear()


_NONE = Mark(0, -1)
