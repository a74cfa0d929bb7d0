"""Which StreamApp an application's id belongs to: two with one id on one Kafka would take each other's tasks.

An application is its id on a Kafka *cluster*, and which cluster that is only its own workers can tell, when they have
reached it. So a claim is proven or it is not:

- A proven claim is on a cluster's id, stands in the StreamApp's status, and lasts as long as the StreamApp. Of several on one
  cluster the oldest counts.
- One that is not is on an address. It keeps later ones at that address from starting for a while, in which its workers can
  prove it, and then gives way: whoever proves first has the id, so nobody can keep an id from others by its mere name.

See docs/decisions/0032-identity-is-a-kafka-cluster.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from millpond_operator.controllers.pass_context import Key
from millpond_operator.controllers.rollout.pod_problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus, KafkaProof, instant, timestamp
from millpond_operator.resources import StreamApp

from .broker_addresses import Address, address_of

__all__ = ("PROVES_IN", "IdClaims", "Rival", "taken")

#: So long the first at an address has it to itself, from its creation on: to pull its image, and to reach its Kafka.
PROVES_IN = timedelta(minutes=2)


@dataclass(frozen=True)
class Rival:
    """Another StreamApp with the same id."""

    key: Key
    until: datetime | None = None
    """When it gives way, unless its workers reach that Kafka first; None for not as long as it is there."""


@dataclass
class _Claim:
    key: Key
    uid: str
    """Of the StreamApp: one that is deleted and made again under its name has proven nothing."""
    id: str
    address: Address
    created: datetime
    proof: KafkaProof | None

    @property
    def proven_here(self) -> bool:
        """Whether what it proved holds for its address too, whoever looks it up."""
        return self.proof is not None and self.proof.address == str(self.address) and self.address.sure

    def is_on(self, cluster_id: str) -> bool:
        """Whether it is proven there."""
        return self.proof is not None and self.proof.cluster_id == cluster_id


class IdClaims:
    """The ids that are in use, as far as this operator sees StreamApps.

    Args:
        enqueue: asks for another pass over a StreamApp, when an id it waits for may be free.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._claims: dict[Key, _Claim] = {}
        self._by_id: dict[str, list[_Claim]] = {}
        """First come first."""

    def prime(self, apps: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Take in all StreamApps there are, before anything is decided: those that were started come first."""

        def precedence(app: Mapping[str, Any]) -> tuple[bool, str, str, str]:
            metadata = app["metadata"]
            started = bool((app.get("status") or {}).get("targetRevision"))
            return not started, metadata.get("creationTimestamp", ""), metadata["namespace"], metadata["name"]

        for app in sorted(apps, key=precedence):
            self.rival(app, now)

    def rival(self, app: Mapping[str, Any], now: datetime) -> Rival | None:
        """Take in a StreamApp as the API server gave it.

        Args:
            app: the StreamApp.
            now: the time of day.

        Returns:
            Who has its id before it; None when nobody has.
        """
        claim = self._taken_in(app, now)
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
            if before and other.proof is None and now < other.created + PROVES_IN:
                return Rival(other.key, other.created + PROVES_IN)
        return None

    def proof(self, key: Key) -> KafkaProof | None:
        """What a StreamApp has proven; None when it has proven nothing."""
        claim = self._claims.get(key)
        return None if claim is None else claim.proof

    def prove(self, key: Key, cluster_id: str, now: datetime) -> KafkaProof | Rival:
        """Claim the id on a cluster that the StreamApp's own workers have reached; it counts when it is written down.

        Returns:
            What is to be written down, or who has the id there.
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
        """Whether the id is this StreamApp's own on a cluster, so that what has its name there may be deleted."""
        claim = self._claims.get(key)
        return claim is not None and claim.proof is not None and self._holder(claim.id, claim.proof.cluster_id) is claim

    def release(self, key: Key) -> None:
        """A StreamApp is gone, or is at another address now."""
        claim = self._claims.pop(key, None)
        if claim is None:
            return
        self._by_id[claim.id].remove(claim)
        if self._by_id[claim.id]:
            self._wake(claim)
        else:
            del self._by_id[claim.id]

    def _taken_in(self, app: Mapping[str, Any], now: datetime) -> _Claim:
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
        """Who has an id on a cluster: of those who proved it, who did first."""
        proven = [each for each in self._by_id[id] if each.is_on(cluster_id)]
        return min(proven, key=lambda each: (each.proof.since if each.proof else "", each.key), default=None)

    def _wake(self, claim: _Claim) -> None:
        """Those with the same id may have it now, or not any more."""
        for other in self._by_id[claim.id]:
            if other is not claim:
                self._enqueue(other.key)


def taken(app: StreamApp, rival: Rival) -> Problem:
    """Who has the id, by name in the StreamApp's own namespace only: what others have is nobody's business."""
    namespace, name = rival.key
    runs = "runs" if rival.until is None else "is about to run"
    if namespace == app.namespace:
        who, cure = f"StreamApp '{name}' {runs} application '{app.application_id}'", ", or delete one of them"
    else:
        who, cure = f"Another application with the id '{app.application_id}' {runs}", ""
    return Problem(
        "ApplicationIdTaken",
        f"{who} on the same Kafka: give this one another spec.applicationId, which takes a new StreamApp{cure}.",
        settled=True,
    )
