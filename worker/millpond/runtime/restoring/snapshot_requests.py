"""Requests for snapshots by tasks and global stores, and the store partitions to ingest for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millpond.snapshots.layouts import GLOBAL_PARTITION
from millpond.snapshots.manifest import File, Part
from millpond.state.ingestion import Checkpoint, Ingestion
from millpond.state.provenance import Provenance
from millpond.topology import TaskId

from .snapshot_choice import Rates, WantedStore
from .snapshot_files import FetchProgress

__all__ = ("SnapshotRequest", "SnapshotStore", "store_label")


@dataclass(eq=False)
class SnapshotStore:
    """A store partition, or a global store, to restore from a snapshot."""

    wanted: Sequence[WantedStore]
    parts: Sequence[Part]
    """The part of the snapshot for each of `wanted`."""
    topic_id: str
    version: str
    paths: deque[Path]
    """Local files that are not ingested yet."""

    @property
    def partition(self) -> int:
        """The partition of the rows in the store."""
        return GLOBAL_PARTITION if self.wanted[0].layout.is_global else self.wanted[0].partition

    @property
    def partitions(self) -> list[int]:
        """The partitions of the changelog."""
        return [each.partition for each in self.wanted]

    @property
    def files(self) -> list[File]:
        """The files in the manifest."""
        return [file for part in self.parts for file in part.files]

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(part.rows for part in self.parts)

    def ends(self) -> dict[int, Checkpoint]:
        """Return the checkpoints to write when the rows are ingested, by partition of the changelog."""
        return {
            wanted.partition: Checkpoint(
                part.offset, part.metadata, Provenance(self.topic_id, part.as_of_ms, of_snapshot=True)
            )
            for wanted, part in zip(self.wanted, self.parts, strict=True)
        }


@dataclass(eq=False)
class SnapshotRequest:
    """The request of a task, or of a global store, that waits for a snapshot."""

    task: TaskId
    wanted: Sequence[WantedStore]
    rates: Rates
    """The request's share of the worker's restore rates."""
    progress: FetchProgress = field(default_factory=FetchProgress)
    started: float | None = None
    """When a thread started to prepare it, in monotonic seconds; None before that."""
    planned: bool = False
    """Whether the manifest was read and the files are known."""
    ready: deque[SnapshotStore] | None = None
    """The stores that the loop has to ingest; None while they are prepared."""
    ingestion: Ingestion | None = None
    """The ingestion in progress, of the first store of `ready`."""
    unwanted: bool = False
    """Whether the task no longer waits."""

    @property
    def name(self) -> str:
        """The name of the task or global store, for the log."""
        is_global = any(each.layout.is_global for each in self.wanted)
        return store_label(self.wanted) if is_global else f"task {self.task}"

    @property
    def groups(self) -> list[Sequence[WantedStore]]:
        """The store partitions that are restored together or not at all."""
        if any(each.layout.is_global for each in self.wanted):
            return [self.wanted]
        return [[each] for each in self.wanted]

    @property
    def replay_records(self) -> int:
        """The upper bound of the changelog records that a replay would read."""
        return sum(each.replay_records for each in self.wanted)


def store_label(wanted: Sequence[WantedStore]) -> str:
    """Return the name of a store partition, or of a global store, for the log."""
    store, layout, _, partition, *_ = wanted[0]
    return f"global store {store}" if layout.is_global else f"store {store} partition {partition}"
