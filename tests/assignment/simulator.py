"""A cluster in memory that follows `target`, `refine` and `grant` as workers do: slowly, and with failures.

It has the owners in Kafka (compare and swap), growing changelogs, workers that restore, crash, freeze and return, a
coordinator that knows only reports, and messages that get lost or delayed. The invariants are checked in every step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from millpond.protocol import Role, TaskState
from millpond.topology import TaskId
from millpond_operator.assignment import (
    AssignableWorker,
    AssignmentOptions,
    Copy,
    Instructions,
    Placement,
    Situation,
    Task,
    grant,
    refine,
    target,
)

SESSION_TIMEOUT = 3  # steps without a report
RESTORE = 20_000  # records that a worker restores in a step


@dataclass
class Held:
    """A task that a worker has open."""

    role: Role
    offset: int
    fresh: bool = True  # its lag is not known yet
    followed: bool = False  # it saw the end of the changelog once


@dataclass
class Report:
    """A heartbeat."""

    worker: AssignableWorker
    copies: dict[TaskId, Copy]
    on_disk: dict[TaskId, int]
    found: dict[TaskId, str | None]


@dataclass
class Process:
    """A worker's process and its disk."""

    worker: AssignableWorker
    speed: int = RESTORE
    alive: bool = True
    frozen: bool = False
    held: dict[TaskId, Held] = field(default_factory=dict)
    disk: dict[TaskId, int] = field(default_factory=dict)
    told: Instructions = field(default_factory=Instructions)
    found: dict[TaskId, str | None] = field(default_factory=dict)
    dies_after: int | None = None  # tasks that it still takes over before it dies in the middle of that

    def crash(self, *, disk_lost: bool = False) -> None:
        """Kill the process: what was committed stays on disk, unless the disk is lost too."""
        self.disk = {} if disk_lost else {**self.disk, **{task: held.offset for task, held in self.held.items()}}
        self.held, self.found, self.told = {}, {}, Instructions()
        self.alive, self.frozen, self.dies_after = False, False, None


class Cluster:
    """Workers, Kafka and a coordinator. `step` lets each of them act once."""

    def __init__(
        self,
        *,
        stateful: int,
        stateless: int = 0,
        subtopologies: int = 1,
        options: AssignmentOptions | None = None,
        seed: int = 0,
        changelog: int = 100_000,
    ) -> None:
        self.random = random.Random(seed)
        self.options = options or AssignmentOptions()
        ids = [TaskId(i % subtopologies, i // subtopologies) for i in range(stateful)]
        self.tasks = {task: Task(task, stateful=True) for task in ids}
        for i in range(stateless):
            task = TaskId(subtopologies + i % subtopologies, i // subtopologies)
            self.tasks[task] = Task(task, stateful=False)
        # Kafka
        self.owners: dict[TaskId, str | None] = dict.fromkeys(self.tasks)
        self.ends = {task: changelog if self.tasks[task].stateful else 0 for task in self.tasks}
        self.growth = 0  # records a step and running task
        # workers
        self.processes: dict[str, Process] = {}
        self.keeps_released = True  # whether they keep a task open as a standby after its release, until told
        # the network
        self.loss = 0.0  # share of reports and answers that get lost
        self.delay = 0  # most steps that a report is late
        self._post: list[tuple[int, str, Report]] = []
        # the coordinator
        self.now = 0
        self.drained: set[str] = set()
        self.reports: dict[str, Report] = {}
        self.heard: dict[str, int] = {}
        self.known: dict[TaskId, str | None] = {}
        self.goal = Placement()
        self.placement = Placement()
        # what is watched
        self.moves: Counter[TaskId] = Counter()
        self.unowned: Counter[TaskId] = Counter()

    # what happens to it

    def add(
        self, *ids: str, speed: int = RESTORE, tags: Mapping[str, str] | None = None, rack: str | None = None
    ) -> None:
        """Start workers, or restart them with what is on their disks."""
        for id_ in ids:
            process = self.processes.setdefault(id_, Process(AssignableWorker(id_, tags or {}, rack), speed))
            process.alive, process.frozen = True, False
            process.worker = replace(process.worker, leaving=False)

    def crash(self, id_: str, *, disk_lost: bool = False, known: bool = False) -> None:
        """Kill a worker's process; with `known` the coordinator learns it at once."""
        self.processes[id_].crash(disk_lost=disk_lost)
        if known:
            self._forget(id_)

    def leave(self, id_: str) -> None:
        """Let a worker report that it leaves."""
        process = self.processes[id_]
        process.worker = replace(process.worker, leaving=True)

    def restart_coordinator(self, *, stored: bool) -> None:
        """Forget everything; with `stored`, keep the last assignment, and wait for its workers."""
        self.reports, self.known, self.heard = {}, {}, {}
        if stored:
            holders = set(self.placement.active.values())
            self.heard = dict.fromkeys(sorted(holders), self.now)
        else:
            self.goal, self.placement = Placement(), Placement()

    def _forget(self, id_: str) -> None:
        self.reports.pop(id_, None)
        self.heard.pop(id_, None)

    # what it does

    def step(self, *, restore: bool = True) -> None:
        """Let workers follow their instructions, restore and report; then the coordinator decides and answers."""
        self.now += 1
        for process in list(self.processes.values()):
            if process.alive and not process.frozen:
                self._obey(process)
                if process.alive and restore:
                    self._restore(process)
        for id_, process in self.processes.items():
            if process.alive and not process.frozen and self.random.random() >= self.loss:
                late = self.random.randint(0, self.delay)
                self._post.append((self.now + late, id_, self._report(process)))
        due = [each for each in self._post if each[0] <= self.now]
        self._post = [each for each in self._post if each[0] > self.now]
        for _, id_, report in due:
            self._take_in(id_, report)
        for id_, heard in list(self.heard.items()):
            if self.now - heard >= SESSION_TIMEOUT:
                self._forget(id_)
        orders = self.decide()
        for id_, told in orders.items():
            process = self.processes[id_]
            if process.alive and not process.frozen and self.random.random() >= self.loss:
                process.told = told
        self._watch()

    def situation(self) -> Situation:
        """The coordinator's knowledge."""
        workers = {}
        for id_ in sorted(self.heard):
            report = self.reports.get(id_)
            worker = report.worker if report else self.processes[id_].worker
            workers[id_] = replace(worker, placeable=worker.placeable and id_ not in self.drained)
        return Situation(
            self.tasks,
            workers,
            {id_: report.copies for id_, report in self.reports.items()},
            {id_: report.on_disk for id_, report in self.reports.items()},
            dict(self.known),
        )

    def decide(self) -> Mapping[str, Instructions]:
        """Run one checked round of the coordinator."""
        situation = self.situation()
        goal = target(situation, self.options, self.goal)
        placement = refine(goal, situation, self.options, self.placement)
        orders = grant(placement, situation)
        check_target(goal, situation, self.options)
        check_placement(placement, situation, self.options)
        check_orders(orders, placement, situation)
        again = target(situation, self.options, goal)
        assert again == goal, f"the target is not stable: {difference(goal, again)}"
        again = refine(goal, situation, self.options, placement)
        assert again == placement, f"refine is not stable: {difference(placement, again)}"
        for task, worker in placement.active.items():
            if self.placement.active.get(task, worker) != worker:
                self.moves[task] += 1
        self.goal, self.placement = goal, placement
        return orders

    def _take_in(self, id_: str, report: Report) -> None:
        self.reports[id_] = report
        self.heard[id_] = self.now
        self.known.update(report.found)
        for task, copy in report.copies.items():
            if copy.role is Role.ACTIVE:
                self.known[task] = id_

    def _report(self, process: Process) -> Report:
        copies = {}
        for task, held in process.held.items():
            behind = self.ends[task] - held.offset
            held.followed = held.followed or behind == 0
            state = TaskState.RUNNING if held.followed else TaskState.RESTORING
            unknown = held.fresh or (held.role is Role.ACTIVE and held.followed)
            copies[task] = Copy(held.role, state, None if unknown else behind, held.offset)
            held.fresh = False
        disk = {task: offset for task, offset in process.disk.items() if task not in process.held and offset}
        found, process.found = (dict(process.found), process.found if self.loss else {})
        return Report(process.worker, copies, disk, found)

    def _obey(self, process: Process) -> None:
        """Follow a worker's instructions; it reads the owner in Kafka before it activates a task."""
        me, told = process.worker.id, process.told
        for order in told.take_over:
            for text, owner in order.owners.items():
                task = next(each for each in self.tasks if str(each) == text)
                if process.dies_after == 0:
                    process.crash()
                    return
                if process.dies_after:
                    process.dies_after -= 1
                if self.owners[task] == order.previous:
                    self.owners[task] = owner
                process.found[task] = self.owners[task]
        for task in [*process.held]:
            held = process.held[task]
            if held.role is Role.ACTIVE and self.owners[task] != me:  # fenced
                process.found[task] = self.owners[task]
                process.disk[task] = process.held.pop(task).offset
            elif held.role is not Role.ACTIVE and task not in told.tasks:
                process.disk[task] = process.held.pop(task).offset
        for task, role in told.tasks.items():
            if role is Role.ACTIVE and self.owners[task] != me:
                process.found[task] = self.owners[task]
            elif (held := process.held.get(task)) is None:
                if role is Role.ACTIVE or self.owners[task] != me:
                    process.held[task] = Held(role, min(process.disk.pop(task, 0), self.ends[task]))
            elif held.role is not Role.ACTIVE:
                held.role = role
        for task, heir in told.release.items():
            if self.owners[task] == me:
                self.owners[task] = heir
                process.found[task] = heir
                held = process.held.get(task)
                if held and self.tasks[task].stateful and self.keeps_released:
                    held.role = Role.STANDBY
                elif held:
                    process.disk[task] = process.held.pop(task).offset

    def _restore(self, process: Process) -> None:
        left = process.speed
        for task, held in sorted(process.held.items(), key=lambda each: (each[1].role is not Role.ACTIVE, each[0])):
            if held.role is Role.ACTIVE and held.offset == self.ends[task]:
                held.followed = True
                if self.tasks[task].stateful:
                    self.ends[task] += self.growth
                    held.offset = self.ends[task]
            step = min(left, self.ends[task] - held.offset)
            held.offset += step
            left -= step

    def restore_all(self) -> None:
        """Let every copy catch up at once."""
        for process in self.processes.values():
            for task, held in process.held.items():
                held.offset = self.ends[task]

    # what must hold

    def _watch(self) -> None:
        running = Counter(
            task
            for id_, process in self.processes.items()
            for task, held in process.held.items()
            if held.role is Role.ACTIVE and process.alive and self.owners[task] == id_
        )
        assert all(count == 1 for count in running.values())
        for task in self.tasks:
            self.unowned[task] = 0 if running[task] else self.unowned[task] + 1

    def settled(self) -> bool:
        """Whether everything is where it should be, in the plan, in Kafka and on the workers."""
        if self.placement != self.goal or self.owners != dict(self.goal.active):
            return False
        holds = {
            (id_, task): held.role
            for id_, process in self.processes.items()
            if process.alive
            for task, held in process.held.items()
        }
        wanted = {(worker, task): Role.ACTIVE for task, worker in self.goal.active.items()}
        wanted |= {(worker, task): Role.STANDBY for task, workers in self.goal.standby.items() for worker in workers}
        return holds == wanted

    def settle(self, most: int) -> int:
        """Step until settled; return the number of steps.

        Raises:
            AssertionError: it takes more than `most` steps.
        """
        for steps in range(most + 1):
            if self.settled():
                return steps
            self.step()
        raise AssertionError(f"not settled after {most} steps: {self.trouble()}")

    def waves(self, most: int) -> int:
        """Let all copies catch up and everything follow, until settled; return how many times that took.

        Raises:
            AssertionError: it takes more than `most`.
        """
        for wave in range(most + 1):
            for _ in range(20):
                before = (self.placement, dict(self.owners))
                self.step(restore=False)
                if before == (self.placement, self.owners):
                    break
            for _ in range(SESSION_TIMEOUT):
                self.step(restore=False)
            settled = self.settled()
            self.restore_all()
            if settled:
                self.step()
                return wave
        raise AssertionError(f"not settled after {most} waves: {self.trouble()}")

    def trouble(self) -> str:
        """What is not settled, for the message of a failed test."""
        wrong = {str(t): (self.owners[t], w) for t, w in self.goal.active.items() if self.owners[t] != w}
        waiting = {str(task): why for task, why in self.placement.waiting.items()}
        plan = difference(self.goal, self.placement)
        return f"owners and targets {wrong}; waiting {waiting}; target and placement {plan}"


def difference(one: Placement, other: Placement) -> dict[str, dict[str, tuple[object, object]]]:
    """The differences between two placements."""
    return {
        name: {str(task): (a.get(task), b.get(task)) for task in sorted({*a, *b}) if a.get(task) != b.get(task)}
        for name in ("active", "standby", "warm_up")
        for a, b in [(getattr(one, name), getattr(other, name))]
        if a != b
    }


def skew(counts: Iterable[float]) -> float:
    """The largest value minus the smallest."""
    every = list(counts)
    return max(every) - min(every) if every else 0


def check_target(goal: Placement, situation: Situation, options: AssignmentOptions) -> None:
    """Check that a target is complete, valid and balanced."""
    placeable = {id_ for id_, worker in situation.workers.items() if worker.placeable and not worker.leaving}
    assert set(goal.active) == (set(situation.tasks) if placeable else set())
    assert set(goal.active.values()) <= placeable
    assert not goal.warm_up
    if not placeable:
        return
    tasks = situation.tasks
    kinds = {(task.stateful, task.id.subtopology) for task in tasks.values()}
    groups = [[t for t in tasks.values() if (t.stateful, t.id.subtopology) == kind] for kind in kinds]
    groups += [[t for t in tasks.values() if t.stateful is stateful] for stateful in (True, False)]
    groups.append(list(tasks.values()))
    for group in groups:
        counts = Counter(goal.active[task.id] for task in group)
        assert skew(counts[worker] for worker in placeable) <= 1
    replicas = min(options.standby_replicas, len(placeable) - 1)
    for task in tasks.values():
        standby = goal.standby.get(task.id, ())
        assert len(set(standby)) == len(standby) == (replicas if task.stateful else 0)
        assert {*standby} <= placeable - {goal.active[task.id]}


def check_placement(placement: Placement, situation: Situation, options: AssignmentOptions) -> None:
    """Check that each possible task is active once, no worker holds a task twice, and copies are within their limit."""
    placeable = {id_ for id_, worker in situation.workers.items() if worker.placeable and not worker.leaving}
    if placeable:
        assert set(placement.active) == set(situation.tasks)
    assert set(placement.active.values()) <= set(situation.workers)
    extra = 0
    for task, known in situation.tasks.items():
        copies = (*placement.standby.get(task, ()), *placement.warm_up.get(task, ()))
        assert placement.active.get(task) not in copies
        assert len(set(copies)) == len(copies)
        assert set(copies) <= placeable
        assert known.stateful or not copies
        extra += max(0, len(copies) - options.standby_replicas)
        worker = placement.active.get(task)
        if worker is not None and worker not in placeable:
            owner = situation.owners.get(task, worker)
            assert owner == worker, "a worker that gets nothing new was given a task"
    assert extra <= options.max_warm_ups


def check_orders(orders: Mapping[str, Instructions], placement: Placement, situation: Situation) -> None:
    """Check that no owned task is given away, and that every task without a live owner is taken over exactly once."""
    assert set(orders) == set(situation.workers)
    taken: Counter[str] = Counter()
    for worker, told in orders.items():
        for task, role in told.tasks.items():
            if role is Role.ACTIVE and situation.owners.get(task) != worker:
                assert task not in situation.owners
                assert situation.copies[worker][task].role is Role.ACTIVE
        for task, heir in told.release.items():
            assert situation.owners[task] == worker
            assert told.tasks[task] is Role.ACTIVE
            assert heir == placement.active[task] != worker
        for order in told.take_over:
            assert order.previous not in situation.workers
            taken.update(list(order.owners))
            for task in situation.tasks:
                if str(task) in order.owners:
                    assert situation.owners.get(task) == order.previous
                    assert order.owners[str(task)] == placement.active[task]
    previous = [order.previous for told in orders.values() for order in told.take_over]
    assert len(previous) == len(set(previous)), "two executors take over from the same worker"
    orphans = {str(t) for t in placement.active if situation.owners.get(t) not in situation.workers}
    assert set(taken) == orphans
    assert all(count == 1 for count in taken.values())
