"""What a worker may do with a task, by the owner that the offset metadata names."""

from __future__ import annotations

from collections.abc import Callable

from millpond.errors import OwnershipError
from millpond.protocol import Role
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import (
    Claim,
    OffsetMetadata,
    Partition,
    belongs_to,
    claim_of,
    epoch_of,
    next_epoch,
)
from millpond.runtime.ownership.lookups import LookupAnswer, TaskLookup
from millpond.topology import TaskId

from .events import Finding
from .held_tasks import HeldTask
from .start_positions import StartPositions

__all__ = ("TaskClaims",)


class TaskClaims:
    """Compares the owners in Kafka with this worker.

    Args:
        config: the worker's.
        topology: the hash of the worker's topology.
        positions: where tasks start to read.

    Attributes:
        admitted: whether tasks of another topology may be activated. Without a coordinator they always may.
    """

    def __init__(self, config: Config, topology: str, positions: StartPositions) -> None:
        self.admitted: Callable[[], bool] = lambda: True
        self._config = config
        self._topology = topology
        self._positions = positions

    def finding(self, held: HeldTask, where: TaskLookup) -> Finding:
        """Return what a lookup found, as far as the life cycle of the task depends on it.

        Raises:
            OwnershipError: as `check_own`, where there is no coordinator.
        """
        if held.role is not Role.ACTIVE:
            return Finding(held.id)
        claim, owner = claim_of(self._config.worker_id, where.committed)
        if self._config.coordinator_url is None and claim is Claim.RESUME:
            self.check_own(held, where)
        return Finding(held.id, claim, owner, epoch_of(where.committed), self._resumable(where))

    def _resumable(self, where: TaskLookup) -> bool:
        return belongs_to(self._topology, where.committed) or self.admitted()

    def check_own(self, held: HeldTask, where: TaskLookup) -> None:
        """Check that no other process has taken a task over, which without a coordinator nobody else can.

        Raises:
            OwnershipError: another worker, or another process with this worker's id, owns it.
        """
        worker = self._config.worker_id
        claim, owner = claim_of(worker, where.committed)
        if claim is not Claim.RESUME:
            self.taken_over(held.id, claim, owner)
        epoch = epoch_of(where.committed)
        if held.epoch and held.epoch != epoch:
            raise OwnershipError(
                f"another process runs as worker '{worker}' of '{self._config.application_id}' (it owns task {held.id} "
                f"since epoch {epoch}, this one is at {held.epoch}). Give each worker its own 'worker.id'."
            )

    def taken_over(self, task: TaskId, claim: Claim, owner: str | None) -> None:
        """End the worker: without a coordinator nobody assigns its tasks to another one.

        Raises:
            OwnershipError: always.
        """
        raise OwnershipError(
            f"task {task} was taken over by worker '{owner}' while this worker '{self._config.worker_id}' was silent. "
            f"Nothing is lost: '{owner}' processes again what this worker had not committed."
        )

    def announcement(self, answer: LookupAnswer) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the offsets of this worker's tasks as they are, with the epochs of a new incarnation."""
        offsets: dict[Partition, tuple[int, OffsetMetadata]] = {}
        for where in answer.tasks.values():
            mine = claim_of(self._config.worker_id, where.committed)[0] is Claim.RESUME
            if mine and self._resumable(where):
                epoch = next_epoch(where.committed)
                offsets |= self._positions.claimed(where, self._config.worker_id, epoch)
        return offsets
