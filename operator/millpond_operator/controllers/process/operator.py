"""The operator as a program: stand by until the lease is this process's own, then lead until it is not."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

from millpond.errors import MillpondError
from millpond.protocol import clock
from millpond_operator.controllers.coordinator_host import endpoints
from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.coordinator_host.tls.authority import CertificateAuthority
from millpond_operator.controllers.coordinator_host.token_review import REVIEW_TIMEOUT
from millpond_operator.controllers.coordinator_host.unverified_tokens import claims_of
from millpond_operator.controllers.pass_context import Key
from millpond_operator.controllers.reconcile.reconciler import Reconciler
from millpond_operator.controllers.settings import Settings
from millpond_operator.coordinator import Limits
from millpond_operator.kubernetes import Cache, Client, Connection, LeadershipLost, kinds
from millpond_operator.kubernetes.lease import Lease, LeaseOptions
from millpond_operator.kubernetes.watching import Watching, WatchOptions
from millpond_operator.resources import Surroundings

from .health import HealthServer, stuck
from .lease_thread import LeaseThread, Run, own_thread
from .metrics import OperatorMetrics
from .work_queue import WorkQueue

__all__ = ("operate",)

log = logging.getLogger("millpond_operator")

_SECRET = "millpond-coordinator-tls"  # noqa: S105 - the name of a Secret
_CONTROLLER = "streamapp"
_SENDING = "The EndpointSlice"
_SOON = timedelta(seconds=1)
#: What the coordinator has to tell is collected for so long: a task that moves is several changes.
_COALESCE = timedelta(milliseconds=200)
_LONGEST_BACKOFF = timedelta(seconds=15)


class Stopped(Exception):
    """Somebody asked the process to end."""


async def operate(
    settings: Settings, stopped: asyncio.Event | None = None, lease_beside: LeaseThread = own_thread
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        settings: how.
        stopped: ends it when it is set, in place of signals.
        lease_beside: where the lease is renewed.

    Raises:
        LeadershipLost: another operator leads now, or may; the process should end and start anew.
        MillpondError: it cannot work as it is set up.
    """
    connection = Connection.find(settings.kubeconfig or None)
    settings = settings.within(connection.namespace)
    metrics = OperatorMetrics()
    timeout = settings.request_timeout
    async with lease_beside() as run, AsyncExitStack() as stack:
        client = Client(connection, metrics=metrics, timeout=timeout)
        await run(client.__aenter__())
        stack.push_async_callback(lambda: run(client.__aexit__(None, None, None)))
        lease = Lease(
            client,
            settings.namespace,
            f"{settings.pod_name}_{secrets.token_hex(4)}",
            name=settings.lease_name,
            options=LeaseOptions(settings.lease_duration, settings.lease_renew_deadline, settings.lease_retry_period),
            on_change=lambda leads: metrics.leads(settings.lease_name, now=leads),
        )
        operator = _Operator(settings, connection, metrics, lease, run)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_until_stopped(stopped or _signals()), name="signals")
                group.create_task(operator.run(), name="operator")
        except* Stopped:
            log.info("Ending in order.")
        except* (MillpondError, OSError) as errors:
            raise _first(errors) from errors
        finally:
            await run(lease.release())


class _Operator:
    def __init__(
        self, settings: Settings, connection: Connection, metrics: OperatorMetrics, lease: Lease, beside: Run
    ) -> None:
        self._settings = settings
        self._beside = beside
        self._connection = connection
        self._metrics = metrics
        self._lease = lease
        figures = metrics.of_queue(_CONTROLLER)
        self._queue: WorkQueue[Key] = WorkQueue(_CONTROLLER, metrics=figures, longest_backoff=_LONGEST_BACKOFF)
        figures.watch(self._queue)
        self._reconciler: Reconciler | None = None
        self._leading_since: float | None = None
        self._synced = False
        self._health = HealthServer(
            metrics.exposed, alive=[stuck(self._queue, settings.longest_reconcile)], ready=[self._not_ready]
        )

    async def run(self) -> None:
        settings = self._settings
        await self._health.start(settings.http_host or "0.0.0.0", settings.http_port)  # noqa: S104 - probes and scrapes come from anywhere
        log.info("/healthz, /readyz and /metrics are at port %d.", self._health.port)
        try:
            await self._beside(self._lease.acquire())
            self._leading_since = clock.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beside(self._lease.hold()), name="lease")
                group.create_task(self._lead(), name="leading")
        finally:
            await self._health.stop()

    async def _lead(self) -> None:
        settings, lease = self._settings, self._lease
        client = Client(self._connection, guard=lease.check, metrics=self._metrics, timeout=settings.request_timeout)
        # Heartbeats wait for reviews: these wait neither for other requests nor for long.
        reviews = Client(self._connection, metrics=self._metrics, timeout=REVIEW_TIMEOUT)
        async with client, reviews:
            cache = Cache()
            watching = Watching(
                client,
                cache,
                lambda namespace, name: self._queue.add((namespace, name)),
                namespaces=settings.watch_namespaces,
                options=WatchOptions(settings.resync_interval, settings.watch_patience),
            )
            self._health.also_alive(watching.trouble)
            self._health.also_ready(watching.unserved)
            trust = CertificateAuthority(
                client,
                settings.namespace,
                _SECRET,
                _hosts(settings.coordinator_host),
                spread=settings.trust_delay,
                lacking=lambda authority: _lacking(cache, authority) if self._synced else ["anybody"],
                on_change=lambda bundle: self._trusted(cache, bundle),
            )
            await trust.begin()
            async with self._hosting(client, reviews, cache, trust.context) as hosting:
                surroundings = Surroundings(
                    f"https://{settings.coordinator_host}:{settings.coordinator_service_port}",
                    trust.bundle,
                    lease.epoch,
                    settings.namespace,
                )
                self._reconciler = Reconciler(
                    client,
                    cache,
                    hosting,
                    surroundings,
                    self._queue.add,
                    instance=settings.pod_name,
                    upgrade_budget=settings.upgrade_budget,
                )
                self._metrics.gauge(
                    "millpond_operator_upgrades_waiting",
                    "StreamApps whose workers have still to restart for this version of the operator.",
                    functools.partial(_waiting, self._reconciler),
                )
                async with asyncio.TaskGroup() as group:
                    group.create_task(watching.run(), name="watching")
                    group.create_task(self._reconcile(client, cache, watching, self._reconciler), name="reconciling")
                    group.create_task(self._keep_up(trust.look, "The coordinator's certificate"), name="certificates")

    @contextlib.asynccontextmanager
    async def _hosting(
        self, client: Client, reviews: Client, cache: Cache, context: ssl.SSLContext
    ) -> AsyncIterator[CoordinatorHost]:
        hosting = CoordinatorHost(
            client,
            cache,
            self._lease.epoch,
            lambda namespace, name: self._queue.add_after((namespace, name), _COALESCE),
            reviews,
            issuer=_issuer(self._connection),
            limits=Limits(connections=self._settings.coordinator_connections),
        )
        self._metrics.add(hosting.coordinator.metrics)
        await hosting.start("0.0.0.0", self._settings.coordinator_port, context)  # noqa: S104 - workers come from anywhere; they show a token
        try:
            yield hosting
        finally:
            await hosting.stop()

    async def _reconcile(self, client: Client, cache: Cache, watching: Watching, reconciler: Reconciler) -> None:
        """Nothing is decided before everything was seen; workers are sent here when their applications are served."""
        await watching.synced.wait()
        for key in cache.keys(kinds.STREAM_APP):
            self._queue.add((key.namespace, key.name))
        self._synced = True
        log.info("%d StreamApps are there.", cache.count(kinds.STREAM_APP))
        handle = self._metrics.measured(_CONTROLLER, reconciler)
        async with asyncio.TaskGroup() as group:
            if self._settings.pod_ip:
                sending = functools.partial(endpoints.announce, client, self._settings)
                group.create_task(self._keep_up(sending, _SENDING, at_once=True), name="endpoints")
            group.create_task(self._queue.run(handle, self._settings.concurrency), name="queue")

    async def _keep_up(self, what: Callable[[], Awaitable[None]], named: str, *, at_once: bool = False) -> None:
        """See to something again and again: somebody may change it, or delete it."""
        pause = timedelta(0) if at_once else self._settings.upkeep_interval
        while True:
            await asyncio.sleep(pause.total_seconds())
            done = await self._kept_up(what, named)
            pause = self._settings.upkeep_interval if done else min(self._settings.upkeep_interval, _SOON)

    @staticmethod
    async def _kept_up(what: Callable[[], Awaitable[None]], named: str) -> bool:
        try:
            await what()
        except LeadershipLost:
            raise
        except (MillpondError, OSError) as error:
            log.warning("%s could not be looked after; it is tried again: %s", named, error)
            return False
        return True

    def _trusted(self, cache: Cache, bundle: str) -> None:
        """Workers have to trust others from now on: all of them are told."""
        if self._reconciler is None:
            return
        self._reconciler.trust(bundle)
        for key in cache.keys(kinds.STREAM_APP):
            self._queue.add((key.namespace, key.name))

    def _not_ready(self) -> str | None:
        """A replica that stands by is ready: to lead."""
        if self._leading_since is not None and not self._synced:
            return "This operator leads, and has not seen everything yet."
        return None


def _waiting(reconciler: Reconciler) -> float:
    return float(reconciler.upgrades_waiting)


def _issuer(connection: Connection) -> str:
    """Who signed the operator's own token: the same one signs those of workers. "" where it has none."""
    claims = claims_of(connection.bearer() or "")
    return "" if claims is None else claims.iss


def _hosts(host: str) -> tuple[str, ...]:
    """The names that workers may know the coordinator by."""
    names = [host]
    if host.endswith(".svc"):
        names += [f"{host}.cluster.local", host.removesuffix(".svc")]
    return tuple(names)


def _lacking(cache: Cache, authority: str) -> list[str]:
    """What workers have that does not have an authority yet."""
    return [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in cache.all(kinds.CONFIG_MAP)
        if "ca.crt" in (data := each.get("data") or {}) and authority.strip() not in data["ca.crt"]
    ]


def _signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)
    return stopped


async def _until_stopped(stopped: asyncio.Event) -> None:
    await stopped.wait()
    raise Stopped


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that says most: leadership lost is the cause of all that comes with it."""
    flat: list[BaseException] = []

    def collect(group: BaseExceptionGroup[BaseException]) -> None:
        for error in group.exceptions:
            if isinstance(error, BaseExceptionGroup):
                collect(error)
            else:
                flat.append(error)

    collect(errors)
    return next((error for error in flat if isinstance(error, LeadershipLost)), flat[0])
