"""The event loop of async steps: one thread with an asyncio loop for all tasks of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ("run_in_loop",)

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the loop of async steps, and wait for its result."""
    return asyncio.run_coroutine_threadsafe(coroutine, _started()).result()


def _started() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop in a process, so that its clients can be shared
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="millpond-async", daemon=True).start()
        return _loop
