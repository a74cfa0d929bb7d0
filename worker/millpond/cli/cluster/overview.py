"""The overview of an application from its objects alone: what remains visible while the operator does not answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millpond.protocol.overview import (
    ApplicationOverview,
    ApplicationSummary,
    AutoscalingOverview,
    ConditionOverview,
    CopyOverview,
    EventOverview,
    MoveOverview,
    TaskOverview,
    WorkerOverview,
)
from millpond.times import parse_epoch_ms

__all__ = ("events_of", "overview_of", "sorted_tasks", "summary_of", "wanted_workers")

_Object = Mapping[str, Any]
_MAX_EVENTS = 20
_NO_REASON = "only the operator knows what it waits for"


def overview_of(
    app: _Object, assignment: _Object | None, pods: Sequence[_Object], events: Iterable[_Object], now_ms: int
) -> ApplicationOverview:
    """Return the overview as the objects of a StreamApp show it, without rates and lags.

    Args:
        app: the StreamApp.
        assignment: its StreamAssignment; None if there is none, or it cannot be read.
        pods: of its workers.
        events: about it.
        now_ms: the current time, epoch ms.
    """
    spec, status = app.get("spec", {}), app.get("status") or {}
    saved = (assignment or {}).get("spec", {})
    holders = _Holders(saved.get("workers", ()))
    tasks = tuple(_task(task, holders) for task in sorted_tasks({*_tasks_of(saved), *holders.active, *holders.owner}))
    return ApplicationOverview(
        summary=summary_of(app),
        application_id=spec.get("applicationId") or app["metadata"]["name"],
        guarantee=spec.get("processingGuarantee", ""),
        image=status.get("image") or spec.get("image", ""),
        revision=status.get("currentRevision", ""),
        epoch=f"{saved['term']}.{saved['number']}" if "term" in saved else "",
        conditions=tuple(map(_condition, status.get("conditions", ()))),
        events=events_of(events),
        workers=tuple(_workers(saved.get("workers", ()), pods)),
        tasks=tasks,
        moves=tuple(_moves(tasks)),
        autoscaling=_autoscaling(status.get("autoscaling")),
        at_ms=now_ms,
    )


def summary_of(app: _Object) -> ApplicationSummary:
    """Return the row of a StreamApp in a list, as its status shows it."""
    metadata, status = app["metadata"], app.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    degraded = conditions.get("Degraded", {})
    is_ready, is_degraded = ready.get("status") == "True", degraded.get("status") == "True"
    workers, tasks = _fraction(status.get("workers")), _fraction(status.get("tasks"))
    return ApplicationSummary(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        phase=status.get("phase", ""),
        ready=is_ready,
        degraded=degraded.get("reason", "") if is_degraded else "",
        message=(degraded if is_degraded else ready).get("message", ""),
        workers_ready=workers[0],
        workers_wanted=wanted_workers(app),
        tasks_running=tasks[0],
        tasks_total=tasks[1],
    )


def wanted_workers(app: _Object) -> int:
    """Return the wanted number of workers: that of the autoscaler in mode Auto, else `spec.replicas`.

    The autoscaler's number does not count after a person changed `spec.replicas`, until the operator has seen that.
    """
    spec, chosen = app.get("spec", {}), (app.get("status") or {}).get("autoscaling") or {}
    replicas: int = spec.get("replicas", 1)
    automatic = (spec.get("autoscaling") or {}).get("mode") == "Auto" == chosen.get("mode")
    if automatic and chosen.get("specReplicas", 0) == replicas:
        return int(chosen.get("currentReplicas", replicas))
    return replicas


def events_of(events: Iterable[_Object]) -> tuple[EventOverview, ...]:
    """Return events, newest first."""
    found = [
        EventOverview(
            at_ms=_ms(each.get("lastTimestamp") or each.get("eventTime") or each.get("firstTimestamp")),
            reason=each.get("reason") or "",
            text=each.get("message") or "",
            warning=each.get("type") == "Warning",
            count=each.get("count") or 1,
        )
        for each in events
    ]
    return tuple(sorted(found, key=lambda each: -each.at_ms)[:_MAX_EVENTS])


def sorted_tasks(tasks: Iterable[str]) -> list[str]:
    """Return task ids by sub-topology and partition."""
    return sorted(tasks, key=lambda task: [int(part) if part.isdecimal() else -1 for part in task.split("_")])


class _Holders:
    """The workers of each task by the StreamAssignment."""

    def __init__(self, workers: Iterable[_Object]) -> None:
        self.active: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.standby: dict[str, list[str]] = defaultdict(list)
        self.warm_up: dict[str, list[str]] = defaultdict(list)
        for worker in workers:
            name = worker["name"]
            self.active.update(dict.fromkeys(worker.get("active", ()), name))
            self.owner.update(dict.fromkeys(worker.get("owns", ()), name))
            for task in worker.get("standby", ()):
                self.standby[task].append(name)
            for task in worker.get("warmUp", ()):
                self.warm_up[task].append(name)


def _tasks_of(saved: _Object) -> Iterable[str]:
    for part in (saved.get("topology") or {}).get("subtopologies", ()):
        for partition in range(part["partitions"]):
            yield f"{part['id']}_{partition}"


def _task(task: str, holders: _Holders) -> TaskOverview:
    worker, owner = holders.active.get(task, ""), holders.owner.get(task, "")
    note = ""
    if not worker:
        note = "no worker has it"
    elif owner and owner != worker:
        note = f"moves from {owner} to {worker}"
    elif not owner:
        note = f"{worker} is to claim it"
    return TaskOverview(
        task=task,
        worker=worker,
        owner=owner,
        standbys=tuple(CopyOverview(worker=each) for each in holders.standby[task]),
        warm_ups=tuple(CopyOverview(worker=each) for each in holders.warm_up[task]),
        note=note,
    )


def _moves(tasks: Iterable[TaskOverview]) -> Iterable[MoveOverview]:
    for each in tasks:
        if each.warm_ups:
            target = each.warm_ups[0].worker
            yield MoveOverview(task=each.task, source=each.owner, target=target, reason=_NO_REASON)
        elif each.worker and each.owner != each.worker:
            yield MoveOverview(task=each.task, source=each.owner, target=each.worker, reason=_NO_REASON)


def _workers(saved: Iterable[_Object], pods: Sequence[_Object]) -> Iterable[WorkerOverview]:
    """Yield the workers that have a pod or tasks."""
    by_name = {each["name"]: each for each in saved}
    of_pods = {each["metadata"]["name"]: each for each in pods}
    for name in [*of_pods, *(each for each in by_name if each not in of_pods)]:
        worker, pod = by_name.get(name, {}), of_pods.get(name)
        if pod is None and not any(worker.get(each) for each in ("alive", "active", "standby", "warmUp", "owns")):
            continue
        yield WorkerOverview(
            worker=name,
            state=_state(worker, pod),
            active=len(worker.get("active", ())),
            standby=len(worker.get("standby", ())),
            warm_up=len(worker.get("warmUp", ())),
            node=(pod or {}).get("spec", {}).get("nodeName", ""),
            revision=((pod or {}).get("metadata", {}).get("labels") or {}).get("millpond.dev/revision", ""),
            trouble=_trouble(pod),
        )


def _state(worker: _Object, pod: _Object | None) -> str:
    if pod is None:
        return "gone"
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", ())}
    if conditions.get("Ready") != "True":
        return "starting"
    return "draining" if worker.get("draining") else "alive"


def _trouble(pod: _Object | None) -> str:
    """Return why a pod does not run; "" if it does."""
    if pod is None:
        return "it has no pod"
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return "its pod is ending"
    for container in status.get("containerStatuses", ()):
        state = container.get("state") or {}
        ended = (container.get("lastState") or {}).get("terminated") or state.get("terminated") or {}
        waiting = state.get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] != "ContainerCreating":
            last = f", last ended with {ended['reason']} ({ended.get('exitCode')})" if ended.get("reason") else ""
            return f"{waiting['reason']}{last}"
        if state.get("terminated"):
            return f"ended with {ended.get('reason', 'status')} ({ended.get('exitCode')})"
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return each.get("message") or each.get("reason") or "not scheduled"
    return status.get("reason") or ""


def _condition(raw: _Object) -> ConditionOverview:
    return ConditionOverview(
        type=raw["type"],
        status=raw["status"],
        reason=raw.get("reason", ""),
        message=raw.get("message", ""),
        since_ms=_ms(raw.get("lastTransitionTime")),
    )


def _autoscaling(raw: _Object | None) -> AutoscalingOverview | None:
    if not raw or not raw.get("mode"):
        return None
    return AutoscalingOverview(
        mode=raw["mode"],
        current=raw.get("currentReplicas", 0),
        recommended=raw.get("recommendedReplicas", 0),
        reason=raw.get("message") or raw.get("reason") or "",
    )


def _fraction(text: str | None) -> tuple[int, int]:
    """Return the two numbers of `3/4`."""
    one, _, other = (text or "").partition("/")
    return (int(one), int(other)) if one.isdecimal() and other.isdecimal() else (0, 0)


def _ms(text: str | None) -> int:
    try:
        return parse_epoch_ms(text or "")
    except ValueError:
        return 0
