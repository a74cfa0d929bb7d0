"""A session from start to end: signals, the live table, the commands of other terminals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Iterator

import click
from rich.console import RenderableType
from rich.live import Live

from millpond.cli.session import Session

from .children import Leash
from .control import serving
from .keys import listening
from .observer import Observer
from .supervisor import Fleet
from .view import table
from .worker import Launch

__all__ = ("run_fleet",)

log: logging.Logger = logging.getLogger("millpond.cli")

_REDRAWS_PER_SECOND = 4
_LINE_EVERY_S = 5.0
_COMMANDS = "keys: + -  k1 kills w1, d2 drains w2   elsewhere: millpond dev scale 5, kill w1, drain w2, status"


def run_fleet(launch: Launch, count: int, session: Session, title: str, leash: Leash) -> None:
    """Run an application's workers and their coordinator until SIGINT or SIGTERM.

    Every process that was started has ended when this returns. The second SIGINT ends them by SIGKILL.

    Args:
        launch: what workers are started with.
        count: how many.
        session: where to show them.
        title: the application's name.
        leash: ends the processes with this one, however it ends.

    Raises:
        MillpondError: workers cannot run.
        click.Abort: it was interrupted twice.
    """
    asyncio.run(_run(Fleet(launch, count, leash), session, title))


async def _run(fleet: Fleet, session: Session, title: str) -> None:
    observer = Observer(fleet, title)
    with _stopped_by_signals(fleet) as asked:
        async with (
            serving(fleet, lambda: observer.status),
            _showing(fleet, observer, session),
            listening(fleet, session),
        ):
            await fleet.run()
    if len(asked) > 1:
        raise click.Abort


@contextlib.contextmanager
def _stopped_by_signals(fleet: Fleet) -> Iterator[list[int]]:
    """SIGTERM and SIGINT stop the session in order; yields those that came, of which the last killed everything."""
    asked: list[int] = []

    def stop(number: signal.Signals) -> None:
        if asked and number == signal.SIGINT:
            asked.append(number)
            fleet.kill_all()
        elif not asked:
            asked.append(number)
            log.info("%s: workers commit and stop", number.name)
            fleet.stop()

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield asked
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _Shown:
    """The latest table, for rich's own thread."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __rich__(self) -> RenderableType:
        status = self._observer.status
        return table(status, f"broker {status.bootstrap_servers}   logs {status.directory}   Ctrl-C stops", _COMMANDS)


@contextlib.asynccontextmanager
async def _showing(fleet: Fleet, observer: Observer, session: Session) -> AsyncIterator[None]:
    """Show the session while the block runs: redrawn on a terminal, a line now and then elsewhere."""
    with contextlib.ExitStack() as stack:
        if session.live:
            stack.enter_context(Live(_Shown(observer), console=session.err, refresh_per_second=_REDRAWS_PER_SECOND))
        tasks = [asyncio.create_task(observer.run())]
        if not session.live:
            tasks.append(asyncio.create_task(_lines(observer)))
        for task in tasks:
            task.add_done_callback(lambda _: fleet.stop())  # they end by a mistake of millpond's only
        try:
            yield
        finally:
            observer.sum_up()
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended


async def _lines(observer: Observer) -> None:
    while True:
        await asyncio.sleep(_LINE_EVERY_S)
        if line := observer.line():
            log.info("%s", line)
