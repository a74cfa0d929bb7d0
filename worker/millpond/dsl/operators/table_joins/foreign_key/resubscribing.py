"""Subscribing an unchanged row of the left table once more, for one of two reasons.

It hashes to other bytes than when it subscribed, since the table's type has got a field with a default. An answer to
that subscription must not be taken for an answer to an earlier value of the row, for which a newer one is under way.

Or an inner join has dropped an outdated answer without a value. The row's newer subscription has no answer if the
right table has no partner, so the result would keep the row for ever. The new subscription asks for an answer always.
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
        subscribe: f(key, value, timestamp in ms), which subscribes a row. It returns the hash of the subscription, or
            None if there is none, since the row of an inner join has no foreign key.
        awaited: The hash of the latest subscription of each serialised key that has an answer in any case, while that
            is under way. It is empty after a return to the last commit, and when it would become too large: what is
            missing costs one more answer, and no row.
    """

    __slots__ = ("_before", "_latest", "awaited", "subscribe")

    def __init__(self) -> None:
        self.subscribe: Callable[[Any, Any, int], bytes | None] = _not_bound
        self.awaited: dict[bytes, bytes] = {}
        # The serialised keys of the latest subscriptions: two generations, so that memory is bounded.
        self._latest: set[bytes] = set()
        self._before: set[bytes] = set()

    def once_more(self, raw_key: bytes, key: Any, value: Any, timestamp: int) -> bool:
        """Subscribe a row, if there is one, and note that its answer is under way.

        Return False if there is no subscription: the row is gone, or has no foreign key.
        """
        asked = None if value is None else self.subscribe(key, value, timestamp)
        if asked is None:
            return False
        self.expect(raw_key, asked)
        return True

    def expect(self, raw_key: bytes, asked: bytes) -> None:
        """Note that an answer to a subscription with a hash is under way, in any case."""
        if len(self.awaited) >= _GENERATION:
            self.awaited.clear()
        self.awaited[raw_key] = asked

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


def _not_bound(_key: Any, _value: Any, _timestamp: int) -> bytes | None:
    """Do nothing: a task without the left table has no rows to subscribe."""
    return None
