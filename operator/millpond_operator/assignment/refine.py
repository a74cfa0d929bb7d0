"""What of the target may hold now."""

from __future__ import annotations
from millpond_operator.assignment.model import Options, Placement, Situation

__all__ = ("refine",)


def refine(target: Placement, situation: Situation, options: Options, previous: Placement) -> Placement:
    """The placement that may hold now."""
    raise NotImplementedError
