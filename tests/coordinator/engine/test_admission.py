"""Workers that are not admitted: rejected for what they run, or still starting; and pinned topologies."""

from __future__ import annotations

from millpond.protocol import Heartbeat, RefusalCode, Role, TaskReport, Trouble
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, code, fleet, settled
from tests.coordinator.support import APP, topology

TROUBLE = Trouble("BrokerError", "no answer from Kafka at 'kafka:9092': check that it runs.")


def starting(worker: str = "w0", incarnation: str = "w0-2", **fields: object) -> Heartbeat:
    """A heartbeat of a worker that does not know its topology yet."""
    return Heartbeat(APP, worker, incarnation, 1, "", **{"trouble": TROUBLE, "revision": "r2", **fields})


def test_refused_worker_is_remembered_with_the_differences() -> None:
    """The status of a rollout shows why the new topology is rejected."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    before = driver.engine.changes
    outcome = driver.beat(Worker("w1", kafka, topology(hash="h2", store="sums")), revision="r2")
    refused = driver.engine.rejected["w1"]
    assert refused.code is code(outcome) is RefusalCode.TOPOLOGY_MISMATCH
    assert (refused.incarnation, refused.revision, refused.message) == ("w1-1", "r2", outcome.message)
    assert "'sums'" in refused.differences
    assert refused.differences in refused.message
    assert driver.engine.changes == before + 1


def test_repeated_refusal_keeps_its_time_and_is_no_news() -> None:
    """Rejected workers retry every second."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    other = Worker("w1", kafka, topology(hash="h2"))
    driver.beat(other)
    refused, before = driver.engine.rejected["w1"], driver.engine.changes
    driver.now_ms += 1_000
    driver.beat(other)
    assert driver.engine.rejected["w1"] == refused
    assert driver.engine.changes == before


def test_a_refused_worker_of_another_version_is_remembered_too() -> None:
    """The protocol version is the reason."""
    driver, kafka = Driver(), Kafka()
    driver.beat(Worker("w0", kafka, topology()), version=9)
    assert driver.engine.rejected["w0"].code is RefusalCode.UNSUPPORTED_VERSION


def test_refusals_for_other_reasons_are_not_kept() -> None:
    """A replaced process says nothing about what the application runs."""
    driver, kafka = Driver(), Kafka()
    old = Worker("w0", kafka, topology())
    settled(driver, [old])
    settled(driver, [Worker("w0", kafka, topology(), start=2)])
    assert code(driver.beat(old)) is RefusalCode.REPLACED
    assert not driver.engine.rejected


def test_refusal_ends_when_its_worker_is_admitted_or_gone() -> None:
    """It lasts as long as the worker is an outsider."""
    driver, kafka = Driver(), Kafka()
    members = fleet(kafka, 1)
    settled(driver, members)

    def refused() -> Worker:
        other = Worker("w1", kafka, topology(hash="h2"))
        driver.beat(other)
        assert "w1" in driver.engine.rejected
        return other

    refused()
    driver.beat(Worker("w1", kafka, topology(), start=2))
    assert not driver.engine.rejected
    driver.engine.declare_dead("w1", driver.now_ms)

    driver.pass_time(2_000)
    driver.beat(members[0])
    refused()
    driver.engine.declare_dead("w1", driver.now_ms)
    assert not driver.engine.rejected

    other = refused()
    driver.beat(other, ended=True)
    assert not driver.engine.rejected

    refused()
    driver.pass_time(6_000)
    assert not driver.engine.rejected


def test_pinned_topology_stays_when_nobody_runs_it() -> None:
    """The only worker returns with another topology: it waits until that is allowed."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    driver.engine.pin("h1")
    again = Worker("w0", Kafka(), topology(hash="h2"), start=2)
    outcome = driver.beat(again)
    assert code(outcome) is RefusalCode.TOPOLOGY_MISMATCH
    assert "Allow the application to change its topology" in outcome.message
    assert driver.engine.topology.hash == "h1"
    driver.engine.pin("")
    assert code(driver.beat(again)) is None
    assert driver.engine.topology.hash == "h2"
    assert not driver.engine.rejected


def test_a_pinned_topology_outlives_the_coordinator() -> None:
    """The stored topology counts too, not only those of live workers."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    later = Driver(2, "c2", driver.store)
    later.engine.pin("h1")
    later.pass_time(5_000)
    assert code(later.beat(Worker("w0", Kafka(), topology(hash="h2"), start=2))) is RefusalCode.TOPOLOGY_MISMATCH
    assert code(later.beat(Worker("w0", kafka, topology(), start=3))) is None


def test_a_pinned_application_without_a_topology_takes_the_first_one() -> None:
    """There is no topology to compare with yet."""
    driver = Driver()
    driver.engine.pin("h1")
    settled(driver, fleet(Kafka(), 1))
    assert driver.engine.topology.hash == "h1"


def test_starting_worker_is_shown_and_gets_no_tasks() -> None:
    """It is not a member, and others take over the tasks of its last process."""
    driver, kafka = Driver(), Kafka()
    workers = fleet(kafka, 2)
    settled(driver, workers)
    driver.engine.declare_dead("w0", driver.now_ms)
    assert driver.engine.heartbeat(starting(), driver.now_ms) is None
    settled(driver, workers[1:])
    assert set(kafka.owners.values()) == {"w1"}
    shown = next(each for each in driver.engine.view(driver.now_ms).members if each.worker == "w0")
    assert (shown.alive, shown.incarnation, shown.revision, shown.trouble) == (False, "w0-2", "r2", TROUBLE)
    assert driver.engine.starting["w0"].trouble == TROUBLE
    assert all(each.trouble is None for each in driver.engine.view(None).members)


def test_new_worker_is_shown_while_it_starts() -> None:
    """The first worker of an application may wait for brokers too."""
    driver = Driver()
    driver.engine.heartbeat(starting(), 0)
    (shown,) = driver.engine.view(0).members
    assert shown.trouble == TROUBLE
    assert driver.engine.view(None).members == ()
    driver.pass_time(6_000)
    assert not driver.engine.starting


def test_completed_start_ends_the_trouble() -> None:
    """The first heartbeat with a topology makes it a member; a late earlier one changes nothing."""
    driver, kafka = Driver(), Kafka()
    driver.engine.heartbeat(starting(incarnation="w0-1"), 0)
    settled(driver, fleet(kafka, 1))
    assert not driver.engine.starting
    assert driver.engine.heartbeat(starting(incarnation="w0-1"), driver.now_ms) is None
    assert not driver.engine.starting
    assert driver.engine.members["w0"].alive


def test_member_revision_and_trouble_are_shown_and_are_news() -> None:
    """They are in the list of members."""
    driver, kafka = Driver(), Kafka()
    workers = fleet(kafka, 1)
    settled(driver, workers)
    driver.beat(workers[0])
    before = driver.engine.changes
    driver.beat(workers[0], revision="r1", trouble=TROUBLE)
    assert driver.engine.changes == before + 1
    (shown,) = driver.engine.view(driver.now_ms).members
    assert (shown.revision, shown.trouble) == ("r1", TROUBLE)
    driver.beat(workers[0], revision="r1", trouble=TROUBLE)
    assert driver.engine.changes == before + 1


def test_progress_alone_is_no_news() -> None:
    """The lag changes with every heartbeat; only passing the acceptable lag counts."""
    driver, kafka = Driver(acceptable_lag=100), Kafka()
    workers = fleet(kafka, 1)
    settled(driver, workers)
    held = dict(workers[0].held)
    copy = held.popitem()[0]

    def changed(lag: int) -> bool:
        before = driver.engine.changes
        driver.beat(workers[0], tasks=held | {copy: TaskReport(Role.STANDBY, lag=lag)})
        return driver.engine.changes != before

    changed(5_000)
    driver.decide()
    assert not changed(4_000)
    assert changed(50)
    assert not changed(40)


def test_pinned_topology_replaces_one_that_nobody_runs() -> None:
    """A rollback from a topology that was admitted for a while."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    driver.engine.pin("h2")
    assert code(driver.beat(Worker("w0", kafka, topology(), start=2))) is RefusalCode.TOPOLOGY_MISMATCH
    assert code(driver.beat(Worker("w0", Kafka(), topology(hash="h2"), start=3))) is None
    assert driver.engine.topology.hash == "h2"
