"""The verifier finds each kind of violation, and none in correct output."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

import millpond as mp
from millpond.testing import TopologyTestDriver
from tests.chaos.application import (
    CUSTOMERS,
    FINALS,
    GRACE,
    JOURNAL,
    ORDERS,
    RESULTS,
    TOTALS,
    WINDOWS,
    WORDS,
    Tally,
    topology,
)
from tests.chaos.checks.truth import STORES, Truth, find_in_changelogs, find_in_topics
from tests.chaos.generating import CLOSER, Order
from tests.support.kafka import Row

_START_MS = 1_700_000_000_000 // 10_000 * 10_000
_CUSTOMERS = ["ann", "bob", "cem"]
_WORDS = ["one", "two"]

Topics = dict[str, list[Row]]


@pytest.fixture(scope="module")
def right() -> tuple[Topics, Topics, Truth]:
    """The output of the real topology for some orders: topics, changelogs, and the expected output."""
    pick = random.Random(1)
    orders: dict[str, list[Order]] = {customer: [] for customer in [*_CUSTOMERS, CLOSER]}
    versions = dict.fromkeys(orders, 1)
    with TopologyTestDriver(topology(), {"application.id": "chaos"}) as driver:
        inputs = {
            topic: driver.create_input_topic(topic, key=mp.String, value=mp.String) for topic in (ORDERS, CUSTOMERS)
        }
        for customer in orders:
            inputs[CUSTOMERS].pipe_input(customer, "1", timestamp=_START_MS)

        def send(customer: str, word: str, timestamp: int) -> None:
            order = Order(customer, len(orders[customer]), word, pick.randrange(1, 100), timestamp, 0.0)
            orders[customer].append(order)
            inputs[ORDERS].pipe_input(customer, order.value, timestamp=timestamp)

        for number in range(120):
            send(pick.choice(_CUSTOMERS), pick.choice(_WORDS), _START_MS + max(0, number * 300 - pick.randrange(3_000)))
            if number % 10 == 0:
                customer = pick.choice(_CUSTOMERS)
                versions[customer] += 1
                inputs[CUSTOMERS].pipe_input(customer, str(versions[customer]), timestamp=_START_MS + number * 300)
        late = _START_MS + 60_000 + int((GRACE + timedelta(minutes=1)).total_seconds() * 1000)
        for word in _WORDS:
            send(CLOSER, word, late)

        def rows(topic: str) -> list[Row]:
            output = driver.create_output_topic(topic, key=mp.Bytes, value=mp.Bytes)
            return [
                Row(record.key, record.value, record.timestamp, 0, offset)
                for offset, record in enumerate(output.read_records_to_list())
            ]

        topics = {WORDS: rows(f"chaos-{WORDS}-repartition"), **{each: rows(each) for each in (RESULTS, FINALS, TOTALS)}}
        changelogs = {store: rows(f"chaos-{store}-changelog") for store in STORES}
    return topics, changelogs, Truth(orders, versions)


def _places(topics: Topics, changelogs: Topics, truth: Truth) -> set[str]:
    found = find_in_topics(topics, truth) + find_in_changelogs(changelogs, topics[RESULTS], truth)
    return {finding.place for finding in found}


def test_topology_output_without_faults_is_accepted(right: tuple[Topics, Topics, Truth]) -> None:
    """The expected output, computed from the input alone, equals the output and changelogs of the real topology."""
    topics, changelogs, truth = right
    assert all(topics.values())
    assert all(changelogs.values())
    found = find_in_topics(topics, truth) + find_in_changelogs(changelogs, topics[RESULTS], truth)
    assert not found, [str(finding) for finding in found]


def _lost(rows: list[Row]) -> list[Row]:
    return rows[:40] + rows[41:]


def _twice(rows: list[Row]) -> list[Row]:
    return [*rows[:41], rows[40], *rows[41:]]


def _last_lost(rows: list[Row]) -> list[Row]:
    return rows[:-1]


def _back_and_again(rows: list[Row]) -> list[Row]:
    """Return records with a transaction repeated: the same records once more, in order."""
    return [*rows[:45], *rows[40:45], *rows[45:]]


def _swapped(rows: list[Row]) -> list[Row]:
    """Return records with two records of one key exchanged."""
    first = 30
    second = next(at for at in range(first + 1, len(rows)) if rows[at].key == rows[first].key)
    swapped = list(rows)
    swapped[first], swapped[second] = rows[second], rows[first]
    return swapped


def _of_another_time(rows: list[Row]) -> list[Row]:
    return [*rows[:40], rows[40]._replace(timestamp=rows[40].timestamp + 1), *rows[41:]]


@pytest.mark.parametrize(
    ("topic", "wrong"),
    [
        *itertools.product([WORDS, RESULTS], [_lost, _last_lost, _twice, _back_and_again, _swapped]),
        # Single counts may be missing: a cache skips some totals.
        *itertools.product([TOTALS], [_last_lost, _twice, _back_and_again, _swapped]),
    ],
)
def test_lost_doubled_or_reordered_records_are_found(
    right: tuple[Topics, Topics, Truth], topic: str, wrong: Callable[[list[Row]], list[Row]]
) -> None:
    """Any missing, repeated or reordered record in a topic is found."""
    topics, changelogs, truth = right
    if topic == WORDS and wrong is _swapped:
        # In it, words are in the order of each customer.
        topics = {**topics, WORDS: _swapped_of_customer(topics[WORDS])}
    else:
        topics = {**topics, topic: wrong(topics[topic])}
    assert topic in _places(topics, changelogs, truth)


def _swapped_of_customer(rows: list[Row]) -> list[Row]:
    def customer(row: Row) -> bytes:
        return (row.value or b"").split(b" ")[0]

    second = next(at for at in range(31, len(rows)) if customer(rows[at]) == customer(rows[30]))
    swapped = list(rows)
    swapped[30], swapped[second] = rows[second], rows[30]
    return swapped


@pytest.mark.parametrize("topic", [WORDS, RESULTS])
def test_a_record_with_another_time_is_found(right: tuple[Topics, Topics, Truth], topic: str) -> None:
    """Event times are unchanged; the newest one of a window is its time."""
    topics, changelogs, truth = right
    assert topic in _places({**topics, topic: _of_another_time(topics[topic])}, changelogs, truth)


@pytest.mark.parametrize("wrong", ["lost", "twice", "incomplete"])
def test_missing_doubled_or_incomplete_windows_are_found(right: tuple[Topics, Topics, Truth], wrong: str) -> None:
    """Each window leaves the buffer once, with all its orders."""
    topics, changelogs, truth = right
    first, *others = topics[FINALS]
    tally = msgspec.json.decode(first.value or b"", type=Tally)
    less = msgspec.json.encode(msgspec.structs.replace(tally, count=tally.count - 1))
    finals = {"lost": others, "twice": [first, first, *others], "incomplete": [first._replace(value=less), *others]}
    assert FINALS in _places({**topics, FINALS: finals[wrong]}, changelogs, truth)


@pytest.mark.parametrize("wrong", [_last_lost, _twice, _back_and_again, _swapped])
@pytest.mark.parametrize("store", [JOURNAL, WINDOWS, TOTALS])
def test_a_changelog_that_lost_doubled_or_reordered_changes_is_found(
    right: tuple[Topics, Topics, Truth], store: str, wrong: Callable[[list[Row]], list[Row]]
) -> None:
    """Counts in a changelog increase from record to record, up to the expected ones."""
    topics, changelogs, truth = right
    places = _places(topics, {**changelogs, store: wrong(changelogs[store])}, truth)
    assert places == {f"changelog of {store}"}


def test_a_journal_that_took_orders_in_another_order_is_found(right: tuple[Topics, Topics, Truth]) -> None:
    """A journal's checksum depends on the order of orders: a wrong order is found."""
    topics, changelogs, truth = right
    log = changelogs[JOURNAL]
    count = (log[-5].value or b"").split(b" ")[0]
    wrong = [*log[:-5], log[-5]._replace(value=count + b" 12345"), *log[-4:]]
    assert _places(topics, {**changelogs, JOURNAL: wrong}, truth) == {f"changelog of {JOURNAL}"}


def test_join_with_an_older_row_is_found(right: tuple[Topics, Topics, Truth]) -> None:
    """An order with an older version of its customer than the order before it is found."""
    topics, changelogs, truth = right
    rows = topics[WORDS]
    at = next(at for at in range(len(rows) - 1, 0, -1) if not (rows[at].value or b"").endswith(b" 1"))
    stale = (rows[at].value or b"").rpartition(b" ")[0] + b" 1"
    assert WORDS in _places(
        {**topics, WORDS: [*rows[:at], rows[at]._replace(value=stale), *rows[at + 1 :]]}, changelogs, truth
    )
