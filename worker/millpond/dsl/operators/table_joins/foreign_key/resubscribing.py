"""Subscribing an unchanged row of the left table once more: it hashes to other bytes than when it subscribed.

That is so when the table's type has got a field with a default: the subscription has the hash of the old type's bytes.
An answer to it must not be taken for an answer to an earlier value of the row, for which a newer one is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.topology import NodeContext

from .wiring import Wiring

__all__ = ("Resubscription", "resubscriptions")

_GENERATION = 20_000


class Resubscription:
    """The part of one task that the two ends of a join share.

    Attributes:
        subscribe: f(key, value, timestamp in ms), which subscribes a row.
    """

    __slots__ = ("_before", "_latest", "subscribe")

    def __init__(self) -> None:
        self.subscribe: Callable[[Any, Any, int], None] = _not_bound
        # The serialised keys of the latest subscriptions: two generations, so that memory is bounded.
        self._latest: set[bytes] = set()
        self._before: set[bytes] = set()

    def remember(self, raw_key: bytes) -> None:
        """Remember that a row was subscribed by this task, so that an answer with its hash is under way."""
        if len(self._latest) >= _GENERATION:
            self._before, self._latest = self._latest, set()
        self._latest.add(raw_key)

    def remembers(self, raw_key: bytes) -> bool:
        """Return whether a row is among the latest that this task subscribed."""
        return raw_key in self._latest or raw_key in self._before


def resubscriptions(wiring: Wiring, node: NodeContext) -> Resubscription:
    """Return the part of a task that the two ends of a join share; the first call makes it."""
    task, tasks = node.task, wiring.tasks
    found = tasks.get(task)
    if found is None:
        found = tasks[task] = Resubscription()
        node.on_close(lambda: tasks.pop(task, None))
    return found


def _not_bound(_key: Any, _value: Any, _timestamp: int) -> None:
    """Do nothing: a task without the left table has no rows to subscribe."""
