"""Callbacks with which an application follows a worker: its state, restores and commits."""

from __future__ import annotations

import enum
import inspect
from typing import NamedTuple

from millpond.checks import kind_of
from millpond.errors import ConfigError

from .states import WorkerState

__all__ = ("CommitStats", "SuspendReason", "WorkerListener", "check_listener")


class CommitStats(NamedTuple):
    """The figures of one commit."""

    seconds: float
    """Duration in seconds, from the flush until the rows are in the state file."""
    partitions: int
    """Number of input partitions whose offsets were committed."""
    records: int
    """Number of records that the worker processed since its start."""


class SuspendReason(enum.Enum):
    """Why a copy of a store is not updated any more (KIP-988)."""

    PROMOTED = "promoted"
    """The worker becomes the active one for the task, with the copy as its store."""
    MIGRATED = "migrated"
    """The worker does not hold the task any more, or ends."""


class WorkerListener:
    """The base class of listeners. Override the methods of interest; the worker's thread calls them, so be quick."""

    def state_changed(self, state: WorkerState) -> None:
        """Handle a change of the worker's state to `state`."""

    # Stores of active tasks (KIP-869)

    def restore_started(self, store: str, partition: int, start: int, end: int) -> None:
        """Handle the start of a store partition's restore, from the changelog's offset `start` up to `end`."""

    def restore_progress(self, store: str, partition: int, done: int, total: int) -> None:
        """Handle progress of a store partition's restore: `done` of about `total` offsets, equal at the end."""

    def restore_ended(self, store: str, partition: int, records: int) -> None:
        """Handle the end of a store partition's restore; `records` changelog records were read."""

    def restore_suspended(self, store: str, partition: int, records: int) -> None:
        """Handle a restore that ends before it is complete; `records` changelog records were read.

        The task has moved to another worker, the worker went back to its last commit, or it ends.
        """

    # Stores of copies: standbys and warm-ups (KIP-988)

    def update_started(self, store: str, partition: int, start: int) -> None:
        """Handle the start of a copy, which follows the changelog from offset `start` on."""

    def batch_loaded(self, store: str, partition: int, batch_end: int, records: int, end: int) -> None:
        """Handle a batch of `records` changelog records that was put into a copy.

        Args:
            store: the store.
            partition: its partition.
            batch_end: offset of the last record of the batch.
            records: number of its records.
            end: the end of the changelog as the worker knows it, which may be some seconds old.
        """

    def update_suspended(self, store: str, partition: int, offset: int, end: int, reason: SuspendReason) -> None:
        """Handle the end of a copy's updates. After PROMOTED, `restore_started` of the same store follows.

        Args:
            store: the store.
            partition: its partition.
            offset: offset of the last changelog record in the store; -1 for none.
            end: the end of the changelog as the worker knows it.
            reason: why it ends.
        """

    # Commits

    def committed(self, stats: CommitStats) -> None:
        """Handle a successful commit."""


def check_listener(given: object) -> WorkerListener:
    """Return `given`, if it can be a listener.

    Raises:
        ConfigError: it is not a `WorkerListener`, or one of its methods is an `async def`.
    """
    if not isinstance(given, WorkerListener):
        raise ConfigError(
            f"a worker's listener is an instance of a subclass of mp.WorkerListener, not {kind_of(given)}."
        )
    for name, method in inspect.getmembers(given, inspect.iscoroutinefunction):
        if hasattr(WorkerListener, name):
            name = method.__qualname__
            raise ConfigError(f"{name}() is an async def, and the worker does not await it: write a plain def.")
    return given
