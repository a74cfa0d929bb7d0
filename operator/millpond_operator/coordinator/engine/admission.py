"""Admission of workers: rejected workers, and workers that start and do not know their topology yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.protocol import Heartbeat, Refusal, RefusalCode, TopologySummary, Trouble

from . import rejections
from .members import Membership
from .options import MOST_TASKS, KafkaClaim
from .topologies import differences, united

__all__ = ("Admission", "RejectedMember", "Starting")

#: An outsider sends a heartbeat every second; after so long without one it is forgotten.
_OUTSIDER_TIMEOUT_MS = 5_000
#: Rejections that hold until the worker runs another image or configuration.
_LASTING = frozenset({RefusalCode.TOPOLOGY_MISMATCH, RefusalCode.UNSUPPORTED_VERSION, RefusalCode.CLAIM_REFUSED})


@dataclass(frozen=True)
class RejectedMember:
    """A worker that is not admitted, and why."""

    incarnation: str
    revision: str
    """The revision of its pod template, as the worker reports it."""
    code: RefusalCode
    """`TOPOLOGY_MISMATCH`, `UNSUPPORTED_VERSION` or `CLAIM_REFUSED`."""
    message: str
    """Cause and cure."""
    at_ms: int
    """When it was rejected first, on the engine's clock."""
    differences: str = ""
    """How its topology differs from the application's, as a clause; "" when the worker did not send it."""


@dataclass(frozen=True)
class Starting:
    """A worker that does not know its topology yet."""

    incarnation: str
    revision: str
    address: str | None
    trouble: Trouble | None
    """The problem that it is waiting to go away."""


class Admission:
    """Decides which workers become members of one application, and remembers the others: the outsiders.

    Args:
        pinned: the initial value of the attribute.
        most_tasks: the initial value of the attribute.
        claim: the initial value of the attribute.

    Attributes:
        pinned: the hash of the only topology that is admitted; "" for any.
        most_tasks: topologies with more tasks are rejected.
        claim: the Kafka cluster that workers have to be on; None for any.
        reached_clusters: the Kafka cluster id of each worker that is not admitted because of it.
        rejected: workers that are rejected until they run another image or configuration, by id.
        starting: workers that do not know their topology yet, by id.
        changes: a number that grows with each change of these three.
    """

    def __init__(self, *, pinned: str, most_tasks: int = MOST_TASKS, claim: KafkaClaim | None = None) -> None:
        self.pinned = pinned
        self.claim = claim
        self.reached_clusters: dict[str, str] = {}
        self.most_tasks = most_tasks
        self.rejected: dict[str, RejectedMember] = {}
        self.starting: dict[str, Starting] = {}
        self.changes = 0
        self._heard_ms: dict[str, int] = {}

    @property
    def has_outsiders(self) -> bool:
        """Whether any worker is rejected or starting."""
        return bool(self._heard_ms)

    def claim_refusal(self, heartbeat: Heartbeat, now_ms: int) -> Refusal | None:
        """Compare the Kafka cluster that a worker is on with the claimed one.

        Returns:
            Why the worker is rejected or has to wait; None when the clusters are equal or not known yet.
        """
        claim, reached, worker = self.claim, heartbeat.kafka_cluster[: rejections.LONGEST_NAME], heartbeat.worker
        if claim is None or heartbeat.ended or (not reached and not heartbeat.topology_hash):
            return None
        if reached and reached == claim.cluster and not claim.refusal:
            self.reached_clusters.pop(worker, None)
            return None
        self._heard_ms[worker] = now_ms
        if reached and self.reached_clusters.get(worker) != reached:
            self.reached_clusters[worker] = reached
            self.changes += 1
        if reached and not claim.cluster and not claim.refusal:
            self.changes += self.rejected.pop(worker, None) is not None
            return rejections.claim_pending(worker, heartbeat.application, reached)
        return rejections.claim_refused(heartbeat, claim)

    def topology_refusal(
        self, heartbeat: Heartbeat, ours: TopologySummary | None, members: Mapping[str, Membership]
    ) -> Refusal | None:
        """Compare a worker's topology with that of the application.

        Returns:
            Why the worker is rejected; None when the topologies are equal or the worker's may replace the
            application's.
        """
        theirs = heartbeat.topology
        if theirs is not None and theirs.hash != heartbeat.topology_hash:
            return rejections.two_topologies(heartbeat, theirs)
        if self.pinned and heartbeat.topology_hash != self.pinned:
            return rejections.other_than_pinned(heartbeat, self.pinned, ours)
        if ours is not None and heartbeat.topology_hash == ours.hash and (theirs is None or theirs == ours):
            return None
        both = united(ours, theirs) if ours is not None and theirs is not None else None
        if both is not None:
            too_many = self._too_many(both)
            return rejections.too_many_tasks(heartbeat.worker, _tasks(both), self.most_tasks) if too_many else None
        if ours is None and theirs is None:
            return None  # the answer asks for it
        others = [each.id for each in members.values() if each.alive and each.id != heartbeat.worker]
        if ours is not None and (others or theirs is None):
            return rejections.other_topology(heartbeat, ours, others)
        if self._too_many(theirs):
            return rejections.too_many_tasks(heartbeat.worker, _tasks(theirs), self.most_tasks)
        return None

    def agreed(
        self, heartbeat: Heartbeat, ours: TopologySummary | None, members: Mapping[str, Membership]
    ) -> TopologySummary | None:
        """Return the application's topology after this worker was admitted; None when the worker did not send it."""
        theirs = heartbeat.topology
        if theirs is None or ours is None:
            return theirs
        member = members.get(heartbeat.worker)
        new = member is None or member.incarnation != heartbeat.incarnation
        if new and not any(each.alive and each.id != heartbeat.worker for each in members.values()):
            return theirs  # a starting worker read the topics last
        return united(ours, theirs) or theirs

    def remember(self, heartbeat: Heartbeat, refusal: Refusal, ours: TopologySummary | None, now_ms: int) -> None:
        """Remember a rejected worker, if only another image or configuration can help."""
        if refusal.code in _LASTING:
            theirs = heartbeat.topology if refusal.code is RefusalCode.TOPOLOGY_MISMATCH else None
            what = ""
            if ours is not None and theirs is not None and ours != theirs and not self._too_many(theirs):
                what = differences(ours, theirs)
            rejected = RejectedMember(
                heartbeat.incarnation, heartbeat.revision, refusal.code, refusal.message, now_ms, differences=what
            )
            self.note_rejected(heartbeat.worker, rejected)

    def note_rejected(self, worker: str, rejected: RejectedMember) -> None:
        """Remember a rejected worker."""
        before = self.rejected.get(worker)
        self._heard_ms[worker] = rejected.at_ms
        if before is None or replace(rejected, at_ms=before.at_ms) != before:
            self.rejected[worker] = rejected
            self.changes += 1
        self.starting.pop(worker, None)

    def note_starting(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """Remember a worker that does not know its topology yet."""
        worker = heartbeat.worker
        now = Starting(heartbeat.incarnation, heartbeat.revision, heartbeat.address, heartbeat.trouble)
        self._heard_ms[worker] = now_ms
        if self.starting.get(worker) != now:
            self.starting[worker] = now
            self.changes += 1
        self.rejected.pop(worker, None)

    def forget(self, worker: str) -> None:
        """Forget an outsider that was admitted or ended."""
        if self._heard_ms.pop(worker, None) is not None:
            self.rejected.pop(worker, None)
            self.starting.pop(worker, None)
            self.reached_clusters.pop(worker, None)
            self.changes += 1

    def _too_many(self, topology: TopologySummary | None) -> bool:
        return _tasks(topology) > self.most_tasks

    def tick(self, now_ms: int, stalled_ms: int) -> None:
        """Forget outsiders that sent no heartbeat for a while.

        Args:
            now_ms: the time.
            stalled_ms: how long no heartbeat could be received since the last call.
        """
        if stalled_ms:
            self._heard_ms = {worker: heard + stalled_ms for worker, heard in self._heard_ms.items()}
        for worker in [each for each, heard in self._heard_ms.items() if now_ms - heard > _OUTSIDER_TIMEOUT_MS]:
            self.forget(worker)


def _tasks(topology: TopologySummary | None) -> int:
    return sum(each.partitions for each in topology.subtopologies) if topology is not None else 0
