"""A store of duplicates keeps every value in the order of the puts, through commits, aborts, crashes and evictions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import serdes
from millpond.errors import ConfigError
from millpond.serdes import Windowed
from millpond.state import MemoryBackend, WindowStoreBuilder
from millpond.state.formats import split_window_key
from millpond.state.stores.by_key import duplicate_windows
from tests.state import helpers
from tests.support import generated

RETENTION = 150_000
SEGMENT = 75_000

keys = st.sampled_from(["", "a", "aa", "b", "a\0"])
ages = st.sampled_from([0, 0, 1, 1000, 70_000, 149_999, 150_000, 230_000, 400_000, -1, -1000, -90_000])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.one_of(st.none(), st.integers(0, 99)), ages),
        st.tuples(st.just("put"), keys, st.integers(0, 99), ages),
        st.tuples(st.sampled_from(["commit", "begin", "finish", "abort", "crash", "restore", "evict", "read"])),
        st.tuples(st.just("forget"), st.integers(1, 4)),
    ),
    max_size=40,
)


def build(backend, *, mutable=False, persistent=True):
    return WindowStoreBuilder(
        name="w",
        key=serdes.String,
        value=helpers.MUTABLE if mutable else helpers.FROZEN,
        retention_ms=RETENTION,
        window_size_ms=1000,
        retain_duplicates=True,
        persistent=persistent,
    ).build(7, backend, "changelog")


def live(rows):
    """Return (key, time, value) of the rows that can be read, by key, time and order of puts."""
    observed = max((time for _, time, _ in rows), default=-1)
    return [row for row in rows if row[1] > observed - RETENTION and row[2] is not None]


def kept(rows, *, persistent):
    """Return the rows that a store accepts: those whose segment had not expired when they were put."""
    found, observed = [], -1
    for key, time, value in rows:
        observed = max(observed, time)
        oldest = max(0, (observed - RETENTION) // SEGMENT) * SEGMENT if persistent else observed - RETENTION + 1
        if time >= oldest:
            found.append((key, time, value))
    return found


def readable(store, *, mutable):
    def plain(value):
        return value["n"] if mutable else value

    found = []
    for key in ("", "a", "aa", "b", "a\0"):
        raw = store.serialize_key(key)
        rows = store.matches(raw, -100, 10**9)
        decode = store.value_serde.deserialize if mutable else int
        found += [(key, time, plain(decode(value))) for time, _, value in rows]
        assert [(time, plain(value)) for time, value in store.fetch(key, 0, 10**9)] == [
            (time, value) for other, time, value in found if other == key
        ]
    everything = [(w.key, w.start_ms, plain(value)) for w, value in store.all()]
    assert sorted(everything) == sorted(found)
    assert list(store.backward_all()) == list(store.all())[::-1]
    return found


@pytest.mark.parametrize("place_type", helpers.BACKENDS)
@pytest.mark.parametrize("mutable", [False, True])
@settings(max_examples=generated.examples(60))
@given(steps=steps, persistent=st.booleans())
def test_store_equals_a_list_of_puts(place_type, mutable, steps, persistent):
    """What is read is what was put and has not expired; a crash or an abort loses what was not committed."""
    place = helpers.BACKENDS[place_type]()
    try:
        compare(place, steps, mutable=mutable, persistent=persistent)
    finally:
        place.end()


def compare(place, steps, *, mutable, persistent):
    store = build(place.backend, mutable=mutable, persistent=persistent)
    put, committed, changelog = [], [], []
    begun = None  # the rows, the changelog and the puts of a commit that has begun
    for step, *arguments in steps:
        if begun is not None and step in ("finish", "commit", "evict"):
            rows, produced, as_of = begun
            store.cache_limit = 0 if step == "evict" else 10_000_000
            place.backend.write([("w", 7, rows)], {("w", 7): (1, store.metadata())})
            store.committed()
            changelog += produced
            committed, begun = as_of, None
        if step == "put":
            key, value, age = arguments
            time = max(0, store.observed_stream_time - age)
            store.append(
                store.serialize_key(key), key, {"n": value} if mutable and value is not None else value, time, time
            )
            if value is not None or not persistent:
                # As in Kafka Streams, a store in memory takes notice of the time of None, and one on disk does not.
                put.append((key, time, value))
        elif step == "commit":
            changelog += helpers.commit(store, place.backend)
            committed = list(put)
        elif step == "begin" and begun is None:
            produced = []
            store.flush(produced)
            begun = store.seal(), produced, list(put)
        elif step == "forget" and begun is None:
            store._evict(arguments[0])
        elif step == "abort":
            begun = None
            store.revert()
            put = list(committed)
        elif step == "evict":
            store.cache_limit = 0
            changelog += helpers.commit(store, place.backend)
            committed = list(put)
            store.cache_limit = 10_000_000
        elif step in ("crash", "restore"):
            store.close()
            begun = None
            put = list(committed)
            if step == "restore":
                place.end()
                place.__init__()
            elif place.durable:
                place.crash()
            store = build(place.backend, mutable=mutable, persistent=persistent)
            if step == "restore":
                rows = store.restore(map(helpers.changelog_record, changelog))
                place.backend.write([("w", 7, rows)], {("w", 7): (1, store.metadata())})
        expected = sorted(live(kept(put, persistent=persistent)), key=lambda row: (row[0], row[1]))
        assert sorted(readable(store, mutable=mutable), key=lambda row: (row[0], row[1])) == expected
        assert store.cache_bytes() >= 0


def test_search_in_the_newest_times_reads_no_row_from_the_backend():
    """Rows are evicted by time, so records that are about as old as stream time do not depend on the number of keys."""
    backend = MemoryBackend()
    store = build(backend)
    store.cache_limit = 100_000
    for number in range(5_000):
        store.put(f"k{number}", number, number * 100)
        if number % 100 == 99:
            helpers.commit(store, backend)
            assert store.cache_bytes() < 200_000
        newest = store.serialize_key(f"k{number - 50}")
        assert len(store.matches(newest, number * 100 - 5_000, number * 100)) == (number >= 50)
    assert store.backend_reads == 0
    assert [value for _, _, value in store.matches(store.serialize_key("k4000"), 0, 400_000)] == [4_000]
    assert store.backend_reads == 1


def test_searches_of_keys_without_rows_take_bounded_memory():
    """Also while rows that are older than those in memory are read again and again."""
    backend = MemoryBackend()
    helpers.commit(filled := build(backend), backend)
    filled.put("k", 1, RETENTION)
    helpers.commit(filled, backend)
    store = build(backend)
    store.cache_limit = 100_000
    for number in range(3_000):
        assert not store.matches(store.serialize_key(f"k{number}"), 0, RETENTION)
        if number % 100 == 99:
            helpers.commit(store, backend)
            assert store.cache_bytes() < 100_000


def test_expired_rows_leave_memory():
    """And keys without rows."""
    backend = MemoryBackend()
    store = build(backend)
    for number in range(100):
        store.put(f"k{number % 50}", number, number)
        store.put("stays", number, number)
    helpers.commit(store, backend)
    before = store.cache_bytes()
    store.put("stays", 1, 2 * RETENTION)
    for _ in range(2):
        helpers.commit(store, backend)
    assert store.cache_bytes() < before / 20


@pytest.mark.parametrize("key", ["a", "a\0"])
def test_numbers_after_a_restart_are_above_those_of_the_same_key(key):
    """A record of a key that begins with another one takes no number, and so no place, of an older record."""
    backend = MemoryBackend()
    first = build(backend)
    for other in ("a", "a\0", "a\0"):
        first.put(other, 1, 0)
    helpers.commit(first, backend)
    again = build(backend)
    again.put(key, 2, 0)
    helpers.commit(again, backend)
    values = [value for _, value in build(backend).fetch(key, 0, 0)]
    assert values == ([1, 2] if key == "a" else [1, 1, 2])


def test_changelog_keys_are_numbered_by_puts():
    """As in Kafka Streams: numbers start at 1, and a put of None takes one, too."""
    store = build(MemoryBackend())
    for value in (5, None, 6):
        store.put("k", value, 1000)
    found = helpers.commit(store, MemoryBackend())
    assert [(split_window_key(row[2]), row[1]) for row in found] == [
        ((b"k", 1000, 1), serdes.Long.serialize(5)),
        ((b"k", 1000, 2), None),
        ((b"k", 1000, 3), serdes.Long.serialize(6)),
    ]


@pytest.mark.parametrize("persistent", [True, False])
def test_single_fetch_after_a_put_that_came_too_late_is_that_of_kafka_streams(persistent):
    """There, each put takes a number on disk, also one that is not kept, and a fetch reads with the last number."""
    store = build(MemoryBackend(), persistent=persistent)
    store.put("k", 5, 10 * RETENTION)
    store.put("k", 6, 0)
    assert store.fetch("k", 10 * RETENTION) == (None if persistent else 5)


def test_single_fetch_returns_the_last_put_only():
    """As in Kafka Streams, where it reads with the last number."""
    store = build(MemoryBackend())
    store.put("k", 5, 1000)
    assert store.fetch("k", 1000) == 5
    store.put("k", 6, 2000)
    assert store.fetch("k", 1000) is None
    assert list(store.fetch_all(0, 5000)) == [(Windowed("k", 1000, 2000), 5), (Windowed("k", 2000, 3000), 6)]


@pytest.mark.parametrize("option", ["timestamped", "caching"])
def test_duplicates_have_neither_timestamps_nor_a_cache(option):
    with pytest.raises(ConfigError, match=f"leave {option}= out"):
        WindowStoreBuilder(name="w", retention_ms=1, window_size_ms=1, retain_duplicates=True, **{option: True})


@pytest.mark.parametrize("persistent", [True, False])
def test_puts_that_are_not_kept_take_no_memory(persistent):
    """Puts of None and puts that come too late are only logged; they must not crowd out the rows of others."""
    backend = MemoryBackend()
    store = build(backend, persistent=persistent)
    for number in range(1000):
        store.append(b"k%d" % number, f"k{number}", None, 10_000 + number, 0)
    store.append(b"k", "k", 1, 10_000_000, 0)
    for number in range(1000):
        store.append(b"k%d" % number, f"k{number}", 1, number, 0)
        helpers.commit(store, backend)
    assert store.cache_bytes() < 1000
    assert [value for _, _, value in store.matches(b"k", 0, 10_000_000)] == [1]


@pytest.fixture
def few_lookups(monkeypatch):
    """All rows are looked at after the second late put since a restart, two rows with each flush."""
    monkeypatch.setattr(duplicate_windows, "_MANY_LOOKUPS", 1)
    monkeypatch.setattr(duplicate_windows, "_PART", 2)


@settings(
    max_examples=generated.examples(100),
    suppress_health_check=[*generated.BY_CHANCE, HealthCheck.function_scoped_fixture],
)
@given(steps=steps)
def test_a_store_that_looked_at_all_rows_equals_a_list_of_puts(few_lookups, steps):
    """No late put replaces a row of an earlier task, whether its number was looked up or not."""
    place = helpers.BACKENDS["memory"]()
    compare(place, steps, mutable=False, persistent=True)


def test_late_puts_after_a_restart_read_the_backend_a_limited_number_of_times(few_lookups, monkeypatch):
    """Each looks for used numbers, until the numbers are above those of all rows."""
    monkeypatch.setattr(duplicate_windows, "_PART", 100)

    class Counting(MemoryBackend):
        ranges = 0

        def range(self, *arguments, **options):
            self.ranges += 1
            return super().range(*arguments, **options)

    backend = Counting()
    first = build(backend)
    values = list(range(9))
    for number in values:
        first.put("a", number, 10)
    for number in range(300):
        first.put("z", number, 11)
    helpers.commit(first, backend)
    store = build(backend)
    reads = []
    for number in range(9, 50):
        before = backend.ranges
        store.put("ab"[number % 2], number, 10)
        reads.append(backend.ranges - before)
        helpers.commit(store, backend)
        values += [] if number % 2 else [number]
    assert reads == sorted(reads, reverse=True)
    assert (reads[0], reads[20:]) == (1, [0] * 21)
    store.put("z", 300, 11)
    helpers.commit(store, backend)
    assert [value for _, value in build(backend).fetch("z", 0, 100)] == list(range(301))
    assert [value for _, value in build(backend).fetch("a", 0, 100)] == values
