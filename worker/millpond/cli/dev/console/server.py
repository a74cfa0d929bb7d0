"""The console's server, on the loopback interface; requests need no token, but the right host name."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from millpond.console import Unavailable, add_console
from millpond.drawing import MOST_PLACES, graph_of_overview, places, svg
from millpond.errors import ConfigError
from millpond.protocol.overview import ApplicationOverview, ApplicationSummary

__all__ = ("SessionConsole", "serving_console")

_HOST = "127.0.0.1"
_STARTING = "The session has just begun: its workers have not reported yet."


class SessionConsole:
    """The console's documents of a session.

    Args:
        application: `application.id`.

    Attributes:
        observe: returns what the session does; None while that is not known.
    """

    def __init__(self, application: str) -> None:
        self._application = application
        self._picture = ("", "")
        self.observe: Callable[[], ApplicationOverview | None] = lambda: None

    async def summaries(self) -> Sequence[ApplicationSummary]:
        """Return the application."""
        seen = self.observe()
        return [ApplicationSummary(name=self._application, phase="Starting") if seen is None else seen.summary]

    async def overview(self, namespace: str, name: str) -> ApplicationOverview | None:
        """Return the application; None if it has another name."""
        if namespace or name != self._application:
            return None
        seen = self.observe()
        if seen is None:
            raise Unavailable(_STARTING)
        return seen

    async def picture(self, namespace: str, name: str) -> str | None:
        """Return the drawn topology; None until a worker has reported it, and if it is too large to draw."""
        seen = await self.overview(namespace, name)
        if seen is None or seen.topology is None:
            return None
        if self._picture[0] != seen.drawing:
            graph = graph_of_overview(seen.topology, {int(task.task.partition("_")[0]) for task in seen.tasks})
            drawn = svg(graph, name, live=True) if places(graph) <= MOST_PLACES else ""
            self._picture = seen.drawing, drawn
        return self._picture[1] or None


@contextlib.asynccontextmanager
async def serving_console(source: SessionConsole, port: int) -> AsyncIterator[str]:
    """Serve the console while the block runs; yield its URL.

    Args:
        source: the documents.
        port: the port; 0 for a free one.

    Raises:
        ConfigError: the port is in use.
    """
    app = web.Application()
    hosts: set[str] = set()
    add_console(app, source, lambda: hosts)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, _HOST, port).start()
        except OSError as error:
            raise ConfigError(f"Port {port} is in use: give another one with --console-port.") from error
        bound = runner.addresses[0][1]
        hosts |= {f"{_HOST}:{bound}", f"localhost:{bound}"}
        yield f"http://{_HOST}:{bound}/console/"
    finally:
        await runner.cleanup()
