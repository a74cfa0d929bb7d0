"""A cached store that forwards whole columns to a sink sends the same records as one call per change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.errors import BrokerError
from millpond.serdes import Serde
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts

TASK = TaskId(0, 1)
TOPICS = {"in": 2, "out": 7}
WINDOW = timedelta(minutes=1)
MINUTE = 60_000
HEADERS = [("trace", b"1")]

Put = tuple[str, str, int, Any]
"""Key, value, timestamp, headers."""

Shape = Callable[[mp.KStream[str, str]], tuple[mp.KTable[Any, Any], Any, Any]]
"""A cached table, and the serdes of the sink below it."""


def _refuse_seven(value: int) -> bytes:
    if value == 7:
        raise ValueError("seven")
    return str(value).encode()


DIGITS: Serde[Any] = Serde("Digits", lambda value: str(value).encode(), int, immutable=True)
NOT_SEVEN: Serde[Any] = Serde("NotSeven", _refuse_seven, int, immutable=True)
UPPER: Serde[Any] = Serde(
    "Upper", lambda text: text.upper().encode(), lambda data: data.decode().lower(), immutable=True
)


def _counted(records: mp.KStream[str, str]) -> Any:
    return records.group_by_key().count(), mp.String, mp.Long


def _counted_for_other_serdes(records: mp.KStream[str, str]) -> Any:
    return records.group_by_key().count(), UPPER, NOT_SEVEN


def _newest(records: mp.KStream[str, str]) -> Any:
    # An empty value deletes.
    return records.group_by_key().reduce(lambda _, value: value or None), mp.String, mp.String


def _collected(records: mp.KStream[str, str]) -> Any:
    kept = records.group_by_key().aggregate(list, lambda _, value, found: [*found[-3:], value], value=mp.Json())
    return kept, mp.String, mp.Json()


def _windowed(records: mp.KStream[str, str]) -> Any:
    windows = mp.TimeWindows(WINDOW, grace=WINDOW)
    return records.group_by_key().windowed_by(windows).count(), mp.TimeWindowedSerde(mp.String, WINDOW), mp.Long


def _windowed_for_other_serdes(records: mp.KStream[str, str]) -> Any:
    table, _, _ = _windowed(records)
    return table, mp.TimeWindowedSerde(UPPER, WINDOW), DIGITS


SHAPES: list[Shape] = [
    _counted,
    _counted_for_other_serdes,
    _newest,
    _collected,
    _windowed,
    _windowed_for_other_serdes,
]


@contextmanager
def running(directory: Path, shape: Shape, *, one_by_one: bool) -> Iterator[Any]:
    """The task of a topology with the cached table and a sink; `one_by_one` adds a node that takes no columns."""
    builder = mp.StreamsBuilder()
    table, key, value = shape(builder.stream("in", key=mp.String, value=mp.String))
    changes = table.to_stream()
    if one_by_one:
        changes = changes.peek(lambda _key, _value: None)
    changes.to("out", key=key, value=value)
    worker = Parts(Kafka(), builder.build(), directory, TOPICS, production_exception_handler="continue")
    try:
        worker.own(TASK)
        yield worker.executor.held[TASK].task
    finally:
        worker.close()


def flushed(task: Any, puts: list[Put]) -> list[Any]:
    """The rows of the outbox after the records were processed and the caches flushed."""
    (entry,) = task._entries.values()
    for key, value, timestamp, headers in puts:
        task.context.timestamp, task.context.headers = timestamp, headers
        entry(key, value, timestamp)
    task.context.headers = None
    task.flush()
    rows = list(task.context.outbox)
    task.context.outbox.clear()
    return rows


def puts(headers: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Put]]:
    """Records of few keys over a few minutes."""
    record = st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", ""]), st.integers(0, 3 * MINUTE), headers)
    return st.lists(record, max_size=30)


@pytest.mark.parametrize("shape", SHAPES)
def test_columns_send_the_same_as_calls(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same rows in the same order: bytes, partitions, timestamps and headers, also for deletions."""
    with (
        running(tmp_path_factory.mktemp("a"), shape, one_by_one=False) as columns,
        running(tmp_path_factory.mktemp("b"), shape, one_by_one=True) as calls,
    ):

        @given(st.one_of(puts(st.none()), puts(st.sampled_from([None, HEADERS]))))
        def same(given_puts: list[Put]) -> None:
            assert flushed(columns, given_puts) == flushed(calls, given_puts)

        same()


@pytest.mark.parametrize("windowed", [False, True])
def test_a_value_is_encoded_once_for_changelog_and_sink(windowed: bool, tmp_path: Path) -> None:
    """A flush sends the bytes that the put has made."""
    encoded = []

    def encode(value: int) -> bytes:
        encoded.append(value)
        return b"%d" % value

    noted: Serde[Any] = Serde("Noted", encode, int, immutable=True)

    def shape(records: mp.KStream[str, str]) -> Any:
        grouped: Any = records.group_by_key()
        if windowed:
            grouped = grouped.windowed_by(mp.TimeWindows(WINDOW, grace=WINDOW))
        return (
            grouped.aggregate(lambda: 0, lambda _key, _value, total: total + 1, value=noted),
            mp.TimeWindowedSerde(mp.String, WINDOW) if windowed else mp.String,
            noted,
        )

    with running(tmp_path, shape, one_by_one=False) as task:
        rows = flushed(task, [("a", "x", 5, None), ("b", "x", 6, None), ("a", "x", 7, None)])
    assert [(row[1], row[6]) for row in rows] == [(b"1", 6), (b"2", 7)]
    assert encoded == [1, 1, 2]


def test_a_registry_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    """Other errors of a column are those of one record, which is sent again by itself; this one is not."""
    asked = []

    def unreachable(value: int) -> bytes:
        asked.append(value)
        raise BrokerError("the schema registry does not answer")

    def shape(records: mp.KStream[str, str]) -> Any:
        return records.group_by_key().count(), mp.String, Serde("Avro", unreachable, int)

    with running(tmp_path, shape, one_by_one=False) as task, pytest.raises(BrokerError, match="does not answer"):
        flushed(task, [(key, "v", 1_000, None) for key in "abc"])
    assert len(asked) == 1
