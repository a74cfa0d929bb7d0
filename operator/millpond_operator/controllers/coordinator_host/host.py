"""Hosts the coordinator inside the operator, with one application for each StreamApp."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from millpond.protocol import RefusalCode, View, clock
from millpond_operator.assignment import AssignmentOptions
from millpond_operator.controllers.rollout.observation import RejectedWorker, ordinal_of
from millpond_operator.coordinator import Application, CoordinatorServer, EngineOptions, KafkaClaim, Limits
from millpond_operator.kubernetes import Cache, Client, Object, kinds
from millpond_operator.resources import StreamApp, owned_by

from .assignment_store import KubernetesStore, most_tasks
from .token_review import FIRST_REVIEWS, Reviews, TokenReviewer

__all__ = ("CoordinatorHost",)

log = logging.getLogger(__name__)

#: How long workers may need to reach a new leader: every node updates its rules from the EndpointSlice.
_RETURN = timedelta(seconds=15)
#: How many terms of an application one leadership may use, since its term grows when it is served again. A later term
#: that a worker reports is not from a real leader.
_MAX_TERMS = 1_000
#: How long after the end of its grace period the token of a pod that is not gone yet stays valid.
_DELETED_FOR_S = 60.0
_REASONS = {
    RefusalCode.TOPOLOGY_MISMATCH: "IncompatibleTopology",
    RefusalCode.CLAIM_REFUSED: "OtherKafka",
}
_TAKEN = {RefusalCode.CLAIM_REFUSED: "ApplicationIdTaken"}


class _AcceptedPod(NamedTuple):
    version: int
    """The resource version that was verified."""
    until: float
    """Until which Unix time its tokens are valid."""


@dataclass
class _Hosted:
    app: StreamApp
    application_id: str
    options: EngineOptions
    store: KubernetesStore | None = None
    superseded: bool = False
    """Whether a worker knows a later coordinator, so that it must be served again in a later term."""
    accepted: dict[str, _AcceptedPod] = field(default_factory=dict)
    """The pods that were verified to be its StatefulSet's, by uid."""


class CoordinatorHost:
    """Serves the workers of all StreamApps, each by its namespace and name, since application ids are not unique.

    Args:
        client: writes StreamAssignments and reviews tokens.
        cache: has the last StreamAssignments.
        leader_epoch: the epoch of this operator's leadership, which is the term of its assignments.
        on_change: called with the namespace and name of a StreamApp whose workers changed.
        reviews: reviews tokens; by default the client.
        issuer: the issuer of the cluster's tokens; "" when it is not known.
        limits: the limits of what one tenant may use.
        reviews_at_once: how many tokens are reviewed concurrently for the first time.
    """

    def __init__(  # noqa: PLR0913 - the parts of the operator that it connects
        self,
        client: Client,
        cache: Cache,
        leader_epoch: int,
        on_change: Callable[[str, str], None],
        reviews: Reviews | None = None,
        *,
        issuer: str = "",
        limits: Limits | None = None,
        reviews_at_once: int = FIRST_REVIEWS,
    ) -> None:
        self._client = client
        self._cache = cache
        self._leader_epoch = leader_epoch
        self._on_change = on_change
        self._hosted: dict[tuple[str, str], _Hosted] = {}
        self._terms: dict[tuple[str, str], int] = {}
        self.coordinator = CoordinatorServer(
            authenticator=TokenReviewer(
                reviews or client,
                self._application_of,
                self._is_worker,
                issuer=issuer,
                on_rejection=lambda why: self.coordinator.metrics.count_rejection(why),
                at_once=reviews_at_once,
            ),
            on_superseded=self._superseded,
            on_change=self._changed,
            shows_metrics=False,  # any worker could read the metrics of all tenants
            limits=limits or Limits(),
        )

    async def start(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen.

        Raises:
            OSError: the address is in use or is not one of this host's.
        """
        await self.coordinator.start(host, port, context)

    async def stop(self) -> None:
        """Answer waiting requests and stop; workers continue with their tasks."""
        await self.coordinator.stop()

    async def serve(self, app: StreamApp, *, pinned: str, claim: KafkaClaim | None = None) -> None:
        """Serve a StreamApp with its current settings.

        Args:
            app: the StreamApp.
            pinned: the initial value of `admit`'s argument.
            claim: the initial value of `admit`'s argument; None for a claim that its workers have not proven yet.

        Raises:
            StoreError: its StreamAssignment cannot be read or written.
        """
        key = (app.namespace, app.name)
        hosted = self._hosted.get(key)
        if hosted is not None and (hosted.application_id != app.application_id or hosted.app.uid != app.uid):
            await self.forget(*key)
            hosted = None
        if hosted is None:
            options = self._options(app, pinned, claim or KafkaClaim())
        else:
            options = self._options(app, hosted.options.pinned, hosted.options.claim)
        found = self._application(app)
        if hosted is None or hosted.superseded or found is None:
            hosted = _Hosted(app, app.application_id, options)
            store = KubernetesStore(self._client, self._cache, lambda: hosted.app, self._leader_epoch)
            hosted.store = store
            term = max(self._leader_epoch, self._terms.get(key, 0))
            await self.coordinator.add(app.application_id, options, store, term, namespace=_scope(*key))
            self._hosted[key] = hosted
            return
        hosted.app = app
        pods = {pod["metadata"]["uid"] for pod in self._cache.of_app(kinds.POD, *key)}
        hosted.accepted = {uid: each for uid, each in hosted.accepted.items() if uid in pods}
        if hosted.options != options:
            found.reconfigure(options)
            hosted.options = options

    async def forget(self, namespace: str, name: str) -> None:
        """Stop serving a StreamApp."""
        hosted = self._hosted.pop((namespace, name), None)
        self._terms.pop((namespace, name), None)
        if hosted is not None:
            await self.coordinator.remove(hosted.application_id, _scope(namespace, name))

    def view(self, app: StreamApp) -> View | None:
        """Return the coordinator's view of an application; None when it does not serve it."""
        found = self._application(app)
        return None if found is None else found.view()

    def rejected(self, app: StreamApp) -> Mapping[str, RejectedWorker]:
        """Return the workers that the coordinator rejects, by name."""
        found = self._application(app)
        if found is None:
            return {}
        claim = self._hosted[app.namespace, app.name].options.claim
        reasons = _REASONS if claim is None or not claim.refusal else _REASONS | _TAKEN
        return {
            worker: RejectedWorker(
                reasons.get(each.code, "IncompatibleVersion"),
                f"The topology differs from the one that ran before: {each.differences}."
                if each.differences
                else each.message,
                each.revision,
            )
            for worker, each in found.engine.rejected.items()
        }

    def reached(self, app: StreamApp) -> Mapping[str, str]:
        """Return the Kafka cluster id of each worker that is not admitted because of it."""
        found = self._application(app)
        return {} if found is None else dict(found.engine.reached_clusters)

    def admit(self, app: StreamApp, pinned: str, claim: KafkaClaim) -> None:
        """Set which workers are admitted.

        Args:
            app: the StreamApp.
            pinned: the hash of their topology; "" for the topology of the other workers, or any when there are none.
            claim: the Kafka cluster that they have to reach.
        """
        found, hosted = self._application(app), self._hosted.get((app.namespace, app.name))
        if found is not None and hosted is not None:
            hosted.options = replace(hosted.options, pinned=pinned, claim=claim)
            found.pin(pinned)
            found.claim(claim)

    def drain(self, app: StreamApp, workers: frozenset[str]) -> None:
        """Drain these workers and no others."""
        found = self._application(app)
        if found is None:
            return
        for name, member in list(found.engine.members.items()):
            if member.draining != (name in workers):
                found.drain(name, draining=name in workers)

    async def rewrite(self, app: StreamApp) -> None:
        """Save the assignment again if its StreamAssignment was deleted.

        Raises:
            StoreError: it cannot be written.
        """
        hosted = self._hosted.get((app.namespace, app.name))
        found = self._application(app)
        if hosted is None or hosted.store is None or found is None:
            return
        if self._cache.get(kinds.STREAM_ASSIGNMENT, app.namespace, app.name) is None:
            await hosted.store.save(found.engine.view(None))

    def _application(self, app: StreamApp) -> Application | None:
        return self.coordinator.application(app.application_id, _scope(app.namespace, app.name))

    def _options(self, app: StreamApp, pinned: str, claim: KafkaClaim | None) -> EngineOptions:
        spec = app.spec
        return EngineOptions(
            assignment=AssignmentOptions(spec.standby_replicas, spec.max_warmup_replicas, spec.acceptable_recovery_lag),
            session_timeout=spec.session_timeout,
            return_timeout=_RETURN,
            pinned=pinned,
            claim=claim,
            most_tasks=most_tasks(spec.standby_replicas),
            latest_term=self._leader_epoch + _MAX_TERMS,
        )

    def _application_of(self, namespace: str, name: str) -> str | None:
        hosted = self._hosted.get((namespace, name))
        if hosted is not None and self._application(hosted.app) is not None:
            return hosted.application_id
        # Its workers are not served, so request a pass that serves them. A forged token must not do that: there have to
        # be pods.
        if self._cache.of_app(kinds.POD, namespace, name):
            self._on_change(namespace, name)
        return None

    def _is_worker(self, namespace: str, name: str, pod: str, uid: str) -> bool:
        """Return whether a pod is a worker of a StreamApp.

        A pod can have any service account of its namespace, so the pod must belong to the
        StatefulSet. It stays accepted when the StatefulSet is deleted without its pods, to be recreated.
        """
        hosted = self._hosted.get((namespace, name))
        if hosted is None:
            return False
        version, known = self._cache.version(kinds.POD, namespace, pod), hosted.accepted.get(uid)
        if known is not None and known.version == version:  # called for every heartbeat
            return clock.unix_time() < known.until
        found = self._cache.get(kinds.POD, namespace, pod)
        if (
            found is None
            or found["metadata"]["uid"] != uid
            or (known is None and not self._is_owned(hosted.app, found))
        ):
            return False
        accepted = hosted.accepted[uid] = _AcceptedPod(version, _valid_until(found))
        return clock.unix_time() < accepted.until

    def _is_owned(self, app: StreamApp, pod: Object) -> bool:
        owner = _controller(pod)
        owns = self._cache.get(kinds.STATEFUL_SET, app.namespace, app.name)
        if owner is None or owns is None or owner["uid"] != owns["metadata"]["uid"] or not owned_by(app, owns):
            return False
        # A StatefulSet adopts any pod with its labels, but deletes those with ordinals beyond its replicas.
        replicas: int = owns["spec"].get("replicas", 0)
        return 0 <= ordinal_of(pod["metadata"]["name"]) < replicas

    def _changed(self, namespace: str, _application: str) -> None:
        self._on_change(*_key(namespace))

    def _superseded(self, namespace: str, application: str) -> None:
        """Serve an application in a later term when a worker knows a later coordinator. The Lease decides who leads."""
        key = _key(namespace)
        found, hosted = self.coordinator.application(application, namespace), self._hosted.get(key)
        if hosted is None or found is None or found.engine.superseded_by is None:
            return
        later = found.engine.superseded_by[0] + 1
        log.warning(
            "StreamApp %s: a worker knows a later coordinator; serving the application again in term %d",
            namespace,
            later,
        )
        self._terms[key] = later
        hosted.superseded = True
        self._on_change(*key)


def _scope(namespace: str, name: str) -> str:
    """Return the coordinator's namespace for a StreamApp, which is part of its workers' URLs."""
    return f"{namespace}/{name}"


def _key(scope: str) -> tuple[str, str]:
    namespace, _, name = scope.partition("/")
    return namespace, name


def _valid_until(pod: Object) -> float:
    """Return until which Unix time the tokens of a pod are valid: the API server's rule for pods that are deleted."""
    deleted = pod["metadata"].get("deletionTimestamp")
    return float("inf") if deleted is None else datetime.fromisoformat(deleted).timestamp() + _DELETED_FOR_S


def _controller(object: Object) -> Object | None:
    owners = object["metadata"].get("ownerReferences") or ()
    return next((each for each in owners if each.get("controller")), None)
