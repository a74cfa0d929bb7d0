"""A small world for rollout decisions: a StatefulSet controller, pods, workers, tasks, and a clock that tests move."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from millpond_operator.controllers.rollout.decide import decide
from millpond_operator.controllers.rollout.model import Decision, Existing, WantedWorkers
from millpond_operator.controllers.rollout.observation import (
    ObservedApp,
    ObservedPod,
    ObservedWorker,
    RejectedWorker,
    Tasks,
)
from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.controllers.rollout.status import AppStatus

BAD = Problem("ApplicationNotImportable", "It cannot be imported.", persistent=True)


@dataclass
class SimulatedPod:
    ordinal: int
    revision: str
    uid: int
    created: datetime
    ready_at: datetime | None = None
    terminating_until: datetime | None = None


@dataclass
class World:
    """Everything outside of `decide`; `turn` lets time pass, makes one decision and carries it out.

    `topology` is the topology of each revision; revisions in `bad` never start; workers in `unready` never become ready
    although they run; `informed` is whether workers have reported to the coordinator.
    """

    random: random.Random
    wanted: WantedWorkers
    task_count: int = 8
    topology: dict[str, str] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)
    unready: set[tuple[str, int]] = field(default_factory=set)
    informed: bool = True
    status: AppStatus = AppStatus()
    existing: Existing | None = None
    pods: dict[int, SimulatedPod] = field(default_factory=dict)
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    owners: dict[int, int | None] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    running_topology: str = ""
    pinned: str = ""
    uids: int = 0
    deleted_full: list[str] = field(default_factory=list)
    down_by_us: int = 0
    lag_of_controller: bool = False
    kept: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owners = dict.fromkeys(range(self.task_count))

    # What the operator sees.

    def observed(self) -> ObservedApp:
        pods, workers = [], {}
        for pod in sorted(self.pods.values(), key=lambda each: each.ordinal):
            name = f"app-{pod.ordinal}"
            bad = pod.revision in self.bad
            ready = pod.ready_at is not None and pod.ready_at <= self.now and not bad and pod.terminating_until is None
            started = not bad and pod.ready_at is not None and pod.ready_at <= self.now
            rejection = None
            topology = self._topology(pod)
            if started and (
                (self.running_topology and topology != self.running_topology) or self.pinned not in {"", topology}
            ):
                rejection = RejectedWorker("IncompatibleTopology", "It has another store.", pod.revision)
                started = False
            owned = sum(owner == pod.ordinal for owner in self.owners.values())
            pods.append(
                ObservedPod(
                    name,
                    pod.ordinal,
                    pod.revision,
                    str(pod.uid),
                    ready=ready and rejection is None and (pod.revision, pod.ordinal) not in self.unready,
                    ready_since=pod.ready_at or self.now,
                    terminating=pod.terminating_until is not None,
                    problem=BAD if bad else None,
                )
            )
            workers[name] = ObservedWorker(
                name,
                alive=started and pod.terminating_until is None,
                draining=name in self.draining,
                revision=pod.revision,
                owned=owned,
                active=owned,
                running=owned,
                rejection=rejection,
            )
        if not self.informed:
            workers = {}
        running = sum(owner is not None for owner in self.owners.values())
        tasks = Tasks(bool(self.running_topology), self.task_count, running, topology=self.running_topology)
        return ObservedApp(tuple(pods), workers, tasks, self.informed)

    def turn(self, seconds: float = 1.0) -> Decision:
        """Let time pass, decide, and carry the decision out."""
        self.now += timedelta(seconds=seconds)
        self._live()
        before = self.observed()
        wanted = replace(self.wanted, kept=frozenset(self.kept | {self.wanted.revision}))
        decision = decide(wanted, self.existing, before, self.status, self.now)
        again = decide(wanted, self.existing, before, decision.status, self.now)
        assert (again.revision, again.replicas, again.drain, again.delete) == (
            decision.revision,
            decision.replicas,
            decision.drain,
            decision.delete,
        ), "deciding again, with the intent written down, decides the same"
        self.status = decision.status
        self.log.append(
            f"{self.now:%H:%M:%S} {decision.phase} {decision.revision} x{decision.replicas} {decision.waiting}"
        )
        self._carry_out(decision, before)
        return decision

    # What becomes of it.

    def _carry_out(self, decision: Decision, before: ObservedApp) -> None:
        self.pinned = decision.pinned
        self.draining = decision.drain
        if self.existing is not None and self.existing.revision == self.status.current_revision:
            self.kept.add(self.existing.revision)
        self.existing = Existing(decision.revision, decision.replicas, observed=not self.lag_of_controller)
        assert decision.revision == self.wanted.revision or decision.revision in self.kept or decision.replicas == 0
        for pod in decision.delete:
            worker = before.workers[pod.name]
            others = [
                each
                for name, each in before.workers.items()
                if name != pod.name and each.alive and name not in decision.drain and each.rejection is None
            ]
            if not worker.empty and others and worker.rejection is None:
                self.deleted_full.append(pod.name)
            self.pods[pod.ordinal].terminating_until = self.now + timedelta(seconds=self.random.uniform(0.1, 3))
        gone = sum(pod.terminating_until is not None and pod.ordinal < decision.replicas for pod in self.pods.values())
        self.down_by_us = max(self.down_by_us, gone)

    def _live(self) -> None:
        existing = self.existing
        for ordinal, pod in list(self.pods.items()):
            if pod.terminating_until is not None and pod.terminating_until <= self.now:
                del self.pods[ordinal]
                self.owners = {task: None if owner == ordinal else owner for task, owner in self.owners.items()}
        if existing is not None:
            for ordinal in range(existing.replicas):
                if ordinal not in self.pods:
                    self.uids += 1
                    started = self.now + timedelta(seconds=self.random.uniform(0.5, 4))
                    self.pods[ordinal] = SimulatedPod(ordinal, existing.revision, self.uids, self.now, started)
            for ordinal, pod in self.pods.items():
                if ordinal >= existing.replicas and pod.terminating_until is None:
                    pod.terminating_until = self.now + timedelta(seconds=self.random.uniform(0.1, 3))
        self._coordinate()

    def _coordinate(self) -> None:
        alive = {
            pod.ordinal: pod
            for pod in self.pods.values()
            if pod.ready_at is not None
            and pod.ready_at <= self.now
            and pod.terminating_until is None
            and pod.revision not in self.bad
        }
        running = {self._topology(pod) for pod in alive.values()}
        allowed = {each for each in running if self.pinned in {"", each}}
        if self.running_topology not in running and allowed:
            self.running_topology = sorted(allowed)[0]
        members = [o for o, pod in alive.items() if self._topology(pod) == self.running_topology]
        placeable = [o for o in members if f"app-{o}" not in self.draining]
        moves = 2
        for task, owner in self.owners.items():
            if owner is None or (owner not in members and owner not in self.pods):
                if placeable:
                    self.owners[task] = self.random.choice(placeable)
            elif f"app-{owner}" in self.draining and placeable and moves:
                self.owners[task] = self.random.choice(placeable)
                moves -= 1
        for task, owner in self.owners.items():
            if owner is not None and owner not in members:
                self.owners[task] = self.random.choice(placeable) if placeable else None

    def _topology(self, pod: SimulatedPod) -> str:
        return self.topology.get(pod.revision, "one")

    def crash(self, ordinal: int) -> None:
        """Let a worker's process end and its container restart."""
        pod = self.pods.get(ordinal)
        if pod is not None and pod.terminating_until is None:
            pod.ready_at = self.now + timedelta(seconds=self.random.uniform(0.5, 4))

    def until(self, what, turns: int = 400) -> None:
        """Turn until a condition holds."""
        for _ in range(turns):
            if what(self.turn()):
                return
        raise AssertionError("\n".join(self.log[-60:]))
