"""Restoring of stores from their changelogs, and the continuous updates of copies, from the offset of local state on.

A changelog is read to its end when the broker reports the end of the partition. Offsets alone do not show that, because
transaction markers take offsets too. The store of an active task is restored once; that of a copy is updated for ever.

Records may not be read later than the changelog's `delete.retention.ms` allows, because deletions would be missing. A
store that falls so far behind takes no more records; it must be reopened and restored from the beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from millpond.runtime.listeners import SuspendReason, WorkerListener
from millpond.runtime.offsets.completeness import Completeness
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity
from millpond.state.provenance import Provenance

from .rate_meter import RateMeter
from .reusable_state import longest_unwritten_ms, oldest_ms
from .schema_headers import recoding

__all__ = ("BATCH", "BATCH_BESIDE_TASKS", "ChangelogReader", "Restoration")

log: logging.Logger = logging.getLogger(__name__)

#: Records per write. RocksDB writes rows in the order of keys, and in a larger batch neighbouring keys are closer: with
#: 20,000 a record costs half of what it costs with 2,000. Running tasks wait for a write, so batches are smaller there.
BATCH = 20_000
BATCH_BESIDE_TASKS = 5_000
#: The limits of records that wait for a write: bytes of all changelogs, and time.
_MAX_HELD_BYTES = 64 << 20
_MAX_HELD_S = 0.5
#: From so many records on, the begin of a restoration is told, too: its end may be minutes away.
_LONG_RECORDS = 100_000
#: Memory of a record beside its value, in bytes.
_RECORD_OVERHEAD = 400


def _wall_ms() -> int:
    return int(time.time() * 1000)


@dataclass(eq=False)
class Restoration:
    """The restore of one store partition from its changelog."""

    store: Any
    """The store instance."""
    backend: Any
    """The backend of the store's rows."""
    source: Partition
    """The changelog partition."""
    start: int
    """Offset to read from: that of the local state, or the first of the changelog."""
    end: int
    """Latest known end offset; fixed for an active task once its owner is known."""
    bounded: bool = False
    """Whether to stop at `end`: the changelog is a source topic, and later records are not processed yet."""
    following: bool = False
    """Whether to continue after the end: the store belongs to a copy."""
    facts: TopicIdentity = TopicIdentity("", None)
    """Identity of the changelog topic."""
    completeness: Completeness = field(default_factory=lambda: Completeness(_wall_ms()))
    """The moment up to which the store is known to be complete."""
    whole: bool = False
    """Whether the restore started with an empty store at the beginning of the changelog."""
    position: int = field(init=False)
    """Offset after the last record applied."""
    held: list[Message] = field(default_factory=list)
    """Records from `position` on that wait for the next write."""
    held_bytes: int = 0
    """Their memory, in bytes."""
    held_since: float = 0.0
    """When the first of them arrived, in monotonic seconds."""
    restored: int = 0
    """Number of records applied."""
    restored_before: int = 0
    """Number of those that were applied in the role before the present one."""
    done: bool = False
    """Whether the end was reached; for a copy, whether it was ever reached."""
    seen_end: int = -1
    """End of the partition that the broker reported last."""
    stamped_ms: int = 0
    """The time on disk, in epoch ms: up to then the rows on disk are known to be complete."""
    expired: bool = False
    """Whether deletions may be missing from the changelog: it takes no more records."""
    warned: bool = False
    """Whether the warning about a slow restore was logged."""
    started: float = field(default_factory=time.monotonic)
    """Start time, in monotonic seconds."""

    def __post_init__(self) -> None:
        self.position = self.start
        self.stamped_ms = self.completeness.as_of_ms

    def provenance(self, as_of_ms: int) -> Provenance:
        """Return the provenance to store with the offset of rows that are complete up to `as_of_ms`."""
        return Provenance(self.facts.id, as_of_ms)

    @property
    def remaining(self) -> int:
        """The number of offsets up to the end, an upper bound of the remaining records."""
        return max(0, self.end - self.position) if self.following or not self.done else 0


class ChangelogReader:
    """All restorations of a worker.

    Attributes:
        restorations: the restorations, by changelog partition.
        expired: restorations whose stores must be reopened; the caller that reopens them removes them.
        batch: records per write.
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
        """The records restored per second, over all stores, as last measured; None before the first measurement."""
        return self._meter.rate

    def add(self, restoration: Restoration) -> None:
        """Start to restore a store. With no records to read, the restore ends at once."""
        self.restorations[restoration.source] = restoration
        log.log(
            logging.INFO if restoration.remaining >= _LONG_RECORDS else logging.DEBUG,  # its end is told in any case
            "store %s partition %d: %s from %s, offsets %d to %d (%d to read)",
            restoration.store.name, restoration.store.partition, "copying" if restoration.following else "restoring",
            restoration.source, restoration.start, restoration.end, restoration.remaining,
        )  # fmt: skip
        self._announce(restoration)
        if restoration.start >= restoration.end:
            self._finish(restoration)

    def remove(self, restoration: Restoration) -> None:
        """Stop a restoration."""
        self._drop_held(restoration)
        if self.restorations.get(restoration.source) is not restoration:
            return
        del self.restorations[restoration.source]
        if restoration.following:
            self._suspended(restoration, SuspendReason.MIGRATED)
        elif not restoration.done:
            store, records = restoration.store, restoration.restored - restoration.restored_before
            self._listener.restore_suspended(store.name, store.partition, records)

    def _announce(self, restoration: Restoration) -> None:
        """Tell the listener that a restore or a copy begins."""
        store, position = restoration.store, restoration.position
        restoration.restored_before = restoration.restored
        if restoration.following:
            self._listener.update_started(store.name, store.partition, position)
        else:
            self._listener.restore_started(store.name, store.partition, position, restoration.end)

    def _suspended(self, restoration: Restoration, reason: SuspendReason) -> None:
        store = restoration.store
        self._listener.update_suspended(store.name, store.partition, restoration.position - 1, restoration.end, reason)

    def promote(self, restoration: Restoration, end: int) -> None:
        """Turn a copy's store into that of an active task: the restore ends at the fixed offset `end`."""
        self._apply(restoration)
        self._suspended(restoration, SuspendReason.PROMOTED)
        restoration.following = False
        restoration.end = end
        # Beyond its bound, a copy has seen ends without applying the records.
        seen = restoration.position if restoration.bounded else max(restoration.position, restoration.seen_end)
        restoration.done = seen >= end
        self._announce(restoration)
        if restoration.done:
            self._listener.restore_ended(restoration.store.name, restoration.store.partition, 0)

    def demote(self, restoration: Restoration) -> None:
        """Turn an active task's store into a copy's, which follows the changelog."""
        restoration.following = True
        self.restorations[restoration.source] = restoration
        self._announce(restoration)

    def records(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Add the records of one poll of a changelog partition, and write them when a batch is complete.

        Records of a changelog that was removed, or that is read to its end, are ignored.
        """
        restoration = self.restorations.get(partition)
        if restoration is None or (restoration.done and not restoration.following) or self._expires(restoration):
            return
        if restoration.bounded:
            beyond = int(messages[-1].offset() or 0) + 1
            messages = [message for message in messages if int(message.offset() or 0) < restoration.end]
        self._hold(restoration, messages)
        if self._held_bytes > _MAX_HELD_BYTES:
            for each in list(self.restorations.values()):
                self._apply(each)
        elif self._is_due(restoration):
            self._apply(restoration)
        if restoration.bounded and beyond >= restoration.end:
            # The input may be much longer than the bound, and need not be read to its end.
            self.reached_end(partition, beyond)

    def _hold(self, restoration: Restoration, messages: Sequence[Message]) -> None:
        if not messages:
            return
        held = restoration.held
        if held and int(messages[0].offset() or 0) <= int(held[-1].offset() or 0):
            self._drop_held(restoration)  # a new client rereads from the last applied record
        if not restoration.held:
            restoration.held_since = time.monotonic()
        size = sum(map(len, messages)) + _RECORD_OVERHEAD * len(messages)
        restoration.held += messages
        restoration.held_bytes += size
        self._held_bytes += size

    def _drop_held(self, restoration: Restoration) -> None:
        self._held_bytes -= restoration.held_bytes
        restoration.held, restoration.held_bytes = [], 0

    def _is_due(self, restoration: Restoration) -> bool:
        held = restoration.held
        return bool(held) and (
            restoration.done
            or len(held) >= self.batch
            or int(held[-1].offset() or 0) + 1 >= restoration.end
            or time.monotonic() - restoration.held_since > _MAX_HELD_S
        )

    def _apply(self, restoration: Restoration) -> None:
        """Write the held records."""
        held = restoration.held
        if not held:
            return
        self._drop_held(restoration)
        restoration.position = int(held[-1].offset() or 0) + 1
        changes: list[Any] = [
            (key, message.value(), message.timestamp()[1], message.headers())
            for message in held
            if (key := message.key()) is not None
        ]
        if (recoded := recoding(restoration.store)) is not None:
            changes = list(map(recoded, changes))
        restoration.completeness.advance(restoration.position)
        self._write(restoration, restoration.store.restore(changes))
        restoration.restored += len(held)
        self._meter.add(len(held), time.monotonic())
        if restoration.following:
            store, position = restoration.store, restoration.position
            end = max(restoration.end, position)
            self._listener.batch_loaded(store.name, store.partition, position - 1, len(held), end)
        if not restoration.done:
            self._on_progress(restoration)

    def reached_end(self, partition: Partition, offset: int) -> None:
        """Record that a partition is read to its end, as the broker reports."""
        restoration = self.restorations.get(partition)
        if restoration is None or restoration.expired:
            return
        self._apply(restoration)
        restoration.seen_end = offset
        if restoration.following:
            # The last offsets may be transaction markers: then the copy is at the end, too.
            seen = min(offset, restoration.end) if restoration.bounded else offset
            restoration.position = max(restoration.position, seen)
            restoration.end = max(restoration.end, restoration.position)
            restoration.completeness.advance(restoration.position)
        if restoration.done or offset < restoration.end:
            return
        # Records beyond a bounded end are not in the store: the task will process them.
        restoration.position = max(restoration.position, restoration.end if restoration.bounded else offset)
        restoration.completeness.advance(restoration.position)
        if restoration.position > restoration.start:
            self._write(restoration, [])
        self._finish(restoration)

    def stamp(self, restoration: Restoration) -> None:
        """Update the time up to which a copy on disk is known to be complete, if that time is long ago."""
        age_ms = restoration.completeness.as_of_ms - restoration.stamped_ms
        if restoration.done and age_ms > longest_unwritten_ms(restoration.facts):
            self._write(restoration, [])

    def _expires(self, restoration: Restoration) -> bool:
        """Return whether deletions may be missing from the records that the restoration reads now."""
        if restoration.expired or self._now_ms() < oldest_ms(restoration.completeness.as_of_ms, restoration.facts):
            return restoration.expired
        store, source = restoration.store, restoration.source
        if restoration.whole and restoration.completeness.at is None:
            if not restoration.warned:
                restoration.warned = True
                log.warning(
                    "store %s partition %d: restoring from the beginning of %s takes longer than the topic's "
                    "'delete.retention.ms' (%s), so keys deleted meanwhile may stay in the store; raise that setting",
                    store.name, store.partition, source, restoration.facts.shown_retention,
                )  # fmt: skip
            return False
        log.warning(
            "store %s partition %d: the local rows are so old that %s may have lost deletions since; "
            "restoring from its beginning", store.name, store.partition, source,
        )  # fmt: skip
        restoration.expired = True
        self._drop_held(restoration)
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
        log.log(
            logging.INFO if restoration.restored else logging.DEBUG,  # new stores have nothing to restore
            "store %s partition %d: restored %d records of %s in %.1f s",
            restoration.store.name, restoration.store.partition, restoration.restored, restoration.source,
            time.monotonic() - restoration.started,
        )  # fmt: skip
        if not restoration.following:
            records = restoration.restored - restoration.restored_before
            self._listener.restore_ended(restoration.store.name, restoration.store.partition, records)
