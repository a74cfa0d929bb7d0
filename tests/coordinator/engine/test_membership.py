"""Membership: joining, session timeouts, returning, replacement, draining, leaving."""

from __future__ import annotations

from millpond.protocol import RefusalCode, Role
from tests.coordinator.engine.simulation import SESSION_MS, Driver, Kafka, Worker, code, fleet, settled
from tests.coordinator.support import topology


def actives(driver: Driver) -> dict[str, int]:
    counts: dict[str, int] = {}
    for worker in driver.engine.view(None).active.values():
        counts[worker] = counts.get(worker, 0) + 1
    return counts


def test_tasks_spread_over_the_workers_that_joined() -> None:
    """The first assignment gives every task an owner, evenly."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    assert actives(driver) == {"w0": 2, "w1": 2}


def test_a_new_application_waits_a_moment_for_further_workers() -> None:
    """Nothing is assigned while workers are joining, so that the first one does not get everything."""
    kafka = Kafka()
    driver, workers = Driver(gathering_ms=500), fleet(kafka, 2)
    driver.beat(workers[0])
    driver.pass_time(400)
    driver.beat(workers[1])
    driver.pass_time(400)
    assert driver.plans == 0
    driver.pass_time(200)
    driver.rounds(workers, 3)
    assert actives(driver) == {"w0": 2, "w1": 2}
    assert driver.plans < 10


def test_first_assignment_is_not_delayed_without_bound() -> None:
    """It is computed after four times the pause, even if more workers are joining."""
    kafka = Kafka()
    driver = Driver(gathering_ms=500)
    for number in range(8):
        driver.beat(Worker(f"w{number}", kafka, topology()))
        driver.pass_time(300)
    assert driver.plans > 0


def test_silent_worker_is_dead_after_the_session_timeout() -> None:
    """Not before; then others are ordered to take over its tasks."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    last = driver.now_ms - 500  # its last heartbeat, before time passed
    while driver.now_ms - last < SESSION_MS:
        assert driver.engine.members["w1"].alive
        driver.rounds(workers[:1], step_ms=100)
    assert not driver.engine.members["w1"].alive
    assert driver.engine.deaths == 1
    settled(driver, workers[:1])
    assert actives(driver) == {"w0": 4}


def test_worker_reported_dead_is_replaced_at_once() -> None:
    """No time passes between the report and the order to take over."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    assert driver.engine.declare_dead("w1", driver.now_ms)
    driver.beat(workers[0])
    (order,) = workers[0].answer.take_over
    assert order.previous == "w1"
    assert set(order.owners.values()) == {"w0"}
    assert len(order.owners) == 2


def test_late_heartbeat_does_not_revive_a_dead_worker() -> None:
    """Heartbeats from before its death are ignored; a live worker sends another one soon."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    driver.engine.declare_dead("w1", driver.now_ms)
    driver.beat(workers[1])
    assert not driver.engine.members["w1"].alive
    driver.rounds(workers[:1], 5)
    driver.beat(workers[1])
    assert driver.engine.members["w1"].alive


def test_unknown_worker_cannot_be_reported_dead() -> None:
    """Reporting or draining an unknown name adds no member."""
    driver = Driver()
    assert not driver.engine.declare_dead("w9", 0)
    assert not driver.engine.drain("w9")
    assert driver.engine.members == {}


def test_a_broken_connection_shortens_the_session() -> None:
    """A killed process is not waited for until its session ends; a worker that reconnects loses nothing."""
    driver, workers = Driver(), fleet(Kafka(), 3)
    settled(driver, workers)
    for worker in ("w1", "w2"):
        driver.engine.connection_lost(worker, f"{worker}-1", driver.now_ms)
    driver.pass_time(500)
    driver.beat(workers[0])
    driver.beat(workers[2])
    driver.pass_time(1_000)
    assert {id: member.alive for id, member in driver.engine.members.items()} == {"w0": True, "w1": False, "w2": True}


def test_broken_connection_of_an_earlier_process_is_ignored() -> None:
    """Only the present process counts."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    driver.beat(Worker("w1", kafka, topology(), start=2))
    driver.engine.connection_lost("w1", "w1-1", driver.now_ms)
    driver.pass_time(2_000)
    assert driver.engine.members["w1"].alive


def test_final_heartbeat_ends_a_worker_at_once() -> None:
    """`ended` ends the session at once, only for the process that sends it."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    new = Worker("w1", kafka, topology(), start=2)
    driver.beat(new)
    assert code(driver.beat(workers[1], ended=True)) is RefusalCode.REPLACED
    assert driver.engine.members["w1"].alive
    driver.beat(new, ended=True)
    assert not driver.engine.members["w1"].alive
    driver.beat(workers[0])
    assert workers[0].answer.take_over[0].previous == "w1"


def test_paused_coordinator_declares_nobody_dead() -> None:
    """Sessions are extended by its own pause."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    driver.now_ms += 60_000
    driver.engine.tick(driver.now_ms)
    assert all(member.alive for member in driver.engine.members.values())
    driver.pass_time(SESSION_MS + 100)
    assert not any(member.alive for member in driver.engine.members.values())


def test_a_restart_within_the_session_resumes_what_the_worker_owns() -> None:
    """The new process has the same tasks, and nothing moves."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3)
    settled(driver, workers)
    owners = dict(kafka.owners)
    again = Worker("w1", kafka, topology(), start=2)
    answer = driver.beat(again)
    assert set(answer.tasks) == {task for task, owner in owners.items() if owner == "w1"}
    settled(driver, [workers[0], again, workers[2]])
    assert kafka.owners == owners


def test_earlier_process_of_a_worker_stays_refused() -> None:
    """A newer process has the id; the older one is rejected however often it returns."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 1)
    settled(driver, workers)
    new = Worker("w0", kafka, topology(), start=2)
    driver.beat(new)
    for _ in range(5):
        outcome = driver.beat(workers[0])
        assert code(outcome) is RefusalCode.REPLACED
        assert "worker.id" in outcome.message
        driver.rounds([new], 5)
    third = Worker("w0", kafka, topology(), start=3)
    driver.beat(third)
    assert code(driver.beat(new)) is code(driver.beat(workers[0])) is RefusalCode.REPLACED
    assert code(driver.beat(third)) is None


def test_reordered_heartbeats_count_by_sequence() -> None:
    """A late heartbeat with a smaller sequence changes nothing."""
    driver, workers = Driver(), fleet(Kafka(), 1)
    settled(driver, workers)
    early = workers[0].heartbeat(leaving=True)
    driver.beat(workers[0])
    assert driver.engine.heartbeat(early, driver.now_ms) is None
    assert not driver.engine.members["w0"].leaving
    assert driver.engine.answer_for("w0").sequence > early.sequence


def test_drained_worker_loses_all_tasks_until_the_drain_ends() -> None:
    """Draining moves all of its tasks to others; undraining makes it an ordinary worker again."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    driver.engine.drain("w1")
    settled(driver, workers, rounds=40)
    assert actives(driver) == {"w0": 4}
    assert driver.engine.view(None).members[1].draining
    driver.engine.drain("w1", draining=False)
    settled(driver, workers, rounds=40)
    assert actives(driver) == {"w0": 2, "w1": 2}


def test_leaving_worker_ends_once_its_tasks_are_handed_over() -> None:
    """Not while it owns one; its last answer says that it may leave."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    workers[1].leaving = True
    for _ in range(40):
        driver.rounds(workers)
        owns = "w1" in kafka.owners.values()
        assert not (workers[1].answer.may_leave and owns)
        if workers[1].answer.may_leave:
            break
    assert workers[1].answer.may_leave
    assert actives(driver) == {"w0": 4}


def test_leaving_worker_waits_for_tasks_not_yet_running() -> None:
    """A task that it just got in Kafka and has not started has to be handed over too."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    for worker in workers:
        worker.held = {} if worker.id == "w1" else worker.held
    workers[1].leaving = True
    answer = driver.beat(workers[1])
    assert not answer.may_leave
    assert answer.tasks


def test_last_worker_may_leave_at_once() -> None:
    """The last worker, or all of them together, need not wait for each other."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    for worker in workers:
        worker.leaving = True
    driver.rounds(workers, 2)
    assert all(worker.answer.may_leave for worker in workers)


def test_clock_skew_is_shown_and_changes_nothing() -> None:
    """Skew is only displayed; sessions and assignments ignore it."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    hour_ms = 3_600_000
    for _ in range(5):
        for worker in workers:
            beat = worker.heartbeat(clock_ms=10 * hour_ms + (hour_ms if worker.id == "w1" else 0))
            assert driver.engine.heartbeat(beat, driver.now_ms, wall_ms=10 * hour_ms) is None
            driver.decide()
            worker.take(driver.engine.answer_for(worker.id))
            worker.work()
        driver.pass_time(500)
    members = {each.worker: each for each in driver.engine.view(driver.now_ms).members}
    assert members["w1"].clock_skew_ms == hour_ms
    assert members["w0"].clock_skew_ms == 0
    assert members["w1"].alive
    assert actives(driver) == {"w0": 2, "w1": 2}


def test_dead_worker_without_tasks_is_forgotten_after_an_hour() -> None:
    """Names of former pods do not pile up."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    driver.engine.declare_dead("w1", driver.now_ms)
    settled(driver, workers[:1])
    for _ in range(3_600 * 4):
        driver.now_ms += 250
        driver.engine.tick(driver.now_ms)
        driver.engine.heartbeat(workers[0].heartbeat(), driver.now_ms)
    assert list(driver.engine.members) == ["w0"]


def test_standbys_are_placed_and_survive_a_death() -> None:
    """With one standby each, the death of a worker promotes copies that already exist."""
    kafka = Kafka()
    driver, workers = Driver(standby_replicas=1), fleet(kafka, 3, topology(6))
    settled(driver, workers)
    driver.rounds(workers, 10)
    standby = driver.engine.view(None).standby
    assert len(standby) == 6
    orphans = {task for task, owner in kafka.owners.items() if owner == "w2"}
    assert orphans
    driver.engine.declare_dead("w2", driver.now_ms)
    driver.rounds(workers[:2], 3)
    for task in orphans:
        assert kafka.owners[task] in standby[task]
        held = next(worker for worker in workers if worker.id == kafka.owners[task]).held[task]
        assert held.role is Role.ACTIVE
