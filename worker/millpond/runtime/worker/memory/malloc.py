"""Limits the malloc arenas of a worker's process."""

from __future__ import annotations

import contextlib
import ctypes
import os

__all__ = ("keep_few_arenas",)

#: `M_ARENA_MAX` of glibc's malloc.h.
_M_ARENA_MAX = -8
_ARENAS = 2


def keep_few_arenas() -> None:
    """Limit malloc to two arenas for all threads of this process. Call it before any thread starts.

    By default glibc creates up to eight arenas per core, each of which keeps the memory that was freed in it. Kafka's
    client and RocksDB have dozens of threads and pass memory between them, so a process grew to up to a fifth more than
    it used (docs/decisions/0023). `MALLOC_ARENA_MAX` in the environment has precedence. Other C libraries are not
    changed.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
