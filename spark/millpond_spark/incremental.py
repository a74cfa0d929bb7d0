"""Choose what a snapshot builds upon: for each store partition the rows of a previous version, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import msgspec

from millpond.runtime.ownership import Partition
from millpond.runtime.trust import LocalRows, Log, Trust, judge
from millpond.snapshots.manifest import Manifest, Part
from millpond.state.provenance import Provenance

from .boundaries import Boundaries
from .stores import LoggedStore

__all__ = ("Base", "reusable_parts", "stream_time_of")


@dataclass(frozen=True)
class Base:
    """What a snapshot builds upon."""

    version: str | None
    """None when there is nothing."""
    parts: Mapping[tuple[str, int], Part]
    """By store and partition; what is missing is read from its changelog's beginning."""

    @classmethod
    def of(cls, previous: Manifest | None, stores: Iterable[LoggedStore], boundaries: Boundaries, now_ms: int) -> Self:
        """Return what stores may build upon; arguments as for `reusable_parts`."""
        parts = {
            (store.name, partition): part
            for store in stores
            for partition, part in reusable_parts(previous, store, boundaries, now_ms).items()
        }
        return cls(previous.version if previous is not None and parts else None, parts)


def reusable_parts(
    previous: Manifest | None, store: LoggedStore, boundaries: Boundaries, now_ms: int
) -> Mapping[int, Part]:
    """Return the parts of a previous version that a store's new rows may build upon, by partition.

    They have to be of the same topic and layout, and new enough that the changelog still has every deletion since: the rules
    are those for rows on a worker's disk.

    Args:
        previous: the version; None when there is none.
        store: the store.
        boundaries: of the snapshot that is made.
        now_ms: the wall clock, in epoch ms.
    """
    found = previous.store(store.name) if previous is not None else None
    facts = boundaries.facts[store.topic]
    # Without an id nobody knows whether the topic is still the one that it was.
    if found is None or not facts.id or found.topic_id != facts.id or found.layout != store.layout:
        return {}
    if found.topic != store.topic or found.partitions != store.partitions:
        return {}
    reusable = {}
    for part in found.parts:
        range = boundaries.ranges.get(Partition(store.topic, part.partition))
        if range is None:
            continue
        rows = LocalRows(part.offset, Provenance(found.topic_id, part.as_of_ms))
        if judge(rows, Log(range.first, range.end, facts), now_ms).trust is Trust.KEEP:
            reusable[part.partition] = part
    return reusable


def stream_time_of(part: Part | None) -> int | None:
    """Return the largest window start, in ms, that a part of a window store knows of; None without one."""
    if part is None or not part.metadata:
        return None
    found: int = msgspec.msgpack.decode(part.metadata, type=dict[str, int]).get("observed_stream_time", -1)
    return found
