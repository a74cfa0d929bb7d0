"""Where everything should be in the end."""

from __future__ import annotations
from millpond_operator.assignment.model import Options, Placement, Situation

__all__ = ("target",)


def target(situation: Situation, options: Options, previous: Placement) -> Placement:
    """The placement to aim at."""
    raise NotImplementedError
