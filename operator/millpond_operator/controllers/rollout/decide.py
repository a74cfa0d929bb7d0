"""The next step with an application's workers: a pure function of the wanted, the saved and the observed state.

A worker is not stopped as long as it runs a task that another worker could run. Restarts, upgrades and scale-ins all
drain a worker first, and then delete its pod. The caller saves `Decision.status` before it acts.

    revisions differ, Rolling      one worker at a time: drain, delete, wait until the new one runs its tasks
    revisions differ, Recreate     all stop, then all start
    fewer replicas                 the highest ordinals drain, then the StatefulSet shrinks
    suspended, deleted             all stop
    no progress                    the revision is noted as failed, and the last good one is wanted again
"""

from __future__ import annotations

from datetime import datetime

from .draining import drain_requested
from .model import Decision, Existing, RolloutState, WantedWorkers
from .observation import ObservedApp
from .recreate import must_recreate, recreate
from .rolling import roll
from .scaling import pod_names, scale_to_zero
from .status import AppPhase, AppStatus, RolloutProgress, timestamp
from .wording import workers_to_end

__all__ = ("decide",)


def decide(
    wanted: WantedWorkers, existing: Existing | None, observed: ObservedApp, status: AppStatus, now: datetime
) -> Decision:
    """Return the next step.

    Args:
        wanted: the part of the specification that concerns rollouts.
        existing: the StatefulSet; None when there is none.
        observed: the pods and workers.
        status: the saved status.
        now: the current time.
    """
    state = RolloutState(wanted, existing, observed, status, now)
    _note_topology(state)
    decision = _decide(state)
    if state.status.failed != status.failed:
        # A revision failed or is tried again: decide at once what follows from that.
        decision = _decide(state)
    return drain_requested(state, decision)


def _note_topology(state: RolloutState) -> None:
    """Save the topology of the application's state, as soon as a worker that runs it holds an active task."""
    tasks, status = state.observed.tasks, state.status
    if not tasks.topology or tasks.topology == status.topology:
        return
    if any(worker.alive and worker.active for worker in state.workers.values()):
        # The last good revision ran another topology: an automatic rollback to it would lose the state since then.
        current = "" if status.topology else status.current_revision
        state.update(topology=tasks.topology, current_revision=current)


def _decide(state: RolloutState) -> Decision:
    wanted, existing = state.wanted, state.existing
    if wanted.suspended or wanted.deleting:
        return _stop(state)
    revision = _target_revision(state)
    if revision != state.status.target_revision:
        state.update(target_revision=revision)
    rolling_back = state.status.failed is not None and revision != wanted.revision
    if existing is None:
        if state.status.current_revision != revision and wanted.replicas:
            state.update(rollout=RolloutProgress(revision, "Rolling", timestamp(state.now)))
        return state.decision(AppPhase.PENDING, revision, wanted.replicas)
    if wanted.replicas == 0:
        return scale_to_zero(state, revision)
    if state.recreates and must_recreate(state, revision):
        return recreate(state, revision, rolling_back=rolling_back)
    return roll(state, revision, rolling_back=rolling_back)


def _target_revision(state: RolloutState) -> str:
    """Return the revision to run: the wanted one, unless it failed and a rollback is possible."""
    wanted, status = state.wanted, state.status
    failed = status.failed
    if failed is not None and (failed.revision != wanted.revision or failed.strategy != wanted.strategy):
        state.update(failed=None)
        failed = None
    if failed is not None and wanted.auto_rollback and status.current_revision in wanted.kept:
        return status.current_revision
    return wanted.revision


def _stop(state: RolloutState) -> Decision:
    """Stop all workers, since the StreamApp is suspended or being deleted."""
    state.update(rollout=None, scaling=None)
    pods = state.observed.pods
    revision = state.wanted.revision if state.existing is None else state.existing.revision
    if not state.wanted.deleting and not pods:
        revision = _target_revision(state)  # no worker runs, so any revision can follow
        if revision != state.status.target_revision:
            state.update(target_revision=revision)
    if state.wanted.deleting:
        phase = AppPhase.DELETING
    else:
        phase = AppPhase.SUSPENDING if pods else AppPhase.SUSPENDED
    waiting = workers_to_end(pods) if pods else ""
    return state.decision(phase, revision, 0, drain=pod_names(pods), keep_volumes=True, waiting=waiting)
