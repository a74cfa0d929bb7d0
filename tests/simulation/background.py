"""The virtual counterpart of `tests.cluster.background.Background`: the test drives the loop in its own thread.

with VirtualBackground(seed=7) as background:
    background.call(something())     # runs the loop until it is done
    background.sleep(3_600)          # an hour passes, in as long as what happens in it takes
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar
from unittest import mock

import aiohttp.connector

from millpond.protocol import clock
from tests.cluster import waiting
from tests.cluster.background import Background, cancel
from tests.simulation.library_clocks import virtual_libraries
from tests.simulation.loop import VirtualLoop, start_connection
from tests.simulation.ordering import fixed_order
from tests.simulation.processes import collect, silence
from tests.support import seeds

__all__ = ("Submitted", "VirtualBackground", "VirtualClocks")

_TIMEOUT_S = 600.0
#: Looking through everything takes half a second in a long session of tests. What one run leaves is some 10 MB.
_FROZEN_RUNS = 8
_BEGINNING = datetime(2026, 3, 14, 15, tzinfo=UTC)
T = TypeVar("T")


class VirtualClocks(clock.Clocks):
    """The clocks of a simulation. The wall clock begins at the same moment in each run."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._unix_s = _BEGINNING.timestamp() - loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def boottime(self) -> float:
        return self._loop.time()

    def unix_time(self) -> float:
        return self._unix_s + self._loop.time()

    def cpu_time(self) -> float:
        return 0.0  # code takes no time


class _VirtualTime(waiting.Time):
    """Time that passes while the test waits."""

    parallel = False

    def __init__(self, background: VirtualBackground) -> None:
        self._background = background

    def sleep(self, seconds: float) -> None:
        self._background.sleep(seconds)

    def together(self, acts: Sequence[Callable[[], object]]) -> list[BaseException]:
        """Run tasks one after another: none of them waits for another, and virtual time costs nothing."""
        errors: list[BaseException] = []
        for act in acts:
            try:
                act()
            except Exception as error:
                errors.append(error)
        return errors


class Submitted:
    """A task in the loop."""

    def __init__(self, background: VirtualBackground, task: asyncio.Task[Any]) -> None:
        self._background = background
        self._task = task

    def result(self, timeout_s: float = _TIMEOUT_S) -> Any:
        """Run the loop until the task is done."""
        return self._background.call(_joined(self._task), timeout_s)

    def cancel(self) -> None:
        """Cancel the task."""
        self._task.cancel()

    def done(self) -> bool:
        """Return whether the task is done."""
        return self._task.done()


class VirtualBackground(Background):
    """A virtual loop, and randomness from a seed, during the `with` block.

    Args:
        seed: of all that is random; without one, that of the run of tests.

    Attributes:
        loop: the loop.
        seed: of this run.
    """

    _frozen_runs: ClassVar[int] = 0
    """Runs whose dead processes are still in memory."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed if seed is not None else seeds.fresh() if seeds.RUN is None else seeds.RUN
        self.loop: VirtualLoop = VirtualLoop()
        self._random = random.Random(self.seed)
        self._before: Any = None
        self._tokens = contextlib.ExitStack()
        self._patches = (
            mock.patch.object(aiohttp.connector.aiohappyeyeballs, "start_connection", start_connection),
            mock.patch.object(os, "urandom", self._random.randbytes),
            mock.patch.object(random, "_urandom", self._random.randbytes),
        )

    def __enter__(self) -> Self:
        print(f"seed {self.seed}, PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}")
        # Much is made and little of it is garbage: looking for that all the time would take a fifth of the run. What is
        # there before stays out of it for good, or every simulation would go through all that the tests before it left.
        gc.collect()
        gc.freeze()
        gc.disable()
        self._tokens.callback(gc.enable)
        self._before = random.getstate()
        random.seed(self.seed)
        for patch in self._patches:
            patch.start()
        self._tokens.enter_context(fixed_order())
        self._tokens.enter_context(virtual_libraries())
        clocks, passing = clock.CURRENT.set(VirtualClocks(self.loop)), waiting.TIME.set(_VirtualTime(self))
        self._tokens.callback(clock.CURRENT.reset, clocks)
        self._tokens.callback(waiting.TIME.reset, passing)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.loop.ending = True
        try:
            for process in list(self.loop.processes):
                process.kill()
            self.loop.run_until_complete(_cancel_all())
            self.loop.network.end()
            with silence(self.loop):
                self.loop.undead.clear()
            self._collect()
        finally:
            self._tokens.close()
            for patch in self._patches:
                patch.stop()
            random.setstate(self._before)
            self.loop.close()
        if kind is None:
            assert not self.loop.failures, f"Errors that nobody handled: {self.loop.failures}"

    def _collect(self) -> None:
        """Collect what the run left; what its dead processes left is frozen, and collected once for several runs."""
        if self.loop.frozen:
            VirtualBackground._frozen_runs += 1
        if VirtualBackground._frozen_runs >= _FROZEN_RUNS:
            VirtualBackground._frozen_runs = 0
            gc.unfreeze()
        collect(self.loop)
        gc.freeze()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Submitted:  # type: ignore[override]
        """Start a task, which continues whenever the loop runs."""
        return Submitted(self, self.loop.create_task(work))

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float = _TIMEOUT_S) -> T:
        """Run a coroutine and wait for its result."""
        return self.loop.run_until_complete(_within(work, timeout_s))

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))


async def _within(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    async with asyncio.timeout(timeout_s):
        return await work


async def _joined(task: asyncio.Task[T]) -> T:
    return await task


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    tasks = {task for task in tasks if getattr(task, "process", None) is None}
    await cancel(sorted(tasks, key=lambda task: getattr(task, "number", 0)))
