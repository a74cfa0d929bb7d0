"""One computation of the assignment: what it starts from, and what comes of it.

A `AssignmentJob` is cut out of the engine at one moment and shares nothing with it that changes, so it may run in any thread
while heartbeats come in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millpond.topology import TaskId
from millpond_operator.assignment import AssignmentOptions, Instructions, Placement, Situation, refine, target

from .members import Membership

__all__ = ("AssignmentJob", "AssignmentPlan", "Leaving", "only")


@dataclass(frozen=True)
class AssignmentPlan:
    """Where tasks should be in the end, and where they should be now."""

    generation: int
    """Of the membership it was made for."""
    goal: Placement
    refined: Placement


@dataclass(frozen=True)
class AssignmentJob:
    """The computation of one plan."""

    generation: int
    situation: Situation
    options: AssignmentOptions
    goal: Placement | None
    """The goal, when it can stay as it is."""
    last_goal: Placement
    last: Placement

    def run(self) -> AssignmentPlan:
        """Compute it. Takes up to a second of CPU time for ten thousand tasks."""
        if not self.situation.workers:  # who comes next should find things where they were
            return AssignmentPlan(self.generation, self.last_goal, self.last)
        goal = self.goal
        if goal is None:
            goal = target(self.situation, self.options, self.last_goal)
        return AssignmentPlan(self.generation, goal, refine(goal, self.situation, self.options, self.last))


def only(placement: Placement, workers: Collection[str]) -> Placement:
    """A placement on none but these workers: for when some died while it was computed."""

    def among(copies: Mapping[TaskId, tuple[str, ...]]) -> dict[TaskId, tuple[str, ...]]:
        left = {task: tuple(each for each in holders if each in workers) for task, holders in copies.items()}
        return {task: holders for task, holders in left.items() if holders}

    return Placement(
        {task: worker for task, worker in placement.active.items() if worker in workers},
        among(placement.standby),
        among(placement.warm_up),
        placement.waiting,
    )


class Leaving:
    """Decides who may end."""

    def __init__(self, situation: Situation, owners: Mapping[TaskId, str]) -> None:
        self._placeable = {each.id for each in situation.workers.values() if each.placeable}
        self._owners: set[str] | None = None
        self._known_owners = owners

    def may_leave(self, member: Membership, instructions: Instructions) -> bool:
        """Whether nothing is left for it to hand over, or nobody who could take it."""
        if not self._placeable:
            return True
        if self._owners is None:
            self._owners = set(self._known_owners.values())
        return not (member.id in self._owners or member.claims or instructions.release or instructions.take_over)
