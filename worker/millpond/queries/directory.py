"""Who has which task: the coordinator's view of the application, kept for a while and looked up again on a miss."""

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

__all__ = ("CoordinatorView", "Places", "TaskDirectory", "fetching")

log = logging.getLogger(__name__)

#: A view is asked for again when it is older than this, and a query misses something in it; and not sooner than after
#: so many times as long as the last answer took, which is long where there are many tasks.
_FRESH_S = 0.05
_SPARING = 5
#: And when it is older than this, where the view itself is what is asked for.
_STALE_S = 2.0
_TIMEOUT_S = 2.0

CoordinatorView = Callable[[], Awaitable[View]]
"""Asks for the assignment; raises anything when it does not get it."""

_views = msgspec.json.Decoder(View)


@dataclass(frozen=True)
class Places:
    """Where a task is, as far as is known. Workers that cannot be reached over HTTP are not in it."""

    active: tuple[str, ...] = ()
    """Who processes it: its owner in Kafka, then the worker that is to become it."""
    copies: tuple[str, ...] = ()
    """Standbys and warm-ups."""


class TaskDirectory:
    """The newest view known."""

    def __init__(self, fetch: CoordinatorView | None) -> None:
        """Args:
        fetch: None where there is no coordinator: then nobody else has anything.
        """
        self._fetch = fetch
        self._view: View | None = None
        self._members: dict[str, Member] = {}
        self._asked_at = float("-inf")
        self._took = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._troubled = False

    @property
    def alone(self) -> bool:
        """Whether there are no other workers to know of."""
        return self._fetch is None

    @property
    def view(self) -> View | None:
        """What was known last."""
        return self._view

    async def refresh(self, *, older_than_s: float = _STALE_S) -> None:
        """Ask the coordinator, unless it was asked a moment ago. When it does not answer, what is known stays."""
        if self._fetch is None:
            return
        if self._asking is None and time.monotonic() - self._asked_at >= older_than_s:
            self._asking = asyncio.get_running_loop().create_task(self._ask(self._fetch))
        if self._asking is not None:
            # Several queries wait for one answer: none of them may cancel it for the others.
            await asyncio.shield(self._asking)

    async def missed(self) -> None:
        """`refresh` for a query that did not find what it was told."""
        await self.refresh(older_than_s=max(_FRESH_S, _SPARING * self._took))

    async def _ask(self, fetch: CoordinatorView) -> None:
        started = time.monotonic()
        try:
            self._view = await fetch()
            self._members = {each.worker: each for each in self._view.members}
            self._took = time.monotonic() - started
            self._troubled = False
        except Exception as error:
            if not self._troubled:
                log.warning(
                    "the coordinator does not say who has which task (%s); queries use what it said last", error
                )
            self._troubled = True
        finally:
            self._asked_at = time.monotonic()
            self._asking = None

    def member(self, worker: str) -> Member | None:
        """The worker of that name."""
        return self._members.get(worker)

    def address(self, worker: str) -> str | None:
        """The base URL of a worker that lives and can be asked."""
        member = self.member(worker)
        return None if member is None or not member.alive or not member.address else member.address.rstrip("/")

    def places(self, task: TaskId) -> Places:
        """Where a task is."""
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
async def fetching(
    url: str, application: str, *, token_file: Path | None = None, ca_file: Path | None = None
) -> AsyncIterator[CoordinatorView]:
    """Connections to the coordinator while the block runs.

    Args:
        url: of the coordinator.
        application: whose assignment is wanted.
        token_file: with the bearer token; read for each request, since tokens are renewed.
        ca_file: certificates to trust, in PEM; the system's unless given. Read again when the file changes: authorities are
            replaced while workers run.

    Raises:
        OSError: the certificates cannot be read.
    """
    import aiohttp

    trusted = _Trusted(ca_file)
    path = f"{url.rstrip('/')}/v1/applications/{quote(application, safe='')}/assignment"
    connector = aiohttp.TCPConnector(limit=2)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def fetch() -> View:
            headers = {"Accept": "application/json"}
            if token_file is not None:
                token = await asyncio.to_thread(token_file.read_text, encoding="utf-8")
                headers["Authorization"] = f"Bearer {token.strip()}"
            tls = await asyncio.to_thread(trusted.context)
            async with session.get(path, headers=headers, allow_redirects=False, ssl=tls) as answer:
                return await _view(answer)

        yield fetch


class _Trusted:
    """The certificates to trust, as their file has them."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._text = ""
        self._context: ssl.SSLContext | None = None
        self.context()

    def context(self) -> ssl.SSLContext | bool:
        """What trusts them; True for whatever the system trusts. What cannot be read now was good a moment ago."""
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
