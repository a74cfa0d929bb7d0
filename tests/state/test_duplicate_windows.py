"""A store of duplicates keeps every value in the order of the puts, through commits, aborts, crashes and evictions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import serdes
from millpond.errors import ConfigError
from millpond.serdes import Windowed
from millpond.state import MemoryBackend, WindowStoreBuilder
from millpond.state.formats import split_window_key
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
        st.tuples(st.sampled_from(["commit", "abort", "crash", "restore", "evict", "read"])),
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
    for step, *arguments in steps:
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
        elif step == "abort":
            store.revert()
            put = list(committed)
        elif step == "evict":
            store.cache_limit = 0
            changelog += helpers.commit(store, place.backend)
            committed = list(put)
            store.cache_limit = 10_000_000
        elif step in ("crash", "restore"):
            store.close()
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
    assert [value for _, value in build(backend).fetch(key, 0, 0)] == [1, 2] if key == "a" else [1, 1, 2]


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
