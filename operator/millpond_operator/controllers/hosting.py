"""The coordinator inside the operator: one application of it per StreamApp."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from millpond.protocol import RefusalCode, View
from millpond_operator.assignment import Options
from millpond_operator.coordinator import Coordinator, EngineOptions, Limits
from millpond_operator.kubernetes import Cache, Client, kinds
from millpond_operator.resources import StreamApp

from .assignments import KubernetesStore, most_tasks
from .observation import Refused
from .tokens import Reviews, TokenReviewer

__all__ = ("Hosting",)

log = logging.getLogger(__name__)

#: Workers hear of another leader by an EndpointSlice, from which every node makes its rules.
_RETURN = timedelta(seconds=15)
#: An application's term grows within one leadership when it is served anew. Whatever is later than that, no leader was.
_MOST_TERMS = 1_000


@dataclass
class _Hosted:
    app: StreamApp
    application_id: str
    options: EngineOptions
    store: KubernetesStore | None = None
    superseded: bool = False
    """A worker knows a later coordinator: it has to be served anew, in a later term."""


class Hosting:
    """Serves the workers of all StreamApps.

    Args:
        client: for assignments and reviews of tokens.
        cache: has the last assignments.
        leader_epoch: of this operator: the term of its assignments.
        on_change: called with namespace and name of a StreamApp when something about its workers changed.
        reviews: says whose tokens are; by default the client.
        issuer: who signs the tokens of this cluster, as far as is known.
        limits: what one tenant may take.
    """

    def __init__(
        self,
        client: Client,
        cache: Cache,
        leader_epoch: int,
        on_change: Callable[[str, str], None],
        reviews: Reviews | None = None,
        *,
        issuer: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._client = client
        self._cache = cache
        self._leader_epoch = leader_epoch
        self._on_change = on_change
        self._hosted: dict[tuple[str, str], _Hosted] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._terms: dict[tuple[str, str], int] = {}
        self.coordinator = Coordinator(
            authenticator=TokenReviewer(
                reviews or client,
                self._application_of,
                issuer=issuer,
                refused=lambda why: self.coordinator.metrics.refuse(why),
            ),
            on_superseded=self._superseded,
            on_change=self._changed,
            shows_metrics=False,  # any pod that may send heartbeats could read everybody's
            limits=limits or Limits(),
        )

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        await self.coordinator.start(host, port, context)

    async def stop(self) -> None:
        """Answer those who wait, and end; workers go on with what they have."""
        await self.coordinator.stop()

    async def serve(self, app: StreamApp, *, pinned: str) -> None:
        """Serve a StreamApp with the settings it has now.

        Args:
            app: the StreamApp.
            pinned: as for `pin`, which may say otherwise later.

        Raises:
            StoreError: its assignment cannot be read or written.
        """
        key = (app.namespace, app.name)
        hosted = self._hosted.get(key)
        if hosted is not None and (hosted.application_id != app.application_id or hosted.app.uid != app.uid):
            await self.forget(*key)
            hosted = None
        options = self._options(app, pinned=pinned if hosted is None else hosted.options.pinned)
        if hosted is None or hosted.superseded:
            hosted = _Hosted(app, app.application_id, options)
            store = KubernetesStore(self._client, self._cache, lambda: hosted.app, self._leader_epoch)
            hosted.store = store
            term = max(self._leader_epoch, self._terms.get(key, 0))
            await self.coordinator.add(app.application_id, options, store, term, namespace=app.namespace)
            self._hosted[key] = hosted
            self._names[app.namespace, app.application_id] = app.name
            return
        hosted.app = app
        if hosted.options != options:
            found = self.coordinator.application(app.application_id, app.namespace)
            if found is not None:
                found.reconfigure(options)
            hosted.options = options

    async def forget(self, namespace: str, name: str) -> None:
        """Serve a StreamApp no longer."""
        hosted = self._hosted.pop((namespace, name), None)
        self._terms.pop((namespace, name), None)
        if hosted is not None:
            self._names.pop((namespace, hosted.application_id), None)
            await self.coordinator.remove(hosted.application_id, hosted.app.namespace)

    def view(self, app: StreamApp) -> View | None:
        """What the coordinator knows; None when it does not serve the application."""
        found = self.coordinator.application(app.application_id, app.namespace)
        return None if found is None else found.view()

    def refused(self, app: StreamApp) -> Mapping[str, Refused]:
        """The workers that the coordinator does not take in."""
        found = self.coordinator.application(app.application_id, app.namespace)
        if found is None:
            return {}
        return {
            worker: Refused(
                "IncompatibleTopology" if each.code is RefusalCode.TOPOLOGY_MISMATCH else "IncompatibleVersion",
                f"The topology is not the one that ran before: {each.differences}."
                if each.differences
                else each.message,
                each.revision,
            )
            for worker, each in found.engine.refused.items()
        }

    def pin(self, app: StreamApp, pinned: str) -> None:
        """Let in workers of this topology only, by its hash; "" for any that the application's others run or nobody does."""
        found = self.coordinator.application(app.application_id, app.namespace)
        hosted = self._hosted.get((app.namespace, app.name))
        if found is not None and hosted is not None:
            hosted.options = replace(hosted.options, pinned=pinned)
            found.pin(pinned)

    def drain(self, app: StreamApp, workers: frozenset[str]) -> None:
        """Drain these workers and no others."""
        found = self.coordinator.application(app.application_id, app.namespace)
        if found is None:
            return
        for name, member in list(found.engine.members.items()):
            if member.draining != (name in workers):
                found.drain(name, draining=name in workers)

    async def rewrite(self, app: StreamApp) -> None:
        """Write the assignment down again if somebody deleted it.

        Raises:
            StoreError: it cannot be written.
        """
        hosted = self._hosted.get((app.namespace, app.name))
        found = self.coordinator.application(app.application_id, app.namespace)
        if hosted is None or hosted.store is None or found is None:
            return
        if self._cache.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name) is None:
            await hosted.store.save(found.engine.view(None))

    def _options(self, app: StreamApp, *, pinned: str) -> EngineOptions:
        spec = app.spec
        return EngineOptions(
            assignment=Options(spec.standby_replicas, spec.max_warmup_replicas, spec.acceptable_recovery_lag),
            session_timeout=spec.session_timeout,
            return_timeout=_RETURN,
            pinned=pinned,
            most_tasks=most_tasks(spec.standby_replicas),
            latest_term=self._leader_epoch + _MOST_TERMS,
        )

    def _application_of(self, namespace: str, name: str) -> str | None:
        hosted = self._hosted.get((namespace, name))
        return None if hosted is None else hosted.application_id

    def _changed(self, namespace: str, application: str) -> None:
        name = self._names.get((namespace, application))
        if name is not None:
            self._on_change(namespace, name)

    def _superseded(self, namespace: str, application: str) -> None:
        """A worker knows a later coordinator. Whether that is so, the lease says: if this one leads, it goes on later."""
        name = self._names.get((namespace, application))
        found = self.coordinator.application(application, namespace)
        if name is None or found is None or found.engine.superseded_by is None:
            return
        later = found.engine.superseded_by[0] + 1
        log.warning("A worker of '%s/%s' knows a later coordinator; its next term here is %d.", namespace, name, later)
        self._terms[namespace, name] = later
        self._hosted[namespace, name].superseded = True
        self._on_change(namespace, name)
