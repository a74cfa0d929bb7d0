"""The session's HTTP server for commands of other terminals; `remote` is its client."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from millpond.texts import encoded

from .actions import perform
from .remote import Command, CommandFailed, NoSession, SessionFile, directory
from .status import SessionStatus
from .supervisor import Fleet

__all__ = ("serving", "serving_session")

_ATTEMPTS = 5


def serving(fleet: Fleet, status: Callable[[], SessionStatus]) -> contextlib.AbstractAsyncContextManager[None]:
    """Serve commands and the status of a session while the block runs.

    Args:
        fleet: the session's workers.
        status: returns the current status.
    """
    config = fleet.launch.config
    return serving_session(
        config.application_id,
        status,
        lambda command: perform(fleet, command),
        servers=config.bootstrap_servers,
        registry=config.schema_registry_url,
    )


@contextlib.asynccontextmanager
async def serving_session(
    application: str,
    status: Callable[[], SessionStatus],
    do: Callable[[Command], str],
    *,
    servers: str = "",
    registry: str = "",
) -> AsyncIterator[None]:
    """Serve commands and the status of a session while the block runs, and let other programs find it.

    Args:
        application: the session's `application.id`.
        status: returns the current status.
        do: performs a command; returns its result, or raises CommandFailed.
        servers: the session's brokers.
        registry: the schema registry that the session uses.
    """
    token = secrets.token_urlsafe(24)
    app = web.Application(middlewares=[_require_token(token)])
    app.add_routes([web.get("/status", _status_handler(status)), web.post("/command", _command_handler(do))])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        with _session_file(SessionFile(application, os.getpid(), url, token, servers, registry)):
            yield
    finally:
        await runner.cleanup()


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _require_token(token: str) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), token.encode()):
            return web.json_response(
                {"error": "the request has no valid token: use the one in the session file."},
                status=HTTPStatus.FORBIDDEN,
            )
        return await handler(request)

    return check


def _status_handler(status: Callable[[], SessionStatus]) -> _Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=encoded(status(), msgspec.json.Encoder()), content_type="application/json")

    return handle


def _command_handler(do: Callable[[Command], str]) -> _Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            done = do(msgspec.json.decode(await request.read(), type=Command))
        except (CommandFailed, msgspec.MsgspecError) as error:
            return web.json_response({"error": str(error)}, status=HTTPStatus.CONFLICT)
        return web.json_response({"said": done})

    return handle


def _write_session_file(sessions: Path, path: Path, session: SessionFile) -> None:
    sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sessions.stat().st_uid != os.getuid() or sessions.stat().st_mode & 0o077:
        raise NoSession(f"{sessions} can be read by other users: set its mode to 700, or remove it.")
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(session))


@contextlib.contextmanager
def _session_file(session: SessionFile) -> Iterator[None]:
    sessions = directory()
    path = sessions / f"{session.application}-{session.pid}.json"
    for attempt in range(_ATTEMPTS):
        try:
            _write_session_file(sessions, path, session)
            break
        except OSError as error:
            # Another session that ends removes the directory, perhaps before the file is written.
            if not isinstance(error, FileNotFoundError) or attempt == _ATTEMPTS - 1:
                raise NoSession(
                    f"the session's file cannot be written to {sessions} ({error.strerror}): set XDG_RUNTIME_DIR to a "
                    "directory of yours, or unset it."
                ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            sessions.rmdir()
