"""The conditions of a StreamApp: what `kubectl wait`, Argo CD and people read (kstatus)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from .observation import Observed
from .problems import Problem
from .rollout import Decision
from .status import Condition, ConditionType, Phase, Status, timestamp

__all__ = ("Story", "conditions", "first_problem")

_MOVING = frozenset(
    {Phase.PENDING, Phase.ROLLING_OUT, Phase.ROLLING_BACK, Phase.SCALING, Phase.SUSPENDING, Phase.DELETING}
)
_WHAT = {
    Phase.PENDING: "The workers start",
    Phase.ROLLING_OUT: "Workers restart with the new revision",
    Phase.ROLLING_BACK: "Workers go back to the last good revision",
    Phase.SCALING: "The number of workers changes",
    Phase.SUSPENDING: "The workers commit and end",
    Phase.DELETING: "The application is being deleted",
}


@dataclass(frozen=True)
class Story:
    """What the conditions are told from."""

    decision: Decision
    observed: Observed
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


def conditions(story: Story, before: Status, generation: int, now: datetime) -> tuple[Condition, ...]:
    """The conditions now.

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
        (ConditionType.STANDBYS_CAUGHT_UP, *_standbys(story)),
        (ConditionType.SUSPENDED, *_suspended(story)),
        *_outdated(story),
        *_stalled(story),
    ]
    built = []
    for type, true, reason, message in told:
        status = "Unknown" if true is None else str(true)
        last = before.condition(type)
        since = last.last_transition_time if last is not None and last.status == status else timestamp(now)
        built.append(Condition(type.value, status, reason, message, since, generation))
    return tuple(built)


def first_problem(observed: Observed) -> Problem | None:
    """The problem to tell first: one that will stay, of the lowest ordinal."""
    found: list[Problem] = []
    for pod in observed.pods:
        if pod.terminating:
            continue
        worker = observed.workers.get(pod.name)
        if pod.problem is not None:
            found.append(pod.problem)
        elif worker is not None and worker.refused is not None:
            found.append(Problem(worker.refused.reason, worker.refused.message, settled=True))
        elif worker is not None and worker.problem is not None:
            found.append(worker.problem)
    return _worst(found)


def _worst(found: Iterable[Problem]) -> Problem | None:
    return min(found, key=lambda each: not each.settled, default=None)


_Told = tuple[bool | None, str, str]


def _ready(story: Story, *, was_ready: bool) -> _Told:
    decision, tasks = story.decision, story.observed.tasks
    phase = decision.phase
    if story.stuck is not None:
        return False, story.stuck.reason, story.stuck.message
    if phase is Phase.SUSPENDED:
        return False, "Suspended", "The application is suspended: set spec.suspended to false to go on."
    if phase in _MOVING:
        return False, phase.value, _moving(decision)
    ready = sum(pod.ready for pod in story.observed.pods)
    if ready < story.replicas:
        return False, "WorkersNotReady", f"{ready} of {story.replicas} workers are ready."
    # A task that moves makes an application that was ready no less so; one that was not has to have them all.
    if story.standing or (not was_ready and (not tasks.known or tasks.running < tasks.total)):
        return False, "TasksNotRunning", f"{tasks.running} of {tasks.total} tasks run."
    if decision.status.failed is not None:
        failed = decision.status.failed
        return False, "RolledBack", f"Revision {failed.revision} failed; {decision.revision} runs instead."
    run = "runs" if story.replicas == 1 else "run"
    return True, "Running", f"{_count(story.replicas, 'worker')} {run} {_count(tasks.total, 'task')}."


def _progressing(story: Story) -> _Told:
    decision = story.decision
    if story.stuck is not None:
        return False, story.stuck.reason, story.stuck.message
    if decision.phase in _MOVING:
        return True, decision.phase.value, _moving(decision)
    return False, "Settled", "Nothing is to do."


def _degraded(story: Story) -> _Told:
    failed, problem = story.decision.status.failed, story.problem
    if failed is not None:
        return True, failed.reason, f"Revision {failed.revision} failed: {failed.message}"
    if problem is not None:
        return True, problem.reason, problem.message
    return False, "AsExpected", ""


def _standbys(story: Story) -> _Told:
    tasks = story.observed.tasks
    if not tasks.standbys_wanted:
        return True, "NoneWanted", ""
    if story.lagging:
        return False, "Restoring", f"{tasks.caught_up} of {tasks.standbys_wanted} standbys are caught up."
    return True, "CaughtUp", f"{_count(tasks.standbys_wanted, 'standby')} can take over at once."


def _suspended(story: Story) -> _Told:
    if story.decision.phase is Phase.SUSPENDED:
        return True, "Suspended", "All workers have committed and ended; their volumes are kept."
    if story.decision.phase is Phase.SUSPENDING:
        return False, "Suspending", _moving(story.decision)
    return False, "NotSuspended", ""


def _outdated(story: Story) -> list[tuple[ConditionType, bool | None, str, str]]:
    """Credentials that changed while workers run: clients read them when they are made."""
    outdated = sum(each.credentials_changed for each in story.observed.workers.values())
    if not outdated or story.decision.phase in {Phase.SUSPENDED, Phase.DELETING}:
        return []
    message = (
        f"The files with credentials have changed since {_count(outdated, 'worker')} started; until a restart the old ones are "
        "used. Set the annotation millpond.dev/restartedAt to a new value to restart the workers one at a time."
    )
    return [(ConditionType.CREDENTIALS_OUTDATED, True, "CredentialsChanged", message)]


def _stalled(story: Story) -> list[tuple[ConditionType, bool | None, str, str]]:
    """What only a person can change."""
    failed = story.decision.status.failed
    if story.stuck is not None:
        return [(ConditionType.STALLED, True, story.stuck.reason, story.stuck.message)]
    if failed is not None and story.decision.phase not in _MOVING:
        return [(ConditionType.STALLED, True, failed.reason, failed.message)]
    return []


def _moving(decision: Decision) -> str:
    what = _WHAT[decision.phase]
    return f"{what}: waiting for {decision.waiting}." if decision.waiting else f"{what}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
