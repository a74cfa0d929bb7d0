"""Move the cut of a version forward to a moment at which all rows are provably complete.

Reading takes minutes. If a key gets a newer record after the first cut, compaction may remove the one before it, and
rows of that cut would lack the key. Whatever was missed has a newer record. So later records are read, too, until
everything up to the last stable offset was read: no newer record can have replaced what was read before it. The cut is
such a moment in every compacted partition, and between commits of each task as every cut is (`consistent_cut`).

See docs/decisions/0063-cuts-with-proof.md.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from millpond.errors import SnapshotError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.offsets.metadata import Partition
from millpond_spark.stores import ChangelogStore

from .boundaries import (
    COMMON_CUT_S,
    Boundaries,
    ChangelogEnds,
    changelog_ends,
    wall_ms,
    warn_of_torn_tasks,
)
from .consistent_cut import find_cut
from .log_tails import LogTails, TailRecord

__all__ = ("FOLLOWED", "MovingCut")

FOLLOWED = 20_000
"""The number of offsets, in all partitions, that the driver reads itself; Spark reads more."""
_CATCH_UP_S = 30.0
_PROOF_TIMEOUT_S = 30.0
_POLL_S = 0.02
#: The driver keeps what it reads in memory.
_MOST_BYTES = 256 * 1024 * 1024
_CURE = "when fewer records arrive, or without --catalog: workers need no complete moment"


@dataclass(frozen=True)
class MovingCut:
    """The search for the cut of a version, after the changelogs were read up to earlier ends."""

    cluster: KafkaAdmin
    config: Config
    stores: tuple[ChangelogStore, ...]
    start: Boundaries
    """The boundaries that were read first."""
    with_headers: frozenset[str]
    """The topics whose headers are needed."""
    now_ms: Callable[[], int] = wall_ms

    @property
    def needed(self) -> bool:
        """Whether any changelog is compacted; otherwise rows at any offset are complete."""
        return any(self._is_compacted(each) for each in self.start.ranges)

    def ends(self, read: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the present ends.

        Args:
            read: the ends up to which the changelogs were read.

        Raises:
            SnapshotError: an end is before what was read.
            BrokerError: the brokers do not answer.
        """
        with changelog_ends(self.cluster, self.config, self.stores) as changelogs:
            return self._after(read, changelogs.existing(changelogs.stable(changelogs.all)))

    def find(self, read: Mapping[Partition, int]) -> tuple[Boundaries, list[TailRecord]]:
        """Find the cut; return the boundaries of the version, and the records since the given ends.

        Args:
            read: the ends up to which the changelogs were read.

        Raises:
            SnapshotError: a partition cannot be proven to be complete, or records were deleted.
            BrokerError: the brokers do not answer.
        """
        with (
            changelog_ends(self.cluster, self.config, self.stores) as changelogs,
            LogTails(self.config, read, self.with_headers) as tails,
        ):
            self._catch_up(tails)
            as_of_ms = self.now_ms()
            ends = self._cut(changelogs, tails)
            self._read_up_to(ends, tails)
            ends = self._after(read, ends)
            ranges = {each: replace(known, end=ends[each]) for each, known in self.start.ranges.items()}
            return Boundaries(as_of_ms, ranges, self.start.facts), tails.records

    def _cut(self, changelogs: ChangelogEnds, tails: LogTails) -> dict[Partition, int]:
        def latest(asked: AbstractSet[Partition]) -> dict[Partition, int]:
            found = changelogs.latest(asked)
            self._poll(tails, 0)
            return found

        def nothing(_asked: AbstractSet[Partition]) -> dict[Partition, int]:
            self._poll(tails, 0)
            return {}

        def complete(partition: Partition, end: int) -> bool:
            return self._is_complete(partition, end, tails)

        def stable(asked: AbstractSet[Partition]) -> dict[Partition, int]:
            return changelogs.existing(changelogs.stable(asked))

        def sleep(seconds: float) -> None:
            self._poll(tails, seconds)

        tasks: list[Collection[Partition]] = list(changelogs.tasks.values())
        limit_s = _PROOF_TIMEOUT_S
        cut = find_cut(tasks, stable, latest, COMMON_CUT_S, limit_s, complete=complete, sleep=sleep)
        # Others write topics of global stores at any time: each ends where it is complete, whether or not a transaction
        # is open.
        topics: list[Collection[Partition]] = [{each} for each in changelogs.of_global]
        of_global = find_cut(topics, stable, nothing, 0, limit_s, complete=complete, sleep=sleep)
        ends = {**cut.ends, **of_global.ends}
        torn = {each for number in cut.torn for each in tasks[number]}
        for each in torn | {each for number in of_global.torn for each in topics[number]}:
            ends[each] = self._own_end(each, ends[each], changelogs, tails)
        if cut.torn:
            warn_of_torn_tasks(changelogs, cut.torn, _PROOF_TIMEOUT_S)
        return ends

    def _own_end(self, partition: Partition, end: int, changelogs: ChangelogEnds, tails: LogTails) -> int:
        """Return the end of a partition whose task has no moment between commits; refuse one that is not complete."""
        if self._is_complete(partition, end, tails) or not self._is_compacted(partition):
            return end
        name = f"topic '{partition.topic}', partition {partition.partition}"
        if partition in changelogs.inputs:
            raise SnapshotError(
                f"no version is written: the application is behind in {name} (its offset is {max(0, end)}), and "
                "compaction may have removed records that the table has there. Make it when the application has "
                "caught up, or without --catalog: workers need no complete moment."
            )
        last = tails.tails[partition].last_end()
        if last is None:
            raise SnapshotError(
                f"no version is written: {name} was not read up to its end within {_PROOF_TIMEOUT_S:g} s, since "
                "records arrive without a pause, and compaction may have removed records of each earlier moment. Make "
                f"it {_CURE}."
            )
        return last

    def _is_complete(self, partition: Partition, end: int, tails: LogTails) -> bool:
        tail = tails.tails[partition]
        if end <= self.start.ranges[partition].first:
            return True  # nothing was written before
        return tail.complete_at(end) if self._is_compacted(partition) else tail.has_all_before(end)

    def _is_compacted(self, partition: Partition) -> bool:
        return self.start.facts[partition.topic].delete_retention_ms is not None

    def _poll(self, tails: LogTails, timeout_s: float) -> None:
        tails.poll(timeout_s)
        if tails.bytes > _MOST_BYTES:
            ((topic, number), _), *_ = Counter(each[:2] for each in tails.records).most_common()
            raise SnapshotError(
                f"no version is written: more than {_MOST_BYTES >> 20} MiB arrived while the job looked for a moment "
                f"at which all rows are complete, most of it in topic '{topic}', partition {number}. Make it {_CURE}."
            )

    def _catch_up(self, tails: LogTails) -> None:
        """Read up to the end of each partition once, if that is possible."""
        deadline = time.monotonic() + _CATCH_UP_S
        while any(each.last_end() is None for each in tails.tails.values()) and time.monotonic() < deadline:
            self._poll(tails, _POLL_S)

    def _read_up_to(self, ends: Mapping[Partition, int], tails: LogTails) -> None:
        """Read what is missing before the ends; only partitions that are not compacted can lack something."""
        deadline = time.monotonic() + _CATCH_UP_S
        while missing := [each for each, end in ends.items() if not tails.tails[each].has_all_before(end)]:
            if time.monotonic() > deadline:
                raise SnapshotError(
                    f"no version is written: topic '{missing[0].topic}', partition {missing[0].partition}, was not "
                    f"read up to offset {ends[missing[0]]} within {_CATCH_UP_S:g} s. Check that the brokers are up."
                )
            self._poll(tails, _POLL_S)

    def _after(self, read: Mapping[Partition, int], ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return ends, at least those of the first offsets."""
        found = {}
        for each, known in self.start.ranges.items():
            found[each] = max(known.first, ends[each])
            if found[each] < read[each]:
                raise SnapshotError(
                    f"the end of topic '{each.topic}', partition {each.partition}, went back from offset {read[each]} "
                    f"to {found[each]} while it was read: make the snapshot again."
                )
        return found
