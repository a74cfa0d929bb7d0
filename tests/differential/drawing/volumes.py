"""How many records an operator makes of those it gets, so that no case has very many.

Merges, joins and operators that send several records multiply each other along a topology: without a limit, one case in
ten thousand wrote millions of records, and took gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST = 24
"""Records of a step at most, in those of a topic of the input, which has about eight."""

_PARTNERS = 2
"""Records of a stream that are about as close as the windows of joins are wide, and have one key."""


def volume(step: dict[str, Any], volumes: Sequence[float]) -> float:
    """Return about how many records a step makes.

    Args:
        step: the step.
        volumes: those of its inputs.
    """
    op = step["op"]
    if not volumes:
        return 1
    if op in ("KStream.join", "KStream.leftJoin", "KStream.outerJoin"):
        return max(sum(volumes), _PARTNERS * volumes[0] * volumes[1])
    if op in ("KTable.joinForeign", "KTable.leftJoinForeign"):
        return volumes[0] + _PARTNERS * volumes[1]
    if op in ("KStream.merge", "KTable.join", "KTable.leftJoin", "KTable.outerJoin", "CogroupedKStream.cogroup"):
        return sum(volumes)
    several = step.get("flat") in ("twice", "swapped") or op == "KTable.groupBy"
    windows = step.get("windows", {})
    if windows.get("type") == "sliding":
        return 2 * volumes[0]
    if windows.get("type") == "time":
        return volumes[0] * windows["size"] / windows["advance"]
    return volumes[0] * (2 if several else 3 if step.get("processor") == "thrice" else 1)
