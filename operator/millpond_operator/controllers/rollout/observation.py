"""The observed state of an application: its pods by the API server, its workers and tasks by the coordinator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from millpond.protocol import Member, Role, TaskState, View
from millpond.times import EPOCH

from . import problems
from .problems import Problem
from .status import instant

__all__ = ("ObservedPod", "ObservedWorker", "Tasks", "ordinal_of", "pods_of", "tasks_of", "workers_of")

_REVISION = "millpond.dev/revision"


@dataclass(frozen=True)
class ObservedPod:
    """A pod of the application."""

    name: str
    ordinal: int
    revision: str
    uid: str
    ready: bool = False
    ready_since: datetime = EPOCH
    terminating: bool = False
    problem: Problem | None = None
    creating: bool = False
    """Whether its containers have not been created yet. Only events tell why."""
    image: str = ""
    """The image of its worker's container; "" until that was started, as when the image cannot be pulled."""
    node: str = ""
    """The name of its node."""
    containers_ready: bool = False
    """Whether its running containers are ready by the last report of its node, which may be lost since."""
    containers_running: bool = False
    """Whether at least one of its containers is running by the last report of its node."""


@dataclass(frozen=True)
class RejectedWorker:
    """Why the coordinator rejects a worker."""

    reason: str
    message: str
    revision: str = ""
    """The revision that the worker reported; "" when it reported none."""


@dataclass(frozen=True)
class ObservedWorker:
    """A worker as the coordinator knows it."""

    name: str
    alive: bool
    draining: bool = False
    revision: str = ""
    """The revision that it reported; "" until it has reported to this leader."""
    owned: int = 0
    """The number of tasks that it owns, by Kafka's offset metadata."""
    active: int = 0
    """The number of active tasks that it holds."""
    running: int = 0
    """The number of active tasks that are running."""
    planned: int = 0
    """The number of active tasks that are assigned to it."""
    lag: int = 0
    """The lag of its restoring active tasks in changelog records, as far as it is known."""
    restoring: bool = False
    """Whether it restores tasks and their lag has shrunk within the progress deadline."""
    rejection: RejectedWorker | None = None
    problem: Problem | None = None
    credentials_changed: bool = False
    """Whether its credential files have changed since it started."""
    incarnation: str = ""
    """An id that is different for each start of the process."""

    @property
    def empty(self) -> bool:
        """Whether no task would stop with it."""
        return not self.alive or (self.owned == 0 and self.active == 0 and self.planned == 0)


@dataclass(frozen=True)
class Tasks:
    """The numbers of tasks of an application."""

    known: bool = False
    """Whether the topology is known; if not, the other fields have no meaning."""
    total: int = 0
    """The number of tasks of the topology."""
    running: int = 0
    """The number of active tasks that are running on live workers."""
    standbys: int = 0
    """The number of assigned standbys."""
    caught_up: int = 0
    """The number of standbys with a lag at or below `acceptable.recovery.lag`."""
    topology: str = ""
    """The hash of the topology."""
    standbys_wanted: int = 0
    """The number of standbys that the StreamApp asks for, whatever its number of workers."""
    standbys_placeable: int = 0
    """The number of wanted standbys for which `spec.replicas` is large enough."""

    @property
    def all_run(self) -> bool:
        """Whether the tasks are known and all of them run."""
        return self.known and self.running >= self.total


@dataclass(frozen=True)
class ObservedApp:
    """The observed state of one application."""

    pods: tuple[ObservedPod, ...] = ()
    workers: Mapping[str, ObservedWorker] = field(default_factory=dict)
    tasks: Tasks = Tasks()
    informed: bool = True
    """Whether this coordinator has served the application for long enough that every live worker has reported."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The owner of each task by Kafka's offset metadata, as far as it is known."""
    missing: Mapping[str, Problem] = field(default_factory=dict)
    """Why missing pods cannot be created, by name of the pod."""

    @property
    def images(self) -> str:
        """The images of the running workers, the most frequent first."""
        count = Counter(pod.image for pod in self.pods if pod.image and not pod.terminating)
        return ", ".join(sorted(count, key=lambda image: (-count[image], image)))

    @property
    def working(self) -> tuple[ObservedPod, ...]:
        """The pods that are ready, with workers that are alive or not known yet."""
        return tuple(pod for pod in self.pods if pod.ready and self.may_be_alive(pod))

    @property
    def reported(self) -> bool:
        """Whether every ready worker has reported, or has had time to."""
        return all(self._need_not_wait_for(pod.name) for pod in self.pods if pod.ready)

    @property
    def all_reported(self) -> bool:
        """Whether the worker of every pod, ready or not, has reported, or has had time to."""
        return all(self._need_not_wait_for(pod.name) for pod in self.pods if not pod.terminating)

    def has_reported(self, worker: str) -> bool:
        """Return whether a worker has reported to this leader, or has had time to. Until then, it may be alive."""
        found = self.workers.get(worker)
        return self.informed or (found is not None and bool(found.revision))

    def _need_not_wait_for(self, worker: str) -> bool:
        # A worker that an earlier coordinator saved counts as alive until it reports.
        found = self.workers.get(worker)
        return self.has_reported(worker) or (found is not None and not found.alive)

    def may_be_alive(self, pod: ObservedPod) -> bool:
        """Return whether the worker of a pod is alive, or not known yet."""
        worker = self.workers.get(pod.name)
        return worker.alive if worker is not None else not self.informed


def ordinal_of(name: str) -> int:
    """Return the ordinal at the end of a pod's name; -1 when there is none."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def pods_of(raw: Iterable[Mapping[str, Any]]) -> tuple[ObservedPod, ...]:
    """Return the observed pods of API server objects, lowest ordinal first."""
    return tuple(sorted(map(_pod, raw), key=lambda pod: pod.ordinal))


def _pod(raw: Mapping[str, Any]) -> ObservedPod:
    metadata, status = raw["metadata"], raw.get("status", {})
    ready: Mapping[str, Any] = next((each for each in status.get("conditions", ()) if each.get("type") == "Ready"), {})
    containers = status.get("containerStatuses", ())
    unscheduled = any(
        each.get("type") == "PodScheduled" and each.get("status") == "False" for each in status.get("conditions", ())
    )
    name = metadata["name"]
    running = [each for each in containers if (each.get("state") or {}).get("running") is not None]
    images = {each["name"]: each.get("image", "") for each in raw.get("spec", {}).get("containers", ())}
    return ObservedPod(
        name=name,
        ordinal=ordinal_of(name),
        revision=metadata.get("labels", {}).get(_REVISION, ""),
        uid=metadata["uid"],
        ready=ready.get("status") == "True" and "deletionTimestamp" not in metadata,
        ready_since=instant(ready.get("lastTransitionTime") or "", EPOCH),
        terminating="deletionTimestamp" in metadata,
        problem=problems.of_pod(raw),
        creating=status.get("phase") == "Pending"
        and not unscheduled
        and all(
            (each.get("state", {}).get("waiting") or {}).get("reason") == "ContainerCreating" for each in containers
        ),
        image=next((images.get(each.get("name", ""), "") for each in containers if _was_started(each)), ""),
        node=raw.get("spec", {}).get("nodeName", ""),
        containers_ready=bool(running) and all(each.get("ready") for each in running),
        containers_running=bool(running),
    )


def _was_started(container: Mapping[str, Any]) -> bool:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return bool(state.get("running") or state.get("terminated") or last.get("terminated"))


def workers_of(view: View | None, rejected: Mapping[str, RejectedWorker]) -> dict[str, ObservedWorker]:
    """Return the observed workers by name.

    Args:
        view: the coordinator's view; None when it does not serve the application.
        rejected: the workers that the coordinator rejects.
    """
    owned: Counter[str] = Counter()
    planned: Counter[str] = Counter()
    members: tuple[Member, ...] = ()
    if view is not None:
        members = view.members
        owned.update(view.owners.values())
        planned.update(view.active.values())
    found = {each.worker: _worker(each, owned, planned, rejected.get(each.worker)) for each in members}
    for name, rejection in rejected.items():
        if name not in found:
            found[name] = ObservedWorker(name, alive=False, rejection=rejection)
    return found


def _worker(
    member: Member, owned: Mapping[str, int], planned: Mapping[str, int], rejection: RejectedWorker | None
) -> ObservedWorker:
    active = [report for report in member.tasks.values() if report.role is Role.ACTIVE]
    trouble = member.trouble
    return ObservedWorker(
        name=member.worker,
        alive=member.alive,
        draining=member.draining,
        revision=member.revision,
        owned=owned.get(member.worker, 0),
        planned=planned.get(member.worker, 0),
        lag=sum(report.lag or 0 for report in active if report.state is TaskState.RESTORING),
        active=len(active) if member.alive else 0,
        running=sum(report.state is TaskState.RUNNING for report in active) if member.alive else 0,
        rejection=rejection,
        problem=None if trouble is None else problems.of_worker(member.worker, trouble.reason, trouble.message),
        credentials_changed=member.alive and member.credentials_changed,
        incarnation=member.incarnation,
    )


def tasks_of(
    view: View | None, pods: Collection[ObservedPod], replicas: int, standby_replicas: int, acceptable_lag: int
) -> Tasks:
    """Return the numbers of tasks.

    Args:
        view: the coordinator's view; None when it does not serve the application.
        pods: the pods. The standbys of a worker that is deleted or has no running container cannot take over, even if
            the worker counts as alive until its session times out.
        replicas: the wanted number of workers.
        standby_replicas: the wanted number of standbys of each stateful task.
        acceptable_lag: the lag up to which a standby is caught up, in changelog records.
    """
    if view is None or view.topology is None:
        return Tasks()
    total = sum(each.partitions for each in view.topology.subtopologies)
    stateful = sum(each.partitions for each in view.topology.subtopologies if each.stateful)
    reports = {member.worker: member.tasks for member in view.members if member.alive}
    running = {
        task
        for tasks in reports.values()
        for task, report in tasks.items()
        if report.role is Role.ACTIVE and report.state is TaskState.RUNNING
    }
    staying = {pod.name for pod in pods if pod.containers_running and not pod.terminating}
    standbys = caught_up = 0
    for task, holders in view.standby.items():
        for holder in holders:
            standbys += 1
            report = reports.get(holder, {}).get(task) if holder in staying else None
            caught_up += report is not None and report.lag is not None and report.lag <= acceptable_lag
    wanted = stateful * standby_replicas
    placeable = stateful * max(min(standby_replicas, replicas - 1), 0)
    return Tasks(
        known=True,
        total=total,
        running=len(running),
        standbys=standbys,
        caught_up=caught_up,
        topology=view.topology.hash,
        standbys_wanted=wanted,
        standbys_placeable=placeable,
    )
