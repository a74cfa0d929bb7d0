"""What of the target may hold now."""

from __future__ import annotations

from millpond.topology import TaskId

from .candidates import ANY_LAG, Standing
from .model import AssignmentOptions, Placement, Situation
from .reasons import reasons
from .replicas import place_copies
from .succession import Succession

__all__ = ("refine",)


def refine(target: Placement, situation: Situation, options: AssignmentOptions, previous: Placement) -> Placement:
    """The placement that may hold now: the target, less what would interrupt a task for longer than it has to be.

    A task goes to its target when that has a copy within the acceptable lag. Until then it stays where it is, and the
    target's copy warms up: free of charge where the target has a standby of it or the task lacks one, otherwise within
    `max_warm_ups`, which the whole application shares. A task that cannot stay goes to the best copy there is, and from
    there to its target in the same way. Stateless tasks go at once. Standbys change places the same way: a caught-up
    one stays until the one that replaces it has caught up, which takes a warm-up too.

    With no warm-ups (`max_warm_ups` 0) or nothing to warm up (`acceptable_lag` 2**63 - 1) this is the target itself.

    The result is stable: it comes out again when it is the next `previous` and nothing else changes. In particular a
    hand-over that was decided is not taken back because the copy's lag went up a little since.

    Args:
        target: what `target` made of the same situation. Places on workers that are gone or may get nothing do not
            count; warm-ups of such tasks stay where they are until there is another target.
        situation: what is known now.
        options: the application's settings.
        previous: the last result of this function; empty if that is lost.
    """
    standing = Standing(situation, options.acceptable_lag)
    if options.max_warm_ups <= 0 or options.acceptable_lag >= ANY_LAG:
        active, standby = dict(target.active), dict(target.standby)
        warm_up: dict[TaskId, tuple[str, ...]] = {}
    else:
        succession = Succession(target, standing, previous)
        active = {}
        for task in sorted(situation.tasks.values(), key=lambda task: task.id):
            successor = succession.of(task)
            if successor is not None:
                active[task.id] = successor
        standby, warm_up = place_copies(target, situation, standing, options, active, previous)
    waiting = reasons(target, situation, standing, options, Placement(active, standby, warm_up), previous)
    return Placement(active, standby, warm_up, waiting)
