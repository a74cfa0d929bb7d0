"""The assignment of tasks to workers, as three pure functions: `target`, `refine` and `grant`.

`target` computes the final placement of tasks, `refine` the placement for now, and `grant` the instructions for
each worker. They have no clock, no I/O and no state: equal arguments give equal results on every machine.

    goal = target(situation, options, last_goal)
    placement = refine(goal, situation, options, last_placement)
    orders = grant(placement, situation)
"""

from __future__ import annotations

from .grant import grant
from .model import AssignableWorker, AssignmentOptions, Copy, Instructions, Placement, Situation, Task
from .refine import refine
from .target import target

__all__ = (
    "AssignableWorker",
    "AssignmentOptions",
    "Copy",
    "Instructions",
    "Placement",
    "Situation",
    "Task",
    "grant",
    "refine",
    "target",
)
