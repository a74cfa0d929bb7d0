"""What to do next with an application's workers: a pure function of what is wanted, written down and observed.

Workers are never stopped while a task would stand still for it and another worker could have it: a restart, an upgrade and
a scale-in are one mechanism, drain and then delete. The caller writes `Decision.status` down before it acts.

    revisions differ, Rolling      one worker at a time: drain, delete, wait until the new one has settled
    revisions differ, Recreate     all stop, then all start
    fewer replicas                 the highest ordinals drain, then the StatefulSet shrinks
    suspended, deleted             all stop
    no progress                    the revision is noted as failed, and the last good one is the wanted one again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from .observation import ObservedApp, ObservedPod, ObservedWorker, RejectedWorker, ordinal_of
from .pod_problems import Problem
from .status import AppPhase, AppStatus, FailedRevision, RolloutProgress, Scaling, instant, timestamp
from .wording import count_workers, workers_to_end

__all__ = ("Decision", "Existing", "WantedWorkers", "decide", "pinned_by")

_RECREATE = "Recreate"
#: A problem that will not go away by itself is given so long to do so all the same: registries and volumes have moods.
_PATIENCE = timedelta(seconds=20)
_SOON, _LATER = timedelta(seconds=1), timedelta(minutes=1)
#: What has been waited for so long is looked at again after a fraction of that time.
_FRACTION = 20


@dataclass(frozen=True)
class WantedWorkers:
    """What the StreamApp says, as far as it matters here."""

    revision: str
    replicas: int
    strategy: str = "Rolling"
    min_ready: timedelta = timedelta(seconds=10)
    progress_deadline: timedelta = timedelta(minutes=5)
    auto_rollback: bool = True
    suspended: bool = False
    deleting: bool = False
    """It is being deleted, and there is something to do before it may go."""
    kept: frozenset[str] = frozenset()
    """Revisions whose pod template is at hand: one can go back to them."""
    upgrade: bool = False
    """The revision is another one only because this version of the operator makes pods differently."""


@dataclass(frozen=True)
class Existing:
    """The StatefulSet as it is."""

    revision: str
    replicas: int
    observed: bool = True
    """Whether its controller has seen it as it is: until then, a pod that is deleted may come back as it was."""


@dataclass(frozen=True)
class Decision:
    """What to do now. Everything in it is level, not edge: deciding again without a change decides the same."""

    phase: AppPhase
    revision: str
    """Of the StatefulSet's template."""
    replicas: int
    """Of the StatefulSet."""
    status: AppStatus
    """To be written down first."""
    drain: frozenset[str] = frozenset()
    """Workers to drain; all others take tasks."""
    delete: tuple[ObservedPod, ...] = ()
    """Pods to delete."""
    keep_volumes: bool = False
    """Whether pods end without their volumes being meant to go with them."""
    again: timedelta | None = None
    """When time alone may change the decision."""
    events: tuple[tuple[str, str, str], ...] = ()
    """What to tell people: type (Normal, Warning), reason, sentence."""
    waiting: str = ""
    """What the next step waits for, in words."""

    @property
    def pinned(self) -> str:
        """The hash of the topology that workers have to run; "" for any."""
        return pinned_by(self.status)


@dataclass
class _State:
    wanted: WantedWorkers
    existing: Existing | None
    observed: ObservedApp
    status: AppStatus
    now: datetime
    events: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def workers(self) -> Mapping[str, ObservedWorker]:
        return self.observed.workers

    @property
    def recreates(self) -> bool:
        """Whether all workers stop before others start. Once new ones were let start, going back takes the same."""
        rollout = self.status.rollout
        if rollout is not None and rollout.strategy == _RECREATE and (rollout.stopped or rollout.forced):
            return True
        upgrade = rollout is not None and rollout.upgrade and rollout.revision == self.status.target_revision
        # A new version of the operator brings no other topology: one worker at a time will do.
        return self.wanted.strategy == _RECREATE and not (self.wanted.upgrade or upgrade)

    def elapsed(self, since: str) -> timedelta:
        return self.now - instant(since, self.now)

    def settle(self, **changes: object) -> None:
        self.status = msgspec.structs.replace(self.status, **changes)

    def tell(self, reason: str, sentence: str, type: str = "Normal") -> None:
        self.events.append((type, reason, sentence))

    def decision(
        self,
        phase: AppPhase,
        revision: str,
        replicas: int,
        *,
        drain: frozenset[str] = frozenset(),
        delete: tuple[ObservedPod, ...] = (),
        keep_volumes: bool = False,
        again: timedelta | None = None,
        waiting: str = "",
    ) -> Decision:
        if again is not None:
            rollout = self.status.rollout
            waited = self.elapsed(rollout.started_at) / _FRACTION if rollout is not None else again
            again = min(max(again, waited), _LATER) if self.observed.pods else _LATER
        return Decision(
            phase, revision, replicas, self.status, drain, delete, keep_volumes, again, tuple(self.events), waiting
        )


def decide(
    wanted: WantedWorkers, existing: Existing | None, observed: ObservedApp, status: AppStatus, now: datetime
) -> Decision:
    """What to do next.

    Args:
        wanted: by the StreamApp.
        existing: the StatefulSet; None when there is none.
        observed: pods and workers.
        status: as it was written down last.
        now: the time of day.
    """
    state = _State(wanted, existing, observed, status, now)
    _note_topology(state)
    decision = _decide(state)
    if state.status.failed != status.failed:
        # A revision was given up, or is tried again: what follows from that follows now.
        decision = _decide(state)
    return decision


def pinned_by(status: AppStatus) -> str:
    """The topology that workers have to run, by its hash. Any, "", once all have stopped for a `Recreate`."""
    rollout = status.rollout
    recreated = rollout is not None and rollout.strategy == _RECREATE and rollout.stopped
    return "" if recreated else status.topology


def _note_topology(state: _State) -> None:
    """Keep which topology the application's state is of, from the first task on that a worker of it took up."""
    tasks, status = state.observed.tasks, state.status
    if not tasks.topology or tasks.topology == status.topology:
        return
    if any(worker.alive and worker.active for worker in state.workers.values()):
        # The last good revision was good for another topology: going back there by itself would lose what came since.
        current = "" if status.topology else status.current_revision
        state.settle(topology=tasks.topology, current_revision=current)


def _decide(state: _State) -> Decision:
    wanted, existing = state.wanted, state.existing
    if wanted.suspended or wanted.deleting:
        return _stopped(state)
    revision = _effective(state)
    if revision != state.status.target_revision:
        state.settle(target_revision=revision)
    rolling_back = state.status.failed is not None and revision != wanted.revision
    if existing is None:
        if state.status.current_revision != revision and wanted.replicas:
            state.settle(rollout=RolloutProgress(revision, "Rolling", timestamp(state.now)))
        return state.decision(AppPhase.PENDING, revision, wanted.replicas)
    if wanted.replicas == 0:
        return _none(state, revision)
    if state.recreates and _must_recreate(state, revision):
        return _recreate(state, revision, rolling_back=rolling_back)
    return _roll(state, revision, rolling_back=rolling_back)


def _effective(state: _State) -> str:
    """The revision to run: the wanted one, unless it failed and there is a good one to go back to."""
    wanted, status = state.wanted, state.status
    failed = status.failed
    if failed is not None and (failed.revision != wanted.revision or failed.strategy != wanted.strategy):
        state.settle(failed=None)
        failed = None
    if failed is not None and wanted.auto_rollback and status.current_revision in wanted.kept:
        return status.current_revision
    return wanted.revision


# All stop.


def _stopped(state: _State) -> Decision:
    state.settle(rollout=None, scaling=None)
    pods = state.observed.pods
    revision = state.wanted.revision if state.existing is None else state.existing.revision
    if not state.wanted.deleting and not pods:
        revision = _effective(state)  # nothing runs: what comes next may come as it is wanted
        if revision != state.status.target_revision:
            state.settle(target_revision=revision)
    if state.wanted.deleting:
        phase = AppPhase.DELETING
    else:
        phase = AppPhase.SUSPENDING if pods else AppPhase.SUSPENDED
    waiting = workers_to_end(pods) if pods else ""
    return state.decision(phase, revision, 0, drain=_all(pods), keep_volumes=True, waiting=waiting)


def _none(state: _State, revision: str) -> Decision:
    """No workers are wanted: nothing can be said of any revision."""
    state.settle(rollout=None, scaling=None)
    pods = state.observed.pods
    if pods:
        return state.decision(
            AppPhase.SCALING, revision, 0, drain=_all(pods), keep_volumes=True, waiting=workers_to_end(pods)
        )
    return state.decision(_steady(state), revision, 0, keep_volumes=True)


def _must_recreate(state: _State, revision: str) -> bool:
    """Whether workers of another revision run or ran last, or a stop of all is under way."""
    rollout = state.status.rollout
    if rollout is not None and rollout.revision == revision and rollout.strategy == _RECREATE:
        return True
    assert state.existing is not None
    return (
        state.existing.revision != revision
        or state.status.current_revision not in {"", revision}
        or any(pod.revision != revision for pod in state.observed.pods)
    )


def _recreate(state: _State, revision: str, *, rolling_back: bool) -> Decision:
    assert state.existing is not None
    rollout, pods = state.status.rollout, state.observed.pods
    phase = AppPhase.ROLLING_BACK if rolling_back else AppPhase.ROLLING_OUT
    if rollout is None or rollout.revision != revision or rollout.strategy != _RECREATE:
        rollout = RolloutProgress(
            revision,
            _RECREATE,
            timestamp(state.now),
            from_=state.existing.revision,
            forced=rolling_back or state.wanted.strategy != _RECREATE,
        )
        state.settle(rollout=rollout, scaling=None)
        state.tell(
            "Stopping",
            f"All workers stop, and start with revision {revision} when the last one has committed and ended.",
        )
    if not rollout.stopped:
        if pods:
            return state.decision(
                phase, state.existing.revision, 0, drain=_all(pods), keep_volumes=True, waiting=workers_to_end(pods)
            )
        rollout = msgspec.structs.replace(rollout, stopped=True, worker_since=timestamp(state.now))
        state.settle(rollout=rollout)
        state.tell("Starting", f"All workers have ended; they start with revision {revision}.")
    # From here on another topology may take the old one's place: nobody runs that any more.
    replicas, going = _scale(state)
    if replicas == state.wanted.replicas and _all_settled(state, revision):
        return replace(_complete(state, revision), drain=going)
    for pod in pods:
        failed = _failure(state, pod, rollout.worker_since)
        if failed is not None and _gives_up(state, revision, failed):
            return state.decision(phase, revision, replicas, drain=going, again=_SOON)
    return state.decision(phase, revision, replicas, drain=going, again=_SOON, waiting="the new workers to settle")


# One at a time.


def _roll(state: _State, revision: str, *, rolling_back: bool) -> Decision:
    existing, wanted, pods = state.existing, state.wanted, state.observed.pods
    assert existing is not None
    replicas, going = _scale(state)
    inside = [pod for pod in pods if pod.ordinal < wanted.replicas]
    old = [pod for pod in inside if pod.revision != revision]
    rollout = state.status.rollout
    if rollout is not None and (rollout.revision != revision or rollout.strategy == _RECREATE):
        rollout = None
        state.settle(rollout=None)
    if not old and rollout is None and existing.revision == revision and state.status.current_revision == revision:
        scaling = existing.replicas != wanted.replicas or bool(going)
        if (
            state.status.phase == AppPhase.SCALING
        ):  # until those that came are ready; one that is lost later is not of it
            scaling = scaling or sum(pod.ready for pod in inside) < wanted.replicas
        phase = AppPhase.SCALING if scaling else _steady(state)
        return state.decision(phase, revision, replicas, drain=going, again=_SOON if going else None)
    phase = (
        AppPhase.ROLLING_BACK
        if rolling_back
        else AppPhase.ROLLING_OUT
        if state.status.current_revision
        else AppPhase.PENDING
    )
    if rollout is None:
        former = existing.revision if existing.revision != revision else ""
        rollout = RolloutProgress(revision, "Rolling", timestamp(state.now), from_=former, upgrade=wanted.upgrade)
        state.settle(rollout=rollout)
        if state.status.current_revision and old:
            state.tell("RollingOut", f"{count_workers(len(old))} to restart with revision {revision}, one at a time.")
    # First one, then the other: two that drain at a time have fewer places to drain to.
    if replicas > wanted.replicas and _others(state, going):
        return state.decision(phase, revision, replicas, drain=going, again=_SOON, waiting="a scale-in to end")
    decision = _step(state, revision, phase, replicas, rollout, inside, old)
    return replace(decision, drain=decision.drain | going)


def _step(
    state: _State,
    revision: str,
    phase: AppPhase,
    replicas: int,
    rollout: RolloutProgress,
    pods: list[ObservedPod],
    old: list[ObservedPod],
) -> Decision:
    """One step of a rolling update, with the worker in hand or the next one."""
    by_name = {pod.name: pod for pod in pods}
    hand = rollout.worker if ordinal_of(rollout.worker) < state.wanted.replicas else ""
    if hand and hand not in by_name and not rollout.restarting:
        rollout = msgspec.structs.replace(rollout, restarting=True)
        state.settle(rollout=rollout)
    pod = by_name.get(hand) if hand else None
    if hand and pod is None:
        if _overdue(state, rollout.worker_since) and _gives_up(
            state, revision, Problem("NoPod", f"Pod {hand} was not made: see the events of its StatefulSet.")
        ):
            return state.decision(phase, revision, replicas, again=_SOON)
        return state.decision(phase, revision, replicas, again=_SOON, waiting=f"{hand} to be made")
    if pod is not None and pod.terminating:
        return state.decision(phase, revision, replicas, drain=_own(pod), waiting=f"{hand} to end")
    if pod is not None and pod.revision != revision:
        return _let_go(state, revision, phase, replicas, rollout, pod)
    # The worker in hand, if any, is new. Other new ones may have trouble too: those that came in with a scale-out.
    for each in pods:
        if each.revision == revision:
            failed = _failure(state, each, rollout.worker_since if each is pod else rollout.started_at)
            if failed is not None and _gives_up(state, revision, failed):
                return state.decision(phase, revision, replicas, again=_SOON)
    if pod is not None and revision != state.wanted.revision and _refusal(state, pod) is not None:
        # The good revision is not let in by those of the bad one, however they came to be: they have to stop first.
        since, up = timestamp(state.now), rollout.upgrade
        state.settle(
            rollout=RolloutProgress(revision, _RECREATE, since, from_=rollout.revision, forced=True, upgrade=up)
        )
        return _recreate(state, revision, rolling_back=True)
    if pod is not None and not _settled(state, pod, revision):
        return state.decision(phase, revision, replicas, again=_SOON, waiting=f"{hand} to settle")
    if old:
        following = _next(state, old)
        rollout = msgspec.structs.replace(
            rollout, worker=following.name, worker_since=timestamp(state.now), restarting=False
        )
        state.settle(rollout=rollout)
        if following.terminating:
            return state.decision(
                phase, revision, replicas, drain=_own(following), again=_SOON, waiting=f"{following.name} to end"
            )
        return _let_go(state, revision, phase, replicas, rollout, following)
    if _all_settled(state, revision):
        return _complete(state, revision)
    return state.decision(phase, revision, replicas, again=_SOON, waiting="the workers to settle")


def _let_go(
    state: _State, revision: str, phase: AppPhase, replicas: int, rollout: RolloutProgress, pod: ObservedPod
) -> Decision:
    """Drain a worker of another revision, and delete its pod when it is empty."""
    assert state.existing is not None
    if state.existing.revision != revision or not state.existing.observed:
        return state.decision(
            phase, revision, replicas, drain=_own(pod), again=_SOON, waiting="the StatefulSet to take the revision on"
        )
    if _may_end(state, pod):
        since = rollout.worker_since if rollout.restarting else timestamp(state.now)
        state.settle(rollout=msgspec.structs.replace(rollout, restarting=True, worker_since=since))
        return state.decision(
            phase, revision, replicas, drain=_own(pod), delete=(pod,), again=_SOON, waiting=f"{pod.name} to end"
        )
    return state.decision(
        phase,
        revision,
        replicas,
        drain=_own(pod),
        again=_SOON,
        waiting=f"{pod.name} to hand its tasks to caught-up copies",
    )


def _next(state: _State, old: list[ObservedPod]) -> ObservedPod:
    """Broken ones first, since nothing is lost with them; then the highest ordinals."""
    return min(old, key=lambda pod: (_works(state, pod), -pod.ordinal))


def _works(state: _State, pod: ObservedPod) -> bool:
    worker = state.workers.get(pod.name)
    return worker is not None and worker.alive and worker.refused is None


def _may_end(state: _State, pod: ObservedPod) -> bool:
    """Whether nothing stands still when it ends that could go on elsewhere."""
    return _empty(state, pod) or (state.observed.informed and not _others(state, _own(pod)))


def _others(state: _State, leaving: frozenset[str]) -> bool:
    """Whether any other worker could take tasks."""
    return any(
        each.alive and not each.draining and each.refused is None
        for name, each in state.workers.items()
        if name not in leaving
    )


def _empty(state: _State, pod: ObservedPod) -> bool:
    """Whether a worker has nothing, and will get nothing any more."""
    worker = state.workers.get(pod.name)
    if worker is None:  # it may have anything until the coordinator has been there for long enough to be told
        return state.observed.informed or not pod.ready
    if worker.refused is not None:
        return True
    if not worker.alive:
        return state.observed.informed
    return worker.draining and worker.empty


def _overdue(state: _State, since: str) -> bool:
    return state.elapsed(since) > state.wanted.progress_deadline


# Scaling.


def _scale(state: _State) -> tuple[int, frozenset[str]]:
    """The replicas of the StatefulSet for now, and the workers that have to be empty before there are fewer."""
    assert state.existing is not None
    wanted, current = state.wanted.replicas, state.existing.replicas
    leaving = [pod for pod in state.observed.pods if pod.ordinal >= wanted]
    # They stay drained until they have ended: nothing may move back to them.
    names = frozenset(pod.name for pod in leaving)
    if wanted >= current or all(pod.terminating for pod in leaving):
        if state.status.scaling is not None:
            state.settle(scaling=None)
        return wanted, names
    scaling = state.status.scaling
    if scaling is None or scaling.to != wanted:
        scaling = Scaling(wanted, timestamp(state.now))
        state.settle(scaling=scaling)
        state.tell("ScalingIn", f"{count_workers(len(leaving))} to drain before the application goes on with {wanted}.")
    if all(pod.terminating or _empty(state, pod) for pod in leaving):
        return wanted, names
    return current, names


# Progress.


def _settled(state: _State, pod: ObservedPod, revision: str) -> bool:
    """Whether a new worker does its work, and has done so for long enough to believe it."""
    worker = state.workers.get(pod.name)
    return (
        pod.revision == revision
        and pod.ready
        and state.now - pod.ready_since >= state.wanted.min_ready
        and worker is not None
        and worker.alive
        and worker.refused is None
        and worker.revision in {"", revision}
        and worker.running == worker.active
    )


def _all_settled(state: _State, revision: str) -> bool:
    inside = [pod for pod in state.observed.pods if pod.ordinal < state.wanted.replicas]
    return len(inside) == state.wanted.replicas and all(_settled(state, pod, revision) for pod in inside)


def _failure(state: _State, pod: ObservedPod, since: str) -> Problem | None:
    """Why a new worker will make no progress; None while it still may."""
    worker = state.workers.get(pod.name)
    # A pod that worked is judged from when it ceased to, however long the rollout has been under way.
    waited = state.now - max(instant(since, state.now), pod.ready_since)
    refused = _refusal(state, pod)
    if refused is not None:
        rollout = state.status.rollout
        recreated = rollout is not None and rollout.strategy == _RECREATE
        why = Problem(refused.reason, refused.message, settled=True)
        # Where any topology is let in, only one that others still run is refused for long.
        return why if why.blames_revision and (not recreated or waited > _PATIENCE) else None
    problem = pod.problem or (worker.problem if worker is not None else None)
    if problem is not None and not problem.blames_revision:
        return None
    if problem is not None and problem.settled and waited > _PATIENCE:
        return problem
    if worker is not None and worker.alive and worker.restoring:
        return None
    if not _settled(state, pod, state.status.target_revision) and waited > state.wanted.progress_deadline:
        if problem is not None:
            return problem
        deadline = int(state.wanted.progress_deadline.total_seconds())
        return Problem(
            "NoProgress",
            f"Worker {pod.name} made no progress within {deadline} s (rollout.progressDeadline): see kubectl logs {pod.name}.",
            settled=True,
        )
    return None


def _refusal(state: _State, pod: ObservedPod) -> RejectedWorker | None:
    """Why the coordinator does not take a worker in, unless that is said of the revision before."""
    worker = state.workers.get(pod.name)
    refused = worker.refused if worker is not None else None
    return refused if refused is not None and refused.revision in {"", pod.revision} else None


def _gives_up(state: _State, revision: str, problem: Problem) -> bool:
    """Note that a revision failed.

    Returns:
        Whether there is another one to go back to.
    """
    wanted, status = state.wanted, state.status
    if revision != wanted.revision:
        return False  # it is the good one already
    message = problem.message
    if problem.reason == "IncompatibleTopology":
        message = (
            f"{message} Set rollout.strategy to Recreate, and all workers stop before the new ones start; or keep the "
            "topology."
        )
    elif problem.reason == "OtherKafka":
        message = (
            f"{message} To move it, set rollout.strategy to Recreate: then all workers stop before the new ones start."
        )
    failed = FailedRevision(revision, wanted.strategy, problem.reason, message)
    if status.failed != failed:
        state.settle(failed=failed)
        state.tell("RevisionFailed", f"Revision {revision} failed: {message}", "Warning")
    if not wanted.auto_rollback or status.current_revision == revision or status.current_revision not in wanted.kept:
        return False
    failing = status.rollout or RolloutProgress(revision, wanted.strategy, "")
    back = RolloutProgress(
        status.current_revision, failing.strategy, timestamp(state.now), revision, upgrade=failing.upgrade
    )
    state.settle(rollout=msgspec.structs.replace(back, forced=True))
    state.tell("RollingBack", f"Going back to revision {status.current_revision}, the last one that worked.", "Warning")
    return True


def _complete(state: _State, revision: str) -> Decision:
    """Everything runs the revision, and does so well."""
    if state.status.rollout is not None and state.status.current_revision not in {"", revision}:
        state.tell("RolledOut", f"All workers run revision {revision}.")
    elif state.status.failed is not None and state.status.rollout is not None:
        state.tell("RolledBack", f"All workers run revision {revision} again.")
    failed = state.status.failed if revision != state.wanted.revision else None
    topology = state.observed.tasks.topology or state.status.topology
    state.settle(current_revision=revision, topology=topology, rollout=None, failed=failed)
    return state.decision(_steady(state), revision, state.wanted.replicas)


def _steady(state: _State) -> AppPhase:
    """The phase when nothing is under way."""
    return AppPhase.RUNNING if state.status.failed is None else AppPhase.DEGRADED


def _own(pod: ObservedPod) -> frozenset[str]:
    return frozenset({pod.name})


def _all(pods: tuple[ObservedPod, ...]) -> frozenset[str]:
    """All end: none of them takes over from another what both will let go of."""
    return frozenset(pod.name for pod in pods)
