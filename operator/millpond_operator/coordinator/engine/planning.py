"""One computation of the assignment, from its inputs to the plan.

An `AssignmentJob` is a snapshot of the engine: it runs in any thread while heartbeats arrive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millpond.topology import TaskId
from millpond_operator.assignment import AssignmentOptions, Placement, Situation, refine, target

__all__ = ("AssignmentJob", "AssignmentPlan", "only")


@dataclass(frozen=True)
class AssignmentPlan:
    """The goal for tasks, and their placement for now."""

    generation: int
    """The generation of the membership that it was made for."""
    goal: Placement
    refined: Placement


@dataclass(frozen=True)
class AssignmentJob:
    """The computation of one plan."""

    generation: int
    situation: Situation
    options: AssignmentOptions
    goal: Placement | None
    """The present goal if it stays valid; None if it has to be computed."""
    last_goal: Placement
    """The goal of the last published plan."""
    last: Placement
    """The placement of the last published plan."""

    def run(self) -> AssignmentPlan:
        """Compute the plan. Takes up to 1 s of CPU time for ten thousand tasks."""
        if not self.situation.workers:  # the next worker finds the placement unchanged
            return AssignmentPlan(self.generation, self.last_goal, self.last)
        goal = self.goal
        if goal is None:
            goal = target(self.situation, self.options, self.last_goal)
        return AssignmentPlan(self.generation, goal, refine(goal, self.situation, self.options, self.last))


def only(placement: Placement, workers: Collection[str]) -> Placement:
    """Return the part of a placement that is on these workers: others died while it was computed."""

    def among(copies: Mapping[TaskId, tuple[str, ...]]) -> dict[TaskId, tuple[str, ...]]:
        left = {task: tuple(each for each in holders if each in workers) for task, holders in copies.items()}
        return {task: holders for task, holders in left.items() if holders}

    return Placement(
        {task: worker for task, worker in placement.active.items() if worker in workers},
        among(placement.standby),
        among(placement.warm_up),
        placement.waiting,
    )
