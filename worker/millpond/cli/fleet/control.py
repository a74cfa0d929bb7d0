"""How other terminals reach a session: a small HTTP endpoint on this machine, and a file that says where it is.

The file lies in a directory that only this user can read, and holds a token that each request must carry.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import secrets
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from millpond.cli.fleet.status import Status
from millpond.cli.fleet.supervisor import RESTART_AFTER_S, Fleet, Refused
from millpond.errors import MillpondError

__all__ = ("NoSession", "Remote", "serving")

log = logging.getLogger("millpond.cli")

_TIMEOUT_S = 10.0
_FORBIDDEN, _REFUSED = 403, 409
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoSession(MillpondError):
    """There is no session to talk to, or there are several."""


class SessionFile(msgspec.Struct, frozen=True):
    """What a session says of itself to this user's other programs."""

    application: str
    pid: int
    url: str
    token: str


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked of a session; `do` is the name of a method of `Fleet`."""

    do: str
    worker: str = ""
    workers: int = 0
    restart_after_s: float | None = RESTART_AFTER_S


# The session's side -----------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(fleet: Fleet, status: Callable[[], Status]) -> AsyncIterator[None]:
    """Take commands while the block runs.

    Args:
        fleet: carries them out.
        status: what is shown to those who ask.
    """
    token = secrets.token_urlsafe(24)
    app = web.Application(middlewares=[_guarded_by(token)])
    app.add_routes([web.get("/status", _status(status)), web.post("/command", _commands(fleet))])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        application = fleet.launch.config.application_id
        with _announced(SessionFile(application, os.getpid(), url, token)):
            yield
    finally:
        await runner.cleanup()


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _guarded_by(token: str) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return web.json_response({"error": "the token of the session's file is missing."}, status=_FORBIDDEN)
        return await handler(request)

    return guard


def _status(status: Callable[[], Status]) -> _Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=msgspec.json.encode(status()), content_type="application/json")

    return handle


def _commands(fleet: Fleet) -> _Handler:
    def carry_out(command: Command) -> str:
        match command.do:
            case "scale":
                return fleet.scale(command.workers)
            case "kill":
                return fleet.kill(command.worker, command.restart_after_s)
            case "drain":
                return fleet.drain(command.worker)
            case "pause":
                return fleet.pause(command.worker)
            case "resume":
                return fleet.resume(command.worker)
        raise Refused(f"a session has no command '{command.do}'.")

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            said = carry_out(msgspec.json.decode(await request.read(), type=Command))
        except (Refused, msgspec.MsgspecError) as error:
            return web.json_response({"error": str(error)}, status=_REFUSED)
        return web.json_response({"said": said})

    return handle


@contextlib.contextmanager
def _announced(session: SessionFile) -> Iterator[None]:
    directory = _directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_uid != os.getuid() or directory.stat().st_mode & 0o077:
        raise NoSession(f"{directory} can be read by others; set its mode to 700, or remove it.")
    path = directory / f"{session.application}-{session.pid}.json"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(session))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            directory.rmdir()


def _directory() -> Path:
    """Where this user's sessions are listed."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "millpond"
    return Path(tempfile.gettempdir()) / f"millpond-{os.getuid()}"


# The other terminal's side ----------------------------------------------------------------------------------------


class Remote:
    """A session in another process.

    Args:
        session: where it is.
    """

    def __init__(self, session: SessionFile) -> None:
        self._session = session

    @classmethod
    def find(cls, name: str | None = None) -> Remote:
        """The session of this user that runs.

        Args:
            name: its application id or process id, needed where there are several.

        Raises:
            NoSession: there is none, or there are several.
        """
        running = [each for each in _sessions() if name in (None, each.application, str(each.pid))]
        if not running:
            of = "" if name is None else f" of '{name}'"
            raise NoSession(
                f"no 'millpond dev … --workers N'{of} runs on this machine; start one in another terminal first."
            )
        if len(running) > 1:
            told = ", ".join(f"{each.application} (process {each.pid})" for each in running)
            raise NoSession(f"several sessions run: {told}; name one with --app NAME or --app PROCESS.")
        return cls(running[0])

    def status(self) -> Status:
        """What there is to see.

        Raises:
            NoSession: it does not answer any more.
        """
        return msgspec.json.decode(self._ask("status"), type=Status)

    def raw_status(self) -> str:
        """The same as JSON."""
        return self._ask("status").decode()

    def command(
        self, do: str, *, worker: str = "", workers: int = 0, restart_after_s: float | None = RESTART_AFTER_S
    ) -> str:
        """Have something done; returns what the session says to it.

        Raises:
            Refused: it says no.
            NoSession: it does not answer any more.
        """
        command = Command(do, worker, workers, restart_after_s)
        return str(json.loads(self._ask("command", msgspec.json.encode(command)))["said"])

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        session = self._session
        # The address is what this user's own session wrote.
        request = urllib.request.Request(  # noqa: S310
            f"{session.url}/{path}", data=body, headers={"Authorization": f"Bearer {session.token}"}
        )
        try:
            with _direct.open(request, timeout=_TIMEOUT_S) as answer:
                read: bytes = answer.read()
                return read
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(json.loads(error.read())["error"]) from error
        except OSError as error:
            raise NoSession(
                f"the session of '{session.application}' (process {session.pid}) does not answer: {error}."
            ) from error


def _sessions() -> list[SessionFile]:
    """Those whose process is still there."""
    found = []
    for path in sorted(_directory().glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            session = msgspec.json.decode(path.read_bytes(), type=SessionFile)
            if _alive(session.pid):
                found.append(session)
            else:
                path.unlink(missing_ok=True)  # it had no chance to do so
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
