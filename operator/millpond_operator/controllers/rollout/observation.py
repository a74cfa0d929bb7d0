"""What there is of an application: its pods as the API server shows them, its workers as they show themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from millpond.protocol import Member, Role, TaskState, View

from . import pod_problems
from .pod_problems import Problem
from .status import instant

__all__ = ("ObservedPod", "ObservedWorker", "Tasks", "ordinal_of", "pods_of", "tasks_of", "workers_of")

_EPOCH = datetime.fromtimestamp(0, UTC)
_REVISION = "millpond.dev/revision"


@dataclass(frozen=True)
class ObservedPod:
    """A pod of the application."""

    name: str
    ordinal: int
    revision: str
    uid: str
    ready: bool = False
    ready_since: datetime = _EPOCH
    terminating: bool = False
    problem: Problem | None = None
    creating: bool = False
    """Its containers were not made yet: why, only events tell."""
    image: str = ""
    """That its worker's container was started from; "" while none was: one that cannot be pulled runs nowhere."""
    node: str = ""
    """Where it is."""
    stands: bool = False
    """Whether its container is ready as far as its node has said: that of a lost node has said so before."""


@dataclass(frozen=True)
class RejectedWorker:
    """The coordinator does not take the worker in."""

    reason: str
    message: str
    revision: str = ""
    """That it runs, as far as it says so."""


@dataclass(frozen=True)
class ObservedWorker:
    """A worker as the coordinator knows it."""

    name: str
    alive: bool
    draining: bool = False
    revision: str = ""
    """As it reported; "" while this leader has not heard it."""
    owned: int = 0
    """Tasks that are its own in Kafka."""
    active: int = 0
    """Active tasks that it holds."""
    running: int = 0
    """Those of them that process."""
    planned: int = 0
    """Tasks that it should have for now."""
    lag: int = 0
    """Changelog records that its active tasks have to restore, as far as is known."""
    restoring: bool = False
    """Whether that has become less of late."""
    refused: RejectedWorker | None = None
    problem: Problem | None = None
    credentials_changed: bool = False
    """Whether it runs with credentials that are not those in its files any more."""
    incarnation: str = ""
    """Another one for each start of the process."""

    @property
    def empty(self) -> bool:
        """Whether nothing would stand still if it ended."""
        return not self.alive or (self.owned == 0 and self.active == 0 and self.planned == 0)


@dataclass(frozen=True)
class Tasks:
    """The tasks of an application, counted."""

    known: bool = False
    """Whether a topology is known; nothing else counts when it is not."""
    total: int = 0
    running: int = 0
    """Active and processing, on live workers."""
    standbys: int = 0
    """Copies that are placed."""
    caught_up: int = 0
    """Those of them that are within the acceptable lag."""
    topology: str = ""
    """The hash of the topology."""
    standbys_wanted: int = 0
    """Copies that the StreamApp asks for, whoever is there to keep them."""
    standbys_placeable: int = 0
    """Those of them that as many workers as the StreamApp asks for can keep."""

    @property
    def all_run(self) -> bool:
        """Whether it is known which tasks there are, and all of them process."""
        return self.known and self.running >= self.total


@dataclass(frozen=True)
class ObservedApp:
    """All of it."""

    pods: tuple[ObservedPod, ...] = ()
    workers: Mapping[str, ObservedWorker] = field(default_factory=dict)
    tasks: Tasks = Tasks()
    informed: bool = True
    """Whether the coordinator has been there for long enough that every live worker has reported."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """Who owns each task in Kafka, as far as is known."""
    missing: Mapping[str, Problem] = field(default_factory=dict)
    """Why pods that should be there cannot be made, by name."""

    @property
    def images(self) -> str:
        """The images that workers run, that of the most first."""
        count = Counter(pod.image for pod in self.pods if pod.image and not pod.terminating)
        return ", ".join(sorted(count, key=lambda image: (-count[image], image)))

    @property
    def working(self) -> tuple[ObservedPod, ...]:
        """The pods that are ready and whose workers the coordinator hears, as far as it is informed."""
        return tuple(pod for pod in self.pods if pod.ready and self.hears(pod))

    @property
    def reported(self) -> bool:
        """Whether every worker that is ready has said what it does, or had the time to."""
        return all(self._awaits_nothing(pod.name) for pod in self.pods if pod.ready)

    @property
    def all_reported(self) -> bool:
        """Whether the worker of every pod has said what it does, ready or not, or had the time to."""
        return all(self._awaits_nothing(pod.name) for pod in self.pods if not pod.terminating)

    def has_reported(self, worker: str) -> bool:
        """Whether a worker has reported since this leader serves the application, or had the time to: else it may well be alive."""
        found = self.workers.get(worker)
        return self.informed or (found is not None and bool(found.revision))

    def _awaits_nothing(self, worker: str) -> bool:
        # One that an earlier coordinator wrote down counts as alive until it is heard, and says then what it runs.
        found = self.workers.get(worker)
        return self.has_reported(worker) or (found is not None and not found.alive)

    def hears(self, pod: ObservedPod) -> bool:
        """Whether the coordinator hears the worker of a pod, or cannot know yet."""
        worker = self.workers.get(pod.name)
        return worker.alive if worker is not None else not self.informed


def ordinal_of(name: str) -> int:
    """The number at the end of a StatefulSet's pod's name; -1 when there is none."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def pods_of(raw: Iterable[Mapping[str, Any]]) -> tuple[ObservedPod, ...]:
    """Pods as the API server gives them, lowest ordinal first."""
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
        ready_since=instant(ready.get("lastTransitionTime") or "", _EPOCH),
        terminating="deletionTimestamp" in metadata,
        problem=pod_problems.of_pod(raw),
        creating=status.get("phase") == "Pending"
        and not unscheduled
        and all(
            (each.get("state", {}).get("waiting") or {}).get("reason") == "ContainerCreating" for each in containers
        ),
        image=next((images.get(each.get("name", ""), "") for each in containers if _was_started(each)), ""),
        node=raw.get("spec", {}).get("nodeName", ""),
        stands=bool(running) and all(each.get("ready") for each in running),
    )


def _was_started(container: Mapping[str, Any]) -> bool:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    return bool(state.get("running") or state.get("terminated") or last.get("terminated"))


def workers_of(view: View | None, refused: Mapping[str, RejectedWorker]) -> dict[str, ObservedWorker]:
    """Workers by name.

    Args:
        view: of the coordinator, None when it does not serve the application.
        refused: whom it does not take in, and why.
    """
    owned: Counter[str] = Counter()
    planned: Counter[str] = Counter()
    members: tuple[Member, ...] = ()
    if view is not None:
        members = view.members
        owned.update(view.owners.values())
        planned.update(view.active.values())
    found = {each.worker: _worker(each, owned, planned, refused.get(each.worker)) for each in members}
    for name, why in refused.items():
        if name not in found:
            found[name] = ObservedWorker(name, alive=False, refused=why)
    return found


def _worker(
    member: Member, owned: Mapping[str, int], planned: Mapping[str, int], refused: RejectedWorker | None
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
        refused=refused,
        problem=None if trouble is None else pod_problems.of_worker(member.worker, trouble.reason, trouble.message),
        credentials_changed=member.alive and member.credentials_changed,
        incarnation=member.incarnation,
    )


def tasks_of(view: View | None, replicas: int, standby_replicas: int, acceptable_lag: int) -> Tasks:
    """The tasks, counted.

    Args:
        view: of the coordinator, None when it does not serve the application.
        replicas: wanted.
        standby_replicas: wanted of each stateful task.
        acceptable_lag: in records.
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
    standbys = caught_up = 0
    for task, holders in view.standby.items():
        for holder in holders:
            standbys += 1
            report = reports.get(holder, {}).get(task)
            caught_up += report is not None and report.lag is not None and report.lag <= acceptable_lag
    wanted = stateful * standby_replicas
    placeable = stateful * max(min(standby_replicas, replicas - 1), 0)
    return Tasks(True, total, len(running), standbys, caught_up, view.topology.hash, wanted, placeable)
