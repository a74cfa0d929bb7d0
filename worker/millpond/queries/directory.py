"""The task directory: the coordinator's assignment, cached for a short time and fetched again on a miss."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from millpond.protocol import Member, View
from millpond.topology import TaskId

if TYPE_CHECKING:
    import aiohttp

__all__ = ("CoordinatorView", "Places", "TaskDirectory", "open_assignment")

log: logging.Logger = logging.getLogger(__name__)

#: After a miss, the view is fetched again if it is older than this, and older than a multiple of the last fetch's
#: duration, which is long with many tasks.
_MIN_AGE_ON_MISS_S = 0.05
_MIN_AGE_IN_FETCHES = 5
#: Without a miss, the view is fetched again if it is older than this.
_MAX_AGE_S = 2.0
_TIMEOUT_S = 2.0

CoordinatorView = Callable[[], Awaitable[View]]
"""Fetches the assignment from the coordinator; may raise any exception."""

_views = msgspec.json.Decoder(View)


@dataclass(frozen=True)
class Places:
    """The known locations of a task, without workers that have no HTTP address."""

    active: tuple[str, ...] = ()
    """The task's owner in Kafka, then the worker that the task is assigned to."""
    copies: tuple[str, ...] = ()
    """The task's standbys and warm-ups."""


class TaskDirectory:
    """The latest view of the assignment."""

    def __init__(self, fetch: CoordinatorView | None) -> None:
        """Create the directory, without a view.

        Args:
            fetch: fetches the assignment; None without a coordinator, and so without other workers.
        """
        self._fetch = fetch
        self._view: View | None = None
        self._members: dict[str, Member] = {}
        self._fetched_at = float("-inf")
        self._last_fetch_s = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self._failing = False

    @property
    def alone(self) -> bool:
        """Whether this worker has no coordinator, and so no other workers."""
        return self._fetch is None

    @property
    def view(self) -> View | None:
        """The latest view; None before the first one."""
        return self._view

    async def refresh(self, *, older_than_s: float = _MAX_AGE_S) -> None:
        """Fetch the view if it is older than `older_than_s`; keep the known view if the coordinator does not answer."""
        if self._fetch is None:
            return
        if self._fetching is None and time.monotonic() - self._fetched_at >= older_than_s:
            self._fetching = asyncio.get_running_loop().create_task(self._update(self._fetch))
        if self._fetching is not None:
            # Several queries wait for the same fetch: a cancelled query must not cancel it for the others.
            await asyncio.shield(self._fetching)

    async def refresh_after_miss(self) -> None:
        """Fetch the view again, since a partition was not on the worker that the view names."""
        await self.refresh(older_than_s=max(_MIN_AGE_ON_MISS_S, _MIN_AGE_IN_FETCHES * self._last_fetch_s))

    async def _update(self, fetch: CoordinatorView) -> None:
        started = time.monotonic()
        try:
            self._view = await fetch()
            self._members = {each.worker: each for each in self._view.members}
            self._last_fetch_s = time.monotonic() - started
            self._failing = False
        except Exception as error:  # noqa: BLE001 - `fetch` may raise anything; queries continue with the last view
            if not self._failing:
                log.warning(
                    "task directory: cannot fetch the coordinator's assignment (%s); queries use the last known one",
                    error,
                )
            self._failing = True
        finally:
            self._fetched_at = time.monotonic()
            self._fetching = None

    def member(self, worker: str) -> Member | None:
        """Return the worker with a name; None if the view does not contain it."""
        return self._members.get(worker)

    def address(self, worker: str) -> str | None:
        """Return the base URL of a worker; None if it is dead or has no HTTP address."""
        member = self.member(worker)
        return None if member is None or not member.alive or not member.address else member.address.rstrip("/")

    def places(self, task: TaskId) -> Places:
        """Return the known locations of a task."""
        view, name = self._view, str(task)
        if view is None:
            return Places()
        active = [worker for worker in (view.owners.get(name), view.active.get(name)) if worker]
        copies = [*view.standby.get(name, ()), *view.warm_up.get(name, ())]
        return Places(
            tuple(dict.fromkeys(each for each in active if self.address(each))),
            tuple(dict.fromkeys(each for each in copies if self.address(each) and each not in active)),
        )


@asynccontextmanager
async def open_assignment(
    url: str, application: str, *, token_file: Path | None = None, ca_file: Path | None = None
) -> AsyncIterator[CoordinatorView]:
    """Yield the function that fetches the assignment from the coordinator.

    Args:
        url: URL of the coordinator.
        application: id of the application.
        token_file: file with the bearer token; read for each request, since tokens are renewed.
        ca_file: certificate authorities to trust (PEM); the default is those of the system. Reread when the file
            changes: authorities are replaced while workers run.

    Raises:
        OSError: the certificates cannot be read.
    """
    import aiohttp

    authorities = _Authorities(ca_file)
    path = f"{url.rstrip('/')}/v1/applications/{quote(application, safe='')}/assignment"
    connector = aiohttp.TCPConnector(limit=2)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def fetch() -> View:
            headers = {"Accept": "application/json"}
            if token_file is not None:
                token = await asyncio.to_thread(token_file.read_text, encoding="utf-8")
                headers["Authorization"] = f"Bearer {token.strip()}"
            tls = await asyncio.to_thread(authorities.context)
            async with session.get(path, headers=headers, allow_redirects=False, ssl=tls) as answer:
                return await _view(answer)

        yield fetch


class _Authorities:
    """The certificate authorities to trust, reread when their file changes."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._text = ""
        self._context: ssl.SSLContext | None = None
        self.context()

    def context(self) -> ssl.SSLContext | bool:
        """Return the TLS context; True for the system's authorities.

        If the file cannot be read now, the last context stays in use.
        """
        if self._file is None:
            return True
        try:
            text = self._file.read_text(encoding="utf-8")
            if self._context is None or text != self._text:
                self._context, self._text = ssl.create_default_context(cadata=text), text
        except (OSError, UnicodeDecodeError, ssl.SSLError):
            if self._context is None:
                raise
        return self._context


async def _view(answer: aiohttp.ClientResponse) -> View:
    body = await answer.read()
    if answer.status != 200:
        raise OSError(f"status {answer.status}")
    return _views.decode(body)
