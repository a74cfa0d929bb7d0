"""Engine, workers and Kafka under random faults: no task has two owners, and everything recovers."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from millpond.protocol import Heartbeat, Refusal, RefusalCode, Role
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, Store, Worker
from tests.coordinator.support import topology
from tests.support import generated

_STEP_MS = 500
_SESSION_ROUNDS = SESSION_MS // _STEP_MS
#: A session timeout, perhaps one for the coordinator's own restart before, and a few turns to take over and to start.
_ROUNDS_TO_OWN = 2 * _SESSION_ROUNDS + 16
_ROUNDS_TO_SETTLE = 160


class World:
    """All parts of a random run, and the faults."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kafka = Kafka()
        self.store = Store()
        self.topology = topology(self.random.randint(1, 9), stateful=self.random.random() < 0.8)
        self.options = {
            "standby_replicas": self.random.randint(0, 2),
            "max_warm_ups": self.random.randint(1, 3),
            "gathering_ms": self.random.choice([0, 700]),
        }
        self.now_ms = 0
        self.term = 0
        self.coordinators: list[Driver] = []
        self.workers: dict[str, Worker] = {}
        self.starts: dict[str, int] = {}
        self.silent: dict[str, int] = {}  # rounds for which a worker's heartbeats reach nobody
        self.paused: dict[str, int] = {}  # rounds for which it does nothing at all
        self.late: list[Heartbeat] = []
        self.ghosts: list[Worker] = []  # processes whose name a newer one has
        self.faulty = True
        self.story: list[str] = []
        self.start_coordinator()
        for _ in range(self.random.randint(1, 4)):
            self.start_worker()

    # What can happen.

    def start_coordinator(self) -> None:
        self.term += 1
        name = f"c{self.term:03}"
        self.coordinators.append(Driver(self.term, name, self.store, self.now_ms, **self.options))

    def restart_coordinator(self) -> None:
        self.coordinators.clear()
        self.start_coordinator()

    def second_coordinator(self) -> None:
        if len(self.coordinators) < 2:
            self.start_coordinator()

    def start_worker(self) -> None:
        """Start a new worker, an earlier one again, or a second process of a live one."""
        id = f"w{self.random.randint(0, 5)}"
        self.starts[id] = self.starts.get(id, 0) + 1
        if id in self.workers and self.random.random() < 0.5:
            self.ghosts.append(self.workers[id])
        self.workers[id] = Worker(id, self.kafka, self.topology, self.starts[id])
        self.silent.pop(id, None)
        self.paused.pop(id, None)

    def kill_worker(self) -> None:
        worker = self.some_worker()
        if worker is not None:
            del self.workers[worker.id]
            if self.random.random() < 0.5:
                for each in self.coordinators:
                    each.engine.declare_dead(worker.id, self.now_ms)

    def report_gone_by_mistake(self) -> None:
        worker = self.some_worker()
        if worker is not None:
            self.random.choice(self.coordinators).engine.declare_dead(worker.id, self.now_ms)

    def cut_off(self) -> None:
        worker = self.some_worker()
        if worker is not None:
            self.silent[worker.id] = self.random.randint(1, 30)

    def pause(self) -> None:
        worker = self.some_worker()
        if worker is not None:
            self.paused[worker.id] = self.random.randint(1, 30)

    def drain(self) -> None:
        worker = self.some_worker()
        if worker is not None:
            self.random.choice(self.coordinators).engine.drain(worker.id, draining=self.random.random() < 0.6)

    def leave(self) -> None:
        worker = self.some_worker()
        if worker is not None:
            worker.leaving = True

    def some_worker(self) -> Worker | None:
        return self.random.choice([*self.workers.values(), None])

    # One round.

    def step(self) -> None:
        if self.faulty and self.random.random() < 0.35:
            event: Callable[[], None] = self.random.choice(
                [
                    self.start_worker,
                    self.start_worker,
                    self.kill_worker,
                    self.kill_worker,
                    self.cut_off,
                    self.pause,
                    self.restart_coordinator,
                    self.second_coordinator,
                    self.report_gone_by_mistake,
                    self.drain,
                    self.leave,
                ]
            )
            self.story.append(f"{self.now_ms} {event.__name__}")
            event()
        workers = list(self.workers.values())
        self.random.shuffle(workers)
        for worker in workers:
            self.turn(worker)
        for ghost in list(self.ghosts):
            refusal = self.random.choice(self.coordinators).engine.heartbeat(ghost.heartbeat(), self.now_ms)
            if refusal is not None and refusal.code is RefusalCode.REPLACED:
                self.ghosts.remove(ghost)  # it ends, as it is told to
        if self.late and self.random.random() < 0.3:
            for beat in self.late:
                self.random.choice(self.coordinators).engine.heartbeat(beat, self.now_ms)
            self.late.clear()
        for each in self.coordinators:
            each.pass_time(_STEP_MS)
            self.decide(each)
        self.now_ms += _STEP_MS
        if len(self.coordinators) > 1:
            self.coordinators = [each for each in self.coordinators if each.engine.superseded_by is None]
        if not self.coordinators:
            self.start_coordinator()

    def turn(self, worker: Worker) -> None:
        for absences in (self.paused, self.silent):
            if absences.get(worker.id, 0) > 0:
                absences[worker.id] -= 1
                if absences is self.silent:
                    worker.work()
                return
        coordinator = self.random.choice(self.coordinators)
        beat = worker.heartbeat()
        if self.faulty and self.random.random() < 0.05:
            self.late.append(beat)
            return
        refusal = coordinator.engine.heartbeat(beat, self.now_ms)
        if refusal is None:
            self.decide(coordinator)
            answer = coordinator.engine.answer_for(worker.id)
            if self.faulty and self.random.random() < 0.1:
                return  # it is lost on the way
            for task, role in answer.tasks.items():
                # Nothing is made up: whoever is told that a task is active has owned it at some time.
                assert role is not Role.ACTIVE or worker.id in self.kafka.history.get(task, ()), (worker.id, task)
            worker.take(answer)
        else:
            self.take_refusal(worker, refusal)
        worker.work()
        if worker.answer is not None and worker.answer.may_leave and worker.leaving:
            self.workers.pop(worker.id, None)

    def take_refusal(self, worker: Worker, refusal: Refusal) -> None:
        assert refusal.code in {RefusalCode.NOT_LEADING, RefusalCode.REPLACED}, refusal
        worker.refused(refusal)
        if refusal.code is RefusalCode.REPLACED:
            # A coordinator that knew neither process has heard of the earlier one last: this one ends as it is told
            # to, and whatever keeps it running starts it again.
            self.starts[worker.id] += 1
            self.workers[worker.id] = Worker(worker.id, self.kafka, self.topology, self.starts[worker.id])

    def decide(self, coordinator: Driver) -> None:
        coordinator.decide()
        engine = coordinator.engine
        owners = engine.view(None).owners
        told: dict[str, str] = {}
        for member in engine.members.values():
            if not member.alive or engine.superseded_by is not None:
                continue
            for task, role in engine.answer_for(member.id).tasks.items():
                if role is Role.ACTIVE:
                    assert owners.get(task, member.id) == member.id, f"{task} is {owners[task]}'s, not {member.id}'s"
                    assert told.setdefault(task, member.id) == member.id or member.instructions is None

    # How it ends.

    def heal(self) -> None:
        self.faulty = False
        self.late.clear()
        self.ghosts.clear()
        self.silent.clear()
        self.paused.clear()
        self.coordinators = self.coordinators[-1:]
        for worker in self.workers.values():
            worker.leaving = False
        if not self.workers:
            self.start_worker()
        self.undrain()

    def undrain(self) -> None:
        for member in list(self.coordinators[0].engine.members):
            self.coordinators[0].engine.drain(member, draining=False)

    def owned(self) -> bool:
        return all(
            (worker := self.workers.get(self.kafka.owners.get(task, ""))) is not None
            and task in worker.held
            and worker.held[task].role is Role.ACTIVE
            for task in self.tasks()
        )

    def settled(self) -> bool:
        engine = self.coordinators[0].engine
        view = engine.view(None)
        members = {id: each for id, each in engine.members.items() if each.alive}
        return (
            self.owned()
            and not engine.plan_due
            and not engine._barrier.waiting
            and members.keys() == self.workers.keys()
            and not any(each.draining or each.leaving for each in members.values())
            and view.owners == view.active == self.kafka.owners
            and engine.task_counts()["moving"] == 0
            and not view.warm_up
            and engine._plans.placement.standby == engine._plans.goal.standby
        )

    def tasks(self) -> list[str]:
        return [f"0_{partition}" for partition in range(self.topology.subtopologies[0].partitions)]

    def until(self, condition: Callable[[], bool], rounds: int, what: str) -> None:
        for _ in range(rounds):
            if condition():
                return
            self.step()
        view = self.coordinators[0].engine.view(self.now_ms)
        raise AssertionError(f"not {what} within {rounds} rounds: {self.story} {self.kafka.owners} {view}")


@pytest.mark.share(60)
@pytest.mark.parametrize("seed", range(generated.examples(120)))
def test_random_faults_converge(seed: int) -> None:
    """Crashes, pauses, cuts, restarts, two coordinators: orders follow Kafka, epochs grow, all tasks run again."""
    world = World(seed)
    everybody: list[Worker] = []
    for _ in range(100):
        world.step()
        everybody += [worker for worker in world.workers.values() if worker not in everybody]
    world.heal()
    world.until(world.owned, _ROUNDS_TO_OWN, "owned")
    world.until(world.settled, _ROUNDS_TO_SETTLE, "settled")
    for worker in everybody:
        assert worker.epochs == sorted(worker.epochs)
    # And it stays so: nothing moves when nothing happens.
    owners = dict(world.kafka.owners)
    for _ in range(10):
        world.step()
    plans = world.coordinators[0].plans
    for _ in range(10):
        world.step()
    assert world.kafka.owners == owners
    assert world.coordinators[0].plans == plans
