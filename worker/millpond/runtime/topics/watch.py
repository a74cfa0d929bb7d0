"""Notices, while the worker runs, what changes about its inputs: new partitions, and new topics that match a pattern.

Topics are listed beside the loop, as often as Kafka's clients refresh their metadata. What changes neither tasks nor state is
read from then on (docs/decisions/0028-inputs-that-change.md), and with a coordinator so are the partitions of an input whose
sub-topology has no state (docs/decisions/0031-tasks-that-follow-their-inputs.md). All else stays unread, and is told: in the log, as a trouble in
heartbeats and so in the conditions of a StreamApp, and as the metric `millpond_worker_unread_partitions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from millpond.errors import TopicChanged, TopicError
from millpond.runtime.blockers import Blockers

from .plan import Plan, Unread, summary

__all__ = ("TopicWatch",)

log = logging.getLogger(__name__)

#: Two lists of topics are this far apart, in seconds, however much one hurries.
_HURRY_S = 1.0


class TopicWatch:
    """Compares the topics that exist with the plan. Belongs to the worker's loop.

    Args:
        plan: what the worker runs.
        make: derives the plan from the partition counts of all topics.
        look: lists all topics with their partition counts, in another thread; None when no broker answers.
        interval_s: how often.
        waiting: told of partitions that are not read.
        more_tasks: whether tasks may be added while the worker runs, where their number follows the inputs.

    Attributes:
        unread: how many partitions of inputs are not read.
    """

    def __init__(
        self,
        plan: Plan,
        make: Callable[[Mapping[str, int]], Plan],
        look: Callable[[], Future[dict[str, int] | None]],
        interval_s: float,
        waiting: Blockers,
        *,
        more_tasks: bool = False,
    ) -> None:
        self._plan = plan
        self._make = make
        self._look = look
        self._interval_s = interval_s
        self._waiting = waiting
        self._more_tasks = more_tasks
        self._next: float | None = None
        self._asked_at = 0.0
        self._asked: Future[dict[str, int] | None] | None = None
        self._told: dict[str, str] = {}
        self.unread = 0
        self._tell({each.topic: _divided(each) for each in plan.unread}, plan.unread)

    def hurry(self) -> None:
        """Ask within a second: somebody knows more partitions."""
        if self._next is not None:
            self._next = min(self._next, self._asked_at + _HURRY_S)

    def turn(self, now: float) -> Plan | None:
        """Ask when it is time, and look at the answer. Costs nothing in between.

        Args:
            now: monotonic seconds.

        Returns:
            a plan with more inputs for the same tasks, or more tasks, which the worker is to adopt; None when there is none.
        """
        if self._asked is None:
            if self._next is None or now >= self._next:
                if self._next is not None:
                    self._asked = self._look()
                self._asked_at = now
                self._next = now + self._interval_s
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        existing = None if asked.cancelled() or asked.exception() is not None else asked.result()
        return None if existing is None else self._compare(existing)

    def _compare(self, existing: Mapping[str, int]) -> Plan | None:
        plan = self._plan
        if any(topic not in existing for topic in plan.partitions):
            return None  # a topic that is gone is noticed by whoever reads it
        grown = tuple(
            Unread(topic, count, existing[topic]) for topic, count in plan.partitions.items() if existing[topic] > count
        )
        try:
            new = self._make(existing)
        except TopicError as error:
            # Topics that are joined need equal partition counts, say, and have them no more.
            self._tell({each.topic: f"{_more(each)} {error}" for each in grown}, grown)
            return None
        if self._may_adopt(new):
            tasks = {topic for topics in new.tasks.values() for topic in topics}
            elsewhere = tuple(each for each in grown if each.topic not in tasks)
            self._tell(
                {each.topic: _divided(each) for each in new.unread}
                | {each.topic: _of_global(each) for each in elsewhere},
                (*new.unread, *elsewhere),
            )
            if new.tasks == plan.tasks:
                return None
            added = sorted(set(new.partitions) - set(plan.partitions)) or [each.topic for each in grown]
            log.info("new inputs are read from now on: %s", ", ".join(added))
            self._plan = new
            return new
        added_topics = tuple(
            Unread(topic, 0, count) for topic, count in new.partitions.items() if topic not in plan.partitions
        )
        unread = (*grown, *added_topics)
        self._tell({each.topic: _undivided(each) for each in unread}, unread)
        return None

    def _may_adopt(self, new: Plan) -> bool:
        """Whether running tasks stay what they are, and new ones, if any, may be added."""
        plan = self._plan
        if summary(new).hash != summary(plan).hash or new.internal != plan.internal:
            return False
        return new.tasks.keys() == plan.tasks.keys() or (self._more_tasks and new.tasks.keys() > plan.tasks.keys())

    def _tell(self, sentences: Mapping[str, str], unread: tuple[Unread, ...]) -> None:
        self.unread = sum(each.found - each.read for each in unread)
        for topic in [topic for topic in self._told if topic not in sentences]:
            del self._told[topic]
            self._waiting.ends(f"partitions of {topic}")
        for topic, sentence in sentences.items():
            if self._told.get(topic) != sentence:
                self._told[topic] = sentence
                log.error("%s", sentence)
                self._waiting.begins(f"partitions of {topic}", TopicChanged(sentence))


def _more(each: Unread) -> str:
    return f"topic '{each.topic}' has {each.found} partitions now, and this application reads {each.read} of them."


def _divided(each: Unread) -> str:
    return (
        f"topic '{each.topic}' has {each.found} partitions, and this application reads the first {each.read}, because its state "
        f"and internal topics are divided by {each.read}: records in the others wait. Make the producers write to the first "
        f"{each.read} only, or stop the application, run 'millpond reset' and start it with empty state."
    )


def _undivided(each: Unread) -> str:
    return (
        f"topic '{each.topic}' has {each.found} partitions, and this application has tasks for {each.read} of them: records in "
        f"the others wait. Stop all workers and start them again (on Kubernetes with rollout.strategy Recreate)."
    )


def _of_global(each: Unread) -> str:
    return (
        f"topic '{each.topic}' of a global store has {each.found} partitions, and this worker reads {each.read} of them. "
        f"Restart the workers, one by one."
    )
