"""What waits for a snapshot: tasks and global stores, and what of them is ready to be ingested."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millpond.snapshots.manifest import File, Part
from millpond.snapshots.rows import GLOBAL_PARTITION
from millpond.state.ingestion import End, Ingestion
from millpond.state.provenance import Provenance
from millpond.topology import TaskId

from .snapshot_choice import Rates, WantedStore
from .snapshot_files import FetchProgress

__all__ = ("Ready", "SnapshotRequest", "described")


@dataclass(eq=False)
class Ready:
    """A store partition whose files are in the state directory, or a global store."""

    wanted: Sequence[WantedStore]
    parts: Sequence[Part]
    """Of each that is wanted."""
    topic_id: str
    version: str
    paths: deque[Path]

    @property
    def partition(self) -> int:
        """Of the rows."""
        return GLOBAL_PARTITION if self.wanted[0].layout.is_global else self.wanted[0].partition

    @property
    def partitions(self) -> list[int]:
        """Of the changelog."""
        return [each.partition for each in self.wanted]

    @property
    def files(self) -> list[File]:
        """In the manifest."""
        return [file for part in self.parts for file in part.files]

    @property
    def rows(self) -> int:
        """How many they have."""
        return sum(part.rows for part in self.parts)

    def ends(self) -> dict[int, End]:
        """What stands beside the rows once they are there."""
        return {
            wanted.partition: End(part.offset, part.metadata, Provenance(self.topic_id, part.as_of_ms, True))
            for wanted, part in zip(self.wanted, self.parts, strict=True)
        }


@dataclass(eq=False)
class SnapshotRequest:
    """A task, or a global store, that waits for a snapshot."""

    task: TaskId
    wanted: Sequence[WantedStore]
    rates: Rates
    """What is left for it beside others."""
    progress: FetchProgress = field(default_factory=FetchProgress)
    started: float | None = None
    """When a thread took it up, in monotonic seconds."""
    planned: bool = False
    """Whether the manifest was read."""
    ready: deque[Ready] | None = None
    """What the loop has to ingest; None while that is prepared."""
    ingestion: Ingestion | None = None
    unwanted: bool = False
    """Whether the task does not wait any more."""

    @property
    def name(self) -> str:
        """Who waits, for the log."""
        is_global = any(each.layout.is_global for each in self.wanted)
        return described(self.wanted) if is_global else f"task {self.task}"

    @property
    def groups(self) -> list[Sequence[WantedStore]]:
        """What is restored together or not at all."""
        if any(each.layout.is_global for each in self.wanted):
            return [self.wanted]
        return [[each] for each in self.wanted]

    @property
    def replay_records(self) -> int:
        """An upper bound of the changelog records that a replay would read."""
        return sum(each.replay_records for each in self.wanted)


def described(wanted: Sequence[WantedStore]) -> str:
    """Return what is restored together, for the log: a store partition, or a global store."""
    store, layout, _, partition, *_ = wanted[0]
    return f"global store {store}" if layout.is_global else f"store {store} partition {partition}"
