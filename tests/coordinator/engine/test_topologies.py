"""Workers with another topology, version, application or coordinator."""

from __future__ import annotations

import msgspec
import pytest

from millpond.protocol import Epoch, RefusalCode, SubtopologySummary, TopologySummary
from millpond_operator.coordinator.engine.topologies import differences
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, code, fleet, settled
from tests.coordinator.support import passing, topology


def test_another_topology_is_refused_with_what_differs() -> None:
    """The message has both hashes, the difference, and what to do."""
    driver, kafka = Driver(), Kafka()
    driver.beat(Worker("w0", kafka, topology(hash="aaa")))
    outcome = driver.beat(Worker("w1", kafka, topology(6, hash="bbb", store="sums")))
    assert code(outcome) is RefusalCode.TOPOLOGY_MISMATCH
    for part in ("aaa", "bbb", "w0", "'sums'", "'counts'", "6 partitions, not 4", "application.id"):
        assert part in outcome.message
    assert "w1" not in driver.engine.members


def test_equal_hashes_with_different_partition_counts_are_refused_too() -> None:
    """A source topic with more partitions makes tasks that the other workers do not have."""
    driver, kafka = Driver(), Kafka()
    driver.beat(Worker("w0", kafka, topology(4)))
    outcome = driver.beat(Worker("w1", kafka, topology(8)))
    assert code(outcome) is RefusalCode.TOPOLOGY_MISMATCH
    assert "'flights' has 8 partitions, not 4" in outcome.message


def test_new_topology_takes_over_when_nobody_runs_the_old() -> None:
    """It is rejected while a live worker runs the old one; then it becomes the application's."""
    driver, kafka = Driver(), Kafka()
    old = fleet(kafka, 2)
    settled(driver, old)
    new = Worker("w2", Kafka(), topology(6, hash="h2"))
    assert code(driver.beat(new)) is RefusalCode.TOPOLOGY_MISMATCH
    driver.engine.declare_dead("w0", driver.now_ms)
    assert code(driver.beat(new)) is RefusalCode.TOPOLOGY_MISMATCH
    driver.engine.declare_dead("w1", driver.now_ms)
    settled(driver, [new])
    assert driver.engine.topology.hash == "h2"
    assert driver.engine.view(None).active == {f"0_{partition}": "w2" for partition in range(6)}


def test_only_worker_may_return_with_a_new_topology() -> None:
    """Its former process does not count."""
    driver, kafka = Driver(), Kafka()
    settled(driver, fleet(kafka, 1))
    again = Worker("w0", Kafka(), topology(hash="h2"), start=2)
    assert code(driver.beat(again)) is None
    assert driver.engine.topology.hash == "h2"


def test_refusal_without_a_sent_topology_names_both_hashes() -> None:
    """The differences are only known when the worker sends its topology."""
    driver, kafka = Driver(), Kafka()
    driver.beat(Worker("w0", kafka, topology(hash="aaa")))
    outcome = driver.beat(Worker("w1", kafka, topology(hash="bbb")), topology=None)
    assert code(outcome) is RefusalCode.TOPOLOGY_MISMATCH
    assert "aaa" in outcome.message
    assert "bbb" in outcome.message


def test_a_coordinator_that_has_no_topology_asks_for_it() -> None:
    """Until the worker sends it, the worker keeps what it has."""
    driver, kafka = Driver(), Kafka()
    worker = Worker("w0", kafka, topology())
    answer = driver.beat(worker, topology=None)
    assert answer.send_topology
    assert driver.engine.has_news_for(worker.heartbeat(topology=None))
    answer = driver.beat(worker)
    assert not answer.send_topology
    assert answer.take_over


def test_reports_before_the_topology_is_known_count_later() -> None:
    """A coordinator without a stored state gets reports of tasks before it knows the topology."""
    driver, kafka = Driver(gathering_ms=100), Kafka()
    old = Driver()
    workers = fleet(kafka, 2)
    settled(old, workers)
    for worker in workers:
        driver.engine.heartbeat(worker.heartbeat(topology=None, epoch=Epoch(), coordinator=""), 0)
    assert driver.engine.view(None).owners == {}
    driver.engine.heartbeat(workers[0].heartbeat(topology=topology(), epoch=Epoch(), coordinator=""), 0)
    assert driver.engine.view(None).owners == kafka.owners


def test_more_partitions_of_an_input_without_state_are_served() -> None:
    """A worker that starts later knows them first; the other tasks stay."""
    driver, kafka = Driver(), Kafka()
    old = fleet(kafka, 2, passing(4))
    settled(driver, old)
    before = dict(kafka.owners)
    new = Worker("w2", kafka, passing(6))
    assert code(driver.beat(new)) is None
    assert driver.engine.topology == passing(6)
    assert {str(task): owner for task, owner in driver.engine.owners.items()} == before
    settled(driver, [*old, new])
    assert kafka.owners.keys() == {f"0_{partition}" for partition in range(6)}
    assert all(kafka.history[task] <= {"w0", "w1", "w2"} for task in kafka.owners)
    assert sum("number of partitions changed" in event for event in driver.engine.events) == 1


def test_worker_that_knows_fewer_partitions_is_let_in_as_well() -> None:
    """It has not read the topics since; tasks are not removed, nor after a restart of the coordinator."""
    driver, kafka = Driver(), Kafka()
    worker, late = Worker("w0", kafka, passing(6)), Worker("w1", kafka, passing(4))
    settled(driver, [worker])
    assert code(driver.beat(late)) is None
    assert driver.engine.topology == passing(6)
    settled(driver, [worker, late])
    again = Driver(2, "c2", driver.store, driver.now_ms)
    settled(again, [late, worker])
    assert again.engine.topology == passing(6)


def test_only_worker_that_starts_may_know_fewer_partitions() -> None:
    """The topic was created again: no worker has tasks that do not exist."""
    driver, kafka = Driver(), Kafka()
    settled(driver, [Worker("w0", kafka, passing(6))])
    again = Worker("w0", Kafka(), passing(4), start=2)
    assert code(driver.beat(again)) is None
    settled(driver, [again])
    assert driver.engine.view(None).active.keys() == {f"0_{partition}" for partition in range(4)}


def test_other_differences_are_refused_whatever_the_hash_says() -> None:
    """Only the number of tasks may differ, and only where it follows the inputs."""
    driver, kafka = Driver(), Kafka()
    driver.beat(Worker("w0", kafka, passing(4)))
    part = passing(6).subtopologies[0]
    for other in (
        msgspec.structs.replace(part, sources={"trains": 6}),
        msgspec.structs.replace(part, stateful=True),
        msgspec.structs.replace(part, follows_inputs=False),
    ):
        outcome = driver.beat(Worker("w1", kafka, TopologySummary("h1", (other,))))
        assert code(outcome) is RefusalCode.TOPOLOGY_MISMATCH
    assert driver.engine.topology == passing(4)


def test_input_that_grows_beyond_the_most_tasks_is_refused() -> None:
    """A larger assignment could not be stored."""
    driver, kafka = Driver(most_tasks=8), Kafka()
    driver.beat(Worker("w0", kafka, passing(8)))
    refusal = driver.beat(Worker("w1", kafka, passing(9)))
    assert code(refusal) is RefusalCode.TOPOLOGY_MISMATCH
    assert "9 tasks" in refusal.message


def test_topology_that_contradicts_its_hash_is_refused() -> None:
    """The topology and the hash in a heartbeat must match."""
    driver = Driver()
    outcome = driver.beat(Worker("w0", Kafka(), topology(hash="h1")), topology=topology(hash="h2"))
    assert code(outcome) is RefusalCode.BAD_REQUEST
    assert driver.engine.members == {}


def test_a_topology_of_absurd_size_is_refused() -> None:
    """Before any tasks are created from it."""
    driver = Driver()
    huge = TopologySummary("h", (SubtopologySummary(0, 10**12, True),))
    assert code(driver.beat(Worker("w0", Kafka(), huge))) is RefusalCode.TOPOLOGY_MISMATCH
    assert driver.engine.topology is None


def test_topology_with_too_many_tasks_to_store_is_refused() -> None:
    """The message has the number; a topology with exactly the limit is admitted."""
    driver, kafka = Driver(most_tasks=8), Kafka()
    refusal = driver.beat(Worker("w0", kafka, topology(9)))
    assert code(refusal) is RefusalCode.TOPOLOGY_MISMATCH
    assert "9 tasks" in refusal.message
    assert driver.engine.rejected["w0"].message == refusal.message
    settled(driver, [Worker("w1", kafka, topology(8))])


@pytest.mark.parametrize(("version", "word"), [(0, "older"), (2, "newer")])
def test_another_version_of_the_protocol_is_refused(version: int, word: str) -> None:
    """The message says which side is older."""
    driver = Driver()
    outcome = driver.beat(Worker("w0", Kafka(), topology()), version=version)
    assert code(outcome) is RefusalCode.UNSUPPORTED_VERSION
    assert word in outcome.message
    assert driver.engine.members == {}


@pytest.mark.parametrize("name", ["", "unowned", "w0\nINFO forged", "w" * 201, "\x00"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    """Ids appear in logs and tables, and 'unowned' is reserved."""
    driver = Driver()
    outcome = driver.beat(Worker("w0", Kafka(), topology()), worker=name)
    assert code(outcome) is RefusalCode.BAD_REQUEST
    assert "\n" not in outcome.message
    assert driver.engine.members == {}


def test_a_worker_of_another_application_is_refused() -> None:
    """It reached the wrong coordinator."""
    driver = Driver()
    outcome = driver.beat(Worker("w0", Kafka(), topology()), application="other")
    assert code(outcome) is RefusalCode.UNKNOWN_APPLICATION


@pytest.mark.parametrize(("epoch", "coordinator"), [(Epoch(6, 1), "a"), (Epoch(6, 0), ""), (Epoch(5, 3), "d")], ids=str)
def test_coordinator_stands_down_for_a_later_one(epoch: Epoch, coordinator: str) -> None:
    """A higher term, or the same term of a later start: from then on all heartbeats are rejected and nothing is
    assigned.
    """
    driver, kafka = Driver(term=5, coordinator="c"), Kafka()
    workers = fleet(kafka, 2)
    settled(driver, workers)
    assert code(driver.beat(workers[0], epoch=epoch, coordinator=coordinator)) is RefusalCode.NOT_LEADING
    assert driver.engine.superseded_by == (epoch.term, coordinator)
    assert code(driver.beat(workers[1])) is RefusalCode.NOT_LEADING
    driver.engine.declare_dead("w1", driver.now_ms)
    assert driver.engine.job(driver.now_ms) is None


@pytest.mark.parametrize(("epoch", "coordinator"), [(Epoch(4, 900), "z"), (Epoch(5, 3), "b"), (Epoch(), "")], ids=str)
def test_coordinator_continues_when_workers_know_only_earlier_ones(epoch: Epoch, coordinator: str) -> None:
    """A lower term, the same term of an earlier start, or none yet."""
    driver = Driver(term=5, coordinator="c")
    assert code(driver.beat(Worker("w0", Kafka(), topology()), epoch=epoch, coordinator=coordinator)) is None


def test_differences_are_named_and_counted() -> None:
    """Sub-topologies, stores, topics, partitions, state: the first few are listed."""
    one = TopologySummary("a", (SubtopologySummary(0, 2, True, ("s",), {"t": 2}), SubtopologySummary(1, 2, False)))
    assert "sub-topology 1 is missing" in differences(one, TopologySummary("b", one.subtopologies[:1]))
    assert "sub-topology 1 is new" in differences(TopologySummary("b", one.subtopologies[:1]), one)
    other = TopologySummary("b", (SubtopologySummary(0, 3, False, (), {"u": 3}), SubtopologySummary(2, 1, False)))
    text = differences(one, other)
    for part in ("no longer has store 's'", "no longer reads 't'", "also reads 'u'", "and more"):
        assert part in text
    assert "are equal" in differences(one, TopologySummary("b", one.subtopologies))


@pytest.mark.parametrize("epoch", [Epoch(100), Epoch(2**63 - 1)])
def test_claim_of_a_far_future_coordinator_is_rejected(epoch: Epoch) -> None:
    """That worker is rejected, and the others continue."""
    driver, kafka = Driver(term=10, latest_term=100), Kafka()
    good, liar = Worker("w0", kafka, topology()), Worker("w1", kafka, topology())
    settled(driver, [good])
    refusal = driver.beat(liar, epoch=epoch, coordinator="z")
    assert code(refusal) is RefusalCode.NOT_LEADING
    assert str(epoch.term) in refusal.message
    assert driver.engine.superseded_by is None
    driver.rounds([good])
    assert good.refusal is None
    driver.beat(liar, epoch=Epoch(99), coordinator="z")
    assert driver.engine.superseded_by == (99, "z")
