"""Runs the autoscaler of a StreamApp within its reconcile passes.

The number of workers that the autoscaler chose is in `.status.autoscaling.currentReplicas`, and is saved there before
anything is done. All other parts of a pass see it as `spec.replicas`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import msgspec

from millpond.protocol import View
from millpond_operator.autoscaling import (
    AUTO,
    Autoscaler,
    AutoscalingStatus,
    Policy,
    Reason,
    ReportedLoad,
    Situation,
    effective_replicas,
)
from millpond_operator.controllers.pass_context import ReconcilePass
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppPhase, AppStatus
from millpond_operator.resources import StreamApp

__all__ = ("autoscale", "with_wanted_replicas")

_STEADY = frozenset({AppPhase.RUNNING.value, AppPhase.DEGRADED.value})
_INTERVAL = timedelta(seconds=15)
"""How often it looks."""
_MANY_TASKS = 2_000
"""A decision about more tasks takes longer than the event loop should wait: a thread makes it."""


def with_wanted_replicas(app: StreamApp, status: AppStatus) -> StreamApp:
    """Return the StreamApp with the number of workers that is wanted now as `spec.replicas`.

    Args:
        app: the StreamApp as its user wrote it, or already the result of this function.
        status: has the number that the autoscaler chose.
    """
    policy = None if app.scaled_by else _policy(app)
    wanted = effective_replicas(app.written_replicas, policy, status.autoscaling)
    if wanted == app.spec.replicas:
        return app
    return replace(app, spec=msgspec.structs.replace(app.spec, replicas=wanted))


async def autoscale(work: ReconcilePass, look: Callable[[StreamApp], View | None]) -> AutoscalingStatus | None:
    """Return the autoscaler's new state, to be saved with the status; None without autoscaling.

    Args:
        work: the pass, after observing.
        look: returns the coordinator's view; None when it does not serve the application.
    """
    app, memory, before = work.app, work.memory, work.status.autoscaling
    policy = _policy(app)
    if policy is None:
        memory.autoscaler = None
        return None
    if app.deleting or app.spec.suspended:
        memory.autoscaler = None
        return before
    autoscaler = memory.autoscaler or Autoscaler(policy)
    autoscaler.policy = policy
    work.requeue(_INTERVAL)
    view = look(app)
    if view is not None:
        loads = {
            each.worker: ReportedLoad(each.incarnation, each.load) for each in view.members if each.alive and each.load
        }
        autoscaler.observe(work.now, loads)
    conflict = app.scaled_by if policy.mode == AUTO else ""
    tasks = (
        {}
        if view is None or view.topology is None
        else {each.id: each.partitions for each in view.topology.subtopologies}
    )
    situation = Situation(app.written_replicas, tasks, _unsteady(work, view), conflict)
    if sum(tasks.values()) <= _MANY_TASKS:
        after = autoscaler.decide(work.now, situation, before)
    else:
        memory.autoscaler = None  # if this pass is cancelled, the next one does not share it with the thread
        after = await asyncio.to_thread(autoscaler.decide, work.now, situation, before)
    memory.autoscaler = autoscaler
    if conflict:
        work.autoscaling_problem = Problem(Reason.CONFLICT.value, after.message, persistent=True)
    _record(work, before, after)
    return after


def _policy(app: StreamApp) -> Policy | None:
    wanted = app.spec.autoscaling
    if wanted is None:
        return None
    # With fewer workers than that, no worker could hold the standbys.
    fewest = max(wanted.min_replicas, min(app.spec.standby_replicas + 1, wanted.max_replicas))
    return Policy(
        min_replicas=fewest,
        max_replicas=wanted.max_replicas,
        target_lag=wanted.target_lag,
        target_utilization=wanted.target_utilization,
        stabilization=wanted.stabilization,
        rescales_per_day=wanted.rescales_per_day,
        mode=wanted.mode,
    )


def _unsteady(work: ReconcilePass, view: View | None) -> str:
    """Return why rates mean nothing now, as a clause; "" when workers and tasks stay where they are."""
    observed, replicas, status = work.observed, work.app.spec.replicas, work.status
    if view is None or not observed.tasks.known:
        return "the tasks are not known"
    if status.rollout is not None:
        return "workers restart"
    if status.drained or work.app.workers_to_drain:
        return "the annotation millpond.dev/drain is set"
    if len(observed.working) != replicas or len(observed.pods) != replicas or status.phase not in _STEADY:
        return "workers start or stop"
    if not observed.tasks.all_run or view.warm_up or view.active != view.owners:
        return "tasks move"
    return ""


def _record(work: ReconcilePass, before: AutoscalingStatus | None, after: AutoscalingStatus) -> None:
    was = work.app.spec.replicas
    if before is None or after.current_replicas == was or after.reason not in {Reason.SCALE_OUT, Reason.SCALE_IN}:
        return
    event = "ScaledOut" if after.current_replicas > was else "ScaledIn"
    work.events.append(
        ("Normal", event, f"The autoscaler changes {was} to {after.current_replicas} workers. {after.message}")
    )
