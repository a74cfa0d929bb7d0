"""A trace of a simulation: every callback that its loop calls, with its virtual time.

Two runs with the same seed have the same trace. Where two traces first differ, something depends on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

from tests.simulation.loop import VirtualLoop

__all__ = ("traced",)

_run = asyncio.Handle._run


@contextlib.contextmanager
def traced() -> Iterator[list[str]]:
    """Provide the trace of the simulations in the `with` block: a line for each callback, until the simulation ends."""
    lines: list[str] = []

    def run(handle: asyncio.Handle) -> None:
        loop = handle._loop  # type: ignore[attr-defined]
        if isinstance(loop, VirtualLoop) and not loop.ending:
            lines.append(f"{loop.time():.6f} {_described(handle)}")
        _run(handle)

    with mock.patch.object(asyncio.Handle, "_run", run):
        yield lines


def _described(handle: asyncio.Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    while isinstance(callback, functools.partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner, 'number', '')} {getattr(owner.get_coro(), '__qualname__', '')}"
    return f"{getattr(callback, '__qualname__', type(callback).__qualname__)} {type(owner).__qualname__}"
