"""The operator's process ends, whatever the tasks in it do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from millpond_operator import ending


def test_run_returns_what_the_coroutine_returns_and_raises_what_it_raises() -> None:
    """Like `asyncio.run`; tasks that are left behind are cancelled."""
    seen = []

    async def left_behind() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def main(error: Exception | None) -> int:
        task = asyncio.create_task(left_behind())
        await asyncio.sleep(0)
        assert not task.done()
        if error is not None:
            raise error
        return 5

    assert ending.run(main(None)) == 5
    with pytest.raises(OSError, match="no"):
        ending.run(main(OSError("no")))
    assert seen == ["cancelled", "cancelled"]


def test_a_task_that_swallows_cancellations_is_cancelled_again() -> None:
    """As a watcher of kopf's does while it lists."""
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

    assert ending.run(main()).done()
    assert swallowed == 3


def test_a_task_that_never_ends_is_abandoned_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """The process goes on to its end without it."""
    open_the_door = False

    async def deaf() -> None:
        while not open_the_door:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def main() -> tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]:
        task = asyncio.create_task(deaf(), name="deaf watcher")
        await asyncio.sleep(0)
        return asyncio.get_running_loop(), task

    loop, task = ending.run(main(), patience=timedelta(milliseconds=250))
    assert not task.done()
    assert "abandoned: deaf watcher" in caplog.text
    open_the_door = True
    task.cancel()
    loop.run_until_complete(task)
    loop.close()
