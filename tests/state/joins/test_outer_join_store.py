"""The store of records that wait for a partner equals a dictionary, through commits, aborts, crashes and evictions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import serdes
from millpond.state import MemoryBackend, OuterJoinStoreBuilder
from millpond.state.stores.outer_join import NOTHING_WAITS, decode_list, encode_list, side_prefix
from tests.state import helpers
from tests.support import generated

times = st.integers(0, 30)
keys = st.builds(
    lambda time, left, key: side_prefix(time, left) + key, times, st.booleans(), st.sampled_from([b"", b"a", b"\xff"])
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), keys, st.integers(0, 9)),
        st.tuples(st.just("discard"), keys),
        st.tuples(st.just("close"), times, times),
        st.tuples(st.sampled_from(["commit", "flush", "abort", "crash", "restore", "evict"])),
        st.tuples(st.just("forget"), st.integers(1, 4)),
    ),
    max_size=40,
)


def build(backend):
    return OuterJoinStoreBuilder(name="w", key=serdes.Bytes, value=serdes.Bytes, right=serdes.Bytes).build(
        7, backend, "changelog"
    )


def due(waiting, left_below, right_below):
    return [
        (key, value)
        for key in sorted(waiting)
        for value in waiting[key]
        if int.from_bytes(key[:8], "big") < (left_below if key[8] else right_below)
    ]


@pytest.mark.parametrize("place_type", helpers.BACKENDS)
@settings(max_examples=generated.examples(120))
@given(steps=steps)
def test_store_equals_a_dictionary(place_type, steps):
    """Records leave it in the order of their keys, once; a crash or an abort loses what was not committed."""
    place = helpers.BACKENDS[place_type]()
    try:
        compare(place, steps)
    finally:
        place.end()


def compare(place, steps):
    store = build(place.backend)
    waiting, committed, changelog = {}, {}, []
    for step, *arguments in [*steps, ("close", 99, 99)]:
        if step == "add":
            key, value = arguments
            store.add(key, bytes([value]), 5)
            waiting[key] = [*waiting.get(key, ()), bytes([value])]
        elif step == "discard":
            store.discard(arguments[0], 5)
            waiting.pop(arguments[0], None)
        elif step == "close":
            expected = due(waiting, *arguments)
            assert list(store.closed(*arguments, 5)) == expected
            for key, _ in expected:
                waiting.pop(key, None)
            if waiting:
                assert min(int.from_bytes(key[:8], "big") for key in waiting) <= store.min_time < NOTHING_WAITS
        elif step == "forget":
            store._evict(arguments[0])
        elif step == "flush":
            # As in a commit that is under way while the next records are processed.
            store.flush(changelog)
        elif step in ("commit", "evict"):
            store.cache_limit = 0 if step == "evict" else 10_000_000
            changelog += helpers.commit(store, place.backend)
            committed = {key: list(values) for key, values in waiting.items()}
        elif step == "abort":
            store.revert()
            waiting = {key: list(values) for key, values in committed.items()}
            changelog = committed_changelog(committed)
        else:
            store.close()
            waiting = {key: list(values) for key, values in committed.items()}
            changelog = committed_changelog(committed)
            if step == "restore":
                place.end()
                place.__init__()
            elif place.durable:
                place.crash()
            store = build(place.backend)
            if step == "restore":
                rows = store.restore(map(helpers.changelog_record, changelog))
                place.backend.write([("w", 7, rows)], {("w", 7): (1, store.metadata())})
        assert latest(changelog) == {} or step != "commit" or latest(changelog) == encoded(committed)
        assert store.cache_bytes() >= 0


def committed_changelog(committed):
    return [("changelog", data, key, 7, None, None, 5) for key, data in encoded(committed).items()]


def encoded(waiting):
    return {key: encode_list(values) for key, values in waiting.items()}


def latest(changelog):
    found = {row[2]: row[1] for row in changelog}
    return {key: value for key, value in found.items() if value is not None}


@given(st.lists(st.binary(max_size=9), max_size=5))
def test_lists_are_read_as_they_were_written(values):
    assert decode_list(encode_list(values)) == values


@pytest.mark.parametrize("data", [b"", b"\x00\0\0\0\0", b"\x01\0\0\0", b"\x01\0\0\0\x01\0\0\0\x02a", b"\x01\0\0\0\x02"])
def test_a_list_that_ends_early_is_an_error(data):
    with pytest.raises(ValueError, match="it "):
        decode_list(data)


def test_list_has_the_bytes_of_kafka():
    """ListSerde of byte arrays: the strategy, the count, and each value after its length."""
    assert encode_list([b"\x01v", b"\x00"]).hex() == "010000000200000002017600000001" + "00"


def test_a_record_that_found_its_partner_before_the_flush_is_not_logged():
    """As with a record cache: the changelog never had it."""
    store = build(MemoryBackend())
    key = side_prefix(1, True) + b"k"
    store.add(key, b"\x01v", 1)
    store.discard(key, 2)
    assert helpers.commit(store, MemoryBackend()) == []
    store.add(key, b"\x01v", 1)
    first = helpers.commit(store, MemoryBackend())
    store.discard(key, 2)
    second = helpers.commit(store, MemoryBackend())
    assert [(row[1], row[6]) for row in (*first, *second)] == [(encode_list([b"\x01v"]), 1), (None, 2)]


def test_giving_up_leaves_the_last_two_records():
    """As in Kafka Streams, which removes a record after the next one was handled."""
    store = build(MemoryBackend())
    for time in range(4):
        store.add(side_prefix(time, True) + b"k", b"\x01%d" % time, 9)
    closing = store.closed(9, 9, 9)
    assert [next(closing)[1] for _ in range(3)] == [b"\x010", b"\x011", b"\x012"]
    closing.close()
    assert [data for _, data in store.closed(9, 9, 9)] == [b"\x011", b"\x012", b"\x013"]


def test_a_commit_seldom_evicts_when_memory_is_full():
    """An eviction costs a sort of all keys, so that one with each commit would slow the task down."""
    backend = MemoryBackend()
    store = build(backend)
    for time in range(2000):
        store.add(side_prefix(time, True) + b"k", b"\x01v", 0)
    helpers.commit(store, backend)
    store.cache_limit = store.cache_bytes()
    evicted = 0
    for time in range(2000, 2200):
        store.add(side_prefix(time, True) + b"k", b"\x01v", 0)
        before = len(store._held)
        helpers.commit(store, backend)
        evicted += len(store._held) < before
        assert store.cache_bytes() <= store.cache_limit
    assert evicted <= 2
    assert len(list(store.closed(9999, 9999, 0))) == 2200
