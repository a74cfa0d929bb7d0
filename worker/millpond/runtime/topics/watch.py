"""Watches the inputs of a running worker: new partitions, and topics that match a pattern, new or deleted.

A thread lists the topics, as often as Kafka clients refresh their metadata. Inputs that change neither tasks nor
state are read from then on (docs/decisions/0028-inputs-that-change.md). With a coordinator, new partitions of
an input whose sub-topology has no state are read, too (docs/decisions/0031-tasks-that-follow-their-inputs.md). Other
new partitions stay unread, which is reported: in the log, in heartbeats and so in the conditions of a StreamApp, and by
the metric `millpond_worker_unread_partitions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from millpond.errors import TopicChanged, TopicError
from millpond.runtime.blockers import Blockers

from .plan import Plan, Unread, summary

__all__ = ("TopicWatch",)

log: logging.Logger = logging.getLogger(__name__)

#: The minimum time between two lists of topics, in seconds.
_MIN_INTERVAL_S = 1.0


class TopicWatch:
    """The comparison of the existing topics with the plan. Used by the worker's loop only.

    Args:
        plan: the plan that the worker runs.
        make: derives the plan from the partition counts of all topics.
        list_topics: lists all topics with their partition counts, in another thread; None if no broker answers. It
            takes the counts of topics that the user may not see any more.
        interval_s: time between two lists, in seconds.
        blockers: the worker's blockers, to which unread partitions are added.
        more_tasks: whether tasks may be added while the worker runs, where their number follows the inputs.

    Attributes:
        unread: number of input partitions that are not read.
    """

    def __init__(  # noqa: PLR0913 - each argument has one use, in one call
        self,
        plan: Plan,
        make: Callable[[Mapping[str, int]], Plan],
        list_topics: Callable[[Mapping[str, int]], Future[dict[str, int] | None]],
        interval_s: float,
        blockers: Blockers,
        *,
        more_tasks: bool = False,
    ) -> None:
        self._plan = plan
        self._make = make
        self._list_topics = list_topics
        self._interval_s = interval_s
        self._blockers = blockers
        self._more_tasks = more_tasks
        self._next: float | None = None
        self._requested_at = 0.0
        self._request: Future[dict[str, int] | None] | None = None
        self._reported: dict[str, str] = {}
        self._missing: frozenset[str] = frozenset()  # topics of patterns that the last list did not have
        self.unread: int = 0
        self._report({each.topic: _more_than_tasks(each) for each in plan.unread}, plan.unread)

    def hurry(self) -> None:
        """List topics within a second, since another worker knows more partitions, or a topic may be deleted."""
        if self._next is not None:
            self._next = min(self._next, self._requested_at + _MIN_INTERVAL_S)

    def turn(self, now: float) -> Plan | None:
        """Request a list of topics when it is due, and handle the answer. Cheap in between.

        Args:
            now: monotonic seconds.

        Returns:
            A new plan for the worker, with more inputs for the same tasks or with more tasks; None without changes.
        """
        if self._request is None:
            if self._next is None or now >= self._next:
                if self._next is not None:
                    self._request = self._list_topics(self._plan.partitions)
                self._requested_at = now
                self._next = now + self._interval_s
            return None
        if not self._request.done():
            return None
        request, self._request = self._request, None
        existing = None if request.cancelled() or request.exception() is not None else request.result()
        return None if existing is None else self._compare(existing)

    def _compare(self, existing: Mapping[str, int]) -> Plan | None:
        plan = self._plan
        missing = frozenset(plan.partitions.keys() - existing.keys())
        if not missing <= self._matched():
            return None  # the code that reads a deleted topic reports it
        if missing != self._missing:
            self._missing = missing
            if missing:
                # A broker that has just started may not know all topics: the next list has to agree.
                self.hurry()
                return None
        grown = tuple(
            Unread(topic, count, existing[topic])
            for topic, count in plan.partitions.items()
            if existing.get(topic, 0) > count
        )
        try:
            new = self._make(existing)
        except TopicError as error:
            # For example, the partition counts of joined topics are no longer equal.
            self._report({each.topic: f"{_more(each)} {error}" for each in grown}, grown)
            return None
        if self._may_adopt(new):
            tasks = {topic for topics in new.tasks.values() for topic in topics}
            elsewhere = tuple(each for each in grown if each.topic not in tasks)
            self._report(
                {each.topic: _more_than_tasks(each) for each in new.unread}
                | {each.topic: _of_global(each) for each in elsewhere},
                (*new.unread, *elsewhere),
            )
            if new.tasks == plan.tasks:
                return None
            if missing:
                log.warning("inputs %s: deleted; continuing without them", ", ".join(sorted(missing)))
            added = sorted(set(new.partitions) - set(plan.partitions)) or [each.topic for each in grown]
            if added:
                log.info("inputs %s: reading newly found topics or partitions", ", ".join(added))
            self._plan = new
            return new
        added_topics = tuple(
            Unread(topic, 0, count) for topic, count in new.partitions.items() if topic not in plan.partitions
        )
        unread = (*grown, *added_topics)
        self._report({each.topic: _without_tasks(each) for each in unread}, unread)
        return None

    def _matched(self) -> frozenset[str]:
        """Return the topics that the plan has because they match a pattern."""
        sources = [source for part in self._plan.subtopologies for source in part.sources]
        return frozenset(topic for source in sources if source.pattern is not None for topic in source.topics)

    def _may_adopt(self, new: Plan) -> bool:
        """Return whether running tasks stay unchanged, and new tasks, if any, are allowed."""
        plan = self._plan
        if summary(new).hash != summary(plan).hash or new.internal != plan.internal:
            return False
        return new.tasks.keys() == plan.tasks.keys() or (self._more_tasks and new.tasks.keys() > plan.tasks.keys())

    def _report(self, sentences: Mapping[str, str], unread: tuple[Unread, ...]) -> None:
        """Report unread partitions by topic, and remove reports that are out of date."""
        self.unread = sum(each.found - each.read for each in unread)
        for topic in [topic for topic in self._reported if topic not in sentences]:
            del self._reported[topic]
            self._blockers.remove(f"partitions of {topic}")
        for topic, sentence in sentences.items():
            if self._reported.get(topic) != sentence:
                self._reported[topic] = sentence
                log.error("%s", sentence)
                self._blockers.add(f"partitions of {topic}", TopicChanged(sentence))


def _more(each: Unread) -> str:
    return f"topic '{each.topic}' has {each.found} partitions now, and this application reads {each.read} of them."


def _more_than_tasks(each: Unread) -> str:
    return (
        f"topic '{each.topic}' has {each.found} partitions, and this application reads only the first {each.read}, "
        f"because its state and internal topics have {each.read} partitions. Make the producers write to the first "
        f"{each.read} only, or stop the application, run 'millpond reset' and start it with empty state."
    )


def _without_tasks(each: Unread) -> str:
    return (
        f"topic '{each.topic}' has {each.found} partitions, and this application has tasks for {each.read} of them; "
        f"the others are not read. Stop all workers and start them again (on Kubernetes with rollout.strategy "
        f"Recreate)."
    )


def _of_global(each: Unread) -> str:
    return (
        f"topic '{each.topic}' of a global store has {each.found} partitions, and this worker reads {each.read} of "
        f"them. Restart the workers, one by one."
    )
