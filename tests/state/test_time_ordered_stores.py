"""Stores of aggregations that send final results: the order of iterators, and what expires when."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from millpond.serdes import Long, String, Windowed
from millpond.state import MemoryBackend, SessionStoreBuilder, ValueAndTimestamp, WindowStoreBuilder
from tests.state.helpers import changelog_record, commit

MINUTE = 60_000
PUTS = st.lists(st.tuples(st.sampled_from(("a", "b", "aa")), st.integers(0, 10).map(lambda n: n * 30_000)), max_size=20)


def windows(*, persistent: bool = True, backend: Any = None) -> Any:
    builder = WindowStoreBuilder(
        name="store",
        key=String,
        value=Long,
        persistent=persistent,
        timestamped=True,
        time_ordered=True,
        window_size_ms=30_000,
        retention_ms=2 * MINUTE,
    )
    return builder.build(0, MemoryBackend() if backend is None else backend, "changelog")


def sessions(*, persistent: bool = True, backend: Any = None) -> Any:
    builder = SessionStoreBuilder(
        name="store", key=String, value=Long, persistent=persistent, time_ordered=True, retention_ms=2 * MINUTE
    )
    return builder.build(0, MemoryBackend() if backend is None else backend, "changelog")


def put(store: Any, key: str, start: int) -> None:
    store.put(key, ValueAndTimestamp(1, start), start)


@given(PUTS, st.booleans(), st.booleans())
def test_windows_of_several_keys_are_in_the_order_of_time(
    puts: list[tuple[str, int]], persistent: bool, reverse: bool
) -> None:
    """Iterators are by start, then key; the rows that queries read are by segment, then key, as in other stores."""
    backend = MemoryBackend()
    store = windows(persistent=persistent, backend=backend)
    for at, (key, start) in enumerate(puts):
        put(store, key, start)
        if at % 5 == 4:
            commit(store, backend)
    found = store.backward_all() if reverse else store.all()
    places = [(windowed.start_ms, windowed.key) for windowed, _ in found]
    assert places == sorted(places, reverse=reverse)
    last = max((start for _, start in puts), default=-1)
    oldest = last - 2 * MINUTE + (0 if persistent else 1)
    assert set(places) == {(start, key) for key, start in puts if start >= oldest}
    rows = [(start // MINUTE, raw, start) for raw, start, _ in store._scan(None, None, 0, 2**62, False)]
    assert rows == sorted(rows)


def test_an_expired_window_stays_for_its_result_until_its_segment_expires() -> None:
    """Readers do not see it; a put that moves stream time past the segment deletes it."""
    store = windows()
    put(store, "a", 0)
    put(store, "a", 2 * MINUTE + 30_000)
    assert store.fetch("a", 0) is None
    assert list(store.fetch("a", 0, 0)) == []
    assert store.entry(b"a", 0) == (1, 0)
    assert list(store.unsent(0)) == [(b"a", 0), (b"a", 2 * MINUTE + 30_000)]
    assert list(store.unsent(None)) == [(b"a", 2 * MINUTE + 30_000)]
    assert not store.loses(0, 3 * MINUTE - 1)
    assert store.loses(0, 3 * MINUTE)
    put(store, "a", 3 * MINUTE)
    assert store.entry(b"a", 0) == (None, -1)


def test_an_expired_session_stays_for_its_result_until_its_segment_expires() -> None:
    """Readers do not see it; a put that moves stream time past the segment deletes it."""
    for persistent in (True, False):
        backend = MemoryBackend()
        store = sessions(persistent=persistent, backend=backend)
        store.put(Windowed("a", 0, 10), 1)
        store.put(Windowed("a", 2 * MINUTE, 2 * MINUTE + 30_000), 2)
        commit(store, backend)
        assert store.fetch_session("a", 0, 10) is None
        assert [windowed.start_ms for windowed, _ in store.fetch("a")] == [2 * MINUTE]
        # As in Kafka Streams, where only the store on disk returns expired sessions by their ends.
        assert [windowed.start_ms for windowed, _ in store.find_sessions_ending(0, 10)] == ([0] if persistent else [])
        assert store.entry(b"a", 0, 10) == 1
        assert list(store.unsent(0)) == [(b"a", 0, 10), (b"a", 2 * MINUTE, 2 * MINUTE + 30_000)]
        assert not store.loses(10, 3 * MINUTE - 1)
        assert store.loses(10, 3 * MINUTE)


def test_a_restored_store_has_the_windows_that_were_not_sent() -> None:
    """The changelog is that of other window stores."""
    backend = MemoryBackend()
    store = windows(backend=backend)
    put(store, "b", 0)
    put(store, "a", 30_000)
    records = [changelog_record(row) for row in commit(store, backend)]
    other_backend = MemoryBackend()
    other = windows(backend=other_backend)
    rows = other.restore([(key, value, timestamp, None) for key, value, timestamp, _ in records])
    other_backend.write([("store", 0, rows)], {("store", 0): (2, other.metadata())})
    assert sorted(other.unsent(0)) == [(b"a", 30_000), (b"b", 0)]
