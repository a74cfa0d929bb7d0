"""Joins of tables with caches: after a commit the result is the join of both tables, whatever happened before it.

The tables forward their changes at commits, and none for a key that came and went between two of them.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.testing import TopologyTestDriver
from millpond.testing.topics import RawRecord

_KEYS = ("a", "b", "c")
_UNCACHED = {"statestore.cache.max.bytes": 0}


class ByHand(TopologyTestDriver):
    """A driver that commits when it is told to, as a worker does when the commit interval is over."""

    def turn(self, changes: list[tuple[str, str, str | None]]) -> None:
        """Process changes (topic, key, value) and what an earlier commit has left to do, and commit once."""
        task = self._task
        for topic, key, value in changes:
            self._enqueue(topic, RawRecord(key.encode(), None if value is None else value.encode(), self._clock(), []))
        for queue in task.inputs.values():
            queue.at_end = True
        while self._order.first() is not None:
            self._order.poll()  # the task chooses by timestamps
        while task.process(1_000, self._now_ms):
            pass
        self._commit()

    def settle(self) -> None:
        """Process what is left, and commit, until nothing is."""
        self._complete()

    def _clock(self) -> int:
        self._time = getattr(self, "_time", 0) + 1
        return self._time


def _joined(kind: str, left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
    """The join of two tables."""
    if kind.endswith("foreign"):
        pairs = {key: (value, right.get(value[0])) for key, value in left.items()}
    else:
        pairs = {key: (left.get(key), right.get(key)) for key in left.keys() | right.keys()}
    needs_left, needs_right = kind != "outer", kind.startswith("inner")
    return {
        key: f"{one}{two}"
        for key, (one, two) in pairs.items()
        if (one is not None or not needs_left) and (two is not None or not needs_right)
    }


def _topology(kind: str, *, right: str) -> mp.Topology:
    """A join, whose result goes to topic "out" and, as the number of rows of each result, to topic "counts"."""
    b = mp.StreamsBuilder()
    lefts = b.table("left", key=mp.String, value=mp.String, store="lefts")
    rights = b.table("right", key=mp.String, value=mp.String, store="rights")
    if right == "filtered":
        rights = rights.filter(lambda key, value: value != "2")
    elif right == "mapped":
        rights = rights.map_values(lambda value: None if value == "2" else f"{value}!", value=mp.String)
    elif right == "stored":
        rights = rights.map_values(lambda value: f"{value}!", store="mapped", value=mp.String)

    def glue(one: Any, two: Any) -> str:
        return f"{one}{two}"

    if kind == "inner foreign":
        joined = lefts.join(rights, glue, on=lambda value: value[0], store="joined", value=mp.String)
    elif kind == "left foreign":
        joined = lefts.left_join(rights, glue, on=lambda value: value[0], store="joined", value=mp.String)
    else:
        join = {"inner": lefts.join, "left": lefts.left_join, "outer": lefts.outer_join}[kind]
        joined = join(rights, glue)
    joined.to_stream().to("out", key=mp.String, value=mp.String)
    grouped = joined.group_by(lambda key, value: (value, value), key=mp.String, value=mp.String)
    grouped.count(store="rows").to_stream().to("counts", key=mp.String, value=mp.Long)
    return b.build()


def _latest(driver: TopologyTestDriver, topic: str, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in driver.create_output_topic(topic, key=mp.String, value=value).read_key_values_to_list():
        if each is None:
            found.pop(key, None)
        else:
            found[key] = each
    return found


def _viewed(right: str, rows: dict[str, str]) -> dict[str, str]:
    if right in ("filtered", "mapped"):
        rows = {key: value for key, value in rows.items() if value != "2"}
    return {key: f"{value}!" for key, value in rows.items()} if right in ("mapped", "stored") else rows


@pytest.mark.parametrize("right", ["plain", "filtered", "mapped", "stored"])
@pytest.mark.parametrize("kind", ["inner", "left", "outer", "inner foreign", "left foreign"])
@given(seed=st.integers(0, 2**32))
def test_the_result_is_the_join_of_the_final_tables(kind: str, right: str, seed: int) -> None:
    """And so is the number of its rows, for which the join has to send the right old values.

    In a join by foreign key the changes of both tables race with the answers to earlier ones.
    """
    dice = random.Random(seed)
    tables: dict[str, dict[str, str]] = {"left": {}, "right": {}}
    topology = _topology(kind, right=right)
    with ByHand(topology) as cached, ByHand(topology, _UNCACHED) as uncached:
        number = 0
        for _ in range(dice.randrange(1, 6)):
            changes: list[tuple[str, str, str | None]] = []
            for _ in range(dice.randrange(12)):
                table, key = dice.choice(["left", "right"]), dice.choice(_KEYS)
                value = None if dice.randrange(3) == 0 else dice.choice(["1", "2", "3"])
                if value is not None and table == "left":
                    number += 1
                    value = f"{dice.choice(_KEYS)}{number}"
                changes.append((table, key, value))
                if value is None:
                    tables[table].pop(key, None)
                else:
                    tables[table][key] = value
            for driver in (cached, uncached):
                driver.turn(changes)
        truth = _joined(kind, tables["left"], _viewed(right, tables["right"]))
        counts = {value: list(truth.values()).count(value) for value in truth.values()}
        for driver in (cached, uncached):
            driver.settle()
            assert _latest(driver, "out", mp.String) == truth
            assert {key: count for key, count in _latest(driver, "counts", mp.Long).items() if count} == counts


@pytest.mark.parametrize("kind", ["inner", "left", "outer", "inner foreign", "left foreign"])
def test_a_partner_that_comes_and_goes_between_two_commits_leaves_no_row(kind: str) -> None:
    """In the original, and in each join that reads the newest value, the row stays."""
    with ByHand(_topology(kind, right="plain")) as driver:
        driver.turn([("left", "a", "a1")])
        driver.turn([])
        driver.turn([("right", "a", "1"), ("left", "a", "a2")])
        driver.turn([("right", "a", None)])
        driver.turn([("right", "a", "1"), ("left", "a", "a3"), ("right", "a", None)])
        driver.settle()
        assert _latest(driver, "out", mp.String) == ({} if kind.startswith("inner") else {"a": "a3None"})


def test_a_join_of_a_stream_reads_the_newest_value() -> None:
    """Also one that no commit has forwarded: a stream is joined with the table as it is."""
    b = mp.StreamsBuilder()
    table = b.table("right", key=mp.String, value=mp.String, store="rights")
    stream = b.stream("left", key=mp.String, value=mp.String)
    stream.join(table, lambda one, two: f"{one}{two}").to("out", key=mp.String, value=mp.String)
    with ByHand(b.build()) as driver:
        driver.turn([("right", "a", "1"), ("left", "a", "x"), ("right", "a", None)])
        assert _latest(driver, "out", mp.String) == {"a": "x1"}
