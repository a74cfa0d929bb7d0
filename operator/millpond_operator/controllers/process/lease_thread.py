"""Where the lease is renewed: beside the event loop that serves tenants, so that nothing they send can delay it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

__all__ = ("LeaseThread", "Run", "own_thread", "same_loop")

T = TypeVar("T")


class Run(Protocol):
    """Runs a coroutine somewhere, and waits for it here."""

    async def __call__(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return its result, or raise its error; to cancel this is to cancel it."""


class LeaseThread(Protocol):
    """Opens a place to run coroutines in."""

    def __call__(self) -> AbstractAsyncContextManager[Run]:
        """Have it within a block."""


@asynccontextmanager
async def own_thread() -> AsyncIterator[Run]:
    """An event loop in a thread of its own: what blocks this loop does not block that one."""
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
    """This event loop: for simulations, which have no threads."""

    async def run(coroutine: Coroutine[Any, Any, T]) -> T:
        return await coroutine

    yield run
