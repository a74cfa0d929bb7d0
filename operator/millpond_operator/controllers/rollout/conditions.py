"""The conditions of a StreamApp, for `kubectl wait`, Argo CD (kstatus) and people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .model import Decision
from .observation import ObservedApp, Tasks
from .problems import Problem
from .status import AppPhase, AppStatus, Condition, ConditionType, Draining, condition

__all__ = ("ConditionInputs", "conditions", "problems")

_MOVING = frozenset(
    {
        AppPhase.PENDING,
        AppPhase.ROLLING_OUT,
        AppPhase.ROLLING_BACK,
        AppPhase.SCALING,
        AppPhase.SUSPENDING,
        AppPhase.DELETING,
    }
)
_MAX_NAMED = 3
_PROGRESS = {
    AppPhase.PENDING: "The workers are starting",
    AppPhase.ROLLING_OUT: "The workers are restarting with the new revision",
    AppPhase.ROLLING_BACK: "The workers are rolling back to the last good revision",
    AppPhase.SCALING: "The number of workers is changing",
    AppPhase.SUSPENDING: "The workers are committing and ending",
    AppPhase.DELETING: "The application is being deleted",
}


@dataclass(frozen=True)
class ConditionInputs:
    """The input of the conditions."""

    name: str
    """The name of the StreamApp."""
    decision: Decision
    observed: ObservedApp
    replicas: int
    """The wanted number of workers."""
    problem: Problem | None = None
    """The most important problem."""
    blocked_by: Problem | None = None
    """Why the operator cannot do anything for the StreamApp."""
    tasks_stopped: bool = False
    """Whether tasks have not been running for longer than a move takes."""
    standbys_lag: bool = False
    """Whether standbys have not been caught up for longer than a move takes."""
    upgrade_waits: bool = False
    """Whether the restart for a new version of the operator waits for those of other StreamApps."""
    standby_replicas: int = 0
    """The wanted number of standbys of each stateful task."""
    snapshot_problem: Problem | None = None
    """Why snapshots that the StreamApp asks for fail."""


def conditions(inputs: ConditionInputs, before: AppStatus, generation: int, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions. A condition is True only if it is observed, or was a moment ago and may still hold.

    Args:
        inputs: the input of the conditions.
        before: the status so far: a condition whose status stays the same keeps its transition time.
        generation: the generation of the StreamApp.
        now: the current time.
    """
    found = [
        (ConditionType.READY, *_ready(inputs, was_ready=before.is_true(ConditionType.READY))),
        (ConditionType.PROGRESSING, *_progressing(inputs)),
        (ConditionType.DEGRADED, *_degraded(inputs)),
        (ConditionType.STANDBYS_CAUGHT_UP, *_standbys(inputs, before.condition(ConditionType.STANDBYS_CAUGHT_UP))),
        (ConditionType.SUSPENDED, *_suspended(inputs)),
        *_outdated(inputs, before.condition(ConditionType.CREDENTIALS_OUTDATED)),
        *_snapshots(inputs),
        *_limited(inputs),
        *_stalled(inputs),
    ]
    return tuple(
        condition(type, "Unknown" if true is None else str(true), reason, message, before, generation, now)
        for type, true, reason, message in found
    )


def problems(observed: ObservedApp) -> list[tuple[str, Problem]]:
    """Return the problems by pod name: persistent ones first, warnings last, then those of missing pods, by ordinal."""
    found = list(observed.missing.items())
    for pod in observed.pods:
        worker = observed.workers.get(pod.name)
        if pod.problem is not None and (not pod.terminating or pod.containers_ready):
            found.append((pod.name, pod.problem))
        elif pod.terminating or worker is None:
            continue
        elif worker.rejection is not None:
            found.append((pod.name, Problem(worker.rejection.reason, worker.rejection.message, persistent=True)))
        elif worker.problem is not None:
            found.append((pod.name, worker.problem))
    return sorted(found, key=lambda each: (not each[1].persistent, each[1].is_warning))


_Condition = tuple[bool | None, str, str]
"""Status (None for Unknown), reason and message."""
_UPGRADE_WAITS = "The workers restart for this version of the operator after those of other StreamApps."
_SEE_DEGRADED = "See the condition Degraded."
_TASKS_UNKNOWN = "The tasks are not known yet: no worker has reported its topology."


def _ready(inputs: ConditionInputs, *, was_ready: bool) -> _Condition:
    decision, observed, tasks = inputs.decision, inputs.observed, inputs.observed.tasks
    phase, working = decision.phase, len(observed.working)
    if inputs.blocked_by is not None:
        return False, inputs.blocked_by.reason, _SEE_DEGRADED
    if phase is AppPhase.SUSPENDED:
        return False, "Suspended", "The application is suspended: set spec.suspended to false to resume it."
    if phase in _MOVING:
        return False, phase.value, _moving(decision)
    if working < inputs.replicas:
        return False, "WorkersNotReady", f"{working} of {inputs.replicas} workers are ready."
    # An application that was ready stays so while a task moves; one that was not becomes ready once all tasks run.
    if inputs.tasks_stopped or (not was_ready and not tasks.all_run):
        return False, "TasksNotRunning", _running(tasks)
    if decision.status.failed is not None:
        failed = decision.status.failed
        return False, "RolledBack", f"Revision {failed.revision} failed; {decision.revision} runs instead."
    run = "runs" if inputs.replicas == 1 else "run"
    return True, "Running", f"{_count(inputs.replicas, 'worker')} {run} {_count(tasks.total, 'task')}."


def _progressing(inputs: ConditionInputs) -> _Condition:
    decision = inputs.decision
    if inputs.blocked_by is not None:
        return False, inputs.blocked_by.reason, _SEE_DEGRADED
    if _gave_up(decision):
        return False, "RevisionFailed", _SEE_DEGRADED
    if decision.phase in _MOVING:
        return True, decision.phase.value, _moving(decision)
    if decision.phase is not AppPhase.SUSPENDED:
        if missing := _missing(inputs):
            return True, "Recovering", f"Workers are missing: waiting for {missing} to be ready."
        if inputs.tasks_stopped and inputs.replicas:
            return True, "Recovering", f"Waiting for all tasks to run: {_running(inputs.observed.tasks)}"
    if inputs.upgrade_waits:
        return False, "UpgradeWaits", _UPGRADE_WAITS
    if decision.status.draining is not None:
        return _draining(decision.status.draining)
    return False, "Settled", "No changes pending."


def _draining(draining: Draining) -> _Condition:
    names = ", ".join(draining.workers)
    if draining.message:
        return False, "DrainRefused", draining.message
    if draining.finished:
        return False, "Drained", f"{names} runs no task until the annotation millpond.dev/drain is changed."
    names = ", ".join(each for each in draining.workers if each not in draining.drained)
    return True, "Draining", f"The tasks of {names} are moving to other workers: waiting for caught-up copies."


def _degraded(inputs: ConditionInputs) -> _Condition:
    failed, problem = inputs.decision.status.failed, inputs.problem
    if inputs.blocked_by is not None:
        return True, inputs.blocked_by.reason, inputs.blocked_by.message
    if failed is not None:
        return True, failed.reason, f"Revision {failed.revision} failed: {failed.message}"
    if problem is not None:
        return True, problem.reason, problem.message
    return False, "AsExpected", ""


def _standbys(inputs: ConditionInputs, before: Condition | None) -> _Condition:
    tasks = inputs.observed.tasks
    if not inputs.standby_replicas:
        return True, "NoneWanted", ""
    if inputs.decision.phase is AppPhase.SUSPENDED:
        return False, "Suspended", "No worker runs."
    if not tasks.known:
        return None, "TasksUnknown", _TASKS_UNKNOWN
    if not tasks.standbys_wanted:
        return True, "NoneWanted", "No task has state."
    if tasks.standbys_placeable < tasks.standbys_wanted:
        workers, standbys = _count(inputs.replicas, "worker"), _count(inputs.standby_replicas, "standby")
        if drained := inputs.decision.status.drained:
            return (
                False,
                "Drained",
                f"{', '.join(drained)} holds none, and the other workers cannot hold {standbys} of each task.",
            )
        return False, "TooFewWorkers", f"{workers} cannot hold {standbys} of each task: raise spec.replicas."
    if tasks.caught_up >= tasks.standbys_wanted:
        return True, "CaughtUp", f"{_count(tasks.standbys_wanted, 'standby')} can take over at once."
    if before is not None and before.status == "True" and before.reason == "CaughtUp" and not inputs.standbys_lag:
        return True, before.reason, before.message
    return False, "Restoring", f"{tasks.caught_up} of {tasks.standbys_wanted} standbys are caught up."


def _suspended(inputs: ConditionInputs) -> _Condition:
    if inputs.decision.phase is AppPhase.SUSPENDED:
        return True, "Suspended", "All workers have committed and ended; their volumes are kept."
    if inputs.decision.phase is AppPhase.SUSPENDING:
        return False, "Suspending", _moving(inputs.decision)
    return False, "NotSuspended", ""


def _outdated(inputs: ConditionInputs, before: Condition | None) -> list[tuple[ConditionType, bool | None, str, str]]:
    """Return the condition about changed credential files: clients read them only when they are created."""
    if inputs.decision.phase in {AppPhase.SUSPENDED, AppPhase.DELETING}:
        return []
    outdated = sum(each.credentials_changed for each in inputs.observed.workers.values())
    if not outdated:
        if before is None or inputs.observed.all_reported:
            return []
        return [(ConditionType.CREDENTIALS_OUTDATED, True, before.reason, before.message)]
    message = (
        f"The credential files have changed since {_count(outdated, 'worker')} started; the old credentials are used "
        "until a restart. Set the annotation millpond.dev/restartedAt to a new value to restart the workers one at a "
        "time."
    )
    return [(ConditionType.CREDENTIALS_OUTDATED, True, "CredentialsChanged", message)]


def _snapshots(inputs: ConditionInputs) -> list[tuple[ConditionType, bool | None, str, str]]:
    """Return the condition about failing snapshots. The application runs without them."""
    if inputs.snapshot_problem is None or inputs.decision.phase is AppPhase.DELETING:
        return []
    return [(ConditionType.SNAPSHOTS_FAILING, True, inputs.snapshot_problem.reason, inputs.snapshot_problem.message)]


def _limited(inputs: ConditionInputs) -> list[tuple[ConditionType, bool | None, str, str]]:
    """Return the condition about an autoscaler that may not choose the number of workers that it wants."""
    autoscaling, phase = inputs.decision.status.autoscaling, inputs.decision.phase
    if autoscaling is None or not autoscaling.limited or phase in {AppPhase.SUSPENDED, AppPhase.DELETING}:
        return []
    return [(ConditionType.SCALING_LIMITED, True, autoscaling.reason, autoscaling.message)]


def _stalled(inputs: ConditionInputs) -> list[tuple[ConditionType, bool | None, str, str]]:
    """Return the condition Stalled, which holds until a person changes something."""
    failed = inputs.decision.status.failed
    if inputs.blocked_by is not None:
        return [(ConditionType.STALLED, True, inputs.blocked_by.reason, _SEE_DEGRADED)]
    if failed is not None and (inputs.decision.phase not in _MOVING or _gave_up(inputs.decision)):
        return [(ConditionType.STALLED, True, failed.reason, _SEE_DEGRADED)]
    return []


def _gave_up(decision: Decision) -> bool:
    """Return whether the failed revision stays, because a rollback is impossible or switched off."""
    failed = decision.status.failed
    return failed is not None and failed.revision == decision.revision


def _missing(inputs: ConditionInputs) -> str:
    """Return the workers that should be ready and are not, by name when there are few."""
    working = {pod.name for pod in inputs.observed.working}
    missing = [name for number in range(inputs.replicas) if (name := f"{inputs.name}-{number}") not in working]
    return ", ".join(missing) if len(missing) <= _MAX_NAMED else _count(len(missing), "worker")


def _running(tasks: Tasks) -> str:
    if not tasks.known:
        return _TASKS_UNKNOWN
    return f"{tasks.running} of {tasks.total} tasks run."


def _moving(decision: Decision) -> str:
    progress = _PROGRESS[decision.phase]
    return f"{progress}: waiting for {decision.waiting}." if decision.waiting else f"{progress}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
