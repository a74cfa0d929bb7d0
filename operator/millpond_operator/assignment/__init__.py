"""Which worker holds which task: three pure functions, `target`, `refine` and `grant` (design.md, "The coordinator").

`target` says where everything should be in the end, `refine` what of that may hold now, `grant` what each worker is
told. None of them has a clock, does I/O or keeps anything: equal arguments give equal results, on every machine.

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
