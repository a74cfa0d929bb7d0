"""The HTTP service: heartbeats of workers, orders and views for people and tools.

POST   /v1/applications/{app}/workers/{worker}/heartbeat   Heartbeat -> Answer, or a Refusal
POST   /v1/applications/{app}/workers/{worker}/gone        admin: the worker is known to be gone -> Member
POST   /v1/applications/{app}/workers/{worker}/drain       admin: move everything off it -> Member
DELETE /v1/applications/{app}/workers/{worker}/drain       admin: place tasks there again -> Member
GET    /v1/applications/{app}/assignment                   View; as a table with ?format=text
GET    /v1/applications/{app}/members                      [Member]; as a table with ?format=text
GET    /v1/applications                                    the applications' ids
GET    /metrics  /healthz                                  /metrics unless somebody else shows them

Applications of a namespace are below `/namespaces/{namespace}/v1/...`, and only there; two namespaces may each have an
application of the same id. A namespace may have two parts, `shop/delays`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from millpond.errors import MillpondError
from millpond.protocol import PROTOCOL_VERSION, Refusal, RefusalCode, clock, decode_heartbeat, encode

from .application import Application
from .auth import Authenticator, Identity
from .connections import Connections
from .engine import Engine
from .limits import MOST_BYTES, Limits, excess, most_bytes
from .metrics import CoordinatorMetrics
from .options import EngineOptions
from .rejections import unsupported
from .request_body import Slow, TooLarge, read_body
from .sessions import TICK_MS
from .store import AssignmentStore
from .token_bucket import Allowance
from .views import assignment_table, members_table

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
#: So many bytes of a heartbeat cost as much as a request.
_BYTES_PER_REQUEST = 32 * 1024
#: So many connections are accepted in one turn of the event loop, since each costs a handshake; more wait in the kernel.
_ACCEPTED_AT_ONCE, _BACKLOG = 8, 4096
#: For so long the rest of a body that is refused is read, so that its sender sees why.
_LINGERING_S = 0.5
#: An application without a namespace, and one of a namespace.
_PREFIXES = ("", "/namespaces/{namespace:[^/]+(?:/[^/]+)?}")
_json = msgspec.json.Encoder()


class _Versioned(msgspec.Struct):
    """What messages of all versions have."""

    version: int = PROTOCOL_VERSION
    incarnation: str = ""
    revision: str = ""


class _Refused(Exception):
    def __init__(self, code: RefusalCode, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.refusal = Refusal(code, message)
        self.status = _STATUS[code] if status is None else status


class CoordinatorServer:
    """Serves any number of applications on one port.

    Use it within one event loop: `add` applications, `start`, and `stop`.

    Args:
        authenticator: says whose a token is. None: everybody may do everything, which is for one's own machine.
        id: of this start of the coordinator. By default a new one that is greater than all before.
        on_superseded: called with an application's namespace and id when a worker knows a later coordinator of it.
            From then on its workers are refused.
        on_change: called with an application's namespace and id soon after members, refusals, owners of tasks, or how
            far tasks are have changed: once for many changes, and a few times a second at most.
        shows_metrics: whether `/metrics` is served, to everybody who can connect. False where the figures of several
            tenants are in it, and `metrics` is shown elsewhere.
        limits: what one tenant may take; None where there is one tenant only.

    Attributes:
        id: of this start of the coordinator.
        metrics: its figures.
        port: where it listens; 0 while it does not.
        url: its base URL; "" while it does not listen.
    """

    def __init__(
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
        self.metrics = CoordinatorMetrics(lambda: sorted(self._applications.items()))
        self._shows_metrics = shows_metrics
        self._limits = limits
        self._requests = None if limits is None else Allowance(limits.requests_per_second, limits.requests_burst)
        self._connections = Connections(limits, self.metrics.refuse)
        self.metrics.watch(self._connections)
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
        """Serve an application from now on.

        Args:
            application: its id.
            options: its settings.
            store: where its assignment is kept. None: nowhere, and a restart asks the workers.
            term: greater than that of any coordinator before; None for the one after that in the store.
            namespace: what its id is unique in; "" where there are no namespaces.

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
        """Serve an application no longer. Its workers go on with what they have."""
        each = self._applications.pop((namespace, application), None)
        if each is not None:
            await each.stop()

    async def start(self, host: str = "127.0.0.1", port: int = 0, ssl_context: ssl.SSLContext | None = None) -> None:
        """Listen.

        Args:
            host: address to listen on.
            port: 0 for any that is free.
            ssl_context: with it, HTTPS.

        Raises:
            OSError: the address cannot be listened on.
        """
        app = web.Application()
        app.on_response_prepare.append(self._close_strangers)
        add = app.router
        for prefix in _PREFIXES:
            applications = f"{prefix}/v1/applications"
            application = applications + "/{application}"
            worker = application + "/workers/{worker}"
            add.add_post(f"{worker}/heartbeat", self._answered(self._heartbeat))
            add.add_post(f"{worker}/gone", self._answered(self._gone))
            add.add_post(f"{worker}/drain", self._answered(self._drain))
            add.add_delete(f"{worker}/drain", self._answered(self._undrain))
            add.add_get(f"{application}/assignment", self._answered(self._assignment))
            add.add_get(f"{application}/members", self._answered(self._members))
            add.add_get(applications, self._answered(self._list))
        if self._shows_metrics:
            add.add_get("/metrics", self._exposition)
        add.add_get("/healthz", self._health)
        # A handler is cancelled when its connection breaks: that is how the end of a process shows first. No body is
        # unpacked: a small one could become a large one.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, keepalive_timeout=75, shutdown_timeout=1,
            lingering_time=_LINGERING_S, auto_decompress=False,
        )  # fmt: skip
        await self._runner.setup()
        assert self._runner.server is not None
        self._listening = await asyncio.get_running_loop().create_server(
            self._connections.guarded(self._runner.server, ssl_context),
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
        """Answer those who wait, and end."""
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
        """The application of this id, for whoever runs the coordinator in its own process."""
        return self._applications.get((namespace, id))

    async def _tick(self) -> None:
        """Let time pass for all applications."""
        while True:
            for (namespace, id), each in list(self._applications.items()):
                try:
                    each.tick()
                except Exception:
                    log.exception("time could not pass for application %s", "/".join(filter(None, (namespace, id))))
            await asyncio.sleep(TICK_MS / 1000)

    # Workers.

    async def _heartbeat(self, request: web.Request) -> web.Response:
        application, worker = request.match_info["application"], request.match_info["worker"]
        namespace = _namespace(request)
        identity = await self._identity(request)
        if identity is not None and not identity.speaks_for(application, worker, namespace):
            raise _Refused(
                RefusalCode.FORBIDDEN,
                f"This token does not speak for worker '{worker}' of '{application}': use that worker's own.",
            )
        each = self._application(request)
        most = MOST_BYTES if self._limits is None else most_bytes(each.engine.topology)
        cost = 1 + min(request.content_length or 0, most) / _BYTES_PER_REQUEST
        await self._admit(request, (namespace, application, worker), cost)
        raw = await self._body(request, most)
        try:
            heartbeat = decode_heartbeat(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unreadable(each, worker, raw, error) from error
        if self._limits is not None and (what := excess(heartbeat)) is not None:
            self.metrics.refuse("heartbeat_fields")
            raise _Refused(RefusalCode.BAD_REQUEST, f"A heartbeat of worker '{worker}' is refused: {what}.")
        if heartbeat.worker != worker or heartbeat.application != application:
            raise _Refused(
                RefusalCode.BAD_REQUEST,
                f"A heartbeat of worker '{heartbeat.worker}' of '{heartbeat.application}' was posted as that of "
                f"'{worker}' of '{application}': use the URL of its own.",
            )
        outcome = await each.heartbeat(heartbeat)
        if isinstance(outcome, Refusal):
            raise _Refused(outcome.code, outcome.message)
        self.metrics.heartbeat(namespace, application, "ok")
        return web.Response(body=encode(outcome), content_type=_JSON)

    async def _admit(self, request: web.Request, worker: tuple[str, ...], cost: float) -> None:
        """Let a request of a worker go on, now or when the worker may make another one.

        Raises:
            _Refused: the worker has too many connections.
        """
        if self._requests is None:
            return
        if wait_s := self._requests.owe(worker, cost):
            self.metrics.refuse("delayed")
            await asyncio.sleep(wait_s)
        if not self._connections.vouch(request.protocol, worker):
            raise _Refused(
                RefusalCode.BAD_REQUEST,
                f"Worker '{worker[-1]}' has too many connections to this coordinator: close some.",
                status=429,
            )

    async def _body(self, request: web.Request, most: int) -> bytes:
        within = (self._limits or Limits()).body_timeout
        try:
            return await read_body(request, most, within)
        except TooLarge as error:
            self.metrics.refuse("body_size")
            raise _Refused(
                RefusalCode.BAD_REQUEST,
                f"A heartbeat of this application has {most} bytes at most: report only tasks that its topology has.",
                status=413,
            ) from error
        except Slow as error:
            self.metrics.refuse("body_time")
            message = f"A heartbeat did not arrive within {within.total_seconds():g} s: check the worker's network."
            raise _Refused(RefusalCode.BAD_REQUEST, message, status=408) from error

    async def _close_strangers(self, request: web.Request, response: web.StreamResponse) -> None:
        """A connection that shows no valid token gets one answer."""
        if not self._connections.known(request.protocol):
            response.force_close()

    # People and tools.

    async def _gone(self, request: web.Request) -> web.Response:
        await self._admin(request)
        return self._member(request, self._application(request).gone(request.match_info["worker"]))

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
        return (
            _text(assignment_table(view))
            if _for_people(request)
            else web.Response(body=encode(view), content_type=_JSON)
        )

    async def _members(self, request: web.Request) -> web.Response:
        await self._reader(request)
        members = self._application(request).view().members
        return (
            _text(members_table(members))
            if _for_people(request)
            else web.Response(body=_json.encode(members), content_type=_JSON)
        )

    async def _list(self, request: web.Request) -> web.Response:
        await self._reader(request)
        here = sorted(id for namespace, id in self._applications if namespace == _namespace(request))
        return web.Response(body=_json.encode(here), content_type=_JSON)

    async def _exposition(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.exposed(), headers={"Content-Type": _METRICS})

    async def _health(self, request: web.Request) -> web.Response:
        return _text("ok\n")

    # What they have in common.

    def _answered(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """A handler whose refusals are sent as such."""

        async def answered(request: web.Request) -> web.Response:
            try:
                return await handler(request)
            except _Refused as refused:
                refusal, status = refused.refusal, refused.status
            if request.path.endswith("/heartbeat"):
                key = _namespace(request), request.match_info["application"]
                self.metrics.heartbeat(*(key if key in self._applications else ("", "")), refusal.code.value)
            if _for_people(request):
                return _text(f"{refusal.message}\n", status)
            return web.Response(body=encode(refusal), content_type=_JSON, status=status)

        return answered

    async def _identity(self, request: web.Request) -> Identity | None:
        """Who asks; None when nobody has to say.

        Raises:
            _Refused: nobody with a valid token.
        """
        if self._authenticator is None:
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            identity = await self._authenticator(
                token.strip() if scheme.lower() == "bearer" and token else None, request.remote or ""
            )
        except MillpondError as error:
            self.metrics.refuse("unreviewed")
            raise web.HTTPServiceUnavailable(text=f"Whose token this is cannot be told now: {error}\n") from error
        if identity is None:
            raise _Refused(
                RefusalCode.UNAUTHORIZED,
                "This coordinator wants a valid token (Authorization: Bearer ...): set coordinator.token.file.",
            )
        return identity

    async def _reader(self, request: web.Request) -> Identity | None:
        identity = await self._identity(request)
        if identity is not None and not identity.reaches(_namespace(request)):
            raise _Refused(RefusalCode.FORBIDDEN, "This token is for another namespace.")
        if identity is not None:
            await self._admit(
                request, ("reader", identity.namespace or "", identity.application or "", identity.worker or ""), 1
            )
        return identity

    async def _admin(self, request: web.Request) -> None:
        identity = await self._reader(request)
        if identity is not None and not identity.admin:
            raise _Refused(RefusalCode.FORBIDDEN, "This takes a token with the right 'admin'.")

    def _application(self, request: web.Request) -> Application:
        namespace, id = _namespace(request), request.match_info["application"]
        each = self._applications.get((namespace, id))
        if each is None:
            known = ", ".join(sorted(other for where, other in self._applications if where == namespace)) or "none"
            raise _Refused(
                RefusalCode.UNKNOWN_APPLICATION,
                f"This coordinator does not serve application '{id}'; it serves {known}: check application.id and "
                "coordinator.url.",
            )
        return each

    @staticmethod
    def _member(request: web.Request, member: msgspec.Struct | None) -> web.Response:
        if member is None:
            raise _Refused(
                RefusalCode.BAD_REQUEST,
                f"No worker '{request.match_info['worker']}' has been heard of: see the list of members.",
                status=404,
            )
        return web.Response(body=encode(member), content_type=_JSON)


def _namespace(request: web.Request) -> str:
    return request.match_info.get("namespace", "")


def _unreadable(application: Application, worker: str, raw: bytes, error: Exception) -> _Refused:
    """Why a heartbeat cannot be read: another version of the protocol may be the reason."""
    sent = _Versioned()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        sent = msgspec.json.decode(raw, type=_Versioned)
    if sent.version != PROTOCOL_VERSION:
        refusal = unsupported(worker, sent.version)
        application.refused(worker, sent.incarnation, sent.revision, refusal)
        return _Refused(refusal.code, refusal.message)
    return _Refused(RefusalCode.BAD_REQUEST, f"What worker '{worker}' sent is no heartbeat: {error}.")


def _for_people(request: web.Request) -> bool:
    wanted = request.query.get("format")
    if wanted is not None:
        return wanted == "text"
    return request.headers.get("Accept", "").startswith(_TEXT)


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, content_type=_TEXT, status=status)
