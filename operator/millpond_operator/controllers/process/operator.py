"""The operator: stands by until it holds the Lease, then leads until it loses the Lease or is stopped."""

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
from millpond_operator.controllers.allowed import Allowed
from millpond_operator.controllers.console.source import OperatorConsole
from millpond_operator.controllers.coordinator_host import endpoints
from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.coordinator_host.key_verification import KEY_REVIEWS, KeyVerifier
from millpond_operator.controllers.coordinator_host.published_keys import PublishedKeys
from millpond_operator.controllers.coordinator_host.tls.authority import CertificateAuthority
from millpond_operator.controllers.coordinator_host.tls.provided import ProvidedCertificate
from millpond_operator.controllers.coordinator_host.token_review import FIRST_REVIEWS, REVIEW_TIMEOUT, Reviews
from millpond_operator.controllers.coordinator_host.unverified_tokens import claims_of
from millpond_operator.controllers.pass_context import Key
from millpond_operator.controllers.reconcile.reconciler import Reconciler
from millpond_operator.controllers.settings import Settings
from millpond_operator.coordinator import Limits
from millpond_operator.kubernetes import Cache, Client, Connection, LeadershipLost, kinds
from millpond_operator.kubernetes.lease import Lease, LeaseOptions
from millpond_operator.kubernetes.watching import Watching, WatchOptions, no_signal_handlers
from millpond_operator.resources import Surroundings

from .health import HealthServer, stuck
from .lease_thread import LeaseThread, Run, own_thread
from .metrics import UPGRADES_WAITING, OperatorMetrics
from .streamapp_metrics import StreamAppMetrics
from .work_queue import WorkQueue

__all__ = ("operate",)

log = logging.getLogger("millpond_operator")

_CONTROLLER = "streamapp"
_ENDPOINT_SLICE = "EndpointSlice"
#: The pause before a retry.
_RETRY_INTERVAL = timedelta(seconds=1)
#: How long changes that the coordinator reports are collected: one moving task causes several.
_COALESCE = timedelta(milliseconds=200)
_LONGEST_BACKOFF = timedelta(seconds=15)


class Stopped(Exception):
    """The process received SIGTERM or SIGINT."""


async def operate(
    settings: Settings, stopped: asyncio.Event | None = None, lease_thread: LeaseThread = own_thread
) -> None:
    """Run until SIGTERM or SIGINT.

    Args:
        settings: the operator's settings.
        stopped: stops the operator when it is set, instead of signals.
        lease_thread: opens the event loop in which the Lease is renewed.

    Raises:
        LeadershipLost: another operator leads now or may lead soon; the process should exit and be restarted.
        MillpondError: the configuration does not fit the cluster, or the API server's objects cannot be watched.
    """
    if stopped is None:
        stopped = asyncio.Event()
        handle_signals: Callable[[], None] = functools.partial(_handle_signals, stopped)
        handle_signals()
    else:
        handle_signals = no_signal_handlers
    connection = Connection.find(settings.kubeconfig or None)
    settings = settings.within(connection.namespace)
    metrics = OperatorMetrics()
    timeout = settings.request_timeout
    async with lease_thread() as run, AsyncExitStack() as stack:
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
        operator = _Operator(settings, connection, metrics, lease, run, handle_signals)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_until_stopped(stopped), name="signals")
                group.create_task(operator.run(), name="operator")
        except* Stopped:
            log.info("operator: stopping, since it received SIGTERM or SIGINT")
        except* (MillpondError, OSError) as errors:
            raise _first(errors) from errors
        finally:
            await run(lease.release())


class _Operator:
    def __init__(  # noqa: PLR0913 - the parts of the process; only `operate` calls it
        self,
        settings: Settings,
        connection: Connection,
        metrics: OperatorMetrics,
        lease: Lease,
        run_in_lease_thread: Run,
        handle_signals: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._run_in_lease_thread = run_in_lease_thread
        self._connection = connection
        self._metrics = metrics
        self._lease = lease
        self._handle_signals = handle_signals
        queue_metrics = metrics.of_queue(_CONTROLLER)
        self._queue: WorkQueue[Key] = WorkQueue(_CONTROLLER, metrics=queue_metrics, longest_backoff=_LONGEST_BACKOFF)
        queue_metrics.watch(self._queue)
        self._reconciler: Reconciler | None = None
        self._leading_since: float | None = None
        self._synced = False
        self._console = OperatorConsole()
        self._health = HealthServer(
            metrics.collected,
            alive=[stuck(self._queue, settings.longest_reconcile)],
            ready=[self._not_ready],
            console=self._console,
            closed=metrics.closed_connection,
        )

    async def run(self) -> None:
        settings = self._settings
        await self._health.start(settings.http_host or "0.0.0.0", settings.http_port)  # noqa: S104 - kubelets and Prometheus connect from anywhere
        log.info("HTTP server: listening on port %d for /healthz, /readyz, /metrics and /console/", self._health.port)
        try:
            await self._run_in_lease_thread(self._lease.acquire())
            self._leading_since = clock.monotonic()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_in_lease_thread(self._lease.hold()), name="lease")
                group.create_task(self._lead(), name="leading")
        finally:
            await self._health.stop()

    async def _lead(self) -> None:
        settings, lease = self._settings, self._lease
        client = Client(self._connection, guard=lease.check, metrics=self._metrics, timeout=settings.request_timeout)
        # Heartbeats wait for token reviews, so reviews have their own connections and a short timeout.
        reviewing = Client(self._connection, metrics=self._metrics, timeout=REVIEW_TIMEOUT)
        async with client, reviewing:
            cache = Cache()
            watching = Watching(
                client,
                cache,
                lambda namespace, name: self._queue.add((namespace, name)),
                namespaces=settings.watch_namespaces,
                options=WatchOptions(settings.resync_interval, settings.watch_patience),
                restore_signals=self._handle_signals,
            )
            self._health.also_alive(watching.trouble)
            self._health.also_ready(watching.unserved)
            trust = self._trust(client, cache)
            self._health.also_ready(lambda: None if trust.bundle else trust.trouble)
            await trust.begin()
            self._metrics.certificates(trust.expiry)
            self._metrics.add(StreamAppMetrics(cache))
            async with self._hosting(client, reviewing, cache, trust.context) as hosting:
                surroundings = Surroundings(
                    f"https://{settings.coordinator_host}:{settings.coordinator_service_port}",
                    trust.bundle,
                    lease.epoch,
                    settings.namespace,
                    settings.worker_resources,
                    settings.snapshot_driver_role,
                )
                self._reconciler = Reconciler(
                    client,
                    cache,
                    hosting,
                    surroundings,
                    self._queue.add,
                    instance=settings.pod_name,
                    upgrade_budget=settings.upgrade_budget,
                    allowed=Allowed(
                        settings.allowed_mounts, settings.allowed_tolerations, settings.allowed_priority_classes
                    ),
                )
                self._console.lead(cache, hosting.view, self._reconciler.history, lambda: self._synced)
                self._metrics.gauge(
                    "millpond_operator_upgrades_waiting",
                    UPGRADES_WAITING,
                    functools.partial(_upgrades_waiting, self._reconciler),
                )
                async with asyncio.TaskGroup() as group:
                    group.create_task(watching.run(), name="watching")
                    group.create_task(self._reconcile(client, cache, watching, self._reconciler), name="reconciling")
                    group.create_task(self._repeat(trust.look, "Coordinator certificate"), name="certificates")

    def _trust(self, client: Client, cache: Cache) -> CertificateAuthority | ProvidedCertificate:
        """Return the coordinator's certificate: the operator's own, or that of a Secret that others write."""
        settings, hosts = self._settings, _hosts(self._settings.coordinator_host)
        secret = (client, settings.namespace, settings.certificate_secret)

        def lacking(authority: str) -> list[str]:
            return _lacking(cache, authority) if self._synced else ["any worker"]

        def on_change(bundle: str) -> None:
            self._distribute_authorities(cache, bundle)

        delay = settings.trust_delay
        if settings.manages_certificate:
            return CertificateAuthority(*secret, hosts, spread=delay, lacking=lacking, on_change=on_change)
        return ProvidedCertificate(*secret, hosts[0], spread=delay, lacking=lacking, on_change=on_change)

    @contextlib.asynccontextmanager
    async def _hosting(
        self, client: Client, reviewing: Client, cache: Cache, context: ssl.SSLContext
    ) -> AsyncIterator[CoordinatorHost]:
        by_keys, issuer = self._settings.verifies_by_keys, _issuer(self._connection)
        reviews: Reviews = reviewing
        if by_keys:
            uid = functools.partial(_account_uid, cache)
            reviews = KeyVerifier(PublishedKeys(reviewing), uid, frozenset({issuer} - {""}))
        hosting = CoordinatorHost(
            client,
            cache,
            self._lease.epoch,
            lambda namespace, name: self._queue.add_after((namespace, name), _COALESCE),
            reviews,
            issuer=issuer,
            limits=Limits(connections=self._settings.coordinator_connections),
            reviews_at_once=KEY_REVIEWS if by_keys else FIRST_REVIEWS,
        )
        self._metrics.add(hosting.coordinator.metrics)
        await hosting.start("0.0.0.0", self._settings.coordinator_port, context)  # noqa: S104 - workers connect from anywhere and authenticate with a token
        try:
            yield hosting
        finally:
            await hosting.stop()

    async def _reconcile(self, client: Client, cache: Cache, watching: Watching, reconciler: Reconciler) -> None:
        """Reconcile once all objects are listed, and route workers to this operator."""
        await watching.synced.wait()
        for key in cache.keys(kinds.STREAM_APP):
            self._queue.add((key.namespace, key.name))
        self._synced = True
        log.info("operator: listed %d StreamApps; starting to reconcile", cache.count(kinds.STREAM_APP))
        handle = self._metrics.measured(_CONTROLLER, reconciler)
        async with asyncio.TaskGroup() as group:
            if self._settings.pod_ip:
                announce = functools.partial(endpoints.announce, client, self._settings)
                group.create_task(self._repeat(announce, _ENDPOINT_SLICE, at_once=True), name="endpoints")
                announce = functools.partial(endpoints.announce_console, client, self._settings)
                group.create_task(self._repeat(announce, "Console", at_once=True), name="console")
            group.create_task(self._queue.run(handle, self._settings.concurrency), name="queue")

    async def _repeat(self, update: Callable[[], Awaitable[None]], name: str, *, at_once: bool = False) -> None:
        """Update an object at an interval, since another client may change or delete it."""
        interval = self._settings.upkeep_interval
        pause = timedelta(0) if at_once else interval
        while True:
            await asyncio.sleep(pause.total_seconds())
            pause = interval if await self._updated(update, name) else min(interval, _RETRY_INTERVAL)

    @staticmethod
    async def _updated(update: Callable[[], Awaitable[None]], name: str) -> bool:
        try:
            await update()
        except LeadershipLost:
            raise
        except (MillpondError, OSError) as error:
            log.warning("%s: update failed; retrying: %s", name, error)
            return False
        return True

    def _distribute_authorities(self, cache: Cache, bundle: str) -> None:
        """Reconcile all StreamApps, so that their workers get the authorities to trust from now on."""
        if self._reconciler is None:
            return
        self._reconciler.trust(bundle)
        for key in cache.keys(kinds.STREAM_APP):
            self._queue.add((key.namespace, key.name))

    def _not_ready(self) -> str | None:
        """Return why the operator is not ready. A replica that stands by is ready."""
        if self._leading_since is not None and not self._synced:
            return "This operator leads, but has not listed all objects yet."
        return None


def _upgrades_waiting(reconciler: Reconciler) -> float:
    return float(reconciler.upgrades_waiting)


def _account_uid(cache: Cache, namespace: str, name: str) -> str | None:
    """Return the uid of a service account; None when it is not known."""
    found = cache.get(kinds.SERVICE_ACCOUNT, namespace, name)
    return None if found is None else str(found["metadata"]["uid"])


def _issuer(connection: Connection) -> str:
    """Return the issuer of the operator's own token, which also issues those of workers; "" without a token."""
    claims = claims_of(connection.bearer() or "")
    return "" if claims is None else claims.iss


def _hosts(host: str) -> tuple[str, ...]:
    """Return the host names by which workers may reach the coordinator."""
    names = [host]
    if host.endswith(".svc"):
        names += [f"{host}.cluster.local", host.removesuffix(".svc")]
    return tuple(names)


def _lacking(cache: Cache, authority: str) -> list[str]:
    """Return the ConfigMaps of workers that do not contain an authority yet."""
    return [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in cache.all(kinds.CONFIG_MAP)
        if "ca.crt" in (data := each.get("data") or {}) and authority.strip() not in data["ca.crt"]
    ]


def _handle_signals(stopped: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set an event."""
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stopped.set)


async def _until_stopped(stopped: asyncio.Event) -> None:
    await stopped.wait()
    raise Stopped


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the lost leadership if there is one, since it causes the other errors; else the first error."""
    flat: list[BaseException] = []

    def collect(group: BaseExceptionGroup[BaseException]) -> None:
        for error in group.exceptions:
            if isinstance(error, BaseExceptionGroup):
                collect(error)
            else:
                flat.append(error)

    collect(errors)
    return next((error for error in flat if isinstance(error, LeadershipLost)), flat[0])
