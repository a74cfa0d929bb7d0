"""Workers are admitted only on the Kafka cluster on which the application's id is claimed."""

from __future__ import annotations

from millpond.protocol import Heartbeat, Refusal, RefusalCode
from millpond_operator.coordinator import KafkaClaim
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, code, fleet, settled
from tests.coordinator.support import APP, topology


def claiming(claim: KafkaClaim | None = None) -> Driver:
    driver = Driver()
    driver.engine.claim(claim or KafkaClaim())
    return driver


def knock(driver: Driver, worker: str = "w0", kafka: str = "K") -> Refusal | None:
    """A starting worker that reports its Kafka cluster."""
    return driver.engine.heartbeat(Heartbeat(APP, worker, f"{worker}-1", 1, "", kafka_cluster=kafka), driver.now_ms)


def running(driver: Driver, reaches: str = "K") -> Worker:
    """A worker that runs all tasks."""
    worker = fleet(Kafka(), 1)[0]
    worker.reaches = reaches
    settled(driver, [worker])
    return worker


def test_worker_waits_until_its_cluster_is_claimed() -> None:
    """The operator sees which cluster it reaches, once."""
    driver = claiming()
    before = driver.engine.changes
    refusal = knock(driver)
    assert refusal.code is RefusalCode.CLAIM_PENDING
    assert "retry" in refusal.message
    assert driver.engine.reached_clusters == {"w0": "K"}
    assert driver.engine.changes == before + 1
    knock(driver)
    assert driver.engine.changes == before + 1
    assert not driver.engine.rejected
    driver.engine.claim(KafkaClaim("K"))
    assert knock(driver) is None
    assert not driver.engine.reached_clusters


def test_running_workers_are_not_disturbed_while_a_claim_is_decided() -> None:
    """They keep their tasks: this refusal does not make them close any."""
    driver = claiming(KafkaClaim("K"))
    worker = running(driver)
    driver.engine.claim(KafkaClaim())
    assert code(driver.beat(worker)) is RefusalCode.CLAIM_PENDING


def test_worker_on_another_cluster_is_refused() -> None:
    """The message names both clusters, and how to move."""
    driver = claiming(KafkaClaim("K"))
    refusal = knock(driver, kafka="L")
    assert refusal.code is RefusalCode.CLAIM_REFUSED
    assert "cluster L" in refusal.message
    assert "on K" in refusal.message
    assert "stop all workers" in refusal.message
    assert driver.engine.rejected["w0"].message == refusal.message
    assert driver.engine.reached_clusters == {"w0": "L"}
    driver.pass_time(6_000)
    assert not driver.engine.reached_clusters
    assert not driver.engine.rejected


def test_application_whose_id_is_taken_gets_no_worker() -> None:
    """All of its workers get the reason; none is admitted, and members lose their membership."""
    driver = claiming(KafkaClaim("K"))
    worker = running(driver)
    driver.engine.claim(KafkaClaim("K", "Another application has that id: take another one."))
    for outcome in (driver.beat(worker), knock(driver, "w1")):
        assert (outcome.code, outcome.message) == (
            RefusalCode.CLAIM_REFUSED,
            "Another application has that id: take another one.",
        )
    assert "w1" not in driver.engine.members


def test_worker_that_does_not_tell_its_cluster_is_refused_its_tasks() -> None:
    """It may still report what it waits for."""
    driver = claiming(KafkaClaim("K"))
    assert knock(driver, kafka="") is None
    outcome = driver.beat(Worker("w1", Kafka(), topology()))
    assert code(outcome) is RefusalCode.CLAIM_REFUSED
    assert "does not report its Kafka cluster" in outcome.message


def test_without_claims_any_cluster_will_do() -> None:
    """On one machine nobody else can own the id."""
    driver = Driver()
    running(driver)
    assert knock(driver, "w7", "L") is None


def test_tasks_on_another_cluster_belong_to_nobody_yet() -> None:
    """Owners on the old cluster do not count; the application continues with the same coordinator."""
    driver = claiming(KafkaClaim("K"))
    worker = running(driver)
    driver.beat(worker, ended=True)
    driver.engine.claim(KafkaClaim("L"))
    assert not driver.engine.owners
    again = Worker("w0", Kafka(), topology(), start=2)
    again.reaches = "L"
    settled(driver, [again])
    assert set(driver.engine.owners.values()) == {"w0"}
