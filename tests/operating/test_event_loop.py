"""The operator's process ends whatever its tasks do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from millpond_operator.controllers.process import event_loop


def test_run_returns_what_the_coroutine_returns_and_raises_what_it_raises() -> None:
    """It does the same as `asyncio.run`; the remaining tasks are cancelled."""
    seen = []

    async def remaining() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def main(error: Exception | None) -> int:
        task = asyncio.create_task(remaining())
        await asyncio.sleep(0)
        assert not task.done()
        if error is not None:
            raise error
        return 5

    assert event_loop.run(main(None)) == 5
    with pytest.raises(OSError, match="no"):
        event_loop.run(main(OSError("no")))
    assert seen == ["cancelled", "cancelled"]


def test_a_task_that_swallows_cancellations_is_cancelled_again() -> None:
    """Kopf's watchers swallow a cancellation while they list (https://github.com/nolar/kopf/issues/1168)."""
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(deaf())
        await asyncio.sleep(0)
        return task

    assert event_loop.run(main()).done()
    assert swallowed == 3


def test_a_task_that_never_ends_is_abandoned_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """The process ends without it."""
    may_end = False

    async def deaf() -> None:
        while not may_end:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def main() -> tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]:
        task = asyncio.create_task(deaf(), name="deaf watcher")
        await asyncio.sleep(0)
        return asyncio.get_running_loop(), task

    loop, task = event_loop.run(main(), timeout=timedelta(milliseconds=250))
    assert not task.done()
    assert "did not end within 0.25 s: deaf watcher" in caplog.text
    may_end = True
    task.cancel()
    loop.run_until_complete(task)
    loop.close()
