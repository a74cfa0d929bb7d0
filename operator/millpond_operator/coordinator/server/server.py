"""The HTTP server: heartbeats of workers; state and commands for people and tools.

POST   /v1/applications/{app}/workers/{worker}/heartbeat   Heartbeat -> Answer, or a Refusal
POST   /v1/applications/{app}/workers/{worker}/gone        admin: declare the worker dead -> Member
POST   /v1/applications/{app}/workers/{worker}/drain       admin: move all tasks off it -> Member
DELETE /v1/applications/{app}/workers/{worker}/drain       admin: assign it tasks again -> Member
GET    /v1/applications/{app}/assignment                   View; as a table with ?format=text
GET    /v1/applications/{app}/members                      [Member]; as a table with ?format=text
GET    /v1/applications                                    the ids of all applications
GET    /v1/applications/{app}/stores/..., /metadata/...     a query: 307 to a worker of the application
GET    /v1/stores/..., /v1/metadata/...                     the same, while one application is served here
GET    /metrics  /healthz                                  /metrics unless it is served elsewhere

Applications of a namespace are below `/namespaces/{namespace}/v1/...`, and only there; two namespaces may each have an
application of the same id. A namespace may have two parts, `shop/delays`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from millpond.errors import MillpondError
from millpond.protocol import PROTOCOL_VERSION, Refusal, RefusalCode, clock, decode_heartbeat, encode
from millpond_operator.coordinator.engine.engine import Engine
from millpond_operator.coordinator.engine.options import EngineOptions
from millpond_operator.coordinator.engine.rejections import unsupported
from millpond_operator.coordinator.engine.sessions import TICK_MS

from .application import Application
from .auth import Authenticator, Identity
from .connections import Connections
from .limits import MOST_BYTES, Limits, excess, most_bytes, without_large_figures
from .load_measurement import LoadMeasurement
from .metrics import CoordinatorMetrics
from .query_redirects import PATHS, redirect
from .request_body import BodyTooLarge, BodyTooSlow, read_body
from .store import AssignmentStore
from .tables import assignment_table, members_table
from .token_bucket import TokenBuckets

__all__ = ("CoordinatorServer",)

log = logging.getLogger(__name__)

_STATUS = {
    RefusalCode.BAD_REQUEST: 400,
    RefusalCode.UNSUPPORTED_VERSION: 400,
    RefusalCode.UNAUTHORIZED: 401,
    RefusalCode.FORBIDDEN: 403,
    RefusalCode.UNKNOWN_APPLICATION: 404,
    RefusalCode.TOPOLOGY_MISMATCH: 409,
    RefusalCode.REPLACED: 409,
    RefusalCode.CLAIM_PENDING: 409,
    RefusalCode.CLAIM_REFUSED: 409,
    RefusalCode.NOT_LEADING: 503,
}
_JSON, _TEXT, _METRICS = "application/json", "text/plain", "text/plain; version=0.0.4; charset=utf-8"
#: Bytes of a heartbeat that count as one request.
_BYTES_PER_REQUEST = 32 * 1024
#: Connections that are accepted in one turn of the event loop, since each costs a handshake; more wait in the kernel.
_ACCEPTED_AT_ONCE, _BACKLOG = 8, 4096
#: How long the rest of a rejected body is read, so that its sender sees the response.
_LINGER_S = 0.5
#: Paths of applications without a namespace, and with one.
_PREFIXES = ("", "/namespaces/{namespace:[^/]+(?:/[^/]+)?}")
_json = msgspec.json.Encoder()


class _VersionOnly(msgspec.Struct):
    """The heartbeat fields that all protocol versions have."""

    version: int = PROTOCOL_VERSION
    incarnation: str = ""
    revision: str = ""


class _Rejected(Exception):
    def __init__(self, code: RefusalCode, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message)
        self.status = _STATUS[code] if status is None else status


class CoordinatorServer:
    """Serves any number of applications on one port.

    Use it within one event loop: `add` applications, `start`, and `stop`.

    Args:
        authenticator: maps tokens to identities. None: every client may do everything, for use on one machine.
        id: of this coordinator. By default a new one, greater than all earlier ones.
        on_superseded: called with an application's namespace and id when a worker knows a later coordinator of it.
            From then on its workers are rejected.
        on_change: called with an application's namespace and id soon after members, rejections, owners, or progress
            of tasks changed: once for many changes, and a few times per second at most.
        shows_metrics: whether `/metrics` is served, to every client that can connect. Pass False where it would expose
            several tenants, and serve `metrics` elsewhere.
        limits: limits for each tenant; None where there is only one tenant.

    Attributes:
        id: of this coordinator.
        metrics: its metrics.
        port: the port that it listens on; 0 while it does not.
        url: its base URL; "" while it does not listen.
    """

    def __init__(  # noqa: PLR0913 - keyword-only options
        self,
        *,
        authenticator: Authenticator | None = None,
        id: str | None = None,
        on_superseded: Callable[[str, str], None] | None = None,
        on_change: Callable[[str, str], None] | None = None,
        shows_metrics: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.id = id if id is not None else f"{int(clock.unix_time() * 1000):011x}-{secrets.token_hex(3)}"
        self.port = 0
        self.url = ""
        self._authenticator = authenticator
        self._on_superseded = on_superseded or (lambda _namespace, _application: None)
        self._on_change = on_change or (lambda _namespace, _application: None)
        self._applications: dict[tuple[str, str], Application] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._measurement = LoadMeasurement(lambda: [each.engine for each in self._applications.values()])
        self.metrics = CoordinatorMetrics(lambda: sorted(self._applications.items()))
        self._shows_metrics = shows_metrics
        self._limits = limits
        self._requests = None if limits is None else TokenBuckets(limits.requests_per_second, limits.requests_burst)
        self._connections = Connections(limits, self.metrics.count_rejection)
        self.metrics.watch(self._connections)
        self._queries = itertools.count()
        self._runner: web.AppRunner | None = None
        self._listening: asyncio.AbstractServer | None = None

    async def add(
        self,
        application: str,
        options: EngineOptions | None = None,
        store: AssignmentStore | None = None,
        term: int | None = None,
        namespace: str = "",
    ) -> None:
        """Start to serve an application.

        Args:
            application: its id.
            options: its settings.
            store: stores its assignment. None: a restarted coordinator learns it from the workers.
            term: greater than that of every earlier coordinator; None for the stored one + 1.
            namespace: the scope of its id; "" where there are no namespaces.

        Raises:
            StoreError: the last assignment cannot be read or written.
        """
        await self.remove(application, namespace)
        engine = Engine(application, 1 if term is None else term, self.id, options)
        each = Application(
            engine,
            store,
            lambda: self._on_superseded(namespace, application),
            lambda: self._on_change(namespace, application),
        )
        await each.start()
        self._applications[namespace, application] = each
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick())

    async def remove(self, application: str, namespace: str = "") -> None:
        """Stop serving an application. Its workers keep their tasks."""
        each = self._applications.pop((namespace, application), None)
        if each is not None:
            await each.stop()

    async def start(self, host: str = "127.0.0.1", port: int = 0, ssl_context: ssl.SSLContext | None = None) -> None:
        """Listen.

        Args:
            host: address to listen on.
            port: 0 for any free one.
            ssl_context: serves HTTPS with it, HTTP without.

        Raises:
            OSError: the address cannot be listened on.
        """
        app = web.Application()
        app.on_response_prepare.append(self._close_unauthenticated)
        add = app.router
        for prefix in _PREFIXES:
            applications = f"{prefix}/v1/applications"
            application = applications + "/{application}"
            worker = application + "/workers/{worker}"
            add.add_post(f"{worker}/heartbeat", self._answered(self._heartbeat))
            add.add_post(f"{worker}/gone", self._answered(self._declare_dead))
            add.add_post(f"{worker}/drain", self._answered(self._drain))
            add.add_delete(f"{worker}/drain", self._answered(self._undrain))
            add.add_get(f"{application}/assignment", self._answered(self._assignment))
            add.add_get(f"{application}/members", self._answered(self._members))
            add.add_get(applications, self._answered(self._list))
            for queries in (application, f"{prefix}/v1"):
                add.add_get(queries + PATHS, self._answered(self._query))
        if self._shows_metrics:
            add.add_get("/metrics", self._exposition)
        add.add_get("/healthz", self._health)
        # A handler is cancelled when its connection breaks, which is the first sign of a process that died. Bodies are
        # not decompressed: a small one could become a large one.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, keepalive_timeout=75, shutdown_timeout=1,
            lingering_time=_LINGER_S, auto_decompress=False,
        )  # fmt: skip
        await self._runner.setup()
        assert self._runner.server is not None
        self._listening = await asyncio.get_running_loop().create_server(
            self._connections.protocol_factory(self._runner.server, ssl_context),
            host,
            port,
            backlog=_ACCEPTED_AT_ONCE,
            reuse_address=True,
        )
        for each in self._listening.sockets:
            with each.dup() as listening:
                listening.listen(_BACKLOG)
        self.port = self._listening.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if ssl_context is not None else 'http'}://{shown}:{self.port}"

    async def stop(self) -> None:
        """Answer the heartbeats that wait, and stop."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
            self._ticking = None
        for namespace, application in list(self._applications):
            await self.remove(application, namespace)
        self._connections.stop()
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner, self.port, self.url = None, 0, ""

    def application(self, id: str, namespace: str = "") -> Application | None:
        """Return the application with this id, for code in the same process."""
        return self._applications.get((namespace, id))

    async def _tick(self) -> None:
        """Pass the current time to all applications."""
        while True:
            self._measurement.update(self.metrics.answered)
            for (namespace, id), each in list(self._applications.items()):
                try:
                    each.tick()
                except Exception:
                    log.exception("application %s: cannot check sessions", "/".join(filter(None, (namespace, id))))
            await asyncio.sleep(TICK_MS / 1000)

    # Workers

    async def _heartbeat(self, request: web.Request) -> web.Response:
        application, worker = request.match_info["application"], request.match_info["worker"]
        namespace = _namespace(request)
        identity = await self._identity(request)
        if identity is not None and not identity.speaks_for(application, worker, namespace):
            raise _Rejected(
                RefusalCode.FORBIDDEN,
                f"This token is not valid for worker '{worker}' of '{application}': use that worker's own token.",
            )
        each = self._application(request)
        most = MOST_BYTES if self._limits is None else most_bytes(each.engine.topology)
        cost = 1 + min(request.content_length or 0, most) / _BYTES_PER_REQUEST
        await self._admit(request, (namespace, application, worker), cost)
        raw = await self._body(request, most)
        try:
            heartbeat = decode_heartbeat(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _undecodable(each, worker, raw, error) from error
        if self._limits is not None and (what := excess(heartbeat)) is not None:
            self.metrics.count_rejection("heartbeat_fields")
            raise _Rejected(RefusalCode.BAD_REQUEST, f"A heartbeat of worker '{worker}' is rejected: {what}.")
        if heartbeat.worker != worker or heartbeat.application != application:
            raise _Rejected(
                RefusalCode.BAD_REQUEST,
                f"A heartbeat of worker '{heartbeat.worker}' of '{heartbeat.application}' was posted to the URL of "
                f"worker '{worker}' of '{application}': use its own URL.",
            )
        outcome = await each.heartbeat(heartbeat if self._limits is None else without_large_figures(heartbeat))
        if isinstance(outcome, Refusal):
            raise _Rejected(outcome.code, outcome.message)
        self.metrics.heartbeat(namespace, application, "ok")
        return web.Response(body=encode(outcome), content_type=_JSON)

    async def _admit(self, request: web.Request, worker: tuple[str, ...], cost: float) -> None:
        """Delay a request until its sender may make another one.

        Raises:
            _Rejected: the sender has too many connections.
        """
        if self._requests is None:
            return
        if wait_s := self._requests.owe(worker, cost):
            self.metrics.count_rejection("delayed")
            await asyncio.sleep(wait_s)
        if not self._connections.authenticated(request.protocol, worker):
            raise _Rejected(
                RefusalCode.BAD_REQUEST,
                f"Worker '{worker[-1]}' has too many connections to this coordinator: close some of them.",
                status=429,
            )

    async def _body(self, request: web.Request, most: int) -> bytes:
        within = (self._limits or Limits()).body_timeout
        try:
            return await read_body(request, most, within)
        except BodyTooLarge as error:
            self.metrics.count_rejection("body_size")
            raise _Rejected(
                RefusalCode.BAD_REQUEST,
                f"A heartbeat of this application may have at most {most} bytes: report only tasks of its topology.",
                status=413,
            ) from error
        except BodyTooSlow as error:
            self.metrics.count_rejection("body_time")
            message = f"A heartbeat did not arrive within {within.total_seconds():g} s: check the worker's network."
            raise _Rejected(RefusalCode.BAD_REQUEST, message, status=408) from error

    async def _close_unauthenticated(self, request: web.Request, response: web.StreamResponse) -> None:
        """Close a connection without a valid token after its first response."""
        if not self._connections.known(request.protocol):
            response.force_close()

    # People and tools

    async def _declare_dead(self, request: web.Request) -> web.Response:
        await self._admin(request)
        return self._member(request, self._application(request).declare_dead(request.match_info["worker"]))

    async def _drain(self, request: web.Request) -> web.Response:
        await self._admin(request)
        member = self._application(request).drain(request.match_info["worker"], draining=True)
        return self._member(request, member)

    async def _undrain(self, request: web.Request) -> web.Response:
        await self._admin(request)
        member = self._application(request).drain(request.match_info["worker"], draining=False)
        return self._member(request, member)

    async def _assignment(self, request: web.Request) -> web.Response:
        await self._reader(request)
        view = self._application(request).view()
        if _wants_text(request):
            return _text(assignment_table(view))
        return web.Response(body=encode(view), content_type=_JSON)

    async def _members(self, request: web.Request) -> web.Response:
        await self._reader(request)
        members = self._application(request).view().members
        if _wants_text(request):
            return _text(members_table(members))
        return web.Response(body=_json.encode(members), content_type=_JSON)

    async def _list(self, request: web.Request) -> web.Response:
        await self._reader(request)
        here = sorted(id for namespace, id in self._applications if namespace == _namespace(request))
        return web.Response(body=_json.encode(here), content_type=_JSON)

    async def _query(self, request: web.Request) -> web.Response:
        """Redirect a query to a live worker, which answers for the whole application; to another one each time."""
        await self._reader(request)
        return redirect(request, self._application(request).view(), next(self._queries))

    async def _exposition(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.exposition(), headers={"Content-Type": _METRICS})

    async def _health(self, request: web.Request) -> web.Response:
        return _text("ok\n")

    # Common parts

    def _answered(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Wrap a handler so that a `_Rejected` becomes a response."""

        async def answered(request: web.Request) -> web.Response:
            try:
                return await handler(request)
            except _Rejected as refused:
                refusal, status = refused.refusal, refused.status
            if request.path.endswith("/heartbeat"):
                key = _namespace(request), request.match_info["application"]
                self.metrics.heartbeat(*(key if key in self._applications else ("", "")), refusal.code.value)
            if _wants_text(request):
                return _text(f"{refusal.message}\n", status)
            return web.Response(body=encode(refusal), content_type=_JSON, status=status)

        return answered

    async def _identity(self, request: web.Request) -> Identity | None:
        """Return the identity of the sender; None when no tokens are required.

        Raises:
            _Rejected: the token is missing or invalid.
        """
        if self._authenticator is None:
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            identity = await self._authenticator(
                token.strip() if scheme.lower() == "bearer" and token else None, request.remote or ""
            )
        except MillpondError as error:
            self.metrics.count_rejection("unreviewed")
            raise web.HTTPServiceUnavailable(text=f"The token cannot be verified now: {error}\n") from error
        if identity is None:
            raise _Rejected(
                RefusalCode.UNAUTHORIZED,
                "This coordinator requires a valid token (Authorization: Bearer ...): set coordinator.token.file.",
            )
        return identity

    async def _reader(self, request: web.Request) -> Identity | None:
        identity = await self._identity(request)
        if identity is not None and not identity.reaches(_namespace(request)):
            raise _Rejected(RefusalCode.FORBIDDEN, "This token is for another namespace: use one for this namespace.")
        if identity is not None:
            await self._admit(
                request, ("reader", identity.namespace or "", identity.application or "", identity.worker or ""), 1
            )
        return identity

    async def _admin(self, request: web.Request) -> None:
        identity = await self._reader(request)
        if identity is not None and not identity.admin:
            raise _Rejected(
                RefusalCode.FORBIDDEN,
                "This token lacks the right 'admin': use an admin token.",
            )

    def _application(self, request: web.Request) -> Application:
        namespace = _namespace(request)
        here = sorted(other for where, other in self._applications if where == namespace)
        id = request.match_info.get("application", here[0] if len(here) == 1 else "")
        each = self._applications.get((namespace, id))
        if each is None:
            serves = f"serves {', '.join(here) or 'none'}"
            message = f"Name one application, as in /v1/applications/NAME/stores: this coordinator {serves}."
            if id:
                message = (
                    f"This coordinator does not serve application '{id}'; it {serves}: check application.id and "
                    "coordinator.url."
                )
            raise _Rejected(RefusalCode.UNKNOWN_APPLICATION, message)
        return each

    @staticmethod
    def _member(request: web.Request, member: msgspec.Struct | None) -> web.Response:
        if member is None:
            raise _Rejected(
                RefusalCode.BAD_REQUEST,
                f"Worker '{request.match_info['worker']}' is not known: use a name from the list of members.",
                status=404,
            )
        return web.Response(body=encode(member), content_type=_JSON)


def _namespace(request: web.Request) -> str:
    return request.match_info.get("namespace", "")


def _undecodable(application: Application, worker: str, raw: bytes, error: Exception) -> _Rejected:
    """Return the rejection of a heartbeat that cannot be decoded, possibly because of its protocol version."""
    sent = _VersionOnly()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        sent = msgspec.json.decode(raw, type=_VersionOnly)
    if sent.version != PROTOCOL_VERSION:
        refusal = unsupported(worker, sent.version)
        application.note_rejected(worker, sent.incarnation, sent.revision, refusal)
        return _Rejected(refusal.code, refusal.message)
    return _Rejected(RefusalCode.BAD_REQUEST, f"Cannot decode the heartbeat of worker '{worker}': {error}.")


def _wants_text(request: web.Request) -> bool:
    wanted = request.query.get("format")
    if wanted is not None:
        return wanted == "text"
    return request.headers.get("Accept", "").startswith(_TEXT)


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, content_type=_TEXT, status=status)
