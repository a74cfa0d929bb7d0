"""Collects cyclic garbage after commits instead of in the middle of batches.

Between two commits a worker creates several objects per changed key, and nearly all of them die with the commit. The
interpreter's schedule would traverse them repeatedly while they live. So the young generation is collected after a
commit, and the older ones less often. Objects from before the start of the worker are never traversed.

The interpreter counts the containers that were created and not freed. A worker whose stores only replace entries frees
as many as it creates, so it has nothing to collect, however many records it processes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ("GarbageCollector",)

_YOUNG, _MIDDLE, _OLD = range(3)
_MIDDLE_EVERY = 50
_OLD_EVERY = 1_000
_RECORDS_AT_LEAST = 50_000
_RECORDS_AT_MOST = 200_000
#: Containers that were created and not freed since the last collection.
_CONTAINERS_AT_LEAST = 50_000


class GarbageCollector:
    """A garbage collector that the worker's loop calls."""

    def __init__(self) -> None:
        self._rounds = 0
        self._records = 0

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """Replace the interpreter's schedule while the block runs."""
        was_enabled = gc.isenabled()
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield
        finally:
            gc.unfreeze()
            if was_enabled:
                gc.enable()

    def processed(self, records: int) -> None:
        """Count processed records; collect after many of them, since commit intervals may be long."""
        self._records += records
        if self._records >= _RECORDS_AT_MOST:
            self._collect()

    def committed(self) -> None:
        """Collect the objects that a commit has released, if necessary."""
        if self._records >= _RECORDS_AT_LEAST:
            self._records = 0
            if gc.get_count()[_YOUNG] >= _CONTAINERS_AT_LEAST:
                self._collect()

    def _collect(self) -> None:
        self._records = 0
        self._rounds += 1
        if self._rounds % _OLD_EVERY == 0:
            gc.collect(_OLD)
        elif self._rounds % _MIDDLE_EVERY == 0:
            gc.collect(_MIDDLE)
        else:
            gc.collect(_YOUNG)
