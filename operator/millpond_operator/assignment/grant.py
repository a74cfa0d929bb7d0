"""What each worker is told."""

from __future__ import annotations
from collections.abc import Mapping
from millpond_operator.assignment.model import Instructions, Placement, Situation

__all__ = ("grant",)


def grant(refined: Placement, situation: Situation) -> Mapping[str, Instructions]:
    """One per live worker."""
    raise NotImplementedError
