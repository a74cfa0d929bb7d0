"""A restarted coordinator: it knows the stored assignment and the reports of workers, and moves nothing needlessly."""

from __future__ import annotations

import msgspec

from millpond.protocol import RefusalCode, Role, decode_heartbeat, encode
from millpond.protocol.messages import View
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, Store, Worker, code, fleet, settled
from tests.coordinator.support import topology


def restarted(driver: Driver, coordinator: str = "c2", **options: int) -> Driver:
    return Driver(1, coordinator, driver.store, driver.now_ms, **options)


def test_nothing_moves_when_the_coordinator_restarts() -> None:
    """All workers report, and the same assignment holds in a new term."""
    kafka = Kafka()
    driver, workers = Driver(standby_replicas=1), fleet(kafka, 3, topology(9))
    settled(driver, workers)
    driver.rounds(workers, 10)
    owners, view = dict(kafka.owners), driver.engine.view(None)
    held = {worker.id: dict(worker.held) for worker in workers}
    again = restarted(driver, standby_replicas=1)
    assert again.engine.epoch > driver.engine.epoch
    for _ in range(10):
        again.rounds(workers)
        assert kafka.owners == owners
        assert {worker.id: dict(worker.held) for worker in workers} == held
    assert (again.engine.view(None).active, again.engine.view(None).standby) == (view.active, view.standby)
    assert all(worker.epochs == sorted(worker.epochs) for worker in workers)


def test_nobody_is_declared_dead_before_a_session_timeout_has_passed() -> None:
    """A worker that reports late keeps its tasks; until all have reported, all keep theirs."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    owners = dict(kafka.owners)
    again = restarted(driver)
    again.rounds(workers[:2], (SESSION_MS - 1_000) // 500)
    assert again.plans == 0
    assert kafka.owners == owners
    again.rounds(workers, 3)
    assert again.plans > 0
    assert kafka.owners == owners


def test_coordinator_pause_does_not_shorten_the_restart_wait() -> None:
    """No worker could report during the pause, so it does not count."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    again = restarted(driver)
    again.pass_time(500)
    again.now_ms += 20_000
    again.engine.tick(again.now_ms)
    again.rounds(workers[:2], 4)
    assert again.plans == 0
    assert again.engine.members["w2"].alive


def test_worker_that_died_during_the_restart_is_replaced() -> None:
    """It is in the last assignment and never reports."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    again = restarted(driver)
    again.rounds(workers[:2], SESSION_MS // 500 + 4)
    assert set(kafka.owners.values()) == {"w0", "w1"}


def test_restart_does_not_wait_for_a_worker_reported_dead() -> None:
    """A reported death counts at once while the coordinator waits for workers, too."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    again = restarted(driver)
    again.engine.declare_dead("w2", again.now_ms)
    again.rounds(workers[:2], 4)
    assert set(kafka.owners.values()) == {"w0", "w1"}


def test_restart_completes_a_move_under_way() -> None:
    """Also when the hand-over happened while no coordinator ran."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2, topology(6))
    settled(driver, workers)
    workers.append(Worker("w2", kafka, topology(6)))
    for _ in range(40):
        driver.rounds(workers)
        if any(worker.answer.release for worker in workers):
            break
        for worker in workers:
            driver.beat(worker)
        if any(worker.answer.release for worker in workers):
            break
    for worker in workers:
        worker.work()
    again = restarted(driver)
    settled(again, workers, rounds=60)
    assert set(kafka.owners.values()) == {"w0", "w1", "w2"}


def test_without_a_store_everything_is_learned_from_workers() -> None:
    """Owners come from the workers' reports; no live worker's tasks are taken over."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    owners = dict(kafka.owners)
    again = Driver(2, "c2", Store(), driver.now_ms, gathering_ms=500)
    for _ in range(10):
        again.rounds(workers)
        assert kafka.owners == owners
    assert again.engine.view(None).owners == owners


def test_restart_does_not_wait_for_ended_workers() -> None:
    """When all workers left in order, the next start is immediate."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    for worker in workers:
        driver.beat(worker, ended=True)
    driver.decide()
    again = restarted(driver)
    new = [Worker(worker.id, kafka, topology(), start=2) for worker in workers]
    again.rounds(new, 2)
    assert again.plans > 0
    settled(again, new)


def test_drains_and_replaced_processes_outlive_a_restart() -> None:
    """A draining worker stays empty, and a replaced process stays rejected."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    driver.engine.drain("w2")
    settled(driver, workers, rounds=40)
    old, workers[1] = workers[1], Worker("w1", kafka, topology(6), start=2)
    driver.rounds(workers, 3)
    again = restarted(driver)
    assert code(again.beat(old)) is RefusalCode.REPLACED
    settled(again, workers)
    assert "w2" not in kafka.owners.values()


def test_unwritten_assignment_is_not_sent() -> None:
    """An assignment that could not be stored changes no orders; computed again and stored, it does."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 1)
    settled(driver, workers)
    new = Worker("w1", kafka, topology())
    engine = driver.engine
    engine.heartbeat(new.heartbeat(), driver.now_ms)
    before = engine.answer_for("w0")
    view = engine.adopt(engine.job(driver.now_ms).run())
    assert isinstance(view, View)
    assert engine.answer_for("w0") == before
    engine.discard_plan()
    assert engine.publish() == set()
    assert engine.answer_for("w0") == before
    settled(driver, [*workers, new], rounds=40)


def test_hand_overs_continue_while_the_store_fails() -> None:
    """A failing store delays new assignments, not what follows from the last one."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 1)
    settled(driver, workers)
    workers.append(Worker("w1", kafka, topology()))
    while not workers[0].answer.release:
        driver.rounds(workers[1:])
        driver.beat(workers[0])
    engine = driver.engine
    engine.heartbeat(Worker("w2", kafka, topology()).heartbeat(), driver.now_ms)  # a new plan is due, and fails
    task = next(iter(workers[0].answer.release))
    workers[0].work()
    engine.heartbeat(workers[0].heartbeat(), driver.now_ms)
    assert engine.regrant() == {"w0", "w1"}
    assert engine.answer_for("w1").tasks[task] is Role.ACTIVE
    assert engine.answer_for("w2").tasks == {}


def test_plan_for_dead_workers_is_recomputed() -> None:
    """Workers that died during the computation get nothing."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    engine = driver.engine
    engine.drain("w0")
    plan = engine.job(driver.now_ms).run()
    engine.declare_dead("w2", driver.now_ms)
    assert engine.adopt(plan) is None
    assert engine.publish() == set()
    assert engine.plan_due


def test_plans_count_although_workers_come_and_go() -> None:
    """After a few discarded plans the next one counts, without dead workers."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    engine = driver.engine
    engine.declare_dead("w1", driver.now_ms)
    for number in range(10):
        plan = engine.job(driver.now_ms).run()
        engine.heartbeat(Worker(f"n{number}", kafka, topology()).heartbeat(), driver.now_ms)
        if engine.adopt(plan) is not None:
            break
    else:
        raise AssertionError("no plan was ever used")
    engine.publish()
    assert any(order.previous == "w1" for id in engine.members for order in engine.answer_for(id).take_over)


def test_view_survives_json() -> None:
    """The restored state equals the stored state."""
    kafka = Kafka()
    driver, workers = Driver(standby_replicas=1), fleet(kafka, 2)
    settled(driver, workers)
    view = driver.store.view
    assert msgspec.json.decode(encode(view), type=View) == view
    beat = workers[0].heartbeat()
    assert decode_heartbeat(encode(beat)) == beat
    assert {report.role for report in beat.tasks.values()} <= set(Role)


def test_workers_have_time_to_find_a_coordinator_that_starts_elsewhere() -> None:
    """However short sessions are: none counts as dead before that time is over; workers that returned have their
    session again.
    """
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    again = restarted(driver, return_ms=15_000)
    again.pass_time(10_000)
    again.engine.start_sessions(again.now_ms)  # the last assignment took so long to be written
    again.rounds(workers[:2], 8)
    assert not again.plans
    again.pass_time(SESSION_MS + 200)
    alive = {name for name, member in again.engine.members.items() if member.alive}
    assert alive == {"w2"}  # the others came, and fell silent
    again.pass_time(5_000)
    assert not again.engine.members["w2"].alive
