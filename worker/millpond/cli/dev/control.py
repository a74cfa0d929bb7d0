"""The session's end of what other terminals say to it (see `millpond.cli.dev.remote`)."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from .remote import Command, CommandFailed, NoSession, SessionFile, directory
from .status import SessionStatus
from .supervisor import Fleet

__all__ = ("serving",)

_FORBIDDEN, _REFUSED = 403, 409


@contextlib.asynccontextmanager
async def serving(fleet: Fleet, status: Callable[[], SessionStatus]) -> AsyncIterator[None]:
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


def _status(status: Callable[[], SessionStatus]) -> _Handler:
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
        raise CommandFailed(f"a session has no command '{command.do}'.")

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            said = carry_out(msgspec.json.decode(await request.read(), type=Command))
        except (CommandFailed, msgspec.MsgspecError) as error:
            return web.json_response({"error": str(error)}, status=_REFUSED)
        return web.json_response({"said": said})

    return handle


@contextlib.contextmanager
def _announced(session: SessionFile) -> Iterator[None]:
    at = directory()
    at.mkdir(mode=0o700, parents=True, exist_ok=True)
    if at.stat().st_uid != os.getuid() or at.stat().st_mode & 0o077:
        raise NoSession(f"{at} can be read by others; set its mode to 700, or remove it.")
    path = at / f"{session.application}-{session.pid}.json"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(session))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            at.rmdir()
