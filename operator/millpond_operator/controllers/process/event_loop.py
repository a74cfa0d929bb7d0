"""An event loop that ends even when a task in it does not.

A watcher of kopf's that is cancelled while it lists suppresses the cancellation and continues (`streaming_block` in its
`watching.py`; https://github.com/nolar/kopf/issues/1168). `asyncio.run` and `kopf.run` cancel each task once and then
wait for it without limit, so neither of them ends the process in time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from millpond.protocol import clock

__all__ = ("CANCEL_TIMEOUT", "run")

log = logging.getLogger(__name__)

T = TypeVar("T")
CANCEL_TIMEOUT = timedelta(seconds=5)
_CANCEL_INTERVAL_S = 0.1


def run(coroutine: Coroutine[Any, Any, T], timeout: timedelta = CANCEL_TIMEOUT) -> T:
    """Run a coroutine as `asyncio.run` does, but cancel the remaining tasks repeatedly and for a limited time.

    Args:
        coroutine: the coroutine to run.
        timeout: how long the remaining tasks may take to end. Then they are logged and abandoned, and the process
        should end.

    Returns:
        The coroutine's result.
    """
    runner = asyncio.Runner()
    abandoned: set[asyncio.Task[Any]] = set()

    async def run_and_cancel() -> T:
        try:
            return await coroutine
        finally:
            abandoned.update(await _cancel_remaining(timeout))

    try:
        return runner.run(run_and_cancel())
    finally:
        if abandoned:
            names = ", ".join(sorted(each.get_name() for each in abandoned))
            log.error("event loop: abandoned tasks that did not end within %g s: %s", timeout.total_seconds(), names)
        else:
            runner.close()


async def _cancel_remaining(limit: timedelta) -> set[asyncio.Task[Any]]:
    """Cancel all other tasks until they have ended; return those that have not ended in time."""
    deadline = clock.monotonic() + limit.total_seconds()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        if clock.monotonic() > deadline:
            return others
        for each in others:
            each.cancel()
        await asyncio.wait(others, timeout=_CANCEL_INTERVAL_S)
    return set()
