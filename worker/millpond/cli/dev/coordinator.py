"""The session's coordinator: its process, and the session's HTTP requests to it."""

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

from .child_processes import Child, ChildReaper
from .process_log import ProcessLog

__all__ = ("CoordinatorFailed", "CoordinatorProcess", "CoordinatorUnavailable", "UnknownWorker")

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 3.0
_views = msgspec.json.Decoder(View)


class CoordinatorFailed(MillpondError):
    """The coordinator's process cannot start."""


class CoordinatorUnavailable(Exception):
    """The coordinator does not answer at the moment."""


class UnknownWorker(CoordinatorUnavailable):
    """The coordinator does not know the worker."""


class CoordinatorProcess:
    """The coordinator of one application, in a child process.

    Args:
        config: the configuration of the application.
        directory: the directory of the coordinator's log and of its stored assignment.
        reaper: kills the coordinator when this process dies.
        port: its port; 0 for a free one.

    Attributes:
        url: the coordinator's URL, which a restart does not change; empty before the first start.
        listening: whether the coordinator accepts requests.
    """

    def __init__(self, config: Config, directory: Path, reaper: ChildReaper, port: int = 0) -> None:
        self._application = config.application_id
        self._directory = directory
        self._reaper = reaper
        self._port = port
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
        self._discard_output: asyncio.Task[None] | None = None
        self._http: aiohttp.ClientSession | None = None

    @property
    def child(self) -> Child | None:
        """The coordinator's process; None while it does not run."""
        return self._child

    async def start(self) -> None:
        """Start the coordinator; return when it accepts requests.

        Raises:
            CoordinatorFailed: the process ended, or did not print its URL in time.
        """
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S))
        child = await Child.start(self._command(), self.log.path, self._reaper, piped=True)
        self._child = child
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = await child.line()
            self.url = str(json.loads(line)["url"]).rstrip("/")
        except (TimeoutError, ValueError, KeyError, TypeError) as error:
            await child.stop(0)
            self._child = None
            raise CoordinatorFailed(
                f"the coordinator cannot start; the last lines of {self.log.path}:\n{self.log.tail()}"
            ) from error
        self.listening = True
        self._discard_output = asyncio.create_task(_discard_output(child))

    def _command(self) -> Sequence[str]:
        port = self.url.rpartition(":")[2] or str(self._port)
        return (
            *(sys.executable, "-m", "millpond_operator.coordinator", "--application", self._application),
            *("--port", port, "--store", str(self._directory / "assignment.json"), *self._options),
        )

    async def wait(self) -> int:
        """Wait for the end of the coordinator's process; return its exit status."""
        assert self._child is not None
        status = await self._child.wait()
        self._child, self.listening = None, False
        return status

    async def stop(self) -> None:
        """Stop the coordinator, and close the connections to it."""
        if self._child is not None:
            await self._child.stop(_STOP_TIMEOUT_S)
            self._child = None
        if self._discard_output is not None:
            self._discard_output.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._discard_output
        if self._http is not None:
            await self._http.close()

    # Requests

    async def view(self) -> View:
        """Return the whole assignment.

        Raises:
            CoordinatorUnavailable: the coordinator did not answer in time, or with an error. All requests raise this.
        """
        try:
            return _views.decode(await self._request("GET", "assignment"))
        except msgspec.MsgspecError as error:
            raise CoordinatorUnavailable(str(error)) from error

    async def report_gone(self, worker: str) -> None:
        """Report that a worker's process has ended, so that its tasks can be taken over at once."""
        await self._request("POST", f"workers/{quote(worker)}/gone")

    async def drain(self, worker: str) -> None:
        """Request that a worker's tasks move to other workers."""
        await self._request("POST", f"workers/{quote(worker)}/drain")

    async def undrain(self, worker: str) -> None:
        """Request that tasks are assigned to a worker again."""
        await self._request("DELETE", f"workers/{quote(worker)}/drain")

    async def _request(self, method: str, path: str) -> bytes:
        if self._http is None or self._http.closed:
            raise CoordinatorUnavailable(f"{method} {path}: the coordinator is not running")
        url = f"{self.url}/v1/applications/{quote(self._application)}/{path}"
        try:
            async with self._http.request(method, url) as response:
                body = await response.read()
                if response.status == HTTPStatus.NOT_FOUND:
                    raise UnknownWorker(f"{method} {path}: not found")
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise CoordinatorUnavailable(
                        f"{method} {path}: {response.status} {body.decode(errors='replace')[:200]}"
                    )
                return body
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CoordinatorUnavailable(f"{method} {path}: {error}") from error


async def _discard_output(child: Child) -> None:
    """Read and drop the rest of standard output, so that the pipe does not fill up."""
    while await child.line():
        pass
