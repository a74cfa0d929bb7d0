"""Instructions for members: from a published placement, and before there is one."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.protocol import Role
from millpond.topology import TaskId
from millpond_operator.assignment import Instructions, Placement, Situation, grant

from .members import Membership, Orders

__all__ = ("Leaving", "instruct", "interim_orders")


class Leaving:
    """Decides which leaving workers may end.

    Args:
        situation: the workers, and the owners of tasks.
    """

    def __init__(self, situation: Situation) -> None:
        self._placeable = {each.id for each in situation.workers.values() if each.placeable}
        self._known_owners = situation.owners
        self._owners: set[str | None] | None = None

    def may_leave(self, member: Membership, instructions: Instructions) -> bool:
        """Return whether the worker has no tasks left to hand over, or no other worker may get them."""
        if not self._placeable:
            return True
        if self._owners is None:
            self._owners = set(self._known_owners.values())
        return not (member.id in self._owners or member.claims or instructions.release or instructions.take_over)


def instruct(
    members: Mapping[str, Membership],
    placement: Placement,
    situation: Situation,
    names: Mapping[TaskId, str],
    *,
    current: bool,
) -> set[str]:
    """Give every usable worker its instructions.

    Args:
        members: all members; those in the situation are changed.
        placement: the placement to grant, on workers of the situation only.
        situation: the known tasks and workers.
        names: the name of each task.
        current: whether the placement was made for these workers. If not, workers without instructions get none.

    Returns:
        The workers whose instructions changed.
    """
    changed = set()
    leaving = Leaving(situation)
    for worker, instructions in grant(placement, situation).items():
        member = members[worker]
        if member.instructions is None and not current:
            continue
        may_leave = member.leaving and leaving.may_leave(member, instructions)
        if instructions != member.instructions or may_leave != member.may_leave:
            member.instructions = instructions
            member.orders = Orders.of(instructions, names)
            member.may_leave = may_leave
            member.revision += 1
            changed.add(worker)
    return changed


def interim_orders(member: Membership, ids: Mapping[str, TaskId], owners: Mapping[TaskId, str]) -> Orders:
    """Return orders for a worker without instructions: keep the held tasks, except those that another worker owns."""
    tasks = {}
    for name, report in member.tasks.items():
        task = ids.get(name)
        if ids and task is None:
            continue
        if report.role is Role.ACTIVE and task is not None and owners.get(task, member.id) != member.id:
            continue
        tasks[name] = report.role
    return Orders(tasks)
