"""What a worker tells of itself while it runs."""

from __future__ import annotations

from typing import NamedTuple

from .states import WorkerState

__all__ = ("CommitStats", "WorkerListener")


class CommitStats(NamedTuple):
    """One commit."""

    seconds: float
    """From the flush to the rows in the state file."""
    partitions: int
    """Input partitions whose offsets it committed."""
    records: int
    """Records processed by the worker since its start."""


class WorkerListener:
    """Override what is of interest. Methods are called from the worker's thread and must be quick."""

    def state_changed(self, state: WorkerState) -> None:
        """The worker is in another state."""

    def restore_started(self, store: str, partition: int, start: int, end: int) -> None:
        """A store partition is to be restored from its changelog's offset `start`, up to `end`."""

    def restore_ended(self, store: str, partition: int, records: int) -> None:
        """A store partition is complete; it took so many records of the changelog."""

    def restore_progress(self, store: str, partition: int, done: int, total: int) -> None:
        """A store partition has applied `done` of about `total` offsets; done == total means restored."""

    def committed(self, stats: CommitStats) -> None:
        """A commit is through."""
