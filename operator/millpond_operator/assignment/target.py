"""The goal: the placement of tasks that the assignment aims at."""

from __future__ import annotations

from .actives import place_actives
from .candidates import CandidateIndex
from .model import AssignmentOptions, Placement, Situation
from .standbys import place_standbys

__all__ = ("target",)


def target(situation: Situation, options: AssignmentOptions, previous: Placement) -> Placement:
    """Return the placement to aim at: balanced, standbys spread over racks and tags, otherwise unchanged.

    The numbers of active tasks of two workers differ by at most one: in each sub-topology, over stateful tasks, over
    stateless ones, and in total. Where tasks of a sub-topology differ in weight, exchanges balance the weights as well.
    The lag of copies counts only for a task without a worker, which goes to a worker with its state. `refine` decides
    when a task moves. Only placeable workers get anything.

    The result is stable: passed as the next `previous`, with an unchanged situation, it is returned again.

    Args:
        situation: the known tasks and workers.
        options: the application's settings.
        previous: the last target. After a restart, a result of `refine` or an empty placement will do: then owners and
            reported roles show what is in progress.
    """
    index = CandidateIndex(situation, options)
    active = place_actives(index, previous)
    return Placement(active, place_standbys(index, active, previous))
