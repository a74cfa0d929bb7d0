"""Inner joins by a foreign key whose answers are slow: no result keeps a partner that is gone."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.dsl.operators.table_joins.foreign_key.wire import ANSWER_ALWAYS, ANSWER_IF_FOUND, hash128
from millpond.state.backend import OrderedBackend
from millpond.state.memory.backend import MemoryBackend
from millpond.testing import TopologyTestDriver
from millpond.testing.topics import RawRecord

REGISTRATIONS = "app-fk-subscription-registration-topic"
RESPONSES = "app-fk-subscription-response-topic"
UNCACHED = {"statestore.cache.max.bytes": 0}

Lanes = dict[tuple[str, str], deque[RawRecord]]
"""What waits in the join's topics, by topic and foreign key."""


class Kept(MemoryBackend):
    """The rows that one run leaves to the next one."""

    def close(self) -> None:
        """Keep the rows."""


class Slow(TopologyTestDriver):
    """A driver that keeps the records of the join's topics until a test lets them through.

    Each foreign key has a partition of its own on the right: records of one stay in order, and those of two need not.
    """

    def __init__(self, topology: mp.Topology, config: dict[str, Any], rows: Kept | None = None) -> None:
        self.rows = rows or Kept()
        self.lanes: Lanes = {}
        self.sent: list[tuple[str, RawRecord]] = []
        self.foreign_keys: dict[bytes, str] = {}
        self._answering = ""
        self._time = 0
        super().__init__(topology, {"application.id": "app", **config})

    def _open_backend(self) -> OrderedBackend:
        return self.rows

    def put(self, topic: str, key: str, value: str | None) -> None:
        self._time += 1
        if topic == "left" and value is not None:
            self.foreign_keys[hash128(value.encode())] = value[0]
        self._process(topic, RawRecord(key.encode(), None if value is None else value.encode(), self._time, []))

    def let(self, topic: str, foreign_key: str) -> None:
        """Let the oldest record of a topic and a foreign key through."""
        self._answering = foreign_key
        self._process(topic, self.lanes[topic, foreign_key].popleft())
        self._answering = ""

    def waiting(self) -> list[tuple[str, str]]:
        return [lane for lane, records in self.lanes.items() if records]

    def commit(self) -> None:
        self._commit()

    def settle(self) -> None:
        """Commit, and let all through."""
        self.commit()
        for _ in range(1_000):
            waiting = self.waiting()
            if not waiting:
                return
            self.let(*waiting[0])
            self.commit()
        raise AssertionError("there is no end of answers")

    def results(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for topic, record in self.sent:
            assert record.key is not None
            if topic == "out" and record.value is None:
                found.pop(record.key.decode(), None)
            elif topic == "out" and record.value is not None:
                found[record.key.decode()] = record.value.decode()
        return found

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for each, record in self.sent if each == topic]

    def _process(self, topic: str, record: RawRecord) -> None:
        super()._enqueue(topic, record)
        for queue in self._task.inputs.values():
            queue.at_end = True
        self._order.poll()
        while self._task.process(1, self._now_ms):
            pass
        for row in self._task.outbox:
            written, copy = self._capture(row)
            if self._reads(written):
                self._enqueue(written, copy)
        self._task.outbox.clear()

    def _enqueue(self, topic: str, record: RawRecord) -> None:
        """Keep a record that the topology wrote."""
        assert record.key is not None
        assert record.value is not None
        foreign_key = record.key.decode()
        if topic == RESPONSES:
            foreign_key = self._answering or self.foreign_keys[record.value[1:17]]
        self.lanes.setdefault((topic, foreign_key), deque()).append(record)

    def _capture(self, row: Any) -> tuple[str, RawRecord]:
        captured = super()._capture(row)
        self.sent.append(captured)
        return captured


def foreign_key(value: str) -> str | None:
    return None if value[0] == "n" else value[0]


def joined(left: Callable[[mp.StreamsBuilder], Any] | None = None, **right: Any) -> mp.Topology:
    b = mp.StreamsBuilder()
    lefts = left(b) if left else b.table("left", key=mp.String, value=mp.String, store="lefts")
    rights = b.table("right", key=mp.String, value=mp.String, store="rights", **right)
    result = lefts.join(rights, lambda one, two: f"{one}{two}", on=foreign_key, name="fk", value=mp.String)
    result.to_stream().to("out", key=mp.String, value=mp.String)
    return b.build()


LEFT: dict[str, Callable[[mp.StreamsBuilder], Any]] = {
    "source": lambda b: b.table("left", key=mp.String, value=mp.String, store="lefts"),
    "versioned": lambda b: b.table(
        "left", key=mp.String, value=mp.String, store="lefts", history_retention=timedelta(hours=1)
    ),
    "mapped": lambda b: b.table("left", key=mp.String, value=mp.String, store="lefts").map_values(
        lambda value: value, value=mp.String
    ),
}


def copied(lanes: Lanes) -> Lanes:
    return {lane: deque(records) for lane, records in lanes.items()}


@pytest.mark.parametrize("config", [{}, UNCACHED], ids=["cached", "uncached"])
@pytest.mark.parametrize("left", LEFT)
@given(seed=st.integers(0, 2**32))
def test_the_result_is_the_join_of_the_final_tables(left: str, config: dict[str, Any], seed: int) -> None:
    """Whatever was under way when, also in a run that ended, or that went back to its last commit."""
    dice, topology = random.Random(seed), joined(LEFT[left])
    tables: dict[str, dict[str, str]] = {"left": {}, "right": {}}
    driver = Slow(topology, config)
    lanes, sent, puts = copied(driver.lanes), driver.sent[:], list[tuple[str, str, str | None]]()
    for _ in range(dice.randrange(40)):
        step, waiting = dice.randrange(20), driver.waiting()
        if step < 8 and waiting:
            driver.let(*dice.choice(waiting))
        elif step < 13:
            driver.commit()
            lanes, sent, puts = copied(driver.lanes), driver.sent[:], []
        elif step == 13:
            driver.close()
            before, driver = driver, Slow(topology, config, driver.rows)
            driver.lanes, driver.sent, driver.foreign_keys = copied(lanes), sent[:], before.foreign_keys
            driver._time = before._time
            for put in puts:
                driver.put(*put)
        else:
            table, value = dice.choice(["left", "right"]), None
            if dice.randrange(3):
                value = dice.choice("12") if table == "right" else f"{dice.choice('abn')}{dice.randrange(3)}"
            puts.append((table, dice.choice("kl" if table == "left" else "ab"), value))
            driver.put(*puts[-1])
            if value is None:
                tables[table].pop(puts[-1][1], None)
            else:
                tables[table][puts[-1][1]] = value
    driver.settle()
    driver.close()
    right = tables["right"]
    assert driver.results() == {
        key: f"{value}{right[value[0]]}" for key, value in tables["left"].items() if value[0] in right
    }


def with_a_row(topology: mp.Topology | None = None, config: dict[str, Any] = UNCACHED) -> Slow:
    """A driver whose result has row k of left value a1 and right value x."""
    driver = Slow(topology or joined(), config)
    driver.put("right", "a", "x")
    driver.put("left", "k", "a1")
    driver.settle()
    assert driver.results() == {"k": "a1x"}
    return driver


def test_a_partner_that_goes_while_the_left_row_changes_leaves_no_row() -> None:
    """The answer to the deletion is outdated, and there is none to the new value: the row asks once more."""
    with with_a_row() as driver:
        driver.put("left", "k", "a2")
        driver.put("right", "a", None)
        driver.settle()
        assert driver.results() == {}
        instructions = [value[1] for value in driver.values(REGISTRATIONS) if value is not None]
        assert instructions == [ANSWER_IF_FOUND, ANSWER_IF_FOUND, ANSWER_ALWAYS]


def test_each_race_of_a_row_is_noticed() -> None:
    """Nothing that is remembered of one hides the next."""
    with with_a_row() as driver:
        for number in range(2, 9, 2):
            driver.put("left", "k", f"a{number}")
            driver.put("right", "a", None)
            driver.settle()
            assert driver.results() == {}
            driver.put("right", "a", "x")
            driver.settle()
            driver.put("left", "k", f"a{number + 1}")
            driver.settle()
            assert driver.results() == {"k": f"a{number + 1}x"}


def test_an_answer_of_the_former_partner_is_not_waited_for() -> None:
    """The row asks partner a once more, and moves to b, which does not exist; then a exists again, and answers."""
    with with_a_row() as driver:
        driver.put("left", "k", "a2")
        driver.put("right", "a", None)
        driver.let(RESPONSES, "a")
        driver.let(REGISTRATIONS, "a")
        driver.put("right", "a", "y")
        driver.let(REGISTRATIONS, "a")
        driver.put("left", "k", "b3")
        driver.put("left", "k", "b4")
        driver.let(REGISTRATIONS, "b")
        driver.let(RESPONSES, "b")
        driver.settle()
        assert driver.results() == {}


def test_an_outdated_answer_with_a_value_ends_the_wait_for_it() -> None:
    """The row asks once more and changes twice, while the partner comes back and goes again."""
    with with_a_row() as driver:
        driver.put("left", "k", "a2")
        driver.put("right", "a", None)
        driver.let(RESPONSES, "a")
        driver.put("right", "a", "y")
        driver.let(REGISTRATIONS, "a")
        driver.let(REGISTRATIONS, "a")
        driver.put("left", "k", "a3")
        driver.let(REGISTRATIONS, "a")
        driver.put("left", "k", "a4")
        driver.put("right", "a", None)
        while (RESPONSES, "a") in driver.waiting():
            driver.let(RESPONSES, "a")
        driver.settle()
        assert driver.results() == {}


@pytest.mark.parametrize("commits", [False, True])
def test_a_run_that_ends_or_goes_back_while_a_row_asks_once_more_leaves_no_row(commits: bool) -> None:
    """What a task remembers is not that of the run before, and the join's topics have the rest."""
    topology = joined()
    with with_a_row(topology) as first:
        first.put("left", "k", "a2")
        first.put("right", "a", None)
        first.commit()
        lanes = copied(first.lanes)
        first.let(RESPONSES, "a")
        if commits:
            first.commit()
            lanes = copied(first.lanes)
        with Slow(topology, UNCACHED, first.rows) as driver:
            driver.lanes, driver.foreign_keys, driver.sent = lanes, first.foreign_keys, first.sent[:]
            driver.put("left", "k", "a3")
            driver.settle()
            assert driver.results() == {}


def test_a_left_value_that_is_only_in_the_cache_does_not_make_an_answer_outdated() -> None:
    """It has not subscribed yet. When it does, there is no partner."""
    with with_a_row(joined(caching=False), {}) as driver:
        driver.put("left", "k", "a2")
        driver.put("right", "a", None)
        driver.let(RESPONSES, "a")
        assert driver.results() == {}
        driver.settle()
        assert driver.results() == {}
        assert driver.values("out") == [b"a1x", None]


def test_a_serde_without_stable_bytes_sends_nothing_in_circles() -> None:
    """No answer would ever have the right hash."""
    noisy = mp.Serde(
        "Noisy", lambda value: random.randbytes(8) + value.encode(), lambda data: data[-2:].decode(errors="replace")
    )

    def left(b: mp.StreamsBuilder) -> Any:
        return b.stream("left", key=mp.String, value=mp.String).to_table(key=mp.String, value=noisy, store="lefts")

    with TopologyTestDriver(joined(left), {"application.id": "app"}) as driver:
        topic = driver.create_input_topic("left", key=mp.String, value=mp.String)
        for value in ("a1", "b2", None, "a1", "b1"):
            topic.pipe_input("k", value)
        read = driver.create_output_topic(REGISTRATIONS, key=mp.Bytes, value=mp.Bytes).read_values_to_list()
        assert len(read) <= 8


def test_a_row_that_moves_to_no_partner_before_an_answer_comes_leaves_no_row() -> None:
    """First deleted, and put again with another foreign key whose answer is faster; or without one, and changed."""
    for after in (["b1"], ["b1", "b2"], ["n1", "n2"], ["n1", None], ["n1", "n2", "b1"]):
        with with_a_row() as driver:
            driver.put("left", "k", None if after[0] == "b1" else after[0])
            for value in after if after[0] == "b1" else after[1:]:
                driver.put("left", "k", value)
            while (REGISTRATIONS, "b") in driver.waiting():
                driver.let(REGISTRATIONS, "b")
            driver.settle()
            assert driver.results() == {}, after


def test_a_change_without_a_partner_and_without_a_race_sends_one_record() -> None:
    """As the original: there is no answer, and no result."""
    with Slow(joined(), UNCACHED) as driver:
        for number in range(5):
            driver.put("left", "k", f"a{number}")
            driver.settle()
        sent = [len(driver.values(topic)) for topic in (REGISTRATIONS, RESPONSES, "out")]
        assert sent == [5, 0, 0]


def test_a_row_that_keeps_changing_asks_once_more_one_time_for_each_outdated_answer_or_change_of_partner() -> None:
    """What waits in the topics does not grow with the time that the row goes on changing."""
    with Slow(joined(), UNCACHED) as driver:
        for number in range(50):
            driver.put("left", "k", f"{'ab'[number % 2]}{number}")
            for lane in driver.waiting():
                driver.let(*lane)
        asked = [value[1] for value in driver.values(REGISTRATIONS) if value is not None]
        assert len(asked) <= 3 * 50
        assert len(driver.values(RESPONSES)) <= 2 * 50
