"""The lifecycle of an assignment: due, computed, staged until it is stored, published."""

from __future__ import annotations

from collections.abc import Collection

from millpond_operator.assignment import AssignmentOptions, Placement, Situation

from .planning import AssignmentJob, AssignmentPlan, only

__all__ = ("PlanLifecycle",)

#: How many times in a row a plan is discarded because it became outdated while it was computed. The next one is used
#: for the workers that are left.
_MAX_DISCARDS = 2


class PlanLifecycle:
    """The published placement of one application, and the plan that is to replace it.

    Args:
        options: settings of the assignment.

    Attributes:
        options: settings of the assignment. Call `request_goal` after a change.
        goal: the final placement of tasks, by the last published plan.
        placement: the placement for now, by the last published plan.
    """

    def __init__(self, options: AssignmentOptions) -> None:
        self.options = options
        self.goal = Placement()
        self.placement = Placement()
        self._generation = 0  # grows with each change of the membership
        self._goal_due = False
        self._plan_due = False
        self._discards = 0
        self._staged: AssignmentPlan | None = None
        self._stored: tuple[object, ...] | None = None
        self._published_generation = -1

    @property
    def due(self) -> bool:
        """Whether a plan has to be computed."""
        return self._goal_due or self._plan_due

    @property
    def published(self) -> bool:
        """Whether a plan for the present topology was published."""
        return self._published_generation >= 0

    @property
    def current(self) -> bool:
        """Whether the published plan was made for the present membership."""
        return self._published_generation == self._generation

    def membership_changed(self) -> None:
        """Invalidate plans: workers joined or left, or may have other tasks than before."""
        self._generation += 1
        self.request_goal()

    def request_plan(self) -> None:
        """Request a plan for the present goal."""
        self._plan_due = True

    def request_goal(self) -> None:
        """Request a new goal, and a plan for it."""
        self._goal_due = self._plan_due = True

    def job(self, situation: Situation) -> AssignmentJob:
        """Return the computation that is due, which shares nothing mutable with this object."""
        job = AssignmentJob(
            self._generation,
            situation,
            self.options,
            None if self._goal_due else self.goal,
            self.goal,
            self.placement,
        )
        self._plan_due = self._goal_due = False
        return job

    def stage(self, plan: AssignmentPlan, usable: Collection[str]) -> AssignmentPlan | None:
        """Make a plan the next one to publish.

        A plan for an older membership is discarded and requested again, but not for ever: then it is staged for the
        workers that are left.

        Args:
            plan: the plan.
            usable: the workers that may have tasks now.

        Returns:
            The staged plan; None when it was discarded.
        """
        if plan.generation != self._generation:
            self.request_goal()
            if self._discards < _MAX_DISCARDS:
                self._discards += 1
                return None
            plan = AssignmentPlan(self._generation, only(plan.goal, usable), only(plan.refined, usable))
        self._discards = 0
        self._staged = plan
        return plan

    def must_store(self, contents: tuple[object, ...]) -> bool:
        """Return whether these contents differ from those that were stored last, and count them as stored."""
        if contents == self._stored:
            return False
        self._stored = contents
        return True

    def publish(self) -> bool:
        """Make the staged plan the published one; return whether there was one."""
        staged, self._staged = self._staged, None
        if staged is None:
            return False
        self.goal, self.placement, self._published_generation = staged.goal, staged.refined, staged.generation
        return True

    def discard(self) -> None:
        """Drop the staged plan, which failed or could not be stored, and request another one."""
        self._staged = self._stored = None
        self.request_goal()

    def restore(self, placement: Placement) -> None:
        """Start from the placement that an earlier coordinator stored."""
        self.placement = placement
        self.goal = Placement(placement.active, placement.standby)

    def clear(self) -> None:
        """Forget all placements: they are of another topology."""
        self.goal = self.placement = Placement()
        self._published_generation = -1
        self._staged = None
