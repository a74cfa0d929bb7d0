"""Who becomes a member, and who stands outside: workers that are refused, and workers that are about to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millpond.protocol import Heartbeat, Refusal, RefusalCode, TopologySummary, Trouble

from . import rejections
from .members import Membership
from .options import MOST_TASKS, KafkaClaim
from .topologies import differences, united

__all__ = ("Admission", "RejectedMember", "Starting")

#: Who stands outside repeats itself every second; not to be heard of for so long is to be gone.
_FORGOTTEN_MS = 5_000
#: Refusals that stand until somebody changes what the worker runs.
_LASTING = frozenset({RefusalCode.TOPOLOGY_MISMATCH, RefusalCode.UNSUPPORTED_VERSION, RefusalCode.CLAIM_REFUSED})


@dataclass(frozen=True)
class RejectedMember:
    """A worker that is not taken in, and why."""

    incarnation: str
    revision: str
    """What it runs, as whoever started it calls that."""
    code: RefusalCode
    """`TOPOLOGY_MISMATCH`, `UNSUPPORTED_VERSION` or `CLAIM_REFUSED`."""
    message: str
    """One sentence with cause and cure."""
    at_ms: int
    """When it was refused first, on the engine's clock."""
    differences: str = ""
    """What tells its topology from that of the application, as a clause; "" where it did not say."""


@dataclass(frozen=True)
class Starting:
    """A worker that does not know its tasks yet, because it waits for something."""

    incarnation: str
    revision: str
    address: str | None
    trouble: Trouble | None
    """What it waits for."""


class Admission:
    """The door of one application.

    Args:
        pinned: see `pinned`.
        most_tasks: see `most_tasks`.
        claim: see `claim`.

    Attributes:
        pinned: the hash of the only topology that is let in; "" for none in particular.
        most_tasks: topologies of more are refused.
        claim: on which Kafka cluster workers may be; None for any.
        reached: the id of the Kafka cluster of each worker that is not let in because of it.
        refused: who is refused for what it runs, by worker.
        starting: who is about to start, by worker.
        changes: grows when either of them changes.
    """

    def __init__(self, *, pinned: str, most_tasks: int = MOST_TASKS, claim: KafkaClaim | None = None) -> None:
        self.pinned = pinned
        self.claim = claim
        self.reached: dict[str, str] = {}
        self.most_tasks = most_tasks
        self.refused: dict[str, RejectedMember] = {}
        self.starting: dict[str, Starting] = {}
        self.changes = 0
        self._heard_ms: dict[str, int] = {}

    @property
    def outside(self) -> bool:
        """Whether anybody stands outside."""
        return bool(self._heard_ms)

    def claim_refusal(self, heartbeat: Heartbeat, now_ms: int) -> Refusal | None:
        """Hold the Kafka cluster that a worker reaches against the application's.

        Returns:
            Why it is refused, or has to wait; None when it is the application's, or is not known yet.
        """
        claim, reached, worker = self.claim, heartbeat.kafka_cluster[: rejections.LONGEST_NAME], heartbeat.worker
        if claim is None or heartbeat.ended or (not reached and not heartbeat.topology_hash):
            return None
        if reached and reached == claim.cluster and not claim.refusal:
            self.reached.pop(worker, None)
            return None
        self._heard_ms[worker] = now_ms
        if reached and self.reached.get(worker) != reached:
            self.reached[worker] = reached
            self.changes += 1
        if reached and not claim.cluster and not claim.refusal:
            self.changes += self.refused.pop(worker, None) is not None
            return rejections.claim_pending(worker, heartbeat.application, reached)
        return rejections.claim_refused(heartbeat, claim)

    def topology_refusal(
        self, heartbeat: Heartbeat, ours: TopologySummary | None, members: Mapping[str, Membership]
    ) -> Refusal | None:
        """Hold a heartbeat's topology against what others run.

        Returns:
            Why it is refused; None when its topology is that of the application, or may become that.
        """
        theirs = heartbeat.topology
        if theirs is not None and theirs.hash != heartbeat.topology_hash:
            return rejections.two_topologies(heartbeat, theirs)
        if self.pinned and heartbeat.topology_hash != self.pinned:
            return rejections.not_the_pinned(heartbeat, self.pinned, ours)
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
        """The application's topology now that this heartbeat was let in; None when it does not say what it runs."""
        theirs = heartbeat.topology
        if theirs is None or ours is None:
            return theirs
        member = members.get(heartbeat.worker)
        starts = member is None or member.incarnation != heartbeat.incarnation
        if starts and not any(each.alive and each.id != heartbeat.worker for each in members.values()):
            return theirs  # nobody has looked at the topics later than a worker that starts
        return united(ours, theirs) or theirs

    def refuses(self, heartbeat: Heartbeat, refusal: Refusal, ours: TopologySummary | None, now_ms: int) -> None:
        """Remember a refusal, if it is one that stands."""
        if refusal.code in _LASTING:
            theirs = heartbeat.topology if refusal.code is RefusalCode.TOPOLOGY_MISMATCH else None
            what = ""
            if ours is not None and theirs is not None and ours != theirs and not self._too_many(theirs):
                what = differences(ours, theirs)
            refused = RejectedMember(
                heartbeat.incarnation, heartbeat.revision, refusal.code, refusal.message, now_ms, differences=what
            )
            self.note(heartbeat.worker, refused)

    def note(self, worker: str, refused: RejectedMember) -> None:
        """Remember a refusal that stands."""
        before = self.refused.get(worker)
        self._heard_ms[worker] = refused.at_ms
        if before is None or replace(refused, at_ms=before.at_ms) != before:
            self.refused[worker] = refused
            self.changes += 1
        self.starting.pop(worker, None)

    def starts(self, heartbeat: Heartbeat, now_ms: int) -> None:
        """A worker is about to start."""
        worker = heartbeat.worker
        now = Starting(heartbeat.incarnation, heartbeat.revision, heartbeat.address, heartbeat.trouble)
        self._heard_ms[worker] = now_ms
        if self.starting.get(worker) != now:
            self.starting[worker] = now
            self.changes += 1
        self.refused.pop(worker, None)

    def left(self, worker: str) -> None:
        """A worker does not stand outside any more: it was taken in, or has ended."""
        if self._heard_ms.pop(worker, None) is not None:
            self.refused.pop(worker, None)
            self.starting.pop(worker, None)
            self.reached.pop(worker, None)
            self.changes += 1

    def _too_many(self, topology: TopologySummary | None) -> bool:
        return _tasks(topology) > self.most_tasks

    def tick(self, now_ms: int, stalled_ms: int) -> None:
        """Forget who has not been heard of for a while, unless nobody could be heard for so long."""
        if stalled_ms:
            self._heard_ms = {worker: heard + stalled_ms for worker, heard in self._heard_ms.items()}
        for worker in [each for each, heard in self._heard_ms.items() if now_ms - heard > _FORGOTTEN_MS]:
            self.left(worker)


def _tasks(topology: TopologySummary | None) -> int:
    return sum(each.partitions for each in topology.subtopologies) if topology is not None else 0
