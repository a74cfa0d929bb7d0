"""Claims on application ids: two StreamApps with the same id on one Kafka cluster would take each other's tasks.

An application is identified by its id on a Kafka *cluster*. Only its own workers can tell which cluster that is, once
they have reached it. So a claim is proven or unproven:

- A proven claim is on a cluster id. It is saved in the StreamApp's status and lasts as long as the StreamApp. Of
  several proven claims on one cluster, the oldest holds the id.
- An unproven claim is on an address. For a while it keeps later StreamApps at that address from starting, so that its
  workers can prove it. After that the others start too, and the first StreamApp to prove its claim holds the id. So an
  id cannot be reserved by a name alone.

See docs/decisions/0032-identity-is-a-kafka-cluster.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from millpond_operator.controllers.pass_context import Key
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus, KafkaProof, instant, timestamp
from millpond_operator.resources import StreamApp

from .broker_addresses import Address, address_of

__all__ = ("PROOF_TIMEOUT", "IdClaims", "Rival", "id_taken")

#: How long after its creation an unproven claim excludes others at its address: to pull the image and to reach Kafka.
PROOF_TIMEOUT = timedelta(minutes=2)


@dataclass(frozen=True)
class Rival:
    """Another StreamApp with the same id."""

    key: Key
    until: datetime | None = None
    """When it stops excluding others, unless its workers reach the cluster before; None if it never does."""


@dataclass
class _Claim:
    key: Key
    uid: str
    """The uid of the StreamApp: one that was deleted and created again under its name has proven nothing."""
    id: str
    address: Address
    created: datetime
    proof: KafkaProof | None

    @property
    def proven_here(self) -> bool:
        """Whether the proof also holds for the address of the claim, in every namespace that resolves it."""
        return self.proof is not None and self.proof.address == str(self.address) and self.address.sure

    def is_on(self, cluster_id: str) -> bool:
        """Return whether the claim is proven on a cluster."""
        return self.proof is not None and self.proof.cluster_id == cluster_id


class IdClaims:
    """The application ids in use by the StreamApps that this operator watches.

    Args:
        enqueue: requests a pass over a StreamApp whose id may have become free.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._claims: dict[Key, _Claim] = {}
        self._by_id: dict[str, list[_Claim]] = {}
        """In the order of their arrival."""

    def prime(self, apps: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Add all existing StreamApps before the first decision: those that were started come first."""

        def precedence(app: Mapping[str, Any]) -> tuple[bool, str, str, str]:
            metadata = app["metadata"]
            started = bool((app.get("status") or {}).get("targetRevision"))
            return not started, metadata.get("creationTimestamp", ""), metadata["namespace"], metadata["name"]

        for app in sorted(apps, key=precedence):
            self.rival(app, now)

    def rival(self, app: Mapping[str, Any], now: datetime) -> Rival | None:
        """Add or update the claim of a StreamApp, and return the StreamApp that precludes it.

        Args:
            app: the StreamApp as an API server object.
            now: the current time.

        Returns:
            The StreamApp that has the id before it; None when there is none.
        """
        claim = self._updated(app, now)
        if claim.proof is not None:
            first = self._holder(claim.id, claim.proof.cluster_id)
            return None if first is None or first is claim else Rival(first.key)
        before = True
        for other in self._by_id[claim.id]:
            before = before and other is not claim
            if other is claim or other.address.brokers != claim.address.brokers:
                continue
            if other.proven_here and claim.address.sure:
                return Rival(other.key)
            if before and other.proof is None and now < other.created + PROOF_TIMEOUT:
                return Rival(other.key, other.created + PROOF_TIMEOUT)
        return None

    def proof(self, key: Key) -> KafkaProof | None:
        """Return the proven claim of a StreamApp; None when its claim is unproven."""
        claim = self._claims.get(key)
        return None if claim is None else claim.proof

    def prove(self, key: Key, cluster_id: str, now: datetime) -> KafkaProof | Rival:
        """Claim the id on a cluster that the StreamApp's own workers have reached. The claim holds once it is saved.

        Returns:
            The proof to be saved, or the StreamApp that holds the id there.
        """
        claim = self._claims[key]
        first = self._holder(claim.id, cluster_id)
        if first is not None and first is not claim:
            return Rival(first.key)
        if claim.proof is None or not claim.is_on(cluster_id):
            claim.proof = KafkaProof(cluster_id, timestamp(now), str(claim.address))
            self._wake(claim)
        return claim.proof

    def holds(self, key: Key) -> bool:
        """Return whether the StreamApp holds its id on a cluster, so that topics and groups with it may be deleted."""
        claim = self._claims.get(key)
        return claim is not None and claim.proof is not None and self._holder(claim.id, claim.proof.cluster_id) is claim

    def release(self, key: Key) -> None:
        """Drop the claim of a StreamApp that was deleted, or whose address changed."""
        claim = self._claims.pop(key, None)
        if claim is None:
            return
        self._by_id[claim.id].remove(claim)
        if self._by_id[claim.id]:
            self._wake(claim)
        else:
            del self._by_id[claim.id]

    def _updated(self, app: Mapping[str, Any], now: datetime) -> _Claim:
        metadata, spec = app["metadata"], app.get("spec") or {}
        key = (metadata["namespace"], metadata["name"])
        id = str(spec.get("applicationId") or metadata["name"])
        address = address_of(str((spec.get("kafka") or {}).get("bootstrapServers", "")), key[0])
        claim, proof, uid = self._claims.get(key), None, str(metadata.get("uid", ""))
        if claim is not None and (claim.uid, claim.id, claim.address) == (uid, id, address):
            return claim
        if claim is not None:
            proof = claim.proof if (claim.uid, claim.id) == (uid, id) else None
            self.release(key)
        created = instant(metadata.get("creationTimestamp") or "", now)
        claim = _Claim(key, uid, id, address, created, proof or AppStatus.of(app.get("status")).kafka)
        self._claims[key] = claim
        self._by_id.setdefault(id, []).append(claim)
        return claim

    def _holder(self, id: str, cluster_id: str) -> _Claim | None:
        """Return the claim that holds an id on a cluster: the first that was proven."""
        proven = [each for each in self._by_id[id] if each.is_on(cluster_id)]
        return min(proven, key=lambda each: (each.proof.since if each.proof else "", each.key), default=None)

    def _wake(self, claim: _Claim) -> None:
        """Request passes over other StreamApps with the same id: they may have it now, or not any more."""
        for other in self._by_id[claim.id]:
            if other is not claim:
                self._enqueue(other.key)


def id_taken(app: StreamApp, rival: Rival) -> Problem:
    """Return the problem of a taken id. It names the other StreamApp only within the same namespace."""
    namespace, name = rival.key
    runs = "runs" if rival.until is None else "is about to run"
    if namespace == app.namespace:
        who, cure = f"StreamApp '{name}' {runs} application '{app.application_id}'", ", or delete one of them"
    else:
        who, cure = f"Another application with the id '{app.application_id}' {runs}", ""
    return Problem(
        "ApplicationIdTaken",
        f"{who} on the same Kafka cluster: create this StreamApp again with another spec.applicationId{cure}.",
        persistent=True,
    )
