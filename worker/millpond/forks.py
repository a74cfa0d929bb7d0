"""Files and sockets that belong to this process alone: a child that is forked from it closes them.

A fork copies all descriptors, whatever close-on-exec says. A child that outlives its parent, as one of a
`ProcessPoolExecutor` does after a `kill -9`, would keep the lock of a directory and the address of a server.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

__all__ = ("opened_here",)


class _Closable(Protocol):
    def close(self) -> object: ...


T = TypeVar("T", bound=_Closable)

_opened: weakref.WeakSet[_Closable] = weakref.WeakSet()
#: No child is forked between the opening of a file and its entry in the set.
_lock = threading.Lock()


def opened_here(open_one: Callable[[], T]) -> T:
    """Open a file or a socket that children of this process close. A program that is executed may still inherit it.

    Args:
        open_one: opens it; must not wait.
    """
    with _lock:
        opened = open_one()
        _opened.add(opened)
    return opened


def _close_in_child() -> None:
    for each in list(_opened):
        with contextlib.suppress(OSError):  # the others are closed all the same
            each.close()
    _opened.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_in_child)
