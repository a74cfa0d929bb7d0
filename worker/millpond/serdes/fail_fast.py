"""Calls of serdes that must not wait for a server: those of queries.

A worker waits a while for a schema registry before it gives up on a record. Whoever answers others does not: a client
can ask again, and waiting queries would keep threads from other queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ("failing_fast", "fails_fast")

T = TypeVar("T")


class _Thread(threading.local):
    fails_fast = False


_thread = _Thread()


def failing_fast(function: Callable[..., T], *given: object) -> T:
    """Call a function. A schema registry that does not answer fails the serdes that it calls at once."""
    before, _thread.fails_fast = _thread.fails_fast, True
    try:
        return function(*given)
    finally:
        _thread.fails_fast = before


def fails_fast() -> bool:
    """Return whether this thread is in `failing_fast`."""
    return _thread.fails_fast
