"""A Kafka that knows only owners, workers that follow their orders, and an engine that tests drive step by step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from millpond.protocol import (
    Answer,
    BrokerReach,
    Brokers,
    Epoch,
    Heartbeat,
    Refusal,
    RefusalCode,
    Role,
    TaskReport,
    TaskState,
    TopologySummary,
    View,
)
from millpond_operator.assignment import AssignmentOptions
from millpond_operator.coordinator import Engine, EngineOptions
from millpond_operator.coordinator.engine.options import MOST_TASKS
from tests.coordinator.support import APP, topology

SESSION_MS = 6_000
_RUNS = TaskReport(Role.ACTIVE, TaskState.RUNNING, 0, 20_000)


class Kafka:
    """The owner of each task, as in the metadata of committed offsets.

    Attributes:
        owners: the present owners; tasks that never had one are missing.
        history: all owners so far.
    """

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.history: dict[str, set[str]] = {}

    def move(self, task: str, previous: str | None, owner: str) -> str:
        """Compare and swap; return the owner afterwards, empty for none."""
        if self.owners.get(task) == previous:
            self.owners[task] = owner
            self.history.setdefault(task, set()).add(owner)
        return self.owners.get(task, "")


class Worker:
    """A worker that follows its orders at once, except that copies take a few rounds to catch up.

    Attributes:
        answer: the last accepted one.
        held: the tasks that it holds.
        epochs: of the accepted answers, oldest first.
        refusal: of its last heartbeat.
        reaches: the id of the Kafka cluster that it reports.
        reach: the brokers that answer it, as it reports them.
        commits: whether its commits succeed: without them it hands nothing over.
    """

    def __init__(self, id: str, kafka: Kafka, summary: TopologySummary, start: int = 1, catch_up: int = 3) -> None:
        self.id = id
        self.start = start
        self.topology = summary
        self.catch_up = catch_up
        self.tags: dict[str, str] = {}
        self.leaving = False
        self.brokers = Brokers.ANSWERING
        self.reaches = ""
        self.reach: BrokerReach | None = None
        self.commits = True
        self.held: dict[str, TaskReport] = {}
        self.on_disk: dict[str, int] = {}
        self.answer: Answer | None = None
        self.epochs: list[tuple[int, str, int]] = []
        self.refusal: Refusal | None = None
        self._kafka = kafka
        self._sequence = 0
        self._found: dict[str, tuple[str, int]] = {}
        self._send_topology = True
        # What Kafka says is its own it may resume with no one's leave.
        for task, owner in kafka.owners.items():
            if owner == id:
                self.held[task] = _RUNS

    def heartbeat(self, **fields: Any) -> Heartbeat:
        self._sequence += 1
        self._found = {task: (owner, first or self._sequence) for task, (owner, first) in self._found.items()}
        known = self.answer
        given: dict[str, Any] = {
            "topology": self.topology if self._send_topology else None,
            "epoch": known.epoch if known is not None else Epoch(),
            "known_revision": known.revision if known is not None else 0,
            "coordinator": known.coordinator if known is not None else "",
            "acknowledged": known.sequence if known is not None else 0,
            "tasks": dict(self.held),
            "on_disk": dict(self.on_disk),
            "taken_over": {task: owner for task, (owner, _) in self._found.items()},
            "leaving": self.leaving,
            "brokers": self.brokers,
            "reach": self.reach,
            "kafka_cluster": self.reaches,
            "tags": self.tags,
        }
        beat = Heartbeat(APP, self.id, f"{self.id}-{self.start}", self._sequence, self.topology.hash)
        return msgspec.structs.replace(beat, **{**given, **fields})

    def take(self, answer: Answer) -> bool:
        """Accept an answer, unless it is older than the last; return whether it was accepted."""
        order = (answer.epoch.term, answer.coordinator, answer.epoch.number)
        if self.epochs and order < self.epochs[-1]:
            return False
        self.epochs.append(order)
        self.refusal = None
        self.answer = answer
        self._send_topology = answer.send_topology
        self._found = {
            task: (owner, first) for task, (owner, first) in self._found.items() if not first or first > answer.sequence
        }
        return True

    def refused(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self._send_topology = True

    def work(self) -> None:
        """Follow the last answer, and let copies catch up."""
        if self.brokers is not Brokers.ANSWERING:
            return
        answer, kafka = self.answer, self._kafka
        for task, report in list(self.held.items()):
            if report.role is Role.ACTIVE and kafka.owners.get(task) != self.id:
                del self.held[task]  # its next commit shows that it was fenced
            elif report.lag:
                left = report.lag - 20_000 // self.catch_up
                self.held[task] = TaskReport(report.role, TaskState.RUNNING, max(left, 0), 20_000 - max(left, 0))
        if answer is None:
            return
        for order in answer.take_over:
            for task, owner in order.owners.items():
                self._find(task, kafka.move(task, order.previous, owner))
        for task, owner in answer.release.items():
            if self.commits and task in self.held and self.held[task].role is Role.ACTIVE:
                self._find(task, kafka.move(task, self.id, owner))
                del self.held[task]
                self.on_disk[task] = 20_000
        for task, role in answer.tasks.items():
            held = self.held.get(task)
            if role is Role.ACTIVE:
                owner = kafka.owners.get(task)
                if owner == self.id:
                    if held is None or held.role is not Role.ACTIVE:
                        self.held[task] = _RUNS
                else:
                    self._find(task, owner or "")  # its offsets were deleted
            elif held is None or held.role is not Role.ACTIVE:
                lag = held.lag if held is not None else 20_000 - self.on_disk.pop(task, 0)
                self.held[task] = TaskReport(role, TaskState.RUNNING, lag, 20_000 - (lag or 0))
        for task, report in list(self.held.items()):
            if task not in answer.tasks and report.role is not Role.ACTIVE:
                self.on_disk[task] = report.offset
                del self.held[task]

    def _find(self, task: str, owner: str) -> None:
        self._found[task] = (owner, 0)


class Store:
    """The last view that was saved."""

    def __init__(self) -> None:
        self.view: View | None = None


class Driver:
    """An engine with a clock, and with the steps that `Application` does around it."""

    def __init__(
        self,
        term: int = 1,
        coordinator: str = "c1",
        store: Store | None = None,
        now_ms: int = 0,
        gathering_ms: int = 0,
        return_ms: int = 0,
        most_tasks: int = MOST_TASKS,
        latest_term: int | None = None,
        **options: Any,
    ) -> None:
        self.now_ms = now_ms
        self.store = store if store is not None else Store()
        self.plans = 0
        self.engine = Engine(
            APP,
            term,
            coordinator,
            EngineOptions(
                assignment=AssignmentOptions(**options),
                session_timeout=timedelta(milliseconds=SESSION_MS),
                gathering=timedelta(milliseconds=gathering_ms),
                return_timeout=timedelta(milliseconds=return_ms),
                most_tasks=most_tasks,
                latest_term=latest_term,
            ),
        )
        if self.store.view is not None:
            self.engine.restore(self.store.view, now_ms)
            self.store.view = self.engine.view(None)

    def decide(self) -> None:
        """Compute, store and publish assignments until none is due."""
        for _ in range(20):
            self.engine.regrant()
            job = self.engine.job(self.now_ms)
            if job is None:
                return
            self.plans += 1
            view = self.engine.adopt(job.run())
            if view is not None:
                self.store.view = view
            self.engine.publish()
        raise AssertionError("assignments never end")

    def pass_time(self, milliseconds: int) -> None:
        """Pass time in ticks."""
        until = self.now_ms + milliseconds
        while self.now_ms < until:
            self.now_ms = min(self.now_ms + 100, until)
            self.engine.tick(self.now_ms)
            self.decide()

    def beat(self, worker: Worker, /, **fields: Any) -> Answer | Refusal:
        """Send a heartbeat of a worker, and let the worker accept the answer."""
        heartbeat = worker.heartbeat(**fields)
        refusal = self.engine.heartbeat(heartbeat, self.now_ms) or self.engine.refusal_for(
            worker.id, heartbeat.incarnation
        )
        if refusal is not None:
            worker.refused(refusal)
            return refusal
        self.decide()
        answer = self.engine.answer_for(worker.id)
        worker.take(answer)
        return answer

    def rounds(self, workers: list[Worker], count: int = 1, step_ms: int = 500) -> None:
        """Let all workers send heartbeats and follow the answers."""
        for _ in range(count):
            for worker in workers:
                self.beat(worker)
                worker.work()
            self.pass_time(step_ms)


def fleet(kafka: Kafka, count: int, summary: TopologySummary | None = None) -> list[Worker]:
    return [Worker(f"w{number}", kafka, summary or topology()) for number in range(count)]


def settled(driver: Driver, workers: list[Worker], rounds: int = 20) -> None:
    """Run rounds until every task runs where it should."""
    for _ in range(rounds):
        driver.rounds(workers)
        if is_settled(driver, workers):
            return
    raise AssertionError(f"not settled within {rounds} rounds")


def is_settled(driver: Driver, workers: list[Worker]) -> bool:
    counts = driver.engine.task_counts()
    running = {
        task: worker.id for worker in workers for task, report in worker.held.items() if report.role is Role.ACTIVE
    }
    view = driver.engine.view(None)
    return (
        len(running) == counts["all"]
        and counts["moving"] == 0
        and view.active == view.owners == running
        and not view.warm_up
    )


def code(outcome: Answer | Refusal) -> RefusalCode | None:
    return outcome.code if isinstance(outcome, Refusal) else None
