"""How a worker's process takes memory from the system."""

from __future__ import annotations

import contextlib
import ctypes
import os

__all__ = ("keep_few_arenas",)

#: `M_ARENA_MAX` of glibc's malloc.h.
_M_ARENA_MAX = -8
_ARENAS = 2


def keep_few_arenas() -> None:
    """Have the threads of this process share two heaps, before it starts any.

    By default glibc gives threads up to eight heaps per core, each of which keeps what was freed in it. Kafka's client and
    RocksDB have dozens of threads and pass memory between them, so a process grew by up to a fifth beyond what it used, more
    so on a busy machine. `MALLOC_ARENA_MAX` in the environment wins. Other C libraries are left as they are.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
