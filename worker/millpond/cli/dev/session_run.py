"""A session from start to end: signals, the live table, commands of other terminals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Iterator

import click
from rich.console import RenderableType
from rich.live import Live

from millpond.cli.own_broker import POLL_S, OwnBroker
from millpond.cli.session import Session

from .actions import ACTIONS, KEYS
from .child_processes import ChildReaper
from .console import SessionConsole, serving_console, session_overview
from .control_server import serving
from .keys import listening
from .observing.observer import Observer
from .supervisor import Fleet
from .view import table
from .worker import Launch

__all__ = ("run_fleet",)

log: logging.Logger = logging.getLogger("millpond.cli")

_REDRAWS_PER_SECOND = 4
_LINE_INTERVAL_S = 5.0
_EXAMPLES = [f"{name} {ACTIONS[name].example}" for name in ("scale", "kill", "drain")]
_HINTS = (
    f"keys: {', '.join(key.hint for key in KEYS.values())}   "
    f"in another terminal: millpond dev {', '.join(_EXAMPLES)}, status"
)


def run_fleet(  # noqa: PLR0913 - the parts of a session
    launch: Launch,
    count: int,
    session: Session,
    title: str,
    reaper: ChildReaper,
    console_port: int = 0,
    coordinator_port: int = 0,
    broker: OwnBroker | None = None,
) -> int:
    """Run an application's workers and their coordinator until SIGINT or SIGTERM; return the usual number of workers.

    Every process that was started has ended when this returns. The second SIGINT ends them by SIGKILL.

    Args:
        launch: the options of workers.
        count: the number of workers.
        session: the session of the command line, which shows the workers.
        title: the application's name.
        reaper: kills the processes when this process dies for any reason.
        console_port: the port of the console; 0 for a free one.
        coordinator_port: the port of the coordinator; 0 for a free one.
        broker: the session's broker, if it has one of its own.

    Raises:
        BrokerError: that broker has ended.
        MillpondError: the coordinator or the workers cannot start.
        click.Abort: the session was interrupted twice.
    """
    fleet = Fleet(launch, count, reaper, patient=session.live, coordinator_port=coordinator_port)
    asyncio.run(_run(fleet, session, title, console_port, broker))
    return fleet.usual


async def _run(fleet: Fleet, session: Session, title: str, console_port: int, broker: OwnBroker | None) -> None:
    shown = SessionConsole(fleet.launch.config.application_id)
    async with serving_console(shown, console_port) as console:
        observer = Observer(fleet, title, console)
        shown.observe = lambda: session_overview(observer.status, observer.view, fleet.launch, fleet.started_at)
        if not session.live:
            log.info("console: %s", console)
        with _stopped_by_signals(fleet) as signals:
            async with (
                serving(fleet, observer.detailed),
                _showing(fleet, observer, session, broker),
                listening(fleet, session),
            ):
                await fleet.run()
    if len(signals) > 1:
        raise click.Abort


@contextlib.contextmanager
def _stopped_by_signals(fleet: Fleet) -> Iterator[list[int]]:
    """Stop the session at SIGTERM or SIGINT, kill it at a second SIGINT; yield the list of received signals."""
    received: list[int] = []

    def stop(number: signal.Signals) -> None:
        if received and number == signal.SIGINT:
            received.append(number)
            fleet.kill_all()
        elif not received:
            received.append(number)
            log.info("%s received: stopping; workers commit and end", number.name)
            fleet.stop()

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class _Shown:
    """The latest table, for the thread of rich that draws it."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __rich__(self) -> RenderableType:
        status = self._observer.status
        where = f"broker {status.bootstrap_servers}   logs {status.directory}   Ctrl-C stops"
        queries = f"queries {' '.join(status.queries) or 'none yet'}: millpond query"
        pages = f"console {status.console}   coordinator {status.coordinator or 'none now'}   {queries}"
        return table(status, pages, where, _HINTS)


@contextlib.asynccontextmanager
async def _showing(fleet: Fleet, observer: Observer, session: Session, broker: OwnBroker | None) -> AsyncIterator[None]:
    """Show the session while the block runs: redrawn on a terminal, periodic log lines elsewhere."""
    with contextlib.ExitStack() as stack:
        if session.live:
            stack.enter_context(Live(_Shown(observer), console=session.err, refresh_per_second=_REDRAWS_PER_SECOND))
        tasks = [asyncio.create_task(observer.run())]
        if not session.live:
            tasks.append(asyncio.create_task(_log_lines(observer)))
        if broker is not None:
            tasks.append(asyncio.create_task(_end_with(broker, fleet)))
        for task in tasks:
            task.add_done_callback(lambda _: fleet.stop())  # only a bug ends them, or the end of the broker
        try:
            yield
        finally:
            observer.update_status()
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended


async def _end_with(broker: OwnBroker, fleet: Fleet) -> None:
    """Fail when the broker has ended: then no worker can process or commit anything."""
    while True:
        if (failure := broker.failure()) is not None:
            fleet.broker_ended = True
            fleet.add_event(f"{broker.end}: stopping the workers", logging.ERROR)
            raise failure
        await asyncio.sleep(POLL_S)


async def _log_lines(observer: Observer) -> None:
    queries: tuple[str, ...] = ()
    while True:
        await asyncio.sleep(_LINE_INTERVAL_S)
        if observer.status.queries != queries:
            queries = observer.status.queries
            log.info("queries: %s", " ".join(queries) or "no worker answers them now")
        if line := observer.line():
            log.info("%s", line)
