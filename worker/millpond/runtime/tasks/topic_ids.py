"""Notices that a topic of running tasks was deleted and created again, by its id.

Clients continue at their offset in the new topic, without an error if it is long enough. Brokers are asked for the ids
of the topics that this worker uses, beside the loop: one request for all of them, for metadata that brokers have in
memory (docs/decisions/0060-ids-of-inputs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future

from millpond.protocol import Role
from millpond.runtime.topics.identity import digest_of

from .executor import TaskExecutor

__all__ = ("TopicIdWatch",)

#: The time between two requests, in seconds. A classic consumer sends its heartbeats more often.
INTERVAL_S = 10.0
#: The minimum of it, after an error that a topic that was created again may have caused.
_MIN_INTERVAL_S = 1.0

_Known = frozenset[tuple[str, str]]


class TopicIdWatch:
    """The comparison of topics' ids with those that the tasks were activated with. Used by the worker's loop only.

    Args:
        executor: the tasks and global stores.
        ask: requests the ids of topics, in another thread; the answer lacks topics without one.
    """

    def __init__(self, executor: TaskExecutor, ask: Callable[[Collection[str]], Future[Mapping[str, str]]]) -> None:
        self._executor = executor
        self._ask = ask
        self._next = self._asked_at = 0.0
        self._asked: tuple[_Known, Future[Mapping[str, str]]] | None = None

    def hurry(self) -> None:
        """Ask within a second."""
        self._next = min(self._next, self._asked_at + _MIN_INTERVAL_S)

    def turn(self, now: float) -> None:
        """Ask when it is due, and handle the answer. Cheap in between.

        Args:
            now: monotonic seconds.

        Raises:
            TopicError: a topic of a task was deleted and created again. Nothing may be committed any more.
            CommitFailed: a global store is rebuilt from a topic that was created again.
        """
        if self._asked is None:
            if now >= self._next:
                self._asked_at, self._next = now, now + INTERVAL_S
                if known := self._known():
                    self._asked = known, self._ask({topic for topic, _ in known})
            return
        known, answer = self._asked
        if not answer.done():
            return
        self._asked = None
        if answer.cancelled() or answer.exception() is not None:
            return
        # The request is newer than these lookups, and it is no matter for tasks that were dropped meanwhile.
        self._compare(known & self._known(), answer.result())

    def _compare(self, known: _Known, ids: Mapping[str, str]) -> None:
        changed = sorted({topic for topic, digest in known if ids.get(topic) and digest_of([ids[topic]]) != digest})
        executor = self._executor
        for topic in changed:
            if (updater := executor.globals.of_topic(topic)) is None:
                raise executor.start_positions.recreated(topic)
            executor.globals.rebuild(updater, "was deleted and created again")

    def _known(self) -> _Known:
        """Return the topics of active tasks and of global stores, each with the digest of its id if that is known."""
        found = {(each.topic, digest_of([each.facts.id])) for each in self._executor.globals.updaters}
        for held in self._executor.held.values():
            if held.role is Role.ACTIVE and (lookup := held.activated_with) is not None:
                found |= {(topic, digest_of([facts.id])) for topic, facts in lookup.topics.items()}
                found.update(lookup.inputs.items())
        return frozenset(each for each in found if each[1])
