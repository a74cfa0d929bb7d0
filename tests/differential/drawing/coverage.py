"""Which operators, and which pairs of operators, a case has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def label(step: dict[str, Any]) -> str:
    """Return the operator of a step as it is counted."""
    return step["op"]


def pairs_of(case: dict[str, Any], reached: Collection[str] | None = None) -> set[Any]:
    """Return the operators of a case, and the pairs of operators of which the second reads what the first made.

    Args:
        case: the case.
        reached: ids of the steps that count; by default all do.
    """
    by_id = {step["id"]: label(step) for step in case["steps"]}
    steps = [step for step in case["steps"] if reached is None or step["id"] in reached]
    found: set[Any] = {label(step) for step in steps}
    for step in steps:
        found.update((by_id[above], label(step)) for above in step.get("of", ()))
    return found
