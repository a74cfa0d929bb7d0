"""The strategy `Recreate`: all workers stop before workers of the new revision start."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from .health import all_settled, failure
from .model import RECREATE, REQUEUE_SOON, Decision, RolloutState
from .outcome import complete, give_up
from .scaling import pod_names, scale
from .status import AppPhase, RolloutProgress, timestamp
from .wording import workers_to_end

__all__ = ("must_recreate", "recreate")


def must_recreate(state: RolloutState, revision: str) -> bool:
    """Return whether workers of another revision run or ran last, or all workers are being stopped already."""
    rollout = state.status.rollout
    if rollout is not None and rollout.revision == revision and rollout.strategy == RECREATE:
        return True
    assert state.existing is not None
    return (
        state.existing.revision != revision
        or state.status.current_revision not in {"", revision}
        or any(pod.revision != revision for pod in state.observed.pods)
    )


def recreate(state: RolloutState, revision: str, *, rolling_back: bool) -> Decision:
    """Decide the next step of a `Recreate`."""
    assert state.existing is not None
    rollout, pods = state.status.rollout, state.observed.pods
    phase = AppPhase.ROLLING_BACK if rolling_back else AppPhase.ROLLING_OUT
    if rollout is None or rollout.revision != revision or rollout.strategy != RECREATE:
        rollout = RolloutProgress(
            revision,
            RECREATE,
            timestamp(state.now),
            from_=state.existing.revision,
            forced=rolling_back or state.wanted.strategy != RECREATE,
        )
        state.update(rollout=rollout, scaling=None)
        state.record(
            "Stopping",
            f"Stopping all workers; they start with revision {revision} after the last one has committed and ended.",
        )
    if not rollout.stopped:
        if pods:
            current, waiting = state.existing.revision, workers_to_end(pods)
            return state.decision(phase, current, 0, drain=pod_names(pods), keep_volumes=True, waiting=waiting)
        rollout = msgspec.structs.replace(rollout, stopped=True, worker_since=timestamp(state.now))
        state.update(rollout=rollout)
        state.record("Starting", f"All workers have ended; they start with revision {revision}.")
    # From here on another topology is admitted, since no worker runs the old one.
    replicas, leaving = scale(state)
    if replicas == state.wanted.replicas and all_settled(state, revision):
        return replace(complete(state, revision), drain=leaving)
    for pod in pods:
        failed = failure(state, pod, rollout.worker_since)
        if failed is not None and give_up(state, revision, failed):
            return state.decision(phase, revision, replicas, drain=leaving, requeue_after=REQUEUE_SOON)
    waiting = "the new workers to run their tasks"
    return state.decision(phase, revision, replicas, drain=leaving, requeue_after=REQUEUE_SOON, waiting=waiting)
