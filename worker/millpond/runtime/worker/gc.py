"""When Python looks for cyclic garbage: after commits, not in the middle of batches.

Between two commits a worker makes several objects per changed key, nearly all of which die with the commit. The
interpreter's own schedule would walk them again and again while they live. So the young generation is collected when
a commit has let them go, and the older ones now and then; what lived before the worker began is left alone.

How much there is to collect, the interpreter knows: it counts containers made less containers freed. A worker whose stores
only replace entries frees as many as it makes, and has nothing to look for, however many records it processes.
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
#: Containers made and not freed since the last collection.
_CONTAINERS_AT_LEAST = 50_000


class GarbageCollector:
    """Collects at the moments the worker's loop names."""

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
        """So many records were processed: with long commit intervals, do not wait for the commit."""
        self._records += records
        if self._records >= _RECORDS_AT_MOST:
            self._collect()

    def committed(self) -> None:
        """A commit has let go of what it held."""
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
