"""The right of a worker to a task, by the owner in the offset metadata."""

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
    """The comparison of the owners in Kafka with this worker.

    Args:
        config: the worker's configuration.
        topology: the hash of the worker's topology.
        positions: the start positions of inputs.

    Attributes:
        admitted: returns whether tasks of another topology may be activated; always True without a coordinator.
    """

    def __init__(self, config: Config, topology: str, positions: StartPositions) -> None:
        self.admitted: Callable[[], bool] = lambda: True
        self._config = config
        self._topology = topology
        self._positions = positions

    def finding(self, held: HeldTask, lookup: TaskLookup) -> Finding:
        """Return the result of a lookup for the life cycle of the task.

        Raises:
            OwnershipError: see `check_own`; only without a coordinator.
        """
        if held.role is not Role.ACTIVE:
            return Finding(held.id)
        claim, owner = claim_of(self._config.worker_id, lookup.committed)
        if self._config.coordinator_url is None and claim is Claim.RESUME:
            self.check_own(held, lookup)
        return Finding(held.id, claim, owner, epoch_of(lookup.committed), self._resumable(lookup))

    def _resumable(self, lookup: TaskLookup) -> bool:
        return belongs_to(self._topology, lookup.committed) or self.admitted()

    def check_own(self, held: HeldTask, lookup: TaskLookup) -> None:
        """Check that this process still owns a task. For a worker without a coordinator.

        Raises:
            OwnershipError: another worker owns the task, or another process with this worker's id.
        """
        worker = self._config.worker_id
        claim, owner = claim_of(worker, lookup.committed)
        if claim is not Claim.RESUME:
            self.taken_over(held.id, claim, owner)
        epoch = epoch_of(lookup.committed)
        if held.epoch and held.epoch != epoch:
            raise OwnershipError(
                f"another process runs as worker '{worker}' of '{self._config.application_id}' (it owns task {held.id} "
                f"since epoch {epoch}, this one is at {held.epoch}). Give each worker its own 'worker.id'."
            )

    def taken_over(self, task: TaskId, claim: Claim, owner: str | None) -> None:
        """Report that this worker does not own a task any more, which is an error without a coordinator.

        Raises:
            OwnershipError: always.
        """
        if owner is None:
            raise OwnershipError(
                f"task {task} has no owner in Kafka any more: the committed offsets of '{self._config.application_id}' "
                f"were reset or deleted while worker '{self._config.worker_id}' ran. Start the worker again: it begins "
                f"where the offsets say."
            )
        raise OwnershipError(
            f"task {task} was taken over by worker '{owner}' while this worker '{self._config.worker_id}' was silent. "
            f"No record is lost: '{owner}' processes again what this worker had not committed."
        )

    def announcement(self, answer: LookupAnswer) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the unchanged offsets of this worker's tasks, with the epochs of a new incarnation."""
        offsets: dict[Partition, tuple[int, OffsetMetadata]] = {}
        for lookup in answer.tasks.values():
            own = claim_of(self._config.worker_id, lookup.committed)[0] is Claim.RESUME
            if own and self._resumable(lookup):
                epoch = next_epoch(lookup.committed)
                offsets |= self._positions.claimed(lookup, self._config.worker_id, epoch)
        return offsets
