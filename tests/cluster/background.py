"""An event loop in a thread beside the test: servers and simulations run there, and tests stay synchronous."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ("Background", "cancel")

_TIMEOUT_S = 60.0
_AGAIN_S = 1.0
T = TypeVar("T")


class Background:
    """An event loop in its own thread, as long as the `with` block."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="background", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.call(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float = _TIMEOUT_S) -> T:
        """Run a coroutine there, and return its result."""
        assert threading.current_thread() is not self._thread, "the loop would wait for itself"
        return self.submit(work).result(timeout_s)


async def _cancel_all() -> None:
    await cancel(asyncio.all_tasks() - {asyncio.current_task()})


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, in this order, and wait until all have ended; their errors are dropped.

    A library may use `asyncio.wait_for`, which in Python 3.11 may swallow a cancellation that arrives when its future
    is done. So tasks that have not ended after a second are cancelled again.
    """
    tasks = list(tasks)
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
