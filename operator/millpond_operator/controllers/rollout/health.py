"""The health of a revision: its workers are ready and run their tasks, or will not make progress."""

from __future__ import annotations

from datetime import timedelta

from .model import RECREATE, RolloutState
from .observation import ObservedPod, RejectedWorker
from .problems import Problem
from .status import instant

__all__ = ("all_settled", "failure", "is_overdue", "is_settled", "rejection")

#: How long a persistent problem may last before the revision fails: registries and volumes may recover.
_PERSISTENT_PROBLEM_TIMEOUT = timedelta(seconds=20)


def is_settled(state: RolloutState, pod: ObservedPod, revision: str) -> bool:
    """Return whether a new worker runs all its tasks and has been ready for `minReady`."""
    worker = state.workers.get(pod.name)
    return (
        pod.revision == revision
        and pod.ready
        and state.now - pod.ready_since >= state.wanted.min_ready
        and worker is not None
        and worker.alive
        and worker.rejection is None
        and worker.revision in {"", revision}
        and worker.running == worker.active
    )


def all_settled(state: RolloutState, revision: str) -> bool:
    """Return whether all wanted workers exist and are settled."""
    inside = [pod for pod in state.observed.pods if pod.ordinal < state.wanted.replicas]
    return len(inside) == state.wanted.replicas and all(is_settled(state, pod, revision) for pod in inside)


def is_overdue(state: RolloutState, since: str) -> bool:
    """Return whether the progress deadline has passed since a timestamp."""
    return state.elapsed(since) > state.wanted.progress_deadline


def failure(state: RolloutState, pod: ObservedPod, since: str) -> Problem | None:
    """Return why a new worker will not make progress; None while it still may."""
    worker = state.workers.get(pod.name)
    # The deadline of a pod that worked starts when it stopped working, however long the rollout has lasted.
    waited = state.now - max(instant(since, state.now), pod.ready_since)
    rejected = rejection(state, pod)
    if rejected is not None:
        return _rejection_failure(state, rejected, waited)
    problem = pod.problem or (worker.problem if worker is not None else None)
    if problem is not None and problem.is_warning:
        problem = None
    if problem is not None and not problem.blames_revision:
        return None
    if problem is not None and problem.persistent and waited > _PERSISTENT_PROBLEM_TIMEOUT:
        return problem
    if worker is not None and worker.alive and worker.restoring:
        return None
    if is_settled(state, pod, state.status.target_revision) or waited <= state.wanted.progress_deadline:
        return None
    if problem is not None:
        return problem
    deadline = int(state.wanted.progress_deadline.total_seconds())
    return Problem(
        "NoProgress",
        f"Worker {pod.name} made no progress within {deadline} s (spec.rollout.progressDeadline): "
        f"see kubectl logs {pod.name}.",
        persistent=True,
    )


def _rejection_failure(state: RolloutState, rejected: RejectedWorker, waited: timedelta) -> Problem | None:
    rollout = state.status.rollout
    recreated = rollout is not None and rollout.strategy == RECREATE
    problem = Problem(rejected.reason, rejected.message, persistent=True)
    # After a `Recreate` any topology is admitted, so a rejection lasts only while others still run another one.
    return problem if problem.blames_revision and (not recreated or waited > _PERSISTENT_PROBLEM_TIMEOUT) else None


def rejection(state: RolloutState, pod: ObservedPod) -> RejectedWorker | None:
    """Return why the coordinator rejects a worker, unless the rejection is about the pod's former revision."""
    worker = state.workers.get(pod.name)
    rejected = worker.rejection if worker is not None else None
    return rejected if rejected is not None and rejected.revision in {"", pod.revision} else None
