"""The overview of a StreamApp from the objects that the operator knows, as pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from millpond.console import WorkerFacts, figures_of, moves_of, tasks_of, topology_of, workers_of
from millpond.drawing import digest
from millpond.protocol import View
from millpond.protocol.overview import (
    ApplicationOverview,
    ApplicationSummary,
    AutoscalingOverview,
    ConditionOverview,
    EventOverview,
    TaskOverview,
)
from millpond.times import EPOCH, epoch_ms
from millpond_operator.autoscaling import AUTO
from millpond_operator.controllers.rollout.observation import ObservedPod, pods_of
from millpond_operator.controllers.rollout.status import AppStatus, ConditionType, instant
from millpond_operator.resources import InvalidStreamApp, StreamApp, parse, without_spec

__all__ = ("overview", "summary", "typed")

_LONGEST_IMAGE = 300


def typed(raw: Mapping[str, Any]) -> StreamApp:
    """Return the StreamApp of an API server object, without its specification if that is invalid."""
    try:
        return parse(raw)
    except InvalidStreamApp:
        return without_spec(raw)


def summary(app: StreamApp, view: View | None) -> ApplicationSummary:
    """Return the row of a StreamApp in the list.

    Args:
        app: the StreamApp.
        view: the coordinator's view; None while it does not serve the application.
    """
    return _summary(app, AppStatus.of(app.status), tasks_of(view) if view is not None else ())


def overview(
    app: StreamApp,
    view: View | None,
    pods: Iterable[Mapping[str, Any]],
    events: tuple[EventOverview, ...],
    now: datetime,
) -> ApplicationOverview:
    """Return everything about one StreamApp.

    Args:
        app: the StreamApp.
        view: the coordinator's view; None while it does not serve the application.
        pods: its pods, as API server objects.
        events: the last events, newest first.
        now: the current time.
    """
    status = AppStatus.of(app.status)
    tasks = tasks_of(view) if view is not None else ()
    topology = topology_of(view) if view is not None else None
    known = {pod.name: pod for pod in pods_of(pods)}
    facts = {name: _facts(pod, view) for name, pod in known.items()}
    return ApplicationOverview(
        summary=_summary(app, status, tasks),
        application_id=app.application_id,
        guarantee=app.spec.processing_guarantee,
        image=(status.image or app.spec.image)[:_LONGEST_IMAGE],
        revision=status.current_revision or status.target_revision,
        epoch=f"{view.epoch.term}.{view.epoch.number}" if view is not None else "",
        conditions=tuple(
            ConditionOverview(
                type=each.type,
                status=each.status,
                reason=each.reason,
                message=each.message,
                since_ms=epoch_ms(instant(each.last_transition_time, EPOCH)),
            )
            for each in status.conditions
        ),
        events=events,
        workers=workers_of(view, facts),
        tasks=tasks,
        moves=moves_of(view) if view is not None else (),
        topology=topology,
        drawing=digest(topology) if topology is not None else "",
        autoscaling=_autoscaling(app),
        at_ms=epoch_ms(now),
    )


def _summary(app: StreamApp, status: AppStatus, tasks: tuple[TaskOverview, ...]) -> ApplicationSummary:
    figures = figures_of(tasks)
    degraded, ready = status.condition(ConditionType.DEGRADED), status.condition(ConditionType.READY)
    is_degraded = degraded is not None and degraded.status == "True"
    shown = degraded if is_degraded else ready
    return ApplicationSummary(
        name=app.name,
        namespace=app.namespace,
        phase="Deleting" if app.deleting else status.phase or "Pending",
        ready=status.is_true(ConditionType.READY),
        degraded=degraded.reason if degraded is not None and is_degraded else "",
        message=shown.message if shown is not None else "",
        workers_ready=status.ready_replicas,
        workers_wanted=_wanted_workers(app, status),
        tasks_running=figures.running,
        tasks_total=figures.total,
        records_per_second=figures.records_per_second,
        lag=figures.lag,
        lag_seconds=figures.lag_seconds,
    )


def _wanted_workers(app: StreamApp, status: AppStatus) -> int:
    """Return the number that the autoscaler chose in mode Auto, unless `spec.replicas` was changed since."""
    spec, chosen = app.spec.autoscaling, status.autoscaling
    if spec is None or chosen is None or not spec.mode == chosen.mode == AUTO:
        return app.spec.replicas
    return chosen.current_replicas if chosen.spec_replicas == app.written_replicas else app.spec.replicas


def _facts(pod: ObservedPod, view: View | None) -> WorkerFacts:
    alive = view is not None and any(member.worker == pod.name and member.alive for member in view.members)
    return WorkerFacts(
        # A pod without a live worker starts, whether or not an earlier process of it was known.
        state="" if alive or pod.terminating or pod.ready else "starting",
        node=pod.node,
        revision=pod.revision,
        trouble=pod.problem.message if pod.problem is not None else "",
    )


def _autoscaling(app: StreamApp) -> AutoscalingOverview | None:
    """Return what `status.autoscaling` says; None without an autoscaler."""
    status = app.status.get("autoscaling")
    if not isinstance(status, Mapping) or not isinstance(status.get("mode"), str):
        return None
    spec = getattr(app.spec, "autoscaling", None)
    budget, used = getattr(spec, "rescales_per_day", None), status.get("rescalesToday", 0)
    return AutoscalingOverview(
        mode=status["mode"],
        current=_number(status.get("currentReplicas")),
        recommended=_number(status.get("recommendedReplicas")),
        reason=str(status.get("message") or status.get("reason") or ""),
        rescales_left=max(0, budget - _number(used)) if isinstance(budget, int) else None,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
