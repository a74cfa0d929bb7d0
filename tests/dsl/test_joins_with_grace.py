"""Joins of a stream with a versioned table that wait for late rows (KIP-923): arguments, errors, restarts."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.dsl.operators.lookup import StoreLookup
from millpond.dsl.operators.versioned.grace_join import JoinTableWithGrace
from millpond.errors import TopologyError
from millpond.state import JoinBufferBuilder, MemoryBackend, VersionedKeyValueStoreBuilder
from millpond.testing import TopologyTestDriver
from tests.dsl.support import Node

MINUTE = timedelta(minutes=1)


def stream(b: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return b.stream("in", key=mp.String, value=mp.String)


def rows(b: mp.StreamsBuilder, **options: Any) -> mp.KTable[str, str]:
    return b.table("rows", key=mp.String, value=mp.String, store="rows-store", **options)


def glue(one: object, other: object) -> str:
    return f"{one}{other}"


MISTAKES: dict[str, tuple[Callable[[mp.StreamsBuilder], object], str]] = {
    "a table without versions": (
        lambda b: stream(b).join(rows(b), glue, grace=MINUTE),
        "join() 'KSTREAM-JOIN-0000000003' has a grace period, and so needs a versioned table, but "
        "'KTABLE-SOURCE-0000000002' is not versioned; give history_retention= where the table is made",
    ),
    "a view with a store of its own": (
        lambda b: stream(b).left_join(
            rows(b, history_retention=MINUTE).filter(lambda _, v: v > "a", store="kept"),
            glue,
            grace=MINUTE,
            name="late",
        ),
        "left_join() 'late' has a grace period, and so needs a versioned table",
    ),
    "too short a history": (
        lambda b: stream(b).join(rows(b, history_retention=MINUTE), glue, grace=2 * MINUTE),
        "has a grace period of 120000 ms, but the table 'KTABLE-SOURCE-0000000002' keeps its history for 60000 ms only",
    ),
    "no duration": (
        lambda b: stream(b).join(rows(b, history_retention=MINUTE), glue, grace=5),
        "grace=5 is not a duration",
    ),
    "a global table": (
        lambda b: stream(b).join(b.global_table("all"), glue, on=lambda k, _: k, grace=MINUTE),
        "join() with a global table takes no grace=",
    ),
    "two streams": (
        lambda b: stream(b).join(stream(b), glue, mp.JoinWindows(MINUTE, MINUTE), grace=MINUTE),
        "join() of two streams takes no grace=: it belongs to the windows; use JoinWindows.of_time",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_is_rejected_with_its_cure(what: str) -> None:
    """Wrong arguments are found by the call, and the message names the operator and the table."""
    mistake, message = MISTAKES[what]
    with pytest.raises(TopologyError, match=re.escape(message)):
        mistake(mp.StreamsBuilder())


def test_record_is_joined_with_the_row_of_its_time_that_came_later() -> None:
    """A row that arrives within the grace period after the record is found; without a grace period it is not."""
    b = mp.StreamsBuilder()
    table, s = rows(b, history_retention=MINUTE), stream(b)
    s.left_join(table, glue, grace=MINUTE).to("patient", key=mp.String, value=mp.String)
    s.left_join(table, glue).to("prompt", key=mp.String, value=mp.String)
    with TopologyTestDriver(b.build()) as driver:
        records = driver.create_input_topic("in", key=mp.String, value=mp.String)
        table_topic = driver.create_input_topic("rows", key=mp.String, value=mp.String)
        records.pipe_input("k", "a", 100_000)
        table_topic.pipe_input("k", "1", 99_999)
        table_topic.pipe_input("k", "2", 100_001)
        records.pipe_input("x", "b", 160_000)
        found = {
            name: [
                r.value for r in driver.create_output_topic(name, key=mp.String, value=mp.String).read_records_to_list()
            ]
            for name in ("patient", "prompt")
        }
    assert found == {"patient": ["a1"], "prompt": ["aNone", "bNone"]}


def test_left_join_sends_a_record_without_a_key_at_once() -> None:
    """It waits for no row, since no row has its key (KIP-962); an inner join drops and counts it."""
    for left in (True, False):
        node, body = bound(left=left)
        body(None, "v", 5)
        assert node.forwarded == ([(None, "vNone", 5)] if left else [])
        assert node.drops == (0 if left else 1)


def test_error_of_the_joiner_drops_its_own_record_only() -> None:
    """A record that waits with others is dropped when its turn fails, and is not tried again."""

    def joiner(value: str, other: str | None) -> str:
        if value == "bad":
            raise ZeroDivisionError
        return glue(value, other)

    node, body = bound(joiner)
    for value in ("a", "bad", "c"):
        body("k", value, 100)
    body("k", "d", 200)
    assert [record[1] for record in node.forwarded] == ["aNone", "cNone"]
    assert [type(error) for error in node.errors] == [ZeroDivisionError]
    body("k", "e", 300)
    assert [record[1] for record in node.forwarded] == ["aNone", "cNone", "dNone"]


def test_record_that_cannot_be_kept_is_reported_and_moves_no_time() -> None:
    """The error belongs to the record that is put, and stream time does not advance."""
    node, body = bound()
    body("k", 3, 1000)
    assert len(node.errors) == 1
    body("k", "a", 0)
    assert node.forwarded == []


def test_stream_time_and_numbers_are_those_of_the_last_commit_after_a_restart() -> None:
    """A record that was late before a restart is late after it, and no number is given twice."""
    node, body = bound()
    body("k", "a", 1000)
    assert node.restarted() == {"stream_time": 1000, "sequence": 1}
    again, body = bound(remembered=node.restarted())
    body("k", "late", 989)
    assert [record[1] for record in again.forwarded] == ["lateNone"]
    body("k", "b", 1000)
    assert again.restarted() == {"stream_time": 1000, "sequence": 2}


def bound(combine: Any = glue, *, left: bool = True, remembered: Any = None) -> tuple[Node, Any]:
    options: Any = {"key": mp.String, "value": mp.String}
    table = VersionedKeyValueStoreBuilder(name="rows", history_retention_ms=100, **options)
    node = Node(
        remembered=remembered,
        rows=table.build(0, MemoryBackend()),
        buffer=JoinBufferBuilder(name="buffer", **options).build(0, MemoryBackend()),
    )
    return node, node.bind(JoinTableWithGrace(StoreLookup("rows"), combine, False, left, "buffer", 10))
