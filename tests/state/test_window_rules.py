"""Late puts into window stores: Kafka Streams has one rule for persistent stores, and another for in-memory stores."""

from __future__ import annotations

import pytest

from millpond import serdes
from millpond.serdes import Windowed
from millpond.state import MemoryBackend, WindowStoreBuilder
from millpond.state.formats import split_window_key
from tests.state import helpers

RETENTION = 200_000  # segments of 100 s


def build(backend=None, **options):
    """A plain window store of longs."""
    builder = WindowStoreBuilder(
        name="w", key=serdes.String, value=serdes.Long, retention_ms=RETENTION, window_size_ms=10_000, **options
    )
    return builder.build(0, backend or MemoryBackend(), "changelog")


def logged(store):
    """Return the window starts that the next flush sends to the changelog."""
    out: list = []
    store.flush(out)
    return [split_window_key(record[2])[1] for record in out]


@pytest.mark.parametrize(
    ("persistent", "start", "seen", "accepted"),
    [
        (True, 350_001, True, True),
        (True, 350_000, False, True),
        (True, 300_000, False, True),
        (True, 299_999, False, False),
        (False, 350_001, True, True),
        (False, 350_000, False, False),
        (False, 300_000, False, False),
    ],
)
def test_late_put_visibility_follows_time_and_acceptance_segments(persistent, start, seen, accepted):
    """Readable: start > stream time - retention. Accepted: the segment is live; in memory: the window is readable."""
    store = build(persistent=persistent)
    store.put("k", 1, 550_000)
    assert logged(store) == [550_000]
    store.put("k", 2, start)
    store.put("k", 3, start)
    assert store.fetch("k", start) == (3 if seen else None)
    assert store.expired_puts == (0 if accepted else 2)
    assert logged(store) == [start], "Kafka Streams logs rejected puts, too, and rejects them again when it restores"
    assert [window.start_ms for window, _ in store.all()] == ([start, 550_000] if seen else [550_000])
    assert store.observed_stream_time == 550_000


@pytest.mark.parametrize("place", helpers.BACKENDS)
def test_invisible_put_is_deleted_with_its_segment(place):
    """The row is written to the backend, is never read, and is deleted with its segment by a later commit."""
    backend = helpers.BACKENDS[place]()
    store = build(backend.backend)
    store.put("k", 1, 550_000)
    store.put("late", 2, 310_000)
    helpers.commit(store, backend.backend)
    assert len(list(backend.backend.range("w", b"", None))) == 2
    assert [key.key for key, _ in store.all()] == ["k"]
    store.put("k", 3, 600_000)
    helpers.commit(store, backend.backend)
    starts = [split_window_key(key, 12)[1] for key, _ in backend.backend.range("w", b"", None)]
    assert starts == [550_000, 600_000]
    backend.end()


def test_window_that_expires_before_the_flush_is_still_logged():
    """Caching only delays: a put that was accepted in time is forwarded and logged."""
    store = build(caching=True)
    told: list = []
    store.on_flush(lambda key, new, old, timestamp: told.append((key, new, old)))
    store.put("k", 1, 310_000)
    store.put("k", 2, 550_000)
    assert store.fetch("k", 310_000) is None
    assert logged(store) == [310_000, 550_000]
    assert told == [(Windowed("k", 310_000, 320_000), 1, None), (Windowed("k", 550_000, 560_000), 2, None)]


def test_segments_are_half_the_retention_and_at_least_a_minute():
    """A store with a short retention does not delete a segment for every window."""
    store = WindowStoreBuilder(
        name="w", key=serdes.String, value=serdes.Long, retention_ms=20_000, window_size_ms=10_000
    ).build(0, MemoryBackend(), "changelog")
    store.put("k", 1, 120_000)
    store.put("k", 1, 60_000)
    assert (store.fetch("k", 60_000), store.expired_puts) == (None, 0)
    store.put("k", 1, 59_999)
    assert store.expired_puts == 1


def test_stream_time_of_an_uncommitted_put_is_not_committed():
    """A put after the flush advances the stream time of the next commit, not of this one."""
    backend = MemoryBackend()
    store = build(backend)
    store.put("k", 1, 100_000)
    store.flush([])
    store.put("k", 1, 900_000)
    rows = store.seal()
    assert rows.ranges == []
    backend.write([("w", 0, rows)], {("w", 0): (1, store.metadata())})
    store.committed()
    store.revert()
    assert store.observed_stream_time == 100_000
    assert store.fetch("k", 100_000) == 1


@pytest.mark.parametrize(
    ("persistent", "order"),
    [
        (True, [("a", 150_000), ("b", 110_000), ("a", 200_000)]),
        (False, [("b", 110_000), ("a", 150_000), ("a", 200_000)]),
    ],
)
def test_ranges_come_in_the_order_of_the_kind_of_store(persistent, order):
    """Persistent: segment, key, start. In memory: start, key."""
    store = build(persistent=persistent)
    for key, start in [("a", 200_000), ("b", 110_000), ("a", 150_000)]:
        store.put(key, 1, start)
    assert [(window.key, window.start_ms) for window, _ in store.all()] == order
    assert [(window.key, window.start_ms) for window, _ in store.backward_all()] == order[::-1]


def test_keys_with_a_common_prefix_stay_separate():
    """A key that starts with another key's bytes is not among that key's windows."""
    store = build()
    longer = "k" + (150_000).to_bytes(8, "big").decode("latin-1")
    for key in ("k", longer, "kk"):
        store.put(key, len(key), 150_000)
    helpers.commit(store, store._backend)
    assert list(store.fetch("k", 0, 2**40)) == [(150_000, 1)]
    assert [(window.key, value) for window, value in store.fetch_range("k", "k", 0, 2**40)] == [("k", 1)]
    assert len(list(store.fetch_range("k", "kk", 0, 2**40))) == 3


def test_changelog_record_of_an_expired_segment_is_not_restored():
    """Kafka Streams logs late puts that its store rejects; restored in a later batch, they must leave no rows."""
    backend = MemoryBackend()
    store = build(backend)
    for start in (900_000, 100_000):
        rows = store.restore([(b"k" + start.to_bytes(8, "big") + bytes(4), b"v" * 8, start, None)])
        backend.write([("w", 0, rows)], {("w", 0): (1, store.metadata())})
    assert [split_window_key(key, 12)[1] for key, _ in backend.range("w", b"", None)] == [900_000]
    assert store.observed_stream_time == 900_000
