"""The strategy `Rolling`: one worker after the other is drained, deleted and started with the new revision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from .health import all_settled, failure, is_overdue, is_settled, rejection
from .model import RECREATE, REQUEUE_SOON, Decision, RolloutState
from .observation import ObservedPod, ordinal_of
from .outcome import complete, give_up, steady_phase
from .problems import Problem
from .recreate import recreate
from .scaling import may_stop, only, others_take_tasks, scale
from .status import AppPhase, RolloutProgress, timestamp
from .wording import count_workers

__all__ = ("roll",)


def roll(state: RolloutState, revision: str, *, rolling_back: bool) -> Decision:
    """Decide the next step of a rolling update, or of scaling while no update is in progress."""
    existing, wanted, pods = state.existing, state.wanted, state.observed.pods
    assert existing is not None
    replicas, leaving = scale(state)
    inside = [pod for pod in pods if pod.ordinal < wanted.replicas]
    old = [pod for pod in inside if pod.revision != revision]
    rollout = state.status.rollout
    if rollout is not None and (rollout.revision != revision or rollout.strategy == RECREATE):
        rollout = None
        state.update(rollout=None)
    if not old and rollout is None and existing.revision == revision and state.status.current_revision == revision:
        return _no_rollout(state, revision, replicas, leaving, inside)
    if rolling_back:
        phase = AppPhase.ROLLING_BACK
    else:
        phase = AppPhase.ROLLING_OUT if state.status.current_revision else AppPhase.PENDING
    if rollout is None:
        former = existing.revision if existing.revision != revision else ""
        rollout = RolloutProgress(revision, "Rolling", timestamp(state.now), from_=former, upgrade=wanted.upgrade)
        state.update(rollout=rollout)
        if state.status.current_revision and old:
            restarting = count_workers(len(old))
            state.record("RollingOut", f"Restarting {restarting} with revision {revision}, one at a time.")
    # Scale in first: with two draining workers at a time there would be fewer places for tasks.
    if replicas > wanted.replicas and others_take_tasks(state, leaving):
        waiting = "the scale-in to end"
        return state.decision(phase, revision, replicas, drain=leaving, requeue_after=REQUEUE_SOON, waiting=waiting)
    decision = _Step(state, revision, phase, replicas, rollout, inside, old).decide()
    return replace(decision, drain=decision.drain | leaving)


def _no_rollout(
    state: RolloutState, revision: str, replicas: int, leaving: frozenset[str], inside: list[ObservedPod]
) -> Decision:
    assert state.existing is not None
    scaling = state.existing.replicas != state.wanted.replicas or bool(leaving)
    if state.status.phase == AppPhase.SCALING:
        # A scale-out lasts until the new workers are ready; a worker that is lost later does not begin one.
        scaling = scaling or sum(pod.ready for pod in inside) < state.wanted.replicas
    phase = AppPhase.SCALING if scaling else steady_phase(state)
    requeue_after = REQUEUE_SOON if leaving else None
    return state.decision(phase, revision, replicas, drain=leaving, requeue_after=requeue_after)


@dataclass
class _Step:
    """One step of a rolling update, with the current worker or the next one."""

    state: RolloutState
    revision: str
    phase: AppPhase
    replicas: int
    rollout: RolloutProgress
    pods: list[ObservedPod]
    old: list[ObservedPod]
    """The pods of other revisions."""

    def decide(self) -> Decision:
        state, revision = self.state, self.revision
        by_name = {pod.name: pod for pod in self.pods}
        current = self.rollout.worker if ordinal_of(self.rollout.worker) < state.wanted.replicas else ""
        if current and current not in by_name and not self.rollout.restarting:
            self._update(restarting=True)
        pod = by_name.get(current) if current else None
        if current and pod is None:
            return self._await_pod(current)
        if pod is not None and pod.terminating:
            return state.decision(self.phase, revision, self.replicas, drain=only(pod), waiting=f"{current} to end")
        if pod is not None and pod.revision != revision:
            return self._restart(pod)
        # The current worker, if any, is new. Other new workers, of a scale-out, can fail too.
        if self._failed(pod):
            return self._wait()
        if pod is not None and revision != state.wanted.revision and rejection(state, pod) is not None:
            return self._recreate_good_revision()
        if pod is not None and not is_settled(state, pod, revision):
            return self._wait(f"{current} to run its tasks")
        if self.old:
            return self._restart_next()
        if all_settled(state, revision):
            return complete(state, revision)
        return self._wait("the workers to run their tasks")

    def _await_pod(self, name: str) -> Decision:
        if is_overdue(self.state, self.rollout.worker_since) and give_up(
            self.state,
            self.revision,
            Problem("NoPod", f"Pod {name} was not created: see the events of its StatefulSet."),
        ):
            return self._wait()
        return self._wait(f"{name} to be created")

    def _failed(self, current: ObservedPod | None) -> bool:
        """Return whether a new worker failed and a rollback begins."""
        for each in self.pods:
            if each.revision == self.revision:
                since = self.rollout.worker_since if each is current else self.rollout.started_at
                failed = failure(self.state, each, since)
                if failed is not None and give_up(self.state, self.revision, failed):
                    return True
        return False

    def _recreate_good_revision(self) -> Decision:
        """Stop all workers: those of the failed revision keep the good revision from being admitted."""
        state, failing = self.state, self.rollout
        since = timestamp(state.now)
        state.update(
            rollout=RolloutProgress(
                self.revision, RECREATE, since, from_=failing.revision, forced=True, upgrade=failing.upgrade
            )
        )
        return recreate(state, self.revision, rolling_back=True)

    def _restart_next(self) -> Decision:
        following = _next(self.state, self.old)
        self._update(worker=following.name, worker_since=timestamp(self.state.now), restarting=False)
        if following.terminating:
            return self._wait(f"{following.name} to end", drain=only(following))
        return self._restart(following)

    def _restart(self, pod: ObservedPod) -> Decision:
        """Drain a worker of another revision, and delete its pod once the worker is empty."""
        state, revision = self.state, self.revision
        assert state.existing is not None
        if state.existing.revision != revision or not state.existing.observed:
            return self._wait("the StatefulSet to get the new revision", drain=only(pod))
        if may_stop(state, pod):
            since = self.rollout.worker_since if self.rollout.restarting else timestamp(state.now)
            self._update(restarting=True, worker_since=since)
            return self._wait(f"{pod.name} to end", drain=only(pod), delete=(pod,))
        return self._wait(f"{pod.name} to hand its tasks over to caught-up standbys", drain=only(pod))

    def _update(self, **changes: Any) -> None:
        self.rollout = msgspec.structs.replace(self.rollout, **changes)
        self.state.update(rollout=self.rollout)

    def _wait(
        self, waiting: str = "", *, drain: frozenset[str] = frozenset(), delete: tuple[ObservedPod, ...] = ()
    ) -> Decision:
        return self.state.decision(
            self.phase,
            self.revision,
            self.replicas,
            drain=drain,
            delete=delete,
            requeue_after=REQUEUE_SOON,
            waiting=waiting,
        )


def _next(state: RolloutState, old: list[ObservedPod]) -> ObservedPod:
    """Return the worker to restart next: broken ones first, since they run no task; then the highest ordinals."""
    return min(old, key=lambda pod: (_works(state, pod), -pod.ordinal))


def _works(state: RolloutState, pod: ObservedPod) -> bool:
    worker = state.workers.get(pod.name)
    return worker is not None and worker.alive and worker.rejection is None
