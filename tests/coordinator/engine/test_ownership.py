"""Ownership: how the engine learns it, and what follows."""

from __future__ import annotations

import itertools

import msgspec

from millpond.protocol import Heartbeat, Role, TaskReport, TaskState
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, fleet, settled
from tests.coordinator.support import running, topology


def owners(driver: Driver) -> dict[str, str]:
    return driver.engine.view(None).owners


def told(driver: Driver, worker: str) -> dict[str, Role]:
    return driver.engine.answer_for(worker).tasks


def test_unowned_tasks_are_claimed_by_one_executor() -> None:
    """In a new application a single worker is ordered to claim all tasks."""
    driver, workers = Driver(), fleet(Kafka(), 3)
    for worker in workers:
        driver.beat(worker)
    orders = [order for worker in workers for order in driver.engine.answer_for(worker.id).take_over]
    assert [order.previous for order in orders] == [None]
    assert set(orders[0].owners) == {"0_0", "0_1", "0_2", "0_3"}


def test_task_is_active_only_where_kafka_names_the_owner() -> None:
    """No task is assigned as active before the executor has reported; afterwards all are, at once."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    for worker in workers:
        driver.beat(worker)
    assert not any(Role.ACTIVE in told(driver, worker.id).values() for worker in workers)
    for worker in workers:
        worker.answer = driver.engine.answer_for(worker.id)
        worker.work()
    plans = driver.plans
    for worker in workers:
        driver.engine.heartbeat(worker.heartbeat(), driver.now_ms)
    driver.engine.regrant()  # no new assignment is needed for it
    assert driver.plans == plans
    active = [task for id in ("w0", "w1") for task, role in told(driver, id).items() if role is Role.ACTIVE]
    assert sorted(active) == ["0_0", "0_1", "0_2", "0_3"]


def test_hand_over_is_granted_only_after_it_is_reported() -> None:
    """The owner keeps its task, with the next owner named, until it reports the hand-over."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 1)
    settled(driver, workers)
    new = Worker("w1", kafka, topology())
    driver.beat(new)
    for _ in range(30):
        driver.rounds([new])
        driver.beat(workers[0])
        if workers[0].answer.release:
            break
        workers[0].work()
    task, successor = next(iter(workers[0].answer.release.items()))
    assert successor == "w1"
    assert told(driver, "w0")[task] is Role.ACTIVE
    assert told(driver, "w1").get(task) is not Role.ACTIVE
    workers[0].work()
    driver.beat(workers[0])
    assert told(driver, "w0").get(task) is not Role.ACTIVE
    assert told(driver, "w1")[task] is Role.ACTIVE


def test_reported_tasks_make_their_worker_the_owner() -> None:
    """An active task that is running or restoring proves ownership; one that is acquiring does not."""
    driver = Driver()
    beat = Worker("w0", Kafka(), topology()).heartbeat(
        tasks=running("0_0") | running("0_1", state=TaskState.RESTORING) | running("0_2", state=TaskState.ACQUIRING)
    )
    driver.engine.heartbeat(beat, 0)
    assert owners(driver) == {"0_0": "w0", "0_1": "w0"}


def test_worker_without_an_assignment_keeps_its_tasks() -> None:
    """A coordinator that knows nothing yet must not make a worker close its tasks."""
    driver = Driver(gathering_ms=1_000)
    worker = Worker("w0", Kafka(), topology())
    worker.held = running("0_0") | {"0_1": TaskReport(Role.STANDBY)}
    answer = driver.beat(worker)
    assert driver.plans == 0
    assert answer.tasks == {"0_0": Role.ACTIVE, "0_1": Role.STANDBY}


def test_zombie_cannot_claim_its_tasks_back() -> None:
    """It was frozen, its tasks were taken over, and it still reports them: the new owner keeps them."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    zombie = workers[1]
    driver.engine.declare_dead("w1", driver.now_ms)
    driver.rounds(workers[:1], 6)
    assert set(owners(driver).values()) == {"w0"}
    driver.beat(zombie)
    assert set(owners(driver).values()) == {"w0"}
    assert Role.ACTIVE not in zombie.answer.tasks.values()


def test_repeated_reports_do_not_win_a_lost_task_back() -> None:
    """It never counted as dead, and does not know yet that another worker has its task: the newer report counts."""
    driver = Driver()
    w0, w1 = fleet(Kafka(), 2)
    driver.engine.heartbeat(w0.heartbeat(), 0)
    driver.engine.heartbeat(w1.heartbeat(tasks=running("0_0")), 0)
    driver.engine.heartbeat(w0.heartbeat(taken_over={"0_0": "w0"}), 0)
    for lag in (1, 0):
        driver.engine.heartbeat(w1.heartbeat(tasks=running("0_0", lag=lag)), 0)
        assert owners(driver) == {"0_0": "w0"}
    # When it has dropped the task and has it again, that is news.
    driver.engine.heartbeat(w1.heartbeat(), 0)
    driver.engine.heartbeat(w1.heartbeat(tasks=running("0_0")), 0)
    assert owners(driver) == {"0_0": "w1"}


def test_owner_found_in_kafka_corrects_the_engine() -> None:
    """A hand-over that its owner could not report: the worker that reads Kafka reports it."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    task = next(task for task, owner in kafka.owners.items() if owner == "w0")
    kafka.move(task, "w0", "w1")
    settled(driver, workers, rounds=40)
    assert owners(driver) == kafka.owners


def test_a_repeated_finding_is_no_news() -> None:
    """Found owners are repeated until acknowledged; meanwhile the task may have moved."""
    driver = Driver()
    w0, w1, w2 = fleet(Kafka(), 3)
    for worker in (w0, w1, w2):
        driver.beat(worker)
    driver.engine.heartbeat(w0.heartbeat(taken_over={"0_0": "w1"}), 0)
    driver.engine.heartbeat(w1.heartbeat(taken_over={"0_0": "w2"}), 0)
    driver.engine.heartbeat(w0.heartbeat(taken_over={"0_0": "w1"}), 0)
    assert owners(driver)["0_0"] == "w2"
    # It is told that the finding has arrived, and finds the same again.
    w0.take(driver.engine.answer_for("w0"))
    driver.engine.heartbeat(w0.heartbeat(taken_over={"0_0": "w1"}), 0)
    assert owners(driver)["0_0"] == "w1"


def test_claim_of_a_live_worker_beats_an_old_finding() -> None:
    """After a restart of the coordinator, an old finding that was not acknowledged does not displace an owner."""
    driver = Driver(gathering_ms=1_000)
    w0, w1, _ = fleet(Kafka(), 3)
    driver.engine.heartbeat(w1.heartbeat(tasks=running("0_0")), 0)
    driver.engine.heartbeat(w0.heartbeat(taken_over={"0_0": "w2", "0_1": "w2"}), 0)
    assert owners(driver) == {"0_0": "w1", "0_1": "w2"}


def test_unknown_tasks_are_dropped_and_named_once() -> None:
    """Unknown tasks and invalid ids are not in the answer; the log has one line."""
    driver, workers = Driver(), fleet(Kafka(), 1)
    settled(driver, workers)
    driver.engine.events.clear()
    for _ in range(5):
        workers[0].held |= running("7_9", "nonsense", "0_99")
        workers[0].on_disk = {"9_9": 5, "": 1}
        answer = driver.beat(workers[0], taken_over={"8_8": "w7", "0_0": ""})
        assert set(answer.tasks) == {"0_0", "0_1", "0_2", "0_3"}
        driver.pass_time(500)
    (line,) = [event for event in driver.engine.events if "not in the topology" in event]
    assert "7_9" in line
    assert "nonsense" in line
    assert owners(driver)["0_0"] == "w0"


def test_only_workers_with_changed_orders_have_news() -> None:
    """Revisions grow one by one: the long poll of an unaffected worker keeps waiting."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    driver.rounds(workers, 5)
    before = {worker.id: worker.answer.revision for worker in workers}
    task = next(task for task, owner in kafka.owners.items() if owner == "w2")
    kafka.move(task, "w2", "w1")
    workers[2].work()
    for worker in workers[1:]:
        assert not driver.engine.has_news_for(worker.heartbeat())
    driver.beat(workers[2], taken_over={task: "w1"})
    assert driver.engine.has_news_for(workers[1].heartbeat())
    assert driver.engine.answer_for("w0").revision == before["w0"]
    assert driver.engine.answer_for("w1").revision > before["w1"]


def test_heartbeats_that_change_nothing_cost_no_assignment() -> None:
    """Nothing is computed while the lag stays on its side of the acceptable lag."""
    driver, workers = Driver(standby_replicas=1, acceptable_lag=100), fleet(Kafka(), 2)
    settled(driver, workers)
    driver.rounds(workers, 10)
    plans = driver.plans

    def report(lag: int | None) -> Heartbeat:
        beat = workers[0].heartbeat()
        copies = {
            task: msgspec.structs.replace(each, lag=lag, offset=each.offset + 1)
            for task, each in beat.tasks.items()
            if each.role is not Role.ACTIVE
        }
        return msgspec.structs.replace(beat, tasks=beat.tasks | copies)

    for lag in (1, 50, 0, 100, 99):
        driver.engine.heartbeat(report(lag), driver.now_ms)
        driver.decide()
    assert driver.plans == plans
    driver.engine.heartbeat(report(101), driver.now_ms)
    driver.decide()
    assert driver.plans == plans + 1
    driver.engine.heartbeat(report(None), driver.now_ms)
    driver.decide()
    assert driver.plans == plans + 2


def test_epochs_grow_with_every_change_of_orders() -> None:
    """Within a term the number never decreases, and every change raises it."""
    driver, workers = Driver(), fleet(Kafka(), 3)
    seen = []
    revisions = None
    for _ in range(15):
        driver.rounds(workers)
        now = [driver.engine.answer_for(worker.id).revision for worker in workers]
        seen.append((driver.engine.epoch, now != revisions))
        revisions = now
    for (before, _), (after, changed) in itertools.pairwise(seen):
        assert after > before if changed else after == before


def test_task_without_an_owner_in_kafka_is_claimed_again() -> None:
    """Its committed offsets were deleted (reset or retention): the former owner finds none, and reports that."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    (task,) = [task for task, owner in owners(driver).items() if owner == "w0"][:1]
    workers[0].held.pop(task)
    answer = driver.beat(workers[0], taken_over={task: ""})
    driver.pass_time(500)
    answers = [answer, driver.beat(workers[0]), driver.beat(workers[1])]
    assert [order.previous for each in answers for order in each.take_over if task in order.owners]
    assert all(order.previous is None for each in answers for order in each.take_over if task in order.owners)


def test_final_hand_overs_count_before_the_worker_ends() -> None:
    """A worker that hands over its tasks and ends in one heartbeat leaves nothing to take over."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    mine = [task for task, owner in owners(driver).items() if owner == "w0"]
    workers[0].held.clear()
    driver.beat(workers[0], taken_over=dict.fromkeys(mine, "w1"), ended=True)
    driver.pass_time(100)
    assert all(owners(driver)[task] == "w1" for task in mine)
    assert not driver.beat(workers[1]).take_over
