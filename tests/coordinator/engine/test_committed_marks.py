"""Committed marks, which the coordinator passes from one owner to the next."""

from __future__ import annotations

import random

import pytest

from millpond.protocol import Answer, Brokers, Mark, Role, TaskReport, TaskState
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, Worker, settled
from tests.coordinator.support import topology

ACQUIRING = {"0_0": TaskReport(Role.ACTIVE, TaskState.ACQUIRING)}


class Marking(Worker):
    """A worker that commits its tasks in every round, and reports the marks.

    Attributes:
        marks: the committed mark of each of its tasks.
    """

    def __init__(self, id: str, kafka: Kafka, summary: object = None, start: int = 1) -> None:
        super().__init__(id, kafka, topology(), start)
        self.marks: dict[str, Mark] = {}
        self.number = 0

    def heartbeat(self, **fields: object) -> object:
        active = [task for task, report in self.held.items() if report.role is Role.ACTIVE]
        if self.brokers is Brokers.ANSWERING:
            self.number += 1
            mine = [task for task in active if self._kafka.owners.get(task) == self.id]
            self.marks |= {task: Mark(1, 100 * self.number) for task in mine}
        self.marks = {task: mark for task, mark in self.marks.items() if task in active}
        return super().heartbeat(committed=self.marks, **fields)


def _two(kafka: Kafka) -> tuple[Driver, list[Worker]]:
    driver = Driver()
    workers: list[Worker] = [Marking("w0", kafka), Marking("w1", kafka)]
    settled(driver, workers)
    return driver, workers


def _answer(driver: Driver, worker: Worker) -> Answer:
    driver.beat(worker)
    assert worker.answer is not None
    return worker.answer


def test_worker_that_takes_over_is_told_how_far_the_dead_one_was() -> None:
    """With the order, before it reads Kafka."""
    driver, (lost, left) = _two(Kafka())
    driver.beat(lost)
    marks = dict(lost.marks)
    for _ in range(2 * SESSION_MS // 500):
        driver.pass_time(500)
        if (answer := _answer(driver, left)).take_over:
            break
    assert set(answer.take_over[0].owners) == marks.keys()
    assert answer.committed == marks


def test_worker_that_starts_again_is_told_how_far_it_was() -> None:
    """The new process knows nothing, and finds its own id in Kafka."""
    kafka = Kafka()
    driver, (before, other) = _two(kafka)
    driver.beat(before)
    after = Worker("w0", kafka, topology(), start=2)
    after.held = dict.fromkeys(before.marks, ACQUIRING["0_0"])
    assert _answer(driver, after).committed == before.marks
    assert not _answer(driver, other).committed


def test_next_owner_is_told_how_far_the_former_one_was() -> None:
    """After an ordinary hand-over."""
    driver, workers = _two(Kafka())
    third = Marking("w2", workers[0]._kafka)
    told: dict[str, Mark] = {}
    for _ in range(30):
        driver.rounds(workers)
        told |= _answer(driver, third).committed
        if any(role is Role.ACTIVE for role in third.answer.tasks.values()):  # type: ignore[union-attr]
            break
        third.work()
    assert told.keys() == {task for task, role in third.answer.tasks.items() if role is Role.ACTIVE}  # type: ignore[union-attr]
    assert all(mark.offset > 0 for mark in told.values())


def test_answers_are_as_short_as_before_while_nothing_moves() -> None:
    """Only workers that do not know the marks get them."""
    driver, workers = _two(Kafka())
    driver.rounds(workers, 5)
    assert not any(_answer(driver, each).committed for each in workers)


def test_application_that_ended_in_order_may_be_set_back() -> None:
    """After a reset the old marks are wrong, so no worker gets them."""
    kafka = Kafka()
    driver, workers = _two(kafka)
    for each in workers:
        driver.engine.heartbeat(each.heartbeat(ended=True), driver.now_ms)
    after = Worker("w0", kafka, topology(), start=2)
    after.held = dict(ACQUIRING)
    assert not _answer(driver, after).committed


def test_marks_of_a_worker_that_did_not_leave_outlive_the_others() -> None:
    """It has ended because commits were lost, and all others are stopped until a person has chosen."""
    kafka = Kafka()
    driver, (lost, other) = _two(kafka)
    for each in (lost, other):
        driver.beat(each)
    driver.engine.declare_dead(lost.id, driver.now_ms)
    driver.engine.heartbeat(other.heartbeat(ended=True), driver.now_ms)
    for before in (lost, other):
        after = Worker(before.id, kafka, topology(), start=2)
        after.held = dict.fromkeys(before.marks, ACQUIRING["0_0"])  # type: ignore[attr-defined]
        assert after.held
        told = before.marks if before is lost else {}  # type: ignore[attr-defined]
        assert {task: mark for task, mark in _answer(driver, after).committed.items() if task in after.held} == told


def test_marks_follow_offsets_that_were_reset_after_a_kill() -> None:
    """A worker knows the marks when it claims a task, so what it reports then counts: the next owner is not misled."""
    kafka = Kafka()
    driver, workers = _two(kafka)
    driver.rounds(workers, 50)
    before = {task: mark for each in workers for task, mark in each.marks.items()}  # type: ignore[attr-defined]
    driver.pass_time(2 * SESSION_MS)
    kafka.owners.clear()
    after: list[Worker] = [Marking("w0", kafka, start=2), Marking("w1", kafka, start=2)]
    settled(driver, after)
    driver.rounds(after, 3)
    now = {task: mark for each in after for task, mark in each.marks.items()}  # type: ignore[attr-defined]
    assert now.keys() == before.keys()
    assert all(now[task] < before[task] for task in now)
    kept = driver.engine._group.marks._last
    assert {task: kept[task] for task in now if kept[task] > now[task]} == {}


def test_marks_of_tasks_that_do_not_exist_are_not_kept() -> None:
    """Invented tasks take no memory."""
    kafka = Kafka()
    driver, workers = _two(kafka)
    invented = {f"9_{number}": Mark(1, 1) for number in range(1_000)}
    workers[0].marks = {}  # type: ignore[attr-defined]
    driver.engine.heartbeat(Worker.heartbeat(workers[0], committed=invented), driver.now_ms)
    driver.engine.heartbeat(Worker.heartbeat(workers[0]), driver.now_ms)
    assert not any(task in driver.engine._group.marks._last for task in invented)
    assert not any(task in each.committed for each in driver.engine.members.values() for task in invented)


def test_marks_outlive_the_coordinator_as_of_its_last_assignment() -> None:
    """A worker that dies with it cannot report them to the next one."""
    kafka = Kafka()
    driver, workers = _two(kafka)
    for each in workers:
        driver.beat(each)
    third = Marking("w2", kafka)
    driver.beat(third)  # a worker comes, so an assignment is made
    written = driver.store.view.committed  # type: ignore[union-attr]
    assert written == workers[0].marks | workers[1].marks  # type: ignore[attr-defined]
    assert not driver.engine.view(driver.now_ms).committed
    later = Driver(2, "c2", store=driver.store)
    again = Worker("w0", kafka, topology(), start=2)
    again.held = dict(ACQUIRING)
    task = next(iter(again.held))
    later.beat(again)
    assert again.answer is not None
    assert again.answer.committed[task] == written[task]


@pytest.mark.parametrize("seed", range(30))
def test_every_owner_knows_the_last_mark_of_the_one_before(seed: int) -> None:
    """Workers die, restart, freeze and lose their brokers: each new owner knows the last mark of the task."""
    chosen = random.Random(seed)
    kafka, driver = Kafka(), Driver()
    workers = [Marking(id, kafka) for id in ("w0", "w1", "w2")]
    last: dict[str, Mark] = {}
    told: dict[tuple[str, int], dict[str, Mark]] = {}
    for turn in range(120):
        for each in list(workers):
            if chosen.random() < 0.1:
                continue  # it is frozen for a moment
            driver.beat(each)
            assert each.answer is not None
            mine = told.setdefault((each.id, each.start), {})
            mine |= each.answer.committed
            last |= {task: mark for task, mark in each.marks.items() if mark > last.get(task, Mark(0, 0))}
            mine |= each.marks
            before = {task for task, report in each.held.items() if report.role is Role.ACTIVE}
            each.work()
            for task, report in each.held.items():
                if report.role is Role.ACTIVE and task not in before and task in last:
                    each.number = max(each.number, last[task].offset // 100)
                    assert mine.get(task, Mark(0, 0)) >= last[task], f"seed {seed}, turn {turn}: {each.id} takes {task}"
        driver.pass_time(500)
        if chosen.random() < 0.06:
            victim = chosen.choice(workers)
            again = Marking(victim.id, kafka, start=victim.start + 1)
            again.number = victim.number
            workers[workers.index(victim)] = again
        for each in workers:
            if each.brokers is not Brokers.ANSWERING:
                each.brokers = chosen.choice((Brokers.LOST, Brokers.LOST, Brokers.LOST, Brokers.ANSWERING))
            elif chosen.random() < 0.02:
                each.brokers = Brokers.LOST
    assert last, f"seed {seed}: nothing was ever committed"
