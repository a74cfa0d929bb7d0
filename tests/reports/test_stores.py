"""Reports about state stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import millpond as mp
from millpond import serdes
from millpond.serdes import Windowed
from millpond.state import KeyValueStoreBuilder, SessionStoreBuilder, WindowStoreBuilder
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
