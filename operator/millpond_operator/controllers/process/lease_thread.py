"""The thread that renews the leader's Lease: the event loop that serves tenants cannot delay it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

__all__ = ("LeaseThread", "Run", "own_thread", "same_loop")

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine in another event loop and waits for it in this one."""

    async def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result or raise its error. Cancelling the call cancels the coroutine."""


class LeaseThread(Protocol):
    """Opens an event loop for renewing the Lease."""

    def __call__(self) -> AbstractAsyncContextManager[Run]:
        """Return a context manager; the loop runs during its block."""


@asynccontextmanager
async def own_thread() -> AsyncIterator[Run]:
    """Run coroutines in an event loop in a thread of its own, which a blocked main loop does not block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="millpond-lease", daemon=True)
    thread.start()

    async def run(coroutine: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))

    try:
        yield run
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


@asynccontextmanager
async def same_loop() -> AsyncIterator[Run]:
    """Run coroutines in the current event loop, for simulations, which have no threads."""

    async def run(coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    yield run
