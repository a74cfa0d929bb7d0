"""Workers that lost their brokers: others take over their tasks if they reach brokers."""

from __future__ import annotations

from millpond.protocol import Brokers
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, fleet, settled
from tests.coordinator.engine.test_membership import actives


def _cut_off(driver: Driver, workers: list[Worker], *lost: Worker) -> None:
    """Cut these workers off from their brokers, long enough to count as lost."""
    for state in (Brokers.SILENT, Brokers.LOST):
        for worker in lost:
            worker.brokers = state
            driver.beat(worker)
        driver.rounds(workers, 10)


def test_tasks_of_a_worker_without_brokers_go_to_others() -> None:
    """Although it sends heartbeats and reports to run them."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3)
    settled(driver, workers)
    _cut_off(driver, workers, workers[1])
    assert "w1" not in actives(driver)
    assert set(kafka.owners.values()) == {"w0", "w2"}
    assert workers[1].answer is not None
    assert not workers[1].answer.tasks
    assert driver.engine.members["w1"].alive


def test_worker_without_brokers_for_a_moment_keeps_its_tasks() -> None:
    """A restarting broker is unavailable for seconds, for all workers connected to it."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    before = dict(driver.engine.owners), driver.engine.epoch
    workers[1].brokers = Brokers.SILENT
    driver.rounds(workers, 10)
    assert (driver.engine.owners, driver.engine.epoch) == before


def test_tasks_stay_while_no_worker_has_brokers() -> None:
    """Each worker notices at another moment; no order is given meanwhile that would be followed later."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 3)
    settled(driver, workers)
    before, epoch = dict(kafka.owners), driver.engine.epoch
    for state in (Brokers.SILENT, Brokers.LOST, Brokers.SILENT, Brokers.ANSWERING):
        for worker in workers:
            worker.brokers = state
            driver.rounds(workers, 2)
    driver.rounds(workers, 10)
    assert kafka.owners == before
    assert driver.engine.epoch == epoch


def test_worker_with_brokers_again_gets_its_share() -> None:
    """Like a new worker."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    _cut_off(driver, workers, workers[1])
    assert actives(driver) == {"w0": 4}
    workers[1].brokers = Brokers.ANSWERING
    settled(driver, workers)
    assert actives(driver) == {"w0": 2, "w1": 2}


def test_draining_worker_gives_no_task_to_one_without_brokers() -> None:
    """Nor does that one take any. It keeps its tasks until a worker with brokers can have them, and then leaves."""
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, 2)
    settled(driver, workers)
    before = dict(kafka.owners)
    workers[1].brokers = Brokers.LOST
    driver.engine.drain("w0")
    driver.rounds(workers, 10)
    assert kafka.owners == before
    workers[1].brokers = Brokers.ANSWERING
    settled(driver, workers)
    assert actives(driver) == {"w1": 4}


def test_death_of_the_last_worker_with_brokers_moves_nothing_back() -> None:
    """It keeps owning what it took over until another worker can take it over."""
    driver, workers = Driver(), fleet(Kafka(), 2)
    settled(driver, workers)
    _cut_off(driver, workers, workers[1])
    driver.engine.declare_dead("w0", driver.now_ms)
    driver.rounds(workers[1:], 5)
    assert set(driver.engine.owners.values()) == {"w0"}
    workers[1].brokers = Brokers.ANSWERING
    settled(driver, workers[1:])
    assert actives(driver) == {"w1": 4}
