"""What a worker tells of itself while it runs."""

from __future__ import annotations

import inspect
from typing import NamedTuple

from millpond.checks import kind_of
from millpond.errors import ConfigError

from .states import WorkerState

__all__ = ("CommitStats", "WorkerListener", "check_listener")


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


def check_listener(given: object) -> WorkerListener:
    """The listener, when it can be one.

    Raises:
        ConfigError: it is something else, or has a method that is an `async def`.
    """
    if not isinstance(given, WorkerListener):
        raise ConfigError(f"a worker's listener is an object of a subclass of mp.WorkerListener, not {kind_of(given)}.")
    for name, method in inspect.getmembers(given, inspect.iscoroutinefunction):
        if hasattr(WorkerListener, name):
            where = method.__qualname__
            raise ConfigError(f"{where}() is an async def, which nothing awaits: write a plain def that is quick.")
    return given
