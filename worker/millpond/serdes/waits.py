"""What the serdes that a thread calls wait for: told to the worker that runs in the thread, which then is not ready."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millpond.errors import BrokerError

__all__ = ("Tell", "tell_wait", "telling_waits")

Tell = Callable[[BrokerError | None], None]
"""f(the reason of a wait; None at its end)."""


class _Thread(threading.local):
    tell: Tell | None = None


_thread = _Thread()


@contextmanager
def telling_waits(tell: Tell) -> Iterator[None]:
    """Call a function at the begin and at the end of each wait of a serde in this thread, while the block runs."""
    before, _thread.tell = _thread.tell, tell
    try:
        yield
    finally:
        _thread.tell = before


def tell_wait(error: BrokerError | None) -> None:
    """Tell whoever is interested in this thread that a serde waits, and why; None that it does not wait any longer."""
    if _thread.tell is not None:
        _thread.tell(error)
