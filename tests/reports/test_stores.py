"""Reports about state stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import millpond as mp
from millpond import serdes
from millpond.serdes import Windowed
from millpond.state import KeyValueStoreBuilder, SessionStoreBuilder, StateFile, WindowStoreBuilder, reversed_ranges
from tests.state import helpers

Reads = list[Callable[[], Iterator[Any]]]
Put = Callable[[str, int | None], None]


@pytest.fixture(params=sorted(helpers.BACKENDS))
def place(request: pytest.FixtureRequest) -> Iterator[Any]:
    found = helpers.BACKENDS[request.param]()
    yield found
    found.end()


def _key_values(backend: Any) -> tuple[Any, Put, Reads]:
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, timestamped=False).build(0, backend)
    reads = [store.all, store.reverse_all, lambda: store.range("b", None), lambda: store.prefix_scan("c")]
    return store, store.put, reads


def _windows(backend: Any) -> tuple[Any, Put, Reads]:
    store = WindowStoreBuilder(
        name="s", key=serdes.String, value=serdes.Long, timestamped=False, retention_ms=10_000, window_size_ms=10
    ).build(0, backend)
    reads = [store.all, store.backward_all, lambda: store.fetch("c", 0, 100), lambda: store.fetch_all(0, 50)]
    return store, lambda key, value: store.put(key, value, 10), reads


def _sessions(backend: Any) -> tuple[Any, Put, Reads]:
    store = SessionStoreBuilder(name="s", key=serdes.String, value=serdes.Long, retention_ms=10_000).build(0, backend)
    reads = [lambda: store.fetch("c"), lambda: store.backward_fetch_range(None, None)]
    return store, lambda key, value: store.put(Windowed(key, 0, 10), value), reads


@pytest.mark.parametrize("make", [_key_values, _windows, _sessions])
def test_an_iterator_shows_the_rows_of_its_creation(make: Any, place: Any) -> None:
    """Iterators over rows that are deleted or changed meanwhile fail, or return null values or stale ones.

    https://issues.apache.org/jira/browse/KAFKA-14460, https://issues.apache.org/jira/browse/KAFKA-7912
    """
    store, put, reads = make(place.backend)
    for number, key in enumerate(("a", "b", "c", "c1")):
        put(key, number)
    helpers.commit(store, place.backend)
    put("c2", 9)
    put("a", None)
    expected = [list(read()) for read in reads]
    fresh, begun = ([read() for read in reads] for _ in range(2))
    first = [next(each) for each in begun]
    for key, value in (("b", None), ("c", 7), ("a", 8), ("c2", None)):
        put(key, value)
        helpers.commit(store, place.backend)
    assert [list(each) for each in fresh] == expected
    assert [[row, *each] for row, each in zip(first, begun, strict=True)] == expected


def test_rows_are_deleted_while_a_test_reads_them() -> None:
    """A test that sends a record for each row of an in-memory store sees each row once.

    https://issues.apache.org/jira/browse/KAFKA-14460
    """
    builder = mp.StreamsBuilder()
    builder.table("in", key=mp.String, value=mp.Long, store="rows")
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.Long)
        topic.pipe_key_value_list([("a", 1), ("b", 2), ("c", 3)])
        store = driver.get_key_value_store("rows")
        assert store is not None
        seen = []
        for key, value in store.all():
            seen.append((key, value))
            topic.pipe_key_value_list([(each, None) for each in "abc"])
        assert seen == [("a", 1), ("b", 2), ("c", 3)]
        assert list(store.all()) == []


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.name == "millpond.state.reversed_ranges"]


@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
def test_a_range_from_above_to_below_has_no_rows_and_says_so_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """A range from a negative key to a positive one is reversed by its bytes: it was empty without a word.

    https://issues.apache.org/jira/browse/KAFKA-8159, https://github.com/apache/kafka/pull/6521
    """
    backend = helpers.Memory().backend
    store: Any
    if kind == "key-value":
        store = KeyValueStoreBuilder(name="s", key=serdes.Long, value=serdes.Long, timestamped=False).build(0, backend)
        reads = [store.range, store.reverse_range]
    elif kind == "window":
        store = WindowStoreBuilder(
            name="s", key=serdes.Long, value=serdes.Long, timestamped=False, retention_ms=10_000, window_size_ms=10
        ).build(0, backend)
        reads = [lambda low, high: store.fetch_range(low, high, 0, 99)]
        reads += [lambda low, high: store.backward_fetch_range(low, high, 0, 99)]
    else:
        store = SessionStoreBuilder(name="s", key=serdes.Long, value=serdes.Long, retention_ms=10_000).build(0, backend)
        reads = [store.fetch_range, lambda low, high: store.backward_find_sessions_range(low, high, 0, 99)]
    for read in reads:
        assert [list(read(*bounds)) for bounds in ((5, 3), (-5, 5), (3, 5), (3, 3), (None, 3), (-5, None))] == [[]] * 6
    [line] = _lines(caplog)
    assert line.startswith("store s: the range from 5 to 3 has no rows, because the bytes of the first key are above")


def test_a_query_from_above_to_below_has_no_rows_and_says_so_once(
    start: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The worker's log says it once for a store, however many ask.

    https://issues.apache.org/jira/browse/KAFKA-8159
    """
    application = start(1, 2)
    application.put("counts", "b", mp.ValueAndTimestamp(1, 0))
    counts = application.client().store("counts")
    reversed_ranges._told.clear()
    assert [[row.key for row in counts.range(*bounds)] for bounds in (("c", "a"), ("z", "a"), ("a", "c"))] == [
        [], [], ["b"],
    ]  # fmt: skip
    [line] = _lines(caplog)
    assert line.startswith("store counts: the range from '\"c\"' to '\"a\"' has no rows")


def test_iterators_of_one_moment_are_counted_one_by_one(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Kafka Streams the oldest open iterator was lost when another one of the same millisecond was closed.

    https://github.com/apache/kafka/pull/23126 (KAFKA-20902)
    """
    monkeypatch.setattr("time.monotonic", lambda: 1_000.0)
    with StateFile.open(tmp_path) as state:
        store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long).build(0, state)
        for key in "abc":
            store.put(key, 1)
        helpers.commit(store, state)
        first, second = store.all(), store.all()
        for each in (first, second):
            next(each)
        monkeypatch.setattr("time.monotonic", lambda: 1_007.0)
        assert state.usage()["open_iterators"] == 2
        second.close()
        usage = state.usage()
        assert (usage["open_iterators"], usage["oldest_iterator_age_seconds"]) == (1, 7)
        first.close()
        assert state.usage()["open_iterators"] == 0
