"""The session's coordinator: a process of its own, and what the session asks of it over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import aiohttp
import msgspec

from millpond.errors import MillpondError
from millpond.protocol import View
from millpond.runtime.config.model import Config

from .children import Child, Leash, ProcessLog

__all__ = ("CoordinatorAway", "CoordinatorFailed", "CoordinatorProcess", "UnknownWorker")

_START_S = 30.0
_STOP_S = 5.0
_ASK_S = 3.0
_views = msgspec.json.Decoder(View)


class CoordinatorFailed(MillpondError):
    """The coordinator's process does not come up."""


class CoordinatorAway(Exception):
    """It does not answer now; it may again."""


class UnknownWorker(CoordinatorAway):
    """It has not heard of that worker."""


class CoordinatorProcess:
    """Starts, asks and stops the coordinator of one application.

    Args:
        config: what the application is set to.
        directory: for its log and the assignment it keeps.
        held_by: ends it with this process.

    Attributes:
        url: where it listens, the same after a restart; empty before the first start.
        listening: whether it does.
    """

    def __init__(self, config: Config, directory: Path, held_by: Leash) -> None:
        self._application = config.application_id
        self._directory = directory
        self._leash = held_by
        self._options = (
            *("--standby-replicas", str(config.num_standby_replicas)),
            *("--max-warmup-replicas", str(config.max_warmup_replicas)),
            *("--acceptable-recovery-lag", str(config.acceptable_recovery_lag)),
            *("--session-timeout", f"{config.coordinator_session_timeout_ms}ms"),
            *("--rack-aware-tags", ",".join(config.rack_aware_assignment_tags)),
        )
        self.log: ProcessLog = ProcessLog(directory / "coordinator.log")
        self.url: str = ""
        self.listening: bool = False
        self._child: Child | None = None
        self._drained: asyncio.Task[None] | None = None
        self._http: aiohttp.ClientSession | None = None

    @property
    def child(self) -> Child | None:
        """Its process, None while there is none."""
        return self._child

    async def start(self) -> None:
        """Start it; returns when it listens.

        Raises:
            CoordinatorFailed: it ended, or said nothing of use.
        """
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ASK_S))
        child = await Child.start(self._command(), self.log.path, self._leash, piped=True)
        self._child = child
        try:
            async with asyncio.timeout(_START_S):
                line = await child.line()
            self.url = str(json.loads(line)["url"]).rstrip("/")
        except (TimeoutError, ValueError, KeyError, TypeError) as error:
            await child.stop(0)
            self._child = None
            raise CoordinatorFailed(
                f"the coordinator does not start; its log is {self.log.path}:\n{self.log.end()}"
            ) from error
        self.listening = True
        self._drained = asyncio.create_task(_drain(child))

    def _command(self) -> Sequence[str]:
        port = self.url.rpartition(":")[2] or "0"
        return (
            *(sys.executable, "-m", "millpond_operator.coordinator", "--application", self._application),
            *("--port", port, "--store", str(self._directory / "assignment.json"), *self._options),
        )

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        assert self._child is not None
        status = await self._child.wait()
        self._child, self.listening = None, False
        return status

    async def stop(self) -> None:
        """End it, and let go of its connections."""
        if self._child is not None:
            await self._child.stop(_STOP_S)
            self._child = None
        if self._drained is not None:
            self._drained.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._drained
        if self._http is not None:
            await self._http.close()

    # What is asked of it --------------------------------------------------------------------------------------

    async def view(self) -> View:
        """The whole assignment.

        Raises:
            CoordinatorAway: it does not answer; so do the others.
        """
        try:
            return _views.decode(await self._ask("GET", "assignment"))
        except msgspec.MsgspecError as error:
            raise CoordinatorAway(str(error)) from error

    async def gone(self, worker: str) -> None:
        """Tell it that a worker's process has ended: its tasks are free at once."""
        await self._ask("POST", f"workers/{quote(worker)}/gone")

    async def drain(self, worker: str) -> None:
        """Ask it to move a worker's tasks to others."""
        await self._ask("POST", f"workers/{quote(worker)}/drain")

    async def undrain(self, worker: str) -> None:
        """The worker is to get tasks again."""
        await self._ask("DELETE", f"workers/{quote(worker)}/drain")

    async def _ask(self, method: str, path: str) -> bytes:
        if self._http is None or self._http.closed:
            raise CoordinatorAway(f"{method} {path}: it is not running")
        url = f"{self.url}/v1/applications/{quote(self._application)}/{path}"
        try:
            async with self._http.request(method, url) as answer:
                body = await answer.read()
                if answer.status == HTTPStatus.NOT_FOUND:
                    raise UnknownWorker(f"{method} {path}: not found")
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    raise CoordinatorAway(f"{method} {path}: {answer.status} {body.decode(errors='replace')[:200]}")
                return body
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CoordinatorAway(f"{method} {path}: {error}") from error


async def _drain(child: Child) -> None:
    """What else it says on standard output is nobody's business, but must not fill the pipe."""
    while await child.line():
        pass
