"""The number of workers, and which workers may stop without stopping their tasks."""

from __future__ import annotations

from .model import Decision, RolloutState
from .observation import ObservedPod
from .outcome import steady_phase
from .status import AppPhase, Scaling, timestamp
from .wording import count_workers, workers_to_end

__all__ = ("is_empty", "may_stop", "only", "others_take_tasks", "pod_names", "scale", "scale_to_zero")


def scale(state: RolloutState) -> tuple[int, frozenset[str]]:
    """Return the present replicas of the StatefulSet, and the workers that have to be empty before it shrinks."""
    assert state.existing is not None
    wanted, current = state.wanted.replicas, state.existing.replicas
    leaving = [pod for pod in state.observed.pods if pod.ordinal >= wanted]
    # They stay drained until they have ended, so that no task moves back to them.
    names = frozenset(pod.name for pod in leaving)
    if wanted >= current or all(pod.terminating for pod in leaving):
        if state.status.scaling is not None:
            state.update(scaling=None)
        return wanted, names
    scaling = state.status.scaling
    if scaling is None or scaling.to != wanted:
        scaling = Scaling(wanted, timestamp(state.now))
        state.update(scaling=scaling)
        state.record(
            "ScalingIn", f"Draining {count_workers(len(leaving))} before the application scales in to {wanted}."
        )
    if all(pod.terminating or is_empty(state, pod) for pod in leaving):
        return wanted, names
    return current, names


def scale_to_zero(state: RolloutState, revision: str) -> Decision:
    """Stop all workers, since the StreamApp wants none. No revision succeeds or fails meanwhile."""
    state.update(rollout=None, scaling=None)
    pods = state.observed.pods
    if pods:
        return state.decision(
            AppPhase.SCALING, revision, 0, drain=pod_names(pods), keep_volumes=True, waiting=workers_to_end(pods)
        )
    return state.decision(steady_phase(state), revision, 0, keep_volumes=True)


def may_stop(state: RolloutState, pod: ObservedPod) -> bool:
    """Return whether no task stops with the worker that another worker could run."""
    return is_empty(state, pod) or (state.observed.informed and not others_take_tasks(state, only(pod)))


def others_take_tasks(state: RolloutState, leaving: frozenset[str]) -> bool:
    """Return whether any worker that stays can take tasks.

    One that a person wants drained can: it is drained only while another one takes the tasks.
    """
    requested = state.wanted.drain
    return any(
        each.alive and (not each.draining or name in requested) and each.rejection is None
        for name, each in state.workers.items()
        if name not in leaving
    )


def is_empty(state: RolloutState, pod: ObservedPod) -> bool:
    """Return whether a worker has no tasks and will get none."""
    worker = state.workers.get(pod.name)
    if worker is None:  # it may have tasks until every live worker has had time to report
        return state.observed.informed or not pod.ready
    if worker.rejection is not None:
        return True
    if not worker.alive:
        return state.observed.informed
    return worker.draining and worker.empty


def only(pod: ObservedPod) -> frozenset[str]:
    """Return the name of one pod, as a set."""
    return frozenset({pod.name})


def pod_names(pods: tuple[ObservedPod, ...]) -> frozenset[str]:
    """Return the names of pods. When all stop, all are drained, so that none takes over tasks of another."""
    return frozenset(pod.name for pod in pods)
