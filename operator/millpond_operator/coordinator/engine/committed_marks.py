"""The committed marks of tasks: the sum of their committed offsets, as their owners report it.

The next owner of a task compares its mark with the offsets that Kafka returns, which may be out of date for a while
(docs/decisions/0039-offsets-of-the-past.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from millpond.protocol import Mark, Role

from .members import Membership, Orders

__all__ = ("CommittedMarks",)


class CommittedMarks:
    """The last marks of tasks whose owners do not report them any more."""

    def __init__(self) -> None:
        self._last: dict[str, Mark] = {}

    def keep(self, marks: Mapping[str, Mark]) -> None:
        """Keep marks that a worker stops reporting: it handed the tasks over, lost them, or ended."""
        for task, mark in marks.items():
            self._last[task] = max(mark, self._last.get(task, mark))

    def replace(self, marks: Mapping[str, Mark]) -> None:
        """Keep marks of tasks that a worker has claimed: it knew the former marks, and has accepted these."""
        self._last.update({task: mark for task, mark in marks.items() if task in self._last})

    def for_orders(self, member: Membership, orders: Orders, members: Mapping[str, Membership]) -> dict[str, Mark]:
        """Return the marks that belong into an answer.

        Args:
            member: the worker that gets the answer.
            orders: the instructions in the answer.
            members: all members.
        """
        tasks = [task for task, role in orders.tasks.items() if role is Role.ACTIVE]
        tasks += [task for task, report in member.tasks.items() if report.role is Role.ACTIVE]
        previous = {task: order.previous for order in orders.take_over for task in order.owners}
        owners = {task: each for task, owner in previous.items() if (each := members.get(owner or "")) is not None}
        return self._for_worker(member, (*tasks, *previous), owners)

    def _for_worker(
        self, member: Membership, tasks: Iterable[str], previous: Mapping[str, Membership]
    ) -> dict[str, Mark]:
        """Return the marks of tasks that a worker holds or gets, except those that it reported itself.

        Args:
            member: the worker.
            tasks: the tasks, by name.
            previous: the owners of the tasks that it has to take over.
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
        """Return all known marks, for the stored state. They are as old as the assignment stored with them."""
        found = dict(self._last)
        for member in members:
            for task, mark in member.committed.items():
                found[task] = max(mark, found.get(task, mark))
        return found

    def keep_only(self, tasks: Collection[str]) -> None:
        """Forget the marks of all other tasks: their owners ended in order, and the next may start elsewhere."""
        self._last = {task: mark for task, mark in self._last.items() if task in tasks}

    def clear(self) -> None:
        """Forget all marks: the tasks changed."""
        self._last.clear()


_NONE = Mark(0, -1)
