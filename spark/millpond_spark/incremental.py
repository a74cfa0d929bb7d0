"""Choose the base of a snapshot: the rows of the previous version to reuse, for each store partition. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from millpond.errors import SnapshotError
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.reusable_state import (
    ChangelogFacts,
    LocalRows,
    LocalRowsVerdict,
    judge,
    lacks_beginning,
)
from millpond.snapshots.manifest import Manifest, Part
from millpond.state.provenance import Provenance

from .cuts.boundaries import Boundaries
from .stores import ChangelogStore

__all__ = ("Base", "reusable_parts", "stream_time_of")


@dataclass(frozen=True)
class Base:
    """The previous version that a snapshot builds upon."""

    version: str | None
    """The version; None when no rows are reused."""
    parts: Mapping[tuple[str, int], Part]
    """The reused parts, by store and partition; other partitions are read from their changelog's beginning."""

    @classmethod
    def of(
        cls, previous: Manifest | None, stores: Iterable[ChangelogStore], boundaries: Boundaries, now_ms: int
    ) -> Self:
        """Return the base for some stores; the arguments are those of `reusable_parts`.

        Raises:
            SnapshotError: a changelog no longer has records that the previous version does not have, either.
        """
        stores = tuple(stores)
        parts = {
            (store.name, partition): part
            for store in stores
            for partition, part in reusable_parts(previous, store, boundaries, now_ms).items()
        }
        for store in stores:
            for partition in range(store.partitions):
                range_ = boundaries.ranges[Partition(store.topic, partition)]
                found = ChangelogFacts(range_.first, range_.end, boundaries.facts[store.topic])
                if (
                    not (store.is_input or store.layout.is_global)
                    and (store.name, partition) not in parts
                    and lacks_beginning(found)
                ):
                    raise SnapshotError(
                        f"changelog '{store.topic}' begins at offset {range_.first} in partition {partition}: records "
                        f"were deleted from it, so a snapshot would lack keys of store '{store.name}'. Restore the "
                        "topic's content, or run 'millpond reset' to process the inputs from the beginning."
                    )
        return cls(previous.version if previous is not None and parts else None, parts)

    def oldest_ms(self, stores: Iterable[ChangelogStore], boundaries: Boundaries) -> dict[str, int]:
        """Return by topic the time of the oldest rows to which newer records are added, in epoch ms.

        Args:
            stores: the stores of the new snapshot.
            boundaries: the boundaries of the new snapshot. Rows at the end of their changelog need no later deletions.
        """
        found: dict[str, int] = {}
        for store in stores:
            for partition in range(store.partitions):
                part = self.parts.get((store.name, partition))
                if part is not None and part.offset < boundaries.ranges[Partition(store.topic, partition)].end:
                    found[store.topic] = min(found.get(store.topic, part.as_of_ms), part.as_of_ms)
        return found


def reusable_parts(
    previous: Manifest | None, store: ChangelogStore, boundaries: Boundaries, now_ms: int
) -> Mapping[int, Part]:
    """Return the parts of the previous version that a store can reuse, by partition.

    A part must be of the same topic and layout, and so new that the changelog still has every later deletion. These
    rules are the same as for rows on a worker's disk. The topic of a global store must also have all its records.

    Args:
        previous: the previous version; None without one.
        store: the store.
        boundaries: the boundaries of the new snapshot.
        now_ms: the wall-clock time, in epoch ms.
    """
    found = previous.store(store.name) if previous is not None else None
    facts = boundaries.facts[store.topic]
    # Without an id it is unknown whether the topic is still the same.
    if found is None or not facts.id or found.topic_id != facts.id or found.layout != store.layout:
        return {}
    if found.topic != store.topic or found.partitions != store.partitions:
        return {}
    reusable = {}
    for part in found.parts:
        range = boundaries.ranges.get(Partition(store.topic, part.partition))
        if range is None:
            continue
        if store.layout.is_global and range.first > 0 and not facts.only_compacted:
            continue  # rows of records that retention has deleted would stay
        rows = LocalRows(part.offset, Provenance(found.topic_id, part.as_of_ms))
        if judge(rows, ChangelogFacts(range.first, range.end, facts), now_ms).trust is LocalRowsVerdict.KEEP:
            reusable[part.partition] = part
    return reusable


def stream_time_of(part: Part | None) -> int | None:
    """Return the stream time, in ms, from the metadata of a part; None without a part or a stream time."""
    if part is None or not part.metadata:
        return None
    found: int = msgspec.msgpack.decode(part.metadata, type=dict[str, int]).get("observed_stream_time", -1)
    return found
