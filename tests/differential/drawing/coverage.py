"""Which operators, pairs of operators, options and settings a case has."""

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


def options_of(case: dict[str, Any]) -> set[str]:
    """Return the options and settings of a case, such as `store.retention`, `store.caching=False` and `pressure`."""
    found = {_shown(f"config.{name}", value) for name, value in case["config"].items()}
    if case.get("pressure"):
        found.add("pressure")
    for step in case["steps"]:
        for name, value in step.items():
            if isinstance(value, dict):
                found.update(_shown(f"{name}.{inner}", each) for inner, each in value.items())
            elif name not in ("id", "op", "of"):
                found.add(_shown(name, value))
    return found


def _shown(name: str, value: object) -> str:
    """Return an option with its value if it has few values."""
    few = isinstance(value, bool) or name in ("windows.type", "emit", "full") or name.startswith("config.")
    return f"{name}={value}" if few else name
