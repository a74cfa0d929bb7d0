"""Workers that some brokers do not answer: their tasks move, if another worker reaches these brokers."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Generator, Iterator
from datetime import timedelta

import pytest

from millpond.protocol import BrokerReach
from millpond.runtime.blockers import Blockers
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.kafka.leading_brokers import BrokerCheck
from millpond_operator.coordinator.engine import cut_off
from millpond_operator.coordinator.engine.heartbeat_interval import REPORTS
from millpond_operator.coordinator.engine.members import Membership
from millpond_operator.coordinator.engine.options import EngineOptions
from tests.coordinator.engine.simulation import Driver, Kafka, Worker, fleet, settled
from tests.coordinator.engine.test_membership import actives
from tests.coordinator.support import topology

LIMIT_MS = 12_000
HALF_MS = LIMIT_MS // 2
_STEP_MS = 500
#: The steps in which orders are followed and copies catch up.
_MOVE_MS = 8 * _STEP_MS


def _reach(*missing: int, brokers: tuple[int, ...] = (1, 2, 3)) -> BrokerReach:
    return BrokerReach(tuple(each for each in brokers if each not in missing), missing, settled=True, limit_ms=LIMIT_MS)


UNSETTLED = BrokerReach((1, 3), (), settled=False, limit_ms=LIMIT_MS)
"""Broker 2 has changed its state a moment ago."""


def _set_up(count: int = 3) -> tuple[Kafka, Driver, list[Worker]]:
    kafka = Kafka()
    driver, workers = Driver(), fleet(kafka, count)
    for each in workers:
        each.reach = _reach()
    settled(driver, workers)
    return kafka, driver, workers


def _pass(driver: Driver, workers: list[Worker], milliseconds: int) -> None:
    driver.rounds(workers, milliseconds // _STEP_MS, _STEP_MS)


def test_tasks_of_a_cut_off_worker_are_handed_over() -> None:
    """It can commit, so nothing is taken over; and it stays a live member that gets nothing."""
    kafka, driver, workers = _set_up()
    workers[1].reach = _reach(2)
    _pass(driver, workers, _MOVE_MS)
    assert "w1" not in kafka.owners.values()
    assert driver.engine.members["w1"].cut_off
    assert not driver.engine.members["w1"].excluded, "its tasks moved by hand-over"
    (told,) = [each for each in driver.engine.view(driver.now_ms).members if each.worker == "w1"]
    assert told.alive
    assert told.cut_off


def test_tasks_of_a_cut_off_worker_that_cannot_commit_are_taken_over() -> None:
    """Half of the limit after it was asked to hand them over, and not before."""
    kafka, driver, workers = _set_up()
    before = dict(kafka.owners)
    workers[1].reach, workers[1].commits = _reach(2), False
    _pass(driver, workers, HALF_MS - _STEP_MS)
    assert kafka.owners == before
    _pass(driver, workers, _MOVE_MS + _STEP_MS)
    assert "w1" not in kafka.owners.values()
    assert driver.engine.members["w1"].alive


def test_broker_that_nobody_reaches_moves_nothing() -> None:
    """The workers notice at different times that it is away, and that it is back."""
    kafka, driver, workers = _set_up()
    before, epoch = dict(kafka.owners), driver.engine.epoch
    for reach in (UNSETTLED, _reach(2), UNSETTLED, _reach()):
        for each in workers:
            each.reach = reach
            _pass(driver, workers, _STEP_MS)
    _pass(driver, workers, 2 * LIMIT_MS)
    assert (kafka.owners, driver.engine.epoch) == (before, epoch)


def test_one_worker_has_to_reach_all_missing_brokers() -> None:
    """Two that reach one each could not run the tasks either."""
    kafka, driver, workers = _set_up()
    before = dict(kafka.owners)
    for each in workers:
        each.reach = UNSETTLED
    _pass(driver, workers, HALF_MS)
    workers[0].reach, workers[1].reach, workers[2].reach = _reach(2, 3), _reach(2), _reach(3)
    _pass(driver, workers, 2 * LIMIT_MS)
    assert kafka.owners == before
    assert not any("cut off" in event for event in driver.engine.events)


def test_reports_from_before_a_silence_cut_no_worker_off() -> None:
    """A broker and the workers of its machine stop: these have told that they reach it, and get no tasks for it."""
    kafka, driver, workers = _set_up()
    before = dict(kafka.owners)
    _pass(driver, workers[1:2], LIMIT_MS // 6)
    assert all(each.alive for each in driver.engine.members.values())
    workers[1].reach = _reach(2)
    _pass(driver, workers[1:2], _STEP_MS)
    assert not driver.engine.members["w1"].cut_off
    workers[0].reach = workers[2].reach = UNSETTLED
    _pass(driver, workers, 2 * LIMIT_MS)
    assert kafka.owners == before


def test_pause_of_the_coordinator_makes_no_report_new() -> None:
    """A broker stops for all while the coordinator stands still, by which sessions are extended."""
    kafka, driver, workers = _set_up(2)
    before = dict(kafka.owners)
    driver.now_ms += LIMIT_MS
    driver.engine.tick(driver.now_ms)
    workers[1].reach = _reach(2)
    driver.beat(workers[1])
    driver.engine.tick(driver.now_ms)
    assert all(each.alive for each in driver.engine.members.values())
    assert not driver.engine.members["w1"].cut_off
    workers[0].reach = _reach(2)
    _pass(driver, workers, 2 * LIMIT_MS)
    assert kafka.owners == before


def test_workers_report_often_enough_however_long_their_sessions_are() -> None:
    """Two reports count beside each other for a sixth of the limit; workers of earlier versions report nothing."""
    _, driver, workers = _set_up()
    driver.engine.reconfigure(EngineOptions(session_timeout=timedelta(milliseconds=10 * LIMIT_MS)), driver.now_ms)
    assert driver.engine.answer_for("w0").interval_ms == LIMIT_MS // REPORTS
    workers[0].reach = None
    _pass(driver, workers, _STEP_MS)
    assert driver.engine.answer_for("w0").interval_ms > LIMIT_MS // REPORTS


def test_many_workers_that_miss_a_broker_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each beside each other one, with each heartbeat: all of them may miss it at the same time."""
    _, driver, workers = _set_up(4)
    looked: list[str] = []

    def able(member: Membership) -> bool:
        looked.append(member.id)
        return member.alive

    monkeypatch.setattr(cut_off, "_able", able)
    for each in workers:
        each.reach = _reach(2)
    _pass(driver, workers, _STEP_MS)
    looked.clear()
    driver.engine._group.exclude(driver.now_ms)
    assert looked == [each.id for each in workers]


def test_broker_that_dies_for_all_later_moves_nothing_back() -> None:
    """The worker that took the tasks misses the broker, too, and would otherwise not count as the better one."""
    kafka, driver, workers = _set_up()
    workers[1].reach = _reach(2)
    _pass(driver, workers, _MOVE_MS)
    moved = dict(kafka.owners)
    for reach in (UNSETTLED, _reach(2)):
        for each in workers:
            each.reach = reach if each is not workers[1] else _reach(2)
        _pass(driver, workers, 3 * LIMIT_MS)
    assert kafka.owners == moved


def test_worker_gets_its_share_when_all_its_brokers_have_answered_for_long() -> None:
    """Not while one has only begun to answer, and not within the limit."""
    _, driver, workers = _set_up()
    workers[1].reach = _reach(2)
    _pass(driver, workers, _MOVE_MS)
    workers[1].reach = _reach()
    _pass(driver, workers, LIMIT_MS - _MOVE_MS - _STEP_MS)
    assert "w1" not in actives(driver)
    workers[1].reach = UNSETTLED
    _pass(driver, workers, LIMIT_MS)
    assert "w1" not in actives(driver)
    workers[1].reach = _reach()
    settled(driver, workers)
    assert actives(driver)["w1"]


def test_worker_that_is_cut_off_again_at_once_keeps_its_tasks_for_a_limit() -> None:
    """Otherwise a connection that comes and goes would move tasks each time."""
    kafka, driver, workers = _set_up()
    workers[1].reach = _reach(2)
    _pass(driver, workers, LIMIT_MS)
    workers[1].reach = _reach()
    settled(driver, workers)
    workers[1].reach = _reach(2)
    _pass(driver, workers, _MOVE_MS)
    assert "w1" in kafka.owners.values()
    _pass(driver, workers, LIMIT_MS)
    assert "w1" not in kafka.owners.values()


@pytest.mark.parametrize("end", ["dies", "drains"])
def test_cut_off_worker_gets_tasks_if_no_other_worker_is_left(end: str) -> None:
    """It reaches some brokers, which is better than nothing."""
    kafka, driver, workers = _set_up(2)
    workers[1].reach = _reach(2)
    _pass(driver, workers, _MOVE_MS)
    assert set(kafka.owners.values()) == {"w0"}
    if end == "dies":
        driver.engine.declare_dead("w0", driver.now_ms)
        workers = workers[1:]
    else:
        driver.engine.drain("w0")
    _pass(driver, workers, 2 * _MOVE_MS)
    assert set(kafka.owners.values()) == {"w1"}


def test_workers_of_earlier_versions_are_treated_as_before() -> None:
    """They report nothing: they are not cut off, and nobody is cut off because of them."""
    kafka, driver, workers = _set_up(2)
    before = dict(kafka.owners)
    for each in workers:
        each.reach = UNSETTLED
    _pass(driver, workers, HALF_MS)
    workers[0].reach, workers[1].reach = None, _reach(2)
    _pass(driver, workers, 2 * LIMIT_MS)
    assert kafka.owners == before
    workers[0].reach = _reach()
    _pass(driver, workers, _MOVE_MS)
    assert set(kafka.owners.values()) == {"w0"}
    workers[1].reach = None  # it was replaced by an earlier version
    _pass(driver, workers, LIMIT_MS)
    settled(driver, workers)
    assert set(kafka.owners.values()) == {"w0", "w1"}


def test_later_coordinator_cuts_the_worker_off_again() -> None:
    """It knows nothing of the earlier one's decision, and must give the worker no tasks meanwhile."""
    kafka, driver, workers = _set_up()
    workers[1].reach = _reach(2)
    _pass(driver, workers, _MOVE_MS)
    moved = dict(kafka.owners)
    later = Driver(2, "c2", store=driver.store, now_ms=driver.now_ms)
    _pass(later, workers, _MOVE_MS)
    assert later.engine.members["w1"].cut_off
    assert kafka.owners == moved


PERIOD_MS = 1_500
"""Between two checks: a tenth of the limit, in whole steps."""
ANSWER_MS = LIMIT_MS // 6
#: How long ago an answer may be that is reported, with a check before it and the next heartbeat.
_LATE_MS = HALF_MS + _STEP_MS


class _Checks:
    """The checks of a worker's brokers, with the times that requests without an answer take, in virtual time.

    Args:
        network: the network.
        worker: the worker's name.
    """

    def __init__(self, network: _Network, worker: str) -> None:
        self._network = network
        self._worker = worker
        self._found: BrokerCheck | None = None
        self.contact = BrokerContact(
            lambda _: self._found is not None,
            LIMIT_MS / 1000,
            Blockers(),
            "kafka:9092",
            lambda: network.now_s,
            self._each,
        )
        self.slow = True
        self.unclear = 0
        self._turns = self._run()

    def step(self) -> None:
        """Go on until a request waits, or until the next step of the time."""
        next(self._turns)

    def _each(self, _: float) -> BrokerCheck:
        assert self._found is not None
        return self._found

    def _run(self) -> Iterator[None]:
        network = self._network
        yield from self._wait(network.random.randrange(PERIOD_MS))
        while True:
            yield from self._wait(PERIOD_MS)
            self._found = None
            if (yield from self._meets_one()) or (yield from self._meets_one(new_client=True)):
                self._found = yield from self._ask()
            self.contact.check()

    def _wait(self, milliseconds: int) -> Iterator[None]:
        for _ in range(0, milliseconds, _STEP_MS):
            yield

    def _meets_one(self, *, new_client: bool = False) -> Generator[None, None, int | None]:
        """Send a request to any broker; return the broker if it answers.

        A client sends it to a broker that is away if it has not noticed that yet; a new client connects to all first.
        """
        network = self._network
        up = [each for each in network.brokers if network.reaches(self._worker, each)]
        if up and (new_client or network.random.random() > 0.1):
            return network.random.choice(up)
        broker = network.random.choice(network.brokers)
        if not network.reaches(self._worker, broker):
            yield from self._wait(ANSWER_MS)
            return None
        return broker

    def _ask(self) -> Generator[None, None, BrokerCheck]:
        """Ask each broker; one that comes back while a request waits answers it."""
        network, asked_at = self._network, self._network.now_s
        answers = {each: network.reaches(self._worker, each) for each in network.brokers}
        slow = (
            self.slow
            and network.random.random() < network.slow
            and (late := [each for each in answers if answers[each]])
        )
        if slow:
            late = network.random.sample(late, network.random.randint(1, len(late)))
            answers |= dict.fromkeys(late, False)
        if all(answers.values()):
            return BrokerCheck(asked_at, answers)
        for _ in range(0, ANSWER_MS, _STEP_MS):
            yield
            if not slow:
                answers = {each: up or network.reaches(self._worker, each) for each, up in answers.items()}
        clear = not slow and answers.get((yield from self._meets_one()) or 0, True)
        self.unclear += not clear
        return BrokerCheck(asked_at, answers, clear)


class _Network:
    """Workers, brokers and the links between them, at random, in virtual time.

    Args:
        seed: of what is left to chance.
        links_break: whether links break, or only whole brokers.
        slow: the share of checks that a busy machine spoils: they find brokers silent that do answer.
    """

    def __init__(self, seed: int, *, links_break: bool, slow: float = 0.2) -> None:
        self.random = random.Random(seed)
        self.kafka = Kafka()
        self.driver = Driver(max_warm_ups=self.random.randint(0, 3))
        summary = topology(self.random.randint(2, 8), stateful=self.random.random() < 0.5)
        self.workers = fleet(self.kafka, self.random.randint(2, 4), summary)
        self.brokers = range(1, self.random.randint(2, 4) + 1)
        self.slow = slow
        self.checks = {each.id: _Checks(self, each.id) for each in self.workers}
        self.committing = {each.id: self.random.choice(self.brokers) for each in self.workers}
        self.links_break = links_break
        self.down_until: dict[int | tuple[str, int], int] = {}
        """Until when a broker, or the link of a worker to a broker, is away."""
        self.up_since: dict[tuple[str, int], int] = {}
        self.reached: dict[tuple[str, int], int] = {}
        """When a worker had last reached a broker for a while."""
        self.missing: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        """What a worker has reported with its last two heartbeats: others are followed by a decision, too."""
        self.changed: dict[str, int] = {}

    @property
    def now_s(self) -> float:
        return self.driver.now_ms / 1000

    def reaches(self, worker: str, broker: int) -> bool:
        now = self.driver.now_ms
        return max(self.down_until.get(broker, 0), self.down_until.get((worker, broker), 0)) <= now

    def break_something(self) -> None:
        broker, lasting_ms = self.random.choice(self.brokers), self.random.randint(1, 4 * LIMIT_MS)
        if not self.links_break or self.random.random() < 0.2:
            self.down_until[broker] = self.driver.now_ms + lasting_ms
        else:
            self.down_until[self.random.choice(self.workers).id, broker] = self.driver.now_ms + lasting_ms

    def step(self) -> None:
        now_ms = self.driver.now_ms
        for each in self.workers:
            found = {broker: self.reaches(each.id, broker) for broker in self.brokers}
            for broker, up in found.items():
                if not up:
                    self.up_since.pop((each.id, broker), None)
                elif now_ms - self.up_since.setdefault((each.id, broker), now_ms) >= _STEP_MS:
                    self.reached[each.id, broker] = now_ms
            self.checks[each.id].step()
            each.reach = self.checks[each.id].contact.reach
            self.missing[each.id] = [*self.missing[each.id][-1:], each.reach.missing]
            each.commits = found[self.committing[each.id]]
        self.driver.rounds(self.workers, 1, _STEP_MS)
        self.check()

    def check(self) -> None:
        """Assert what holds at any time."""
        now_ms, members = self.driver.now_ms, self.driver.engine.members
        active: dict[str, list[str]] = {}
        for each in self.workers:
            for task, role in self.driver.engine.answer_for(each.id).tasks.items():
                if role.value == "active":
                    active.setdefault(task, []).append(each.id)
        assert all(len(owners) == 1 for owners in active.values()), active
        alone = not any(not each.cut_off for each in members.values())
        for worker, member in members.items():
            if member.cut_off == (worker in self.changed and self.changed[worker] > 0):
                continue
            last = abs(self.changed.get(worker, 0))
            assert alone or not last or now_ms - last >= LIMIT_MS - _STEP_MS, f"{worker} moves again within the limit"
            self.changed[worker] = now_ms if member.cut_off else -now_ms
            if member.cut_off:
                assert any(
                    all(now_ms - self.reached.get((other, each), -LIMIT_MS) <= _LATE_MS for each in missing)
                    for other in members
                    for missing in self.missing[worker]
                ), f"{worker} is cut off from {self.missing[worker]}, which nobody reaches"


@pytest.mark.parametrize("seed", range(60))
def test_tasks_move_at_most_once_per_limit_and_settle(seed: int) -> None:
    """Brokers and links come and go at random: no task has two owners, and in the end every worker has its share."""
    network = _Network(seed, links_break=True)
    for _ in range(600):
        if network.random.random() < 0.04:
            network.break_something()
        network.step()
    network.down_until.clear()
    network.slow = 0.0
    for _ in range(3 * LIMIT_MS // _STEP_MS):
        network.step()
    settled(network.driver, network.workers, 60)
    assert not any(each.cut_off for each in network.driver.engine.members.values())


@pytest.mark.parametrize("seed", range(30))
def test_brokers_that_stop_for_all_workers_never_move_a_task(seed: int) -> None:
    """They are away for moments and for minutes, one after another and together."""
    network = _Network(seed, links_break=False)
    for _ in range(2 * LIMIT_MS // _STEP_MS):
        network.step()
    settled(network.driver, network.workers, 60)
    before = dict(network.kafka.owners)
    for _ in range(600):
        if network.random.random() < 0.04:
            network.break_something()
        network.step()
        assert network.kafka.owners == before


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("slow", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_tasks_move_within_the_limit_whether_or_not_the_worker_commits(
    seed: int, slow: float, *, commits: bool
) -> None:
    """With the check that notices it, up to the last task on another worker; a spoilt check costs its own time."""
    network = _Network(seed, links_break=True, slow=slow)
    cut, broker = network.workers[0].id, network.brokers[0]
    for each in network.checks.values():
        each.slow = each is network.checks[cut]
    for _ in range(2 * LIMIT_MS // _STEP_MS):
        network.step()
    settled(network.driver, network.workers, 60)
    network.committing[cut] = network.brokers[-1] if commits else broker
    network.down_until[cut, broker] = network.driver.now_ms + 10 * LIMIT_MS
    began, before = network.driver.now_ms, network.checks[cut].unclear
    while cut in network.kafka.owners.values():
        network.step()
        spoilt_ms = (network.checks[cut].unclear - before) * (2 * ANSWER_MS + PERIOD_MS)
        assert network.driver.now_ms - began <= PERIOD_MS + ANSWER_MS + LIMIT_MS + _MOVE_MS + spoilt_ms
