"""Simulated processes: parts of one event loop that can be frozen, thawed and killed like real processes.

A context variable says which process runs. Tasks, callbacks and connections inherit it from what creates them, so
production code needs no change. What belongs to no process is the world: it can be neither frozen nor killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tests.simulation.loop import VirtualLoop

__all__ = ("CURRENT", "Closable", "Process")

#: In the `finally` blocks of one task.
_MOST_AWAITS = 100

CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class Closable(Protocol):
    """A resource that the operating system takes from a killed process: a connection or an open port."""

    def cut(self) -> None:
        """Close it without notifying this process."""


class Process:
    """A process.

    Args:
        loop: that it runs in.
        name: for logs and dumps.

    Attributes:
        running: whether its callbacks are called: not while it is frozen, and never after it was killed.
        alive: whether it was not killed.
    """

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        loop.processes[self] = None
        self.name = name
        self._loop = loop
        self.running = True
        self.alive = True
        self.resources: dict[Closable, None] = {}
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._parked: deque[asyncio.Handle] = deque()
        self._context = contextvars.copy_context()
        self._context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        state = "running" if self.running else "frozen" if self.alive else "killed"
        return f"<process {self.name}, {state}>"

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return self._loop.create_task(work, context=self._context.copy())

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call a function in this process now."""
        return self._context.copy().run(callback, *args)

    def park(self, handle: asyncio.Handle) -> None:
        """Keep a due callback until the process is thawed, or drop it if the process is dead."""
        if self.alive:
            self._parked.append(handle)

    def freeze(self) -> None:
        """Freeze it as SIGSTOP does: nothing is called; connections stay open, and data that arrives waits."""
        self.running = False

    def thaw(self) -> list[asyncio.Handle]:
        """Thaw it as SIGCONT does.

        Returns:
            What was due meanwhile, oldest first: the loop has to call it.
        """
        if not self.alive:
            return []
        self.running = True
        parked, self._parked = list(self._parked), deque()
        return parked

    def kill(self) -> None:
        """Kill it as SIGKILL does: its connections end, its ports are free, and nothing that it began takes effect."""
        if not self.alive:
            return
        self.alive = self.running = False
        self._loop.processes.pop(self, None)
        self._parked.clear()
        for resource in list(self.resources):
            resource.cut()
        self.resources.clear()
        with silence(self._loop):
            while self.tasks:
                task, _ = self.tasks.popitem()  # burying one may begin others
                if not self._context.copy().run(_bury, task):
                    self._loop.undead.append(task)
                del task
        self._loop.forget(self)
        collect(self._loop)
        if not self._loop.ending:
            # What stays is not looked at again before the end: each look would take longer than the one before.
            gc.freeze()
            self._loop.frozen = True


@contextlib.contextmanager
def silence(loop: VirtualLoop) -> Iterator[None]:
    """Silence errors in `finally` blocks of dead processes."""
    before, hook, disabled = asyncio._get_running_loop(), sys.unraisablehook, logging.root.manager.disable
    asyncio._set_running_loop(loop)
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook
        logging.disable(disabled)
        asyncio._set_running_loop(before)


def collect(loop: VirtualLoop) -> None:
    """Collect garbage now. Nothing else does in a simulation, so it is collected at the same moments in each run."""
    with silence(loop):
        gc.collect()


def _bury(task: asyncio.Task[Any]) -> bool:
    """Close the coroutine of a task that never runs again; what its `finally` blocks begin is dropped.

    Returns:
        Whether it is closed: some await one thing after the other.
    """
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert coroutine is not None
    for _ in range(_MOST_AWAITS):
        try:
            coroutine.close()
        except BaseException:
            continue
        return True
    return False
