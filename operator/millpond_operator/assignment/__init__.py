"""Which worker holds which task: three pure functions, `target`, `refine` and `grant` (design.md, "The coordinator").

`target` says where everything should be in the end, `refine` what of that may hold now, `grant` what each worker is
told. None of them has a clock, does I/O or keeps anything: equal arguments give equal results, on every machine.

    goal = target(situation, options, last_goal)
    placement = refine(goal, situation, options, last_placement)
    orders = grant(placement, situation)
"""

from __future__ import annotations

from millpond_operator.assignment.grant import grant
from millpond_operator.assignment.model import Copy, Instructions, Options, Placement, Situation, Task, Worker
from millpond_operator.assignment.refine import refine
from millpond_operator.assignment.target import target

__all__ = (
    "Copy",
    "Instructions",
    "Options",
    "Placement",
    "Situation",
    "Task",
    "Worker",
    "grant",
    "refine",
    "target",
)
