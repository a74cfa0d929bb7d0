"""The memory of stores: it stays within its budget, and uncommitted writes are never evicted."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import serdes
from millpond.errors import SerializationError, StateError
from millpond.serdes import Serde
from millpond.state import KeyValueStoreBuilder, MemoryBackend, ValueAndTimestamp, WindowStoreBuilder
from millpond.state.stores import memory_estimates
from millpond.state.stores.staged_store import StoreContext
from tests.state import helpers

KINDS = ["key-value", "window"]


def build(kind, backend, **options):
    """A timestamped store of longs, and functions to put and get by key whatever the kind."""
    common = {"name": "s", "key": serdes.String, "value": serdes.Long, "timestamped": True, **options}
    if kind == "key-value":
        store = KeyValueStoreBuilder(**common).build(0, backend, "changelog")
        return store, lambda key, value: store.put(key, ValueAndTimestamp(value, 1)), store.get
    store = WindowStoreBuilder(retention_ms=60_000, window_size_ms=1000, **common).build(0, backend, "changelog")
    return (
        store,
        lambda key, value: store.put(key, ValueAndTimestamp(value, 1), len(key) % 3 * 1000),
        lambda key: store.fetch(key, len(key) % 3 * 1000),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_evicted_entries_are_read_from_the_backend(kind):
    """After a commit the cache is within its limit, and evicted entries are read from the backend."""
    backend = MemoryBackend()
    store, put, get = build(kind, backend)
    store.cache_limit = 50_000
    for number in range(5000):
        put(f"k{number}", number)
    assert store.staged_bytes() > 0
    helpers.commit(store, backend)
    assert store.cache_bytes() <= store.cache_limit
    assert store.cache_bytes() > store.cache_limit / 2, "it is not emptied for nothing"
    assert [get(f"k{number}").value for number in range(5000)] == list(range(5000))


@pytest.mark.parametrize("kind", KINDS)
def test_evicted_entries_keep_their_timestamps(kind):
    """A row that is read from the backend again has the timestamp with which it was put."""
    backend = MemoryBackend()
    store, put, get = build(kind, backend)
    store.cache_limit = 0
    put("k", 7)
    helpers.commit(store, backend)
    assert get("k") == ValueAndTimestamp(7, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_uncommitted_entries_are_never_evicted(kind):
    """Dirty, flushed and sealed writes are readable at each step with a cache limit of 0."""
    backend = MemoryBackend()
    store, put, get = build(kind, backend)
    store.cache_limit = 0
    put("sealed", 1)
    store.flush([])
    rows = store.seal()
    put("flushed", 2)
    store.flush([])
    put("dirty", 3)
    backend.write([("s", 0, rows)], {("s", 0): (1, store.metadata())})
    store.committed()
    assert [get(key).value for key in ("sealed", "flushed", "dirty")] == [1, 2, 3]
    assert not list(backend.range("s", b"\0\0\0\0flushed", b"\0\0\0\0flushed\0"))
    assert store.staged_bytes() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_memory_is_near_the_truth(kind):
    """The estimate is between the memory that Python allocated and twice that."""
    backend = MemoryBackend()
    store, put, _ = build(kind, backend)
    gc.collect()
    tracemalloc.start()
    for number in range(20_000):
        put(f"key-{number:012}", number << 40)
    store.flush([])
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken * 0.8 <= store.cache_bytes() <= taken * 2


def test_complete_cache_answers_misses_without_the_backend():
    """A new store has all entries in memory; after an eviction misses read the backend again."""
    backend = MemoryBackend()
    asked: list[bytes] = []
    reader = backend.reader
    backend.reader = lambda store: lambda key: asked.append(key) or reader(store)(key)
    store, put, get = build("key-value", backend)
    assert get("a") is None
    put("a", 1)
    helpers.commit(store, backend)
    assert (get("a").value, get("b"), asked) == (1, None, [])
    store.cache_limit = 0
    helpers.commit(store, backend)
    assert (get("a").value, get("b")) == (1, None)
    assert asked == [b"\0\0\0\0a", b"\0\0\0\0b"]


def test_a_new_window_is_not_asked_of_the_backend():
    """A window that starts later than any put so far is not read from the backend, not even after a put into it."""
    backend = MemoryBackend()
    asked: list[bytes] = []
    reader = backend.reader
    backend.reader = lambda store: lambda key: asked.append(key) or reader(store)(key)
    store, _, _ = build("window", backend)
    for start in range(0, 10_000, 1000):
        assert store.fetch("a", start) is None
        store.put("a", ValueAndTimestamp(start, start), start)
        assert store.fetch("b", start) is None
    helpers.commit(store, backend)
    assert asked == []
    store.cache_limit = 0
    helpers.commit(store, backend)
    assert store.fetch("a", 3000) == ValueAndTimestamp(3000, 3000)
    assert len(asked) == 1


class Task:
    """The part of a task that a store uses."""

    def __init__(self) -> None:
        self.headers = None
        self.origin = self.message = None
        self.timestamp = -1

    def now_ms(self) -> int:
        return 99


@pytest.mark.parametrize("kind", KINDS)
def test_cached_update_keeps_the_headers_of_the_last_put(kind):
    """Headers at flush are those of the record that made the last update of the key, none if it had none."""
    task: StoreContext = Task()
    store, put, _ = build(kind, MemoryBackend(), caching=True)
    store.attach(task)
    heard: list = []
    store.on_flush(lambda key, new, old, timestamp: heard.append((new, task.headers)))
    for key, value, headers in (
        ("a", 1, [("h", b"1")]),
        ("b", 2, [("h", b"2")]),
        ("a", 3, [("h", b"3")]),
        ("b", 4, None),
    ):
        task.headers = headers
        put(key, value)
    store.flush([])
    assert heard == [(3, [("h", b"3")]), (4, None)]
    assert task.headers is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_listener_may_put_into_the_store_that_is_flushed(kind):
    """Entries that are put during a flush are dirty afterwards, and belong to the next flush."""
    backend = MemoryBackend()
    store, put, get = build(kind, backend, caching=True)
    heard: list = []

    def hear(key, new, old, timestamp):
        heard.append(new)
        if new < 3:
            put("k", new + 1)

    store.on_flush(hear)
    put("k", 1)
    for expected in ([1], [1, 2], [1, 2, 3], [1, 2, 3]):
        store.flush([])
        assert heard == expected
    assert get("k").value == 3


@pytest.mark.parametrize("kind", KINDS)
def test_key_created_and_deleted_between_flushes_is_not_logged(kind):
    """A caching store neither forwards nor logs it, as in Kafka Streams."""
    store, put, get = build(kind, MemoryBackend(), caching=True)
    store.on_flush(lambda *change: pytest.fail("nothing has changed"))
    put("k", 1)
    store.put("k", None) if kind == "key-value" else store.put("k", None, 1000)
    out: list = []
    store.flush(out)
    assert (out, store.seal(), get("k")) == ([], [], None)


def test_write_without_a_timestamp_uses_the_records():
    """A plain store's changelog has the current record's timestamp, or the wall clock where there is no record."""
    task = Task()
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long).build(0, MemoryBackend(), "changelog")
    store.attach(task)
    for timestamp in (5, -1):
        task.timestamp = timestamp
        store.put("k", 1)
        out: list = []
        store.flush(out)
        assert out[0][6] == (5 if timestamp == 5 else 99)


@pytest.mark.parametrize("kind", ["key-value", "window"])
def test_unserializable_value_is_rejected_when_it_is_put(kind):
    """The error names store, key and serde but not the value; the previous value stays."""
    store, put, get = build(kind, MemoryBackend())
    put("k", 1)
    for refused, what in (("a secret", "type str"), (2**64, "type int"), ("another", "type str")):
        with pytest.raises(
            SerializationError, match=f"store 's' cannot keep a value for key 'k': .*Long cannot .*{what}"
        ) as raised:
            put("k", refused)
        assert str(refused) not in str(raised.value)
    assert get("k")[0] == 1
    out = []
    store.flush(out)
    assert [row[1] for row in out] == [(1).to_bytes(8, "big")]


def test_closed_store_raises_an_error():
    """A store that is used after its task has ended raises a clear error, and returns no stale data."""
    store, put, get = build("key-value", MemoryBackend())
    put("k", 1)
    store.close()
    assert not store.is_open
    for use in (lambda: get("k"), lambda: put("k", 2), lambda: list(store.all()), store.approximate_num_entries):
        with pytest.raises(StateError, match="'s' is closed"):
            use()


def test_unconfirmed_rows_are_sealed_again():
    """A seal after a failed write returns the rows again, the older ones first."""
    store, put, _ = build("key-value", MemoryBackend())
    put("a", 1)
    store.flush([])
    first = list(store.seal())
    put("a", 2)
    store.flush([])
    again = store.seal()
    assert again[:1] == first
    assert [value[-1] for _, value in again] == [1, 2]


def test_serdes_are_made_for_the_changelog_topic():
    """Serdes with a schema registry get the topic: the store's schemas are under the changelog's subjects."""
    asked: list = []

    def specialize(topic, is_key):
        asked.append((topic, is_key))
        return serdes.String

    serde = Serde("Registry", str.encode, bytes.decode, True, specialize)
    builder = KeyValueStoreBuilder(name="s", key=serde, value=serde)
    builder.build(0, MemoryBackend(), "app-s-changelog")
    assert asked == [("app-s-changelog", True), ("app-s-changelog", False)]


nested = st.recursive(
    st.integers() | st.text() | st.binary() | st.none(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
)


@given(nested)
def test_every_value_has_an_estimated_size(value):
    """The size of any value can be estimated."""
    assert memory_estimates.size_of(value) > 0
