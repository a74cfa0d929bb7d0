"""The Kafka cluster on which the workers of a StreamApp are admitted."""

from __future__ import annotations

from millpond_operator.controllers.coordinator_host.host import CoordinatorHost
from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.rollout.model import pinned_by
from millpond_operator.controllers.rollout.observation import ordinal_of
from millpond_operator.controllers.rollout.status import KafkaProof
from millpond_operator.coordinator import KafkaClaim

from .id_claims import IdClaims, Rival, id_taken

__all__ = ("Admission",)


class Admission:
    """Decides on which Kafka cluster workers are admitted.

    Args:
        claims: the application ids in use.
        host: the coordinator.
    """

    def __init__(self, claims: IdClaims, host: CoordinatorHost) -> None:
        self._claims = claims
        self._host = host

    def claim(self, work: ReconcilePass) -> KafkaClaim:
        """Return the Kafka cluster on which workers are admitted.

        The first claim is on whichever cluster the workers reach. It may change to another cluster only when any
        topology may follow, because no worker runs the old one any more.
        """
        app, memory = work.app, work.memory
        key = (app.namespace, app.name)
        proof = self._claims.proof(key)
        by_ordinal = sorted(self._host.reached(app).items(), key=lambda each: (ordinal_of(each[0]), each[0]))
        reached = tuple(dict.fromkeys(cluster for _, cluster in by_ordinal))
        if proof is None:
            # A StreamApp that was rejected on a cluster stays rejected there while its workers restart.
            memory.reached_clusters = reached = reached or memory.reached_clusters
        may_change = not pinned_by(work.status) and not any(each.alive for each in work.observed.workers.values())
        if work.id_conflict is None and (proof is None or may_change):
            proof = self._prove(work, reached) or proof
        if work.id_conflict is not None:
            return KafkaClaim("" if proof is None else proof.cluster_id, work.id_conflict.message)
        return KafkaClaim() if proof is None else KafkaClaim(proof.cluster_id)

    def _prove(self, work: ReconcilePass, reached: tuple[str, ...]) -> KafkaProof | None:
        """Claim the first reached cluster where the id is free; None when there is none."""
        rivals = []
        for cluster in reached:
            found = self._claims.prove((work.app.namespace, work.app.name), cluster, work.now)
            if not isinstance(found, Rival):
                return found
            rivals.append(found)
        if rivals:
            work.id_conflict = id_taken(work.app, rivals[0])
        return None
