"""The placement for now: the part of the target that can be reached without interrupting tasks."""

from __future__ import annotations

from millpond.topology import TaskId

from .candidates import ANY_LAG, CandidateIndex
from .model import AssignmentOptions, Placement, Situation
from .reasons import reasons
from .replicas import place_copies
from .succession import Succession

__all__ = ("refine",)


def refine(target: Placement, situation: Situation, options: AssignmentOptions, previous: Placement) -> Placement:
    """Return the placement that may hold now: the target, except moves that would interrupt a task needlessly.

    A task moves to its target when the copy there is within the acceptable lag. Until then it stays, and the target's
    copy warms up: free of charge where the target has a standby of it or the task lacks one, otherwise within
    `max_warm_ups`, which the whole application shares. A task that cannot stay moves to the best copy, and from there
    to its target in the same way. Stateless tasks move at once. Standbys move the same way: a caught-up one stays until
    its replacement has caught up, which takes a warm-up too.

    With no warm-ups (`max_warm_ups` 0) or any acceptable lag (`acceptable_lag` 2**63 - 1) this is the target itself.

    The result is stable: passed as the next `previous`, with nothing else changed, it is returned again. In particular
    a decided hand-over is not reverted because the copy's lag grew a little since.

    Args:
        target: the result of `target` for the same situation. Places on dead or unplaceable workers do not count;
            warm-ups of such tasks stay until there is another target.
        situation: the known tasks and workers.
        options: the application's settings.
        previous: the last result of this function; empty if it is lost.
    """
    index = CandidateIndex(situation, options)
    if options.max_warm_ups <= 0 or options.acceptable_lag >= ANY_LAG:
        active, standby = dict(target.active), dict(target.standby)
        warm_up: dict[TaskId, tuple[str, ...]] = {}
    else:
        succession = Succession(target, index, previous)
        active = {}
        for task in sorted(situation.tasks.values(), key=lambda task: task.id):
            successor = succession.of(task)
            if successor is not None:
                active[task.id] = successor
        standby, warm_up = place_copies(target, index, active, previous)
    waiting = reasons(target, index, Placement(active, standby, warm_up), previous)
    return Placement(active, standby, warm_up, waiting)
