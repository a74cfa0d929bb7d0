"""The HTTP side of the console: the page, and the documents that it shows. Only GET, no cookies, no state.

All URLs are relative, so the page also works behind a proxy that puts a path before its own.
"""

from __future__ import annotations

import importlib.resources
import mimetypes
from collections.abc import Awaitable, Callable, Collection, Sequence
from http import HTTPStatus
from typing import Protocol

import msgspec
from aiohttp import web

from millpond.errors import MillpondError
from millpond.protocol.overview import ApplicationOverview, ApplicationSummary
from millpond.texts import encoded, well_formed

__all__ = ("NO_NAMESPACE", "ConsoleSource", "Unavailable", "add_console")

NO_NAMESPACE = "-"
"""What stands for the namespace in URLs of an application that has none."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_PREFIXES = ("/api/", "/console")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Unavailable(MillpondError):
    """The console has nothing to show now; the message is one sentence for people."""


class ConsoleSource(Protocol):
    """Where the console's documents come from."""

    async def summaries(self) -> Sequence[ApplicationSummary]:
        """Return all applications.

        Raises:
            Unavailable: they are not known here.
        """

    async def overview(self, namespace: str, name: str) -> ApplicationOverview | None:
        """Return one application, or None if there is none of this name; raises like `summaries`."""

    async def picture(self, namespace: str, name: str) -> str | None:
        """Return the drawn topology as SVG, or None if there is none; raises like `summaries`."""


def add_console(
    app: web.Application, source: ConsoleSource, hosts: Callable[[], Collection[str]] | None = None
) -> None:
    """Serve `/console/` and `/api/applications`.

    Args:
        app: the server, which may serve other paths, too.
        source: the documents.
        hosts: returns the accepted values of the header Host: on a developer's machine a foreign web page could
            otherwise read the console under a name of its own (DNS rebinding). None accepts all.
    """
    files = _files()
    guard = _guarded(hosts)

    async def page(request: web.Request) -> web.StreamResponse:
        await source.summaries()
        name = request.match_info.get("file") or "index.html"
        if name not in files:
            return _error(HTTPStatus.NOT_FOUND, f"The console has no file {name}.")
        return web.Response(body=files[name], content_type=_type(name), charset="utf-8")

    async def redirect(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=HTTPStatus.FOUND, headers={"Location": "console/"})

    async def applications(_request: web.Request) -> web.StreamResponse:
        return _json({"applications": await source.summaries()})

    async def application(request: web.Request) -> web.StreamResponse:
        found = await source.overview(*_names(request))
        return _missing(request) if found is None else _json(found)

    async def picture(request: web.Request) -> web.StreamResponse:
        found = await source.picture(*_names(request))
        return _missing(request) if found is None else web.Response(text=found, content_type="image/svg+xml")

    for path, handler in (
        ("/console", redirect),
        ("/console/", page),
        ("/console/{file}", page),
        ("/api/applications", applications),
        ("/api/applications/{namespace}/{name}", application),
        ("/api/applications/{namespace}/{name}/topology.svg", picture),
    ):
        app.router.add_get(path, guard(handler))
    app.on_response_prepare.append(_secure)


def _guarded(hosts: Callable[[], Collection[str]] | None) -> Callable[[_Handler], _Handler]:
    def guard(handler: _Handler) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if hosts is not None and request.host not in hosts():
                return _error(
                    HTTPStatus.FORBIDDEN, "This host name is not the console's: open the URL that millpond dev shows."
                )
            try:
                return await handler(request)
            except Unavailable as unavailable:
                return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(unavailable))

        return handle

    return guard


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    if request.path.startswith(_PREFIXES):
        response.headers.update(_HEADERS)


def _files() -> dict[str, bytes]:
    """Return the files of the page by name; they are few and small."""
    folder = importlib.resources.files(__package__).joinpath("static")
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def _type(name: str) -> str:
    return "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "text/plain"


def _names(request: web.Request) -> tuple[str, str]:
    namespace = request.match_info["namespace"]
    return "" if namespace == NO_NAMESPACE else namespace, request.match_info["name"]


def _json(document: object) -> web.Response:
    return web.Response(body=encoded(document, msgspec.json.Encoder()), content_type="application/json")


def _missing(request: web.Request) -> web.Response:
    name = "/".join(filter(None, _names(request)))
    return _error(HTTPStatus.NOT_FOUND, f"There is no application {name}, or nothing is known of it yet.")


def _error(status: HTTPStatus, sentence: str) -> web.Response:
    return web.Response(text=well_formed(sentence) + "\n", status=status)
