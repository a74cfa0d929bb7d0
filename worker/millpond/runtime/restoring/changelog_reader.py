"""Brings stores up to the end of their changelogs, and keeps copies there, from wherever the local state stands.

A changelog is complete when the broker says that nothing more is there: the ends of transactions take offsets too, so
counting would not do. An active task's store is done once; a copy's goes on following.

What is read must not be older than the changelog's `delete.retention.ms` allows: deletions would be missing from it. A store
that fell so far behind takes nothing more, and has to be opened again, from the beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from millpond.runtime.listeners import WorkerListener
from millpond.runtime.offsets.completeness import Completeness
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity
from millpond.state.provenance import Provenance

from .rate_meter import RateMeter
from .reusable_state import longest_unwritten_ms, oldest_ms

__all__ = ("BATCH", "BATCH_BESIDE_TASKS", "ChangelogReader", "Restoration")

log = logging.getLogger(__name__)

#: Records that are written together. RocksDB takes rows in the order of keys, and the more there are, the nearer is each to
#: the one before: 20,000 cost half of what 2,000 cost, each. Beside running tasks they wait for such a write.
BATCH = 20_000
BATCH_BESIDE_TASKS = 5_000
#: What is held back of all changelogs, and for how long at the most.
_MOST_BYTES = 64 << 20
_LONGEST_S = 0.5
#: What a record takes beside its value.
_OF_RECORD = 400


def _wall_ms() -> int:
    return int(time.time() * 1000)


@dataclass(eq=False)
class Restoration:
    """One changelog partition on its way into a store."""

    store: Any
    """The store instance."""
    backend: Any
    """Where its rows go."""
    source: Partition
    """The changelog partition."""
    start: int
    """Offset the reading starts at: the state's own, or the first kept."""
    end: int
    """Offset after the last record as known last: for an active task it is fixed once its owner is known."""
    bounded: bool = False
    """Whether to stop at `end`: the changelog is a source topic, and what follows is not processed yet."""
    following: bool = False
    """Whether it goes on after the end: the store is a copy's."""
    facts: TopicIdentity = TopicIdentity("", None)
    """What the changelog is."""
    completeness: Completeness = field(default_factory=lambda: Completeness(_wall_ms()))
    """Until when the store is known to have had everything."""
    whole: bool = False
    """Whether it began with an empty store at the beginning of the changelog."""
    position: int = field(init=False)
    """Offset after the last record applied."""
    held: list[Message] = field(default_factory=list)
    """Records after it that wait to be applied together."""
    held_bytes: int = 0
    """What they take."""
    held_since: float = 0.0
    """Monotonic seconds."""
    restored: int = 0
    """Records applied."""
    done: bool = False
    """Whether the end was reached; of a copy, whether it ever was."""
    seen_end: int = -1
    """Where the broker said last that nothing more is there."""
    stamped_ms: int = 0
    """The time that stands on disk: until then the rows there are known to have had everything."""
    expired: bool = False
    """Whether deletions may be missing from what it would read: it takes nothing more."""
    warned: bool = False
    """Whether it was said that it takes too long."""
    started: float = field(default_factory=time.monotonic)
    """Monotonic seconds."""

    def __post_init__(self) -> None:
        self.position = self.start
        self.stamped_ms = self.completeness.as_of_ms

    def provenance(self, as_of_ms: int) -> Provenance:
        """What stands beside the offset of rows that have everything until `as_of_ms`."""
        return Provenance(self.facts.id, as_of_ms)

    @property
    def remaining(self) -> int:
        """Offsets left, an upper bound of the records left."""
        return max(0, self.end - self.position) if self.following or not self.done else 0


class ChangelogReader:
    """All restorations of a worker.

    Attributes:
        restorations: by changelog partition.
        expired: those that have to be opened again; who does it takes them out.
        batch: records that are written together.
    """

    def __init__(
        self,
        on_progress: Callable[[Restoration], None],
        listener: WorkerListener,
        now_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self.restorations: dict[Partition, Restoration] = {}
        self.batch = BATCH
        self._held_bytes = 0
        self._meter = RateMeter()
        self.expired: list[Restoration] = []
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._listener = listener

    @property
    def rate(self) -> float | None:
        """Records restored per second, of all stores together, when there were many last; None before that."""
        return self._meter.rate

    def add(self, restoration: Restoration) -> None:
        """Begin with a store. One that starts at its end is done at once."""
        self.restorations[restoration.source] = restoration
        log.info(
            "%s store %s partition %d from %s: offsets %d to %d (%d to go)",
            "copying" if restoration.following else "restoring", restoration.store.name, restoration.store.partition,
            restoration.source, restoration.start, restoration.end, restoration.remaining,
        )  # fmt: skip
        self._listener.restore_started(
            restoration.store.name, restoration.store.partition, restoration.start, restoration.end
        )
        if restoration.start >= restoration.end:
            self._finish(restoration)

    def remove(self, restoration: Restoration) -> None:
        """Forget a changelog."""
        self._let_go(restoration)
        if self.restorations.get(restoration.source) is restoration:
            del self.restorations[restoration.source]

    def become_active(self, restoration: Restoration, end: int) -> None:
        """A copy's store is to be an active task's: it is done at `end`, which nobody will move any more."""
        self._apply(restoration)
        restoration.following = False
        restoration.end = end
        # Beyond its bound a copy saw ends that it did not apply.
        seen = restoration.position if restoration.bounded else max(restoration.position, restoration.seen_end)
        restoration.done = seen >= end

    def follow(self, restoration: Restoration) -> None:
        """An active task's store is a copy's from here on."""
        restoration.following = True
        self.restorations[restoration.source] = restoration

    def records(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Take what one poll returned for a changelog partition, and apply it when there is enough, or nothing more to wait for.

        Records of a changelog that was removed, or is complete, are ignored.
        """
        restoration = self.restorations.get(partition)
        if restoration is None or (restoration.done and not restoration.following) or self._expires(restoration):
            return
        if restoration.bounded:
            beyond = int(messages[-1].offset() or 0) + 1
            messages = [message for message in messages if int(message.offset() or 0) < restoration.end]
        self._hold(restoration, messages)
        if self._held_bytes > _MOST_BYTES:
            for each in list(self.restorations.values()):
                self._apply(each)
        elif self._is_ripe(restoration):
            self._apply(restoration)
        if restoration.bounded and beyond >= restoration.end:
            # Its input may go on for long, and need not be read to its end.
            self.reached_end(partition, beyond)

    def _hold(self, restoration: Restoration, messages: Sequence[Message]) -> None:
        if not messages:
            return
        held = restoration.held
        if held and int(messages[0].offset() or 0) <= int(held[-1].offset() or 0):
            self._let_go(restoration)  # a new client reads on from what is applied
        if not restoration.held:
            restoration.held_since = time.monotonic()
        size = sum(map(len, messages)) + _OF_RECORD * len(messages)
        restoration.held += messages
        restoration.held_bytes += size
        self._held_bytes += size

    def _let_go(self, restoration: Restoration) -> None:
        self._held_bytes -= restoration.held_bytes
        restoration.held, restoration.held_bytes = [], 0

    def _is_ripe(self, restoration: Restoration) -> bool:
        held = restoration.held
        return bool(held) and (
            restoration.done
            or len(held) >= self.batch
            or int(held[-1].offset() or 0) + 1 >= restoration.end
            or time.monotonic() - restoration.held_since > _LONGEST_S
        )

    def _apply(self, restoration: Restoration) -> None:
        """Write what is held back."""
        held = restoration.held
        if not held:
            return
        self._let_go(restoration)
        restoration.position = int(held[-1].offset() or 0) + 1
        changes = [
            (key, message.value(), message.timestamp()[1], message.headers())
            for message in held
            if (key := message.key()) is not None
        ]
        restoration.completeness.advance(restoration.position)
        self._write(restoration, restoration.store.restore(changes))
        restoration.restored += len(held)
        self._meter.add(len(held), time.monotonic())
        if not restoration.done:
            self._on_progress(restoration)

    def reached_end(self, partition: Partition, offset: int) -> None:
        """The broker says that nothing is there after `offset`."""
        restoration = self.restorations.get(partition)
        if restoration is None or restoration.expired:
            return
        self._apply(restoration)
        restoration.seen_end = offset
        if restoration.following and not restoration.bounded:
            # Markers of transactions take offsets: after them the copy is as far as it can be.
            restoration.position = max(restoration.position, offset)
            restoration.end = max(restoration.end, offset)
            restoration.completeness.advance(restoration.position)
        if restoration.done or offset < restoration.end:
            return
        # What lies beyond a bounded end is not in the store: it is for the task to process.
        restoration.position = max(restoration.position, restoration.end if restoration.bounded else offset)
        restoration.completeness.advance(restoration.position)
        if restoration.position > restoration.start:
            self._write(restoration, [])
        self._finish(restoration)

    def stamp(self, restoration: Restoration) -> None:
        """Write anew until when a copy on disk is known to have had everything, where that is long ago."""
        age_ms = restoration.completeness.as_of_ms - restoration.stamped_ms
        if restoration.done and age_ms > longest_unwritten_ms(restoration.facts):
            self._write(restoration, [])

    def _expires(self, restoration: Restoration) -> bool:
        """Whether deletions may be missing from what the restoration reads now."""
        if restoration.expired or self._now_ms() < oldest_ms(restoration.completeness.as_of_ms, restoration.facts):
            return restoration.expired
        store, source = restoration.store, restoration.source
        if restoration.whole and restoration.completeness.at is None:
            if not restoration.warned:
                restoration.warned = True
                log.warning(
                    "store %s partition %d: restoring from the beginning of %s takes longer than the topic's "
                    "'delete.retention.ms' (%s), so keys that are deleted meanwhile may stay; raise it",
                    store.name, store.partition, source, restoration.facts.delete_retention_ms,
                )  # fmt: skip
            return False
        log.warning(
            "store %s partition %d: the local rows are so old that deletions may have left %s since; restoring from its "
            "beginning", store.name, store.partition, source,
        )  # fmt: skip
        restoration.expired = True
        self._let_go(restoration)
        self.expired.append(restoration)
        return True

    def _write(self, restoration: Restoration, rows: Any) -> None:
        store = restoration.store
        key = (store.name, store.partition)
        restoration.stamped_ms = restoration.completeness.as_of_ms
        restoration.backend.write(
            [(*key, rows)],
            {key: (restoration.position, store.metadata())},
            {key: restoration.provenance(restoration.stamped_ms)},
        )

    def _finish(self, restoration: Restoration) -> None:
        restoration.done = True
        self._on_progress(restoration)
        log.info(
            "restored store %s partition %d: %d records in %.1f s",
            restoration.store.name, restoration.store.partition, restoration.restored,
            time.monotonic() - restoration.started,
        )  # fmt: skip
        self._listener.restore_ended(restoration.store.name, restoration.store.partition, restoration.restored)
