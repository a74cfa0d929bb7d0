"""An event loop that ends, even when a task in it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from millpond.protocol import clock

__all__ = ("PATIENCE", "run")

log = logging.getLogger(__name__)

T = TypeVar("T")
PATIENCE = timedelta(seconds=5)
_BETWEEN_S = 0.1


def run(coroutine: Coroutine[Any, Any, T], patience: timedelta = PATIENCE) -> T:
    """Run a coroutine as `asyncio.run` does, and return though a task that it left behind goes on.

    A watcher of kopf's that lists again while it is cancelled goes on as if nothing had been said (its `streaming_block`
    suppresses the cancellation), and `asyncio.run`, which says it once, would wait for ever. Here it is said again and again.

    Args:
        coroutine: what to run.
        patience: how long tasks may take to end. Then they are logged and abandoned; the process should end.
    """
    runner = asyncio.Runner()
    left: set[asyncio.Task[Any]] = set()

    async def to_its_end() -> T:
        try:
            return await coroutine
        finally:
            left.update(await _end_others(patience))

    try:
        return runner.run(to_its_end())
    finally:
        if left:
            names = ", ".join(sorted(each.get_name() for each in left))
            log.error("What does not end within %g s is abandoned: %s.", patience.total_seconds(), names)
        else:
            runner.close()


async def _end_others(patience: timedelta) -> set[asyncio.Task[Any]]:
    deadline = clock.monotonic() + patience.total_seconds()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        if clock.monotonic() > deadline:
            return others
        for each in others:
            each.cancel()
        await asyncio.wait(others, timeout=_BETWEEN_S)
    return set()
