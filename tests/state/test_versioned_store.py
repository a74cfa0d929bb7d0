"""Versioned stores: values by time, late puts, and state that survives a crash."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millpond import serdes
from millpond.errors import ConfigError, SerializationError
from millpond.state import MemoryBackend, VersionedKeyValueStoreBuilder, VersionedRecord
from tests.state import helpers

NOT_PUT = -(2**63)
IS_LATEST = -1


def build(backend, retention=100, **options):
    """A store of longs with the changelog `changelog`."""
    builder = VersionedKeyValueStoreBuilder(
        name="s", key=serdes.String, value=serdes.Long, history_retention_ms=retention, **options
    )
    return builder.build(0, backend, "changelog")


def test_each_time_has_its_value():
    """A read finds the value of its time; a deletion is a version, too; a put says when the next version begins."""
    store = build(MemoryBackend())
    assert store.put("k", 1, 10) == -1
    assert store.put("k", None, 30) == -1
    assert store.put("k", 3, 50) == -1
    assert store.put("k", 2, 20) == 30
    assert store.put("k", 5, 50) == -1, "a version of the same time is replaced"
    values = [store.get("k", as_of) for as_of in (9, 10, 19, 20, 29, 30, 49, 50, 1000)]
    one, two, five = VersionedRecord(1, 10), VersionedRecord(2, 20), VersionedRecord(5, 50)
    assert values == [None, one, one, two, two, None, None, five, five]
    assert store.get("k") == five
    assert store.get("kk") is None


def test_a_read_does_not_look_at_the_keys_that_begin_with_its_key():
    """Their rows are between those of its versions in the order of bytes, and may be most of the store."""

    class Counting(MemoryBackend):
        seen = 0

        def range(self, *arguments, **options):
            for row in super().range(*arguments, **options):
                self.seen += 1
                yield row

    backend = Counting()
    store = build(backend, retention=1000)
    now = 1_700_000_000_000
    for number in range(20):
        store.put(f"1{number}", number, now + number)
    store.put("1", 1, now)
    store.put("1", 2, now + 30)
    store.flush([])
    backend.write([("s", 0, store.seal())], {("s", 0): (1, store.metadata())})
    again = build(backend, retention=1000)
    backend.seen = 0
    assert again.get("1", now + 29) == VersionedRecord(1, now)
    assert again.get("1") == VersionedRecord(2, now + 30)
    assert backend.seen == 2


def _commit(store, backend):
    store.flush([])
    backend.write([("s", 0, store.seal())], {("s", 0): (1, store.metadata())})
    store.committed()


@pytest.mark.parametrize("part", [2, 500])
def test_keys_that_are_put_no_more_leave_no_rows(part, monkeypatch):
    """The versions that have ended expire, and a deleted key as a whole, also if the store is only restored."""
    monkeypatch.setattr("millpond.state.stores.versioned.store._PART", part)
    backend = MemoryBackend()
    store = build(backend, segment_interval_ms=10)
    puts = [(f"k{number}", value, 5 * number + at) for number in range(30) for at, value in enumerate([1, 2, None])]
    puts += [("stays", 1, 20), ("stays", 2, 30)]
    puts.sort(key=lambda each: each[2])
    for put in puts:
        store.put(*put)
    _commit(store, backend)
    for step in range(60):
        store.put("clock", step, 1000)
        _commit(store, backend)
    rows = [key[4:] for key, _ in backend.range("s", b"", None)]
    assert [key[:-8] for key in rows] == [b"clock", b"stays"]
    assert store.get("stays") == build(backend, segment_interval_ms=10).get("stays") == VersionedRecord(2, 30)
    other = MemoryBackend()
    copy = build(other, segment_interval_ms=10)
    for key, value, time in [*puts, *[("clock", 1, 1000)] * 60]:
        records = [(key.encode(), None if value is None else serdes.Long.serialize(value), time, None)]
        other.write([("s", 0, copy.restore(records))], {("s", 0): (1, copy.metadata())})
    assert [key[4:] for key, _ in other.range("s", b"", None)] == rows


def test_a_sweep_keeps_a_deletion_that_was_replaced_since_the_last_commit():
    """The backend still has the deletion when its segment expires; the value in its place is the key's latest."""
    backend = MemoryBackend()
    store = build(backend, segment_interval_ms=10)
    store.put("k", None, 50)
    _commit(store, backend)
    store.put("k", 7, 50)
    store.put("clock", 1, 1000)
    _commit(store, backend)
    assert store.get("k") == build(backend, segment_interval_ms=10).get("k") == VersionedRecord(7, 50)


def test_a_put_beyond_the_history_retention_is_rejected_and_logged():
    """It changes nothing, but it has a record in the changelog, as in Kafka Streams; restoring rejects it again."""
    store = build(MemoryBackend())
    store.put("other", 1, 1000)
    assert store.put("k", 1, 900) == -1
    assert store.put("k", 2, 899) == NOT_PUT
    assert store.put("new", 2, 899) == NOT_PUT
    assert store.delete("k", 899) is None
    assert (store.get("k"), store.get("new")) == (VersionedRecord(1, 900), None)
    assert store.expired_puts == 3
    out = []
    store.flush(out)
    assert [(each[2], each[6]) for each in out] == [
        (b"other", 1000), (b"k", 900), (b"k", 899), (b"new", 899), (b"k", 899),
    ]  # fmt: skip
    backend = MemoryBackend()
    other = build(backend)
    rows = other.restore([(each[2], each[1], each[6], None) for each in out])
    backend.write([("s", 0, rows)], {("s", 0): (5, other.metadata())})
    assert (other.get("k"), other.get("new")) == (VersionedRecord(1, 900), None)
    assert other.observed_stream_time == 1000


def test_reads_beyond_the_history_retention_find_only_the_latest_value():
    """The latest value never expires, older ones do."""
    store = build(MemoryBackend())
    store.put("k", 1, 10)
    store.put("k", 2, 20)
    store.put("other", 1, 1000)
    assert store.get("k", 15) is None
    assert store.get("k", 20) == VersionedRecord(2, 20)
    assert store.get("k") == VersionedRecord(2, 20)


def test_a_deletion_at_the_time_of_the_only_value_leaves_no_trace():
    """As in Kafka Streams: a late value is the latest again; a deletion at another time, or put twice, stays."""
    backend = MemoryBackend()
    for again, latest in (((100, None),), 90), (((101, None),), None), (((100, None), (100, 8), (100, None)), 90):
        store = build(backend)
        store.put("k", 7, 100)
        for time, value in again:
            store.put("k", value, time)
        assert store.put("k", 9, 90) == (IS_LATEST if latest else 100)
        found = store.get("k")
        assert (None if found is None else found.timestamp) == latest
    store = build(backend)
    store.put("d", None, 100)
    store.put("d", None, 100)
    assert store.put("d", 9, 90) == 100
    assert store.get("d") is None


def test_versions_of_a_range_of_times():
    """They are the values valid at any time of the range, with their validity, in both orders."""
    store = build(MemoryBackend())
    for value, timestamp in ((1, 10), (None, 20), (3, 30), (4, 40)):
        store.put("k", value, timestamp)
    first, third, last = VersionedRecord(1, 10, 20), VersionedRecord(3, 30, 40), VersionedRecord(4, 40)
    assert list(store.versions("k")) == [first, third, last]
    assert list(store.versions("k", descending=True)) == [last, third, first]
    assert list(store.versions("k", 20, 35)) == [third]
    assert list(store.versions("k", 19, 29)) == [first]
    assert list(store.versions("k", 45, 50)) == [last]


def test_keys_that_begin_with_another_key_are_apart():
    """Versions of longer keys may lie between those of a shorter one."""
    backend = MemoryBackend()
    store = build(backend, retention=10**6)
    for key in ("k", "k\0", "k\0\0\0\0\0\0\0\0", "k\0\0\0\0\0\0\0\1"):
        for timestamp in (0, 1, 256):
            store.put(key, timestamp, timestamp)
    helpers.commit(store, backend)
    again = build(backend, retention=10**6)
    assert [each.timestamp for each in again.versions("k")] == [0, 1, 256]
    assert [each.timestamp for each in again.versions("k\0")] == [0, 1, 256]


def test_the_changelog_is_compacted_only_after_the_history_retention():
    """`min.compaction.lag.ms` is the retention and a day, unless the store sets it."""
    common = {"name": "s", "history_retention_ms": 5000}
    assert VersionedKeyValueStoreBuilder(**common).changelog_config() == {
        "message.timestamp.type": "CreateTime",
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "86405000",
    }
    own = VersionedKeyValueStoreBuilder(**common, log_config={"min.compaction.lag.ms": "7"})
    assert own.changelog_config()["min.compaction.lag.ms"] == "7"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history_retention_ms": -1}, "must not be negative"),
        ({"history_retention_ms": 1.5}, "whole milliseconds"),
        ({"history_retention_ms": 1, "segment_interval_ms": 0}, "at least 1 ms"),
        ({"history_retention_ms": 1, "caching": True}, "no cache"),
    ],
)
def test_wrong_options_are_refused(options, message):
    """The message names the store and the option."""
    with pytest.raises(ConfigError, match=message):
        VersionedKeyValueStoreBuilder(name="s", **options)


def test_the_key_none_is_refused():
    """Reads and writes without a key are errors of the record."""
    store = build(MemoryBackend())
    for call in (lambda: store.get(None), lambda: store.put(None, 1, 1), lambda: store.delete(None, 1)):
        with pytest.raises(SerializationError, match="key None"):
            call()


def test_uncommitted_versions_are_never_evicted():
    """Dirty, flushed and sealed writes are readable at each step with a cache limit of 0."""
    backend = MemoryBackend()
    store = build(backend)
    store.cache_limit = 0
    store.put("sealed", 1, 1)
    store.flush([])
    rows = store.seal()
    store.put("flushed", 2, 2)
    store.flush([])
    store.put("dirty", 3, 3)
    backend.write([("s", 0, rows)], {("s", 0): (1, store.metadata())})
    store.committed()
    assert [store.get(key).value for key in ("sealed", "flushed", "dirty")] == [1, 2, 3]


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.sampled_from("abc"),
            st.one_of(st.none(), st.integers(0, 9)),
            st.integers(0, 400),
        ),
        st.sampled_from(["commit", "flush", "seal", "revert", "crash", "restore", 1, 2]),
    ),
    max_size=40,
)


@example(steps=[("put", "b", 0, 75), ("put", "b", None, 75), ("put", "b", 0, 74)], retention=7, interval=None)
@given(steps=STEPS, retention=st.sampled_from([0, 7, 50, 100]), interval=st.sampled_from([None, 1, 30]))
def test_a_store_equals_its_model(steps, retention, interval):
    """Through commits, reverts, crashes between a stage and a commit, and restores, all reads equal a plain list."""
    backend = MemoryBackend()
    store = build(backend, retention, segment_interval_ms=interval)
    done: list = []  # all accepted puts of the committed state, with the stream time
    committed: list = []
    log: list = []
    for step in steps:
        if isinstance(step, tuple):
            _, key, value, timestamp = step
            observed = max([-1, *(each[2] for each in done)])
            result = store.put(key, value, timestamp)
            assert (result == NOT_PUT) == (timestamp < observed - retention)
            if result != NOT_PUT:
                done.append((key, value, timestamp))
        elif isinstance(step, int):
            if not store._sealed:
                store._evict(step)
        elif step == "flush":
            store.flush([])
        elif step == "seal":
            store.seal()
        elif step == "commit":
            store.flush(log)
            backend.write([("s", 0, store.seal())], {("s", 0): (1, store.metadata())})
            store.committed()
            committed = done.copy()
        elif step == "revert":
            store.revert()
            done = committed.copy()
        elif step == "crash":
            store = build(backend, retention, segment_interval_ms=interval)
            done = committed.copy()
        else:
            fresh = MemoryBackend()
            records = [(key.encode(), value if value is None else serdes.Long.serialize(value), timestamp, None)
                       for key, value, timestamp in committed]  # fmt: skip
            store = build(fresh, retention, segment_interval_ms=interval)
            for batch in (records[: len(records) // 2], records[len(records) // 2 :]):
                fresh.write([("s", 0, store.restore(batch))], {("s", 0): (1, store.metadata())})
            backend = fresh
            done = committed.copy()
        _check(store, done, retention)


def _versions_of(key, done):
    """The versions that puts leave, by time.

    As in Kafka Streams, a deletion at the time of the latest value, with no value right before it, leaves no trace.
    """
    versions = {}
    for _, value, timestamp in (each for each in done if each[0] == key):
        before = versions.get(max((each for each in versions if each < timestamp), default=None))
        if value is None and versions.get(timestamp) is not None and timestamp == max(versions) and before is None:
            del versions[timestamp]
        else:
            versions[timestamp] = value
    return versions


def _check(store, done, retention):
    observed = max([-1, *(each[2] for each in done)])
    for key in "abc":
        history = sorted(_versions_of(key, done).items())
        latest = history[-1] if history and history[-1][1] is not None else None
        got = store.get(key)
        assert (None if got is None else (got.timestamp, got.value)) == latest
        for as_of in (0, 5, 37, 100, 250, observed - retention - 1, observed - retention, observed):
            at = [each for each in history if each[0] <= as_of]
            found = at[-1] if at and at[-1][1] is not None else None
            if as_of < observed - retention and found != latest:
                found = None
            got = store.get(key, as_of)
            assert (None if got is None else (got.timestamp, got.value)) == found, (key, as_of)


def _reads(store, times):
    """What all kinds of reads find."""
    return [
        (store.get(key), [store.get(key, each) for each in times], list(store.versions(key, *bounds)))
        for key in "abc"
        for bounds in ((None, None), (None, times[1]), (times[0], None), (times[0], times[1]))
    ]


@given(
    puts=st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 400)), max_size=25
    ),
    retention=st.sampled_from([0, 7, 50, 100]),
    interval=st.sampled_from([None, 1, 30]),
    times=st.tuples(st.integers(0, 400), st.integers(0, 400)),
)
def test_expired_versions_are_not_read_although_their_rows_are_there(puts, retention, interval, times):
    """Reads and puts have the same results whether expired rows were deleted or a sweep has yet to come."""
    swept, kept = (build(MemoryBackend(), retention, segment_interval_ms=interval) for _ in range(2))
    kept._sweep = list
    kept._take_expired = lambda history: []
    for key, value, timestamp in puts:
        results = []
        for store in (swept, kept):
            results.append(store.put(key, value, timestamp))
            store.flush([])
            store._backend.write([("s", 0, store.seal())], {("s", 0): (1, store.metadata())})
            store.cache_limit = -(2**40)
            store.committed()
        assert results[0] == results[1]
        assert _reads(swept, times) == _reads(kept, times)
