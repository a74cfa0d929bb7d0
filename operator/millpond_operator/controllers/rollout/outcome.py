"""The end of a rollout: all workers run the revision, or it fails and is rolled back."""

from __future__ import annotations

import msgspec

from .model import Decision, RolloutState
from .problems import Problem
from .status import AppPhase, FailedRevision, RolloutProgress, timestamp

__all__ = ("complete", "give_up", "steady_phase")

_CURES = {
    "IncompatibleTopology": "Keep the topology, or set spec.rollout.strategy to Recreate: then all workers stop before "
    "the new ones start.",
    "OtherKafka": "To move the application, set spec.rollout.strategy to Recreate: then all workers stop before the "
    "new ones start.",
}
"""The cure for a failed revision, by the reason of its failure."""


def give_up(state: RolloutState, revision: str, problem: Problem) -> bool:
    """Note that a revision failed, and begin the rollback if there is one.

    Returns:
        Whether a rollback begins.
    """
    wanted, status = state.wanted, state.status
    if revision != wanted.revision:
        return False  # it is the good one already
    cure = _CURES.get(problem.reason)
    message = problem.message if cure is None else f"{problem.message} {cure}"
    failed = FailedRevision(revision, wanted.strategy, problem.reason, message)
    if status.failed != failed:
        state.update(failed=failed)
        state.record("RevisionFailed", f"Revision {revision} failed: {message}", "Warning")
    if not wanted.auto_rollback or status.current_revision == revision or status.current_revision not in wanted.kept:
        return False
    failing = status.rollout or RolloutProgress(revision, wanted.strategy, "")
    back = RolloutProgress(
        status.current_revision, failing.strategy, timestamp(state.now), revision, upgrade=failing.upgrade
    )
    state.update(rollout=msgspec.structs.replace(back, forced=True))
    state.record(
        "RollingBack", f"Rolling back to revision {status.current_revision}, the last one that worked.", "Warning"
    )
    return True


def complete(state: RolloutState, revision: str) -> Decision:
    """End the rollout: all workers run the revision and are settled."""
    if state.status.rollout is not None and state.status.current_revision not in {"", revision}:
        state.record("RolledOut", f"All workers run revision {revision}.")
    elif state.status.failed is not None and state.status.rollout is not None:
        state.record("RolledBack", f"All workers run revision {revision} again.")
    failed = state.status.failed if revision != state.wanted.revision else None
    topology = state.observed.tasks.topology or state.status.topology
    state.update(current_revision=revision, topology=topology, rollout=None, failed=failed)
    return state.decision(steady_phase(state), revision, state.wanted.replicas)


def steady_phase(state: RolloutState) -> AppPhase:
    """Return the phase while no change is in progress."""
    return AppPhase.RUNNING if state.status.failed is None else AppPhase.DEGRADED
