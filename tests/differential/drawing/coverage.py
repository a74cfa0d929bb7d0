"""Which operators, and which pairs of operators, a case has."""

from __future__ import annotations

from typing import Any


def label(step: dict[str, Any]) -> str:
    """Return the operator of a step as it is counted."""
    return step["op"]


def pairs_of(case: dict[str, Any]) -> set[Any]:
    """Return the operators of a case, and the pairs of operators of which the second reads what the first made."""
    by_id = {step["id"]: label(step) for step in case["steps"]}
    found: set[Any] = set(by_id.values())
    for step in case["steps"]:
        found.update((by_id[above], label(step)) for above in step.get("of", ()))
    return found
