"""The conditions of a StreamApp: what `kubectl wait`, Argo CD and people read (kstatus)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .decide import Decision
from .observation import ObservedApp, Tasks
from .pod_problems import Problem
from .status import AppPhase, AppStatus, Condition, ConditionType, condition

__all__ = ("ConditionStory", "conditions", "problems")

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
_MOST_NAMED = 3
_WHAT = {
    AppPhase.PENDING: "The workers start",
    AppPhase.ROLLING_OUT: "Workers restart with the new revision",
    AppPhase.ROLLING_BACK: "Workers go back to the last good revision",
    AppPhase.SCALING: "The number of workers changes",
    AppPhase.SUSPENDING: "The workers commit and end",
    AppPhase.DELETING: "The application is being deleted",
}


@dataclass(frozen=True)
class ConditionStory:
    """What the conditions are told from."""

    name: str
    """Of the application."""
    decision: Decision
    observed: ObservedApp
    replicas: int
    """That the StreamApp wants."""
    problem: Problem | None = None
    """The one to tell, of all that there are."""
    stuck: Problem | None = None
    """What keeps the operator from doing anything."""
    standing: bool = False
    """Whether tasks have stood still for longer than a move takes."""
    lagging: bool = False
    """Whether standbys have been behind for longer than a move takes."""
    upgrade_waits: bool = False
    """Whether a revision that a new version of the operator makes waits for those of other StreamApps."""
    standby_replicas: int = 0
    """Of each task with state, that the StreamApp wants."""
    snapshots: Problem | None = None
    """Why snapshots that the StreamApp asks for are not made."""


def conditions(story: ConditionStory, before: AppStatus, generation: int, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions now. One is True only for what is seen, or was seen a moment ago and can be so still.

    Args:
        story: what they are told from.
        before: the status so far: a condition that does not flip keeps its time.
        generation: of the StreamApp.
        now: the time of day.
    """
    told = [
        (ConditionType.READY, *_ready(story, was_ready=before.is_true(ConditionType.READY))),
        (ConditionType.PROGRESSING, *_progressing(story)),
        (ConditionType.DEGRADED, *_degraded(story)),
        (ConditionType.STANDBYS_CAUGHT_UP, *_standbys(story, before.condition(ConditionType.STANDBYS_CAUGHT_UP))),
        (ConditionType.SUSPENDED, *_suspended(story)),
        *_outdated(story, before.condition(ConditionType.CREDENTIALS_OUTDATED)),
        *_snapshots(story),
        *_stalled(story),
    ]
    return tuple(
        condition(type, "Unknown" if true is None else str(true), reason, message, before, generation, now)
        for type, true, reason, message in told
    )


def problems(observed: ObservedApp) -> list[tuple[str, Problem]]:
    """Return what is wrong, with the name of the pod: what will stay first, then pods that cannot be made, then by ordinal."""
    found = list(observed.missing.items())
    for pod in observed.pods:
        worker = observed.workers.get(pod.name)
        if pod.problem is not None and (not pod.terminating or pod.stands):
            found.append((pod.name, pod.problem))
        elif pod.terminating or worker is None:
            continue
        elif worker.refused is not None:
            found.append((pod.name, Problem(worker.refused.reason, worker.refused.message, settled=True)))
        elif worker.problem is not None:
            found.append((pod.name, worker.problem))
    return sorted(found, key=lambda each: not each[1].settled)


_Told = tuple[bool | None, str, str]
_TURN = "Workers restart for this version of the operator when other StreamApps are through with it."
_ELSEWHERE = "See the condition Degraded."


def _ready(story: ConditionStory, *, was_ready: bool) -> _Told:
    decision, observed, tasks = story.decision, story.observed, story.observed.tasks
    phase, working = decision.phase, len(observed.working)
    if story.stuck is not None:
        return False, story.stuck.reason, _ELSEWHERE
    if phase is AppPhase.SUSPENDED:
        return False, "Suspended", "The application is suspended: set spec.suspended to false to go on."
    if phase in _MOVING:
        return False, phase.value, _moving(decision)
    if working < story.replicas:
        return False, "WorkersNotReady", f"{working} of {story.replicas} workers are ready."
    # A task that moves makes an application that was ready no less so; one that was not has to have them all.
    if story.standing or (not was_ready and not tasks.all_run):
        return False, "TasksNotRunning", _running(tasks)
    if decision.status.failed is not None:
        failed = decision.status.failed
        return False, "RolledBack", f"Revision {failed.revision} failed; {decision.revision} runs instead."
    run = "runs" if story.replicas == 1 else "run"
    return True, "Running", f"{_count(story.replicas, 'worker')} {run} {_count(tasks.total, 'task')}."


def _progressing(story: ConditionStory) -> _Told:
    decision = story.decision
    if story.stuck is not None:
        return False, story.stuck.reason, _ELSEWHERE
    if _gave_up(decision):
        return False, "RevisionFailed", _ELSEWHERE
    if decision.phase in _MOVING:
        return True, decision.phase.value, _moving(decision)
    if decision.phase is not AppPhase.SUSPENDED:
        if missing := _missing(story):
            return True, "Recovering", f"Workers are missing: waiting for {missing} to be ready."
        if story.standing and story.replicas:
            return True, "Recovering", f"Tasks stand still: {_running(story.observed.tasks)}"
    if story.upgrade_waits:
        return False, "UpgradeWaits", _TURN
    return False, "Settled", "No changes pending."


def _degraded(story: ConditionStory) -> _Told:
    failed, problem = story.decision.status.failed, story.problem
    if story.stuck is not None:
        return True, story.stuck.reason, story.stuck.message
    if failed is not None:
        return True, failed.reason, f"Revision {failed.revision} failed: {failed.message}"
    if problem is not None:
        return True, problem.reason, problem.message
    return False, "AsExpected", ""


def _standbys(story: ConditionStory, before: Condition | None) -> _Told:
    tasks = story.observed.tasks
    if not story.standby_replicas:
        return True, "NoneWanted", ""
    if story.decision.phase is AppPhase.SUSPENDED:
        return False, "Suspended", "No worker runs."
    if not tasks.known:
        return None, "TasksUnknown", "No worker has said yet which tasks there are."
    if not tasks.standbys_wanted:
        return True, "NoneWanted", "No task has state."
    if tasks.standbys_placeable < tasks.standbys_wanted:
        places = (
            f"{_count(story.replicas, 'worker')} cannot keep {_count(story.standby_replicas, 'standby')} of each task"
        )
        return False, "TooFewWorkers", f"{places}: raise spec.replicas."
    if tasks.caught_up >= tasks.standbys_wanted:
        return True, "CaughtUp", f"{_count(tasks.standbys_wanted, 'standby')} can take over at once."
    if before is not None and before.status == "True" and before.reason == "CaughtUp" and not story.lagging:
        return True, before.reason, before.message
    return False, "Restoring", f"{tasks.caught_up} of {tasks.standbys_wanted} standbys are caught up."


def _suspended(story: ConditionStory) -> _Told:
    if story.decision.phase is AppPhase.SUSPENDED:
        return True, "Suspended", "All workers have committed and ended; their volumes are kept."
    if story.decision.phase is AppPhase.SUSPENDING:
        return False, "Suspending", _moving(story.decision)
    return False, "NotSuspended", ""


def _outdated(story: ConditionStory, before: Condition | None) -> list[tuple[ConditionType, bool | None, str, str]]:
    """Credentials that changed while workers run: clients read them when they are made."""
    if story.decision.phase in {AppPhase.SUSPENDED, AppPhase.DELETING}:
        return []
    outdated = sum(each.credentials_changed for each in story.observed.workers.values())
    if not outdated:
        if before is None or story.observed.all_reported:
            return []
        return [(ConditionType.CREDENTIALS_OUTDATED, True, before.reason, before.message)]
    message = (
        f"The files with credentials have changed since {_count(outdated, 'worker')} started; until a restart the old ones are "
        "used. Set the annotation millpond.dev/restartedAt to a new value to restart the workers one at a time."
    )
    return [(ConditionType.CREDENTIALS_OUTDATED, True, "CredentialsChanged", message)]


def _snapshots(story: ConditionStory) -> list[tuple[ConditionType, bool | None, str, str]]:
    """The application goes on without them."""
    if story.snapshots is None or story.decision.phase is AppPhase.DELETING:
        return []
    return [(ConditionType.SNAPSHOTS_FAILING, True, story.snapshots.reason, story.snapshots.message)]


def _stalled(story: ConditionStory) -> list[tuple[ConditionType, bool | None, str, str]]:
    """What only a person can change."""
    failed = story.decision.status.failed
    if story.stuck is not None:
        return [(ConditionType.STALLED, True, story.stuck.reason, _ELSEWHERE)]
    if failed is not None and (story.decision.phase not in _MOVING or _gave_up(story.decision)):
        return [(ConditionType.STALLED, True, failed.reason, _ELSEWHERE)]
    return []


def _gave_up(decision: Decision) -> bool:
    """Whether the revision that failed is the one that stays: there is none to go back to, or nobody wants that."""
    failed = decision.status.failed
    return failed is not None and failed.revision == decision.revision


def _missing(story: ConditionStory) -> str:
    """The workers that should be ready and are not, by name when there are few."""
    working = {pod.name for pod in story.observed.working}
    missing = [name for number in range(story.replicas) if (name := f"{story.name}-{number}") not in working]
    return ", ".join(missing) if len(missing) <= _MOST_NAMED else _count(len(missing), "worker")


def _running(tasks: Tasks) -> str:
    if not tasks.known:
        return "No worker has said yet which tasks there are."
    return f"{tasks.running} of {tasks.total} tasks run."


def _moving(decision: Decision) -> str:
    what = _WHAT[decision.phase]
    return f"{what}: waiting for {decision.waiting}." if decision.waiting else f"{what}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
