"""The event loop of async steps: one thread with an asyncio loop for all tasks of the process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from typing import Any, TypeVar

__all__ = ("run_in_loop",)

log: logging.Logger = logging.getLogger(__name__)

#: How long a task may wait before that is logged, and the time until it is logged again, in seconds.
_EXPLAIN_S = 10.0

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_in_loop(coroutine: Coroutine[Any, Any, T], what: str) -> T:
    """Run a coroutine in the loop of async steps, and wait for its result.

    Args:
        coroutine: the coroutine; it is cancelled if the wait is interrupted.
        what: what the thread waits for, for the log.
    """
    running = asyncio.run_coroutine_threadsafe(coroutine, _started())
    waited_s = 0.0
    try:
        while not wait([running], _EXPLAIN_S).done:
            waited_s += _EXPLAIN_S
            log.warning(
                "%s has waited %g s for its calls, and its worker with it; give them a timeout=, or see what they call",
                what, waited_s,
            )  # fmt: skip
        return running.result()
    except BaseException:
        running.cancel()
        raise


def _started() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one loop in a process, so that its clients can be shared
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="millpond-async", daemon=True).start()
        return _loop
