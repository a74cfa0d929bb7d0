"""The status of a StreamApp as it is observed: numbers, conditions and the problem to report."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.rollout.conditions import ConditionInputs, conditions
from millpond_operator.controllers.rollout.model import Decision
from millpond_operator.controllers.rollout.problems import REPORTED_BY_WORKERS, Problem, cleanup_problem
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus, ConditionType
from millpond_operator.controllers.rollout.worker_failures import failures, lasting_problems
from millpond_operator.kubernetes import Cache, kinds
from millpond_operator.resources import APP_UID, StreamApp, selector

from .applier import Applier
from .debounce import Debounce

__all__ = ("ObservedStatus",)

#: How long tasks may stop before the status shows it: a task that moves stops for a moment.
_TASKS_MAY_STOP_FOR = timedelta(seconds=3)
#: How long standbys may lag before the status shows it.
_STANDBYS_MAY_LAG_FOR = timedelta(seconds=2)


class ObservedStatus:
    """Builds statuses.

    Args:
        cache: the known objects.
        applier: knows the cleanup Job.
        debounce: remembers since when conditions have held.
    """

    def __init__(self, cache: Cache, applier: Applier, debounce: Debounce) -> None:
        self._cache = cache
        self._applier = applier
        self._debounce = debounce

    def build(self, work: ReconcilePass, decision: Decision) -> AppStatus:
        """Return the decision's status with the observed numbers and conditions."""
        app, observed, tasks = work.app, work.observed, work.observed.tasks
        # After a change of leaders, tasks that ran count as running until the workers have reported.
        stopped = observed.reported and not tasks.all_run
        lags = observed.reported and tasks.caught_up < tasks.standbys_wanted
        lasts = self._debounce.lasts
        tasks_stopped = lasts(work, f"{work.name} tasks", _TASKS_MAY_STOP_FOR, condition=stopped)
        inputs = ConditionInputs(
            app.name,
            decision,
            observed,
            app.spec.replicas,
            self._problem(work, decision),
            blocked_by=work.memory.rejection or work.id_conflict,
            tasks_stopped=tasks_stopped,
            standbys_lag=lasts(work, f"{work.name} standbys", _STANDBYS_MAY_LAG_FOR, condition=lags),
            upgrade_waits=work.upgrade_waits,
            standby_replicas=app.spec.standby_replicas,
            snapshot_problem=work.snapshot_problem,
        )
        ready = len(observed.working)
        was_ready = work.status.is_true(ConditionType.READY)
        all_count = was_ready and not tasks_stopped and decision.phase is not AppPhase.SUSPENDED
        running = tasks.total if all_count else tasks.running
        return msgspec.structs.replace(
            decision.status,
            phase=decision.phase.value,
            replicas=len(observed.pods),
            ready_replicas=ready,
            workers=f"{ready}/{app.spec.replicas}",
            tasks=f"{running}/{tasks.total}" if tasks.known else "",
            image=observed.images,
            conditions=conditions(inputs, work.status, app.generation, work.now),
        )

    def _problem(self, work: ReconcilePass, decision: Decision) -> Problem | None:
        worker_problem = self._worker_problem(work, decision)
        if decision.phase in {AppPhase.SUSPENDING, AppPhase.SUSPENDED}:
            return None
        cleanup = self._cleanup_problem(work.app) if work.app.deleting else None
        severe = cleanup or work.memory.rejection or work.id_conflict or worker_problem
        return severe or work.memory.apply_problem or work.autoscaling_problem

    def _worker_problem(self, work: ReconcilePass, decision: Decision) -> Problem | None:
        """Return the first problem of a worker that is persistent or has lasted long enough to be reported.

        A problem in the last status is not new, so it is reported at once. After a change of leaders, a problem that
        workers report stays until all workers have reported.
        """
        before = work.status.condition(ConditionType.DEGRADED)
        reported = before if before is not None and before.status == "True" else None
        app, memory = work.app, work.memory
        replicas = 0 if app.deleting or app.spec.suspended else app.spec.replicas
        memory.failures = failures(memory.failures, work.observed, decision.revision, replicas)
        found = lasting_problems(work.observed, memory.failures)
        prefix = f"{work.name} problem "
        names: dict[str, Problem] = {}
        for pod, problem in found:
            names.setdefault(f"{prefix}{pod} {problem.reason}", problem)
        self._debounce.forget(prefix, names)
        lasting = [
            problem
            for name, problem in names.items()
            if self._debounce.lasts(work, name, problem.patience, condition=True)
            or (reported is not None and reported.reason == problem.reason)
        ]
        if lasting:
            return lasting[0]
        if reported is None or reported.reason not in REPORTED_BY_WORKERS or work.observed.all_reported:
            return None
        return Problem(reported.reason, reported.message)

    def _cleanup_problem(self, app: StreamApp) -> Problem | None:
        labels = (selector(app, "cleanup") | {APP_UID: app.uid}).items()
        pods = self._cache.of_app(kinds.POD, app.namespace, app.name)
        return cleanup_problem(
            self._applier.cleanup_job(app),
            [pod for pod in pods if labels <= (pod["metadata"].get("labels") or {}).items()],
        )
