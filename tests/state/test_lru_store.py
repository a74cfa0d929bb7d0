"""A store with a maximum number of entries behaves as a bounded dict, through commits, reverts and restores."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from millpond import serdes
from millpond.errors import ConfigError
from millpond.state import KeyValueStoreBuilder, MemoryBackend
from tests.state import helpers
from tests.support import generated

MOST = 3
keys = st.sampled_from(["", "a", "aa", "ab", "b", "c"])
numbers = st.integers(0, 99)


class LruMachine(RuleBasedStateMachine):
    """Compare the store with a dict whose keys are in the order of use."""

    caching = False

    @initialize()
    def start(self):
        self.backend = MemoryBackend()
        self.now: dict[str, int] = {}
        self.committed: dict[str, int] = {}
        self.changelog: list = []
        self.told: dict[str, int | None] = {}
        self.store = self.build(self.backend)

    def build(self, backend):
        builder = KeyValueStoreBuilder(
            name="s", key=serdes.String, value=serdes.Long, max_entries=MOST, caching=self.caching
        )
        store = builder.build(7, backend, "changelog")
        store.on_flush(self.hear)
        return store

    def hear(self, key, new, old, timestamp):
        self.told[key] = new

    def use(self, key):
        if key in self.now:
            self.now[key] = self.now.pop(key)

    @rule(key=keys, number=numbers)
    def put(self, key, number):
        self.store.put(key, number)
        self.now.pop(key, None)
        self.now[key] = number
        if len(self.now) > MOST:
            del self.now[next(iter(self.now))]

    @rule(key=keys)
    def delete(self, key):
        assert self.store.delete(key) == self.now.pop(key, None)

    @rule(key=keys)
    def get(self, key):
        assert self.store.get(key) == self.now.get(key)
        self.use(key)

    @rule(key=keys, number=numbers)
    def put_if_absent(self, key, number):
        assert self.store.put_if_absent(key, number) == self.now.get(key)
        if key in self.now:
            self.use(key)
        else:
            self.now[key] = number
            if len(self.now) > MOST:
                del self.now[next(iter(self.now))]

    @rule(key=keys, reverse=st.booleans())
    def read_without_use(self, key, reverse):
        """Ranges, scans and queries are no use of an entry."""
        ordered = sorted(self.now.items(), key=lambda entry: entry[0].encode(), reverse=reverse)
        assert list(self.store.reverse_all() if reverse else self.store.all()) == ordered
        assert [key for key, _ in self.store.prefix_scan("a")] == sorted(key for key in self.now if key[:1] == "a")
        assert self.store.peek(key.encode())[0] == self.now.get(key)

    @rule(count=st.integers(1, 4))
    def forget_some(self, count):
        """Memory is short: `committed` forgets some values, but not the order of use."""
        self.store._evict(count)

    @rule()
    def commit(self):
        self.told.clear()
        self.changelog += [helpers.changelog_record(row) for row in helpers.commit(self.store, self.backend)]
        self.committed = dict(self.now)
        if self.caching:
            told = {key: number for key, number in self.told.items() if key in self.now}
            assert told.items() <= self.now.items()

    @rule()
    def revert(self):
        """The order of use is that of the puts in the changelog again."""
        self.store.revert()
        self.now = self.in_order_of_the_changelog()

    def in_order_of_the_changelog(self):
        last = {key.decode(): at for at, (key, *_) in enumerate(self.changelog)}
        return dict(sorted(self.committed.items(), key=lambda entry: last[entry[0]]))

    @rule()
    def build_again(self):
        """A store that is built on the committed rows evicts the same entries."""
        self.store.close()
        self.store = self.build(self.backend)
        self.now = self.in_order_of_the_changelog()

    @rule(split=st.integers(0, 30))
    def restore_from_the_changelog(self, split):
        """A store that has only the changelog, read in any batches, has the same entries."""
        backend = MemoryBackend()
        store = self.build(backend)
        for batch in (self.changelog[:split], self.changelog[split:]):
            rows = store.restore(batch)
            backend.write([("s", 7, rows)], {("s", 7): (1, store.metadata())})
        assert dict(store.all()) == self.committed
        assert store.approximate_num_entries() == len(self.committed)
        in_order = list(self.in_order_of_the_changelog())
        for number in range(MOST):  # each new entry evicts the next one in the order of the changelog
            store.put(str(number), number)
            kept = in_order[max(0, len(in_order) + number + 1 - MOST) :]
            assert {key for key, _ in store.all()} == {*kept, *map(str, range(number + 1))}

    @invariant()
    def the_store_is_bounded(self):
        if hasattr(self, "store"):
            assert self.store.approximate_num_entries() == len(self.now) <= MOST


@pytest.mark.parametrize("caching", [False, True])
def test_a_bounded_store_keeps_what_was_used_last(caching):
    """Reads, evictions, changelog and order of use equal the model's after any sequence of steps."""
    kind = type("Machine", (LruMachine,), {"caching": caching})
    examples = generated.examples(80)
    run_state_machine_as_test(kind, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))


def test_a_changelog_with_more_entries_is_restored_up_to_the_maximum():
    """A changelog of Kafka Streams' store with timestamps has no evictions; the entries that were put last are kept."""
    backend = MemoryBackend()
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, max_entries=2, timestamped=True).build(
        0, backend, "changelog"
    )
    records = [(key, serdes.Long.serialize(at), at, None) for at, key in enumerate([b"a", b"b", b"c", b"a"])]
    backend.write([("s", 0, store.restore(records))], {("s", 0): (4, store.metadata())})
    assert [(key, value.value) for key, value in store.all()] == [("a", 3), ("c", 2)]
    assert helpers.commit(store, backend) == []


def test_a_caching_store_forwards_entries_that_were_evicted_before_the_flush():
    """An eviction is no deletion: downstream, the entry stays; the changelog loses it."""
    backend = MemoryBackend()
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, max_entries=1, caching=True).build(
        0, backend, "changelog"
    )
    told: list = []
    store.on_flush(lambda key, new, old, timestamp: told.append((key, new)))
    store.put("a", 1)
    store.put("b", 2)
    assert dict(store.all()) == {"b": 2}
    logged = {row[2]: row[1] for row in helpers.commit(store, backend)}
    assert told == [("a", 1), ("b", 2)]
    assert logged == {b"a": None, b"b": serdes.Long.serialize(2)}
    assert dict(store.all()) == {"b": 2}


@pytest.mark.parametrize("again", [False, True], ids=["once", "put again"])
@pytest.mark.parametrize("caching", [False, True])
def test_an_evicted_entry_that_is_deleted_too_is_gone(caching, again):
    """Its change is nothing for a listener, but its row must go."""
    backend = MemoryBackend()
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, max_entries=1, caching=caching).build(
        0, backend, "changelog"
    )
    if caching:
        store.on_flush(lambda *change: None)
    store.put("a", 1)
    helpers.commit(store, backend)
    store.put("b", 2)
    if again:
        store.put("a", 3)
        store.put("b", 4)
    assert store.delete("a") is None
    assert (b"a", None) in {(row[2], row[1]) for row in helpers.commit(store, backend)}
    store.revert()
    assert dict(store.all()) == {"b": 4 if again else 2}


@pytest.mark.parametrize("caching", [False, True])
def test_an_eviction_is_logged_before_the_put_that_made_it(caching):
    """A restore that met the put first would evict an entry that the store kept because it was read."""
    backend, restored = MemoryBackend(), MemoryBackend()
    builder = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, max_entries=2, caching=caching)
    store, copy = builder.build(0, backend, "changelog"), builder.build(0, restored, "changelog")
    store.put_all([("a", 1), ("b", 2)])
    first = helpers.commit(store, backend)
    assert store.get("a") == 1
    store.put("c", 3)
    second = helpers.commit(store, backend)
    assert [(row[2], row[1] is None) for row in second] == [(b"b", True), (b"c", False)]
    for row in [*first, *second]:  # one at a time, as a restore may get them
        restored.write([("s", 0, copy.restore([helpers.changelog_record(row)]))], {("s", 0): (1, copy.metadata())})
    assert dict(copy.all()) == dict(store.all()) == {"a": 1, "c": 3}


def test_a_commit_encodes_only_what_changed():
    """The order of use is not written: a store with many keys must not make every commit of its task long."""
    backend = MemoryBackend()
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, max_entries=100).build(0, backend, "c")
    store.put_all([(str(number), number) for number in range(100)])
    helpers.commit(store, backend)
    assert store.get("7") == 7
    store.put("100", 100)
    out: list = []
    store.flush(out)
    assert [row[2] for row in out] == [b"0", b"100"]
    assert [key[4:] for key, _ in store.seal()] == [b"0", b"100"]
    assert store.metadata() == b""


def test_an_aborted_eviction_is_not_seen():
    """After an abort the evicted entry is there, and the next eviction takes the entry that was put least recently."""
    backend = MemoryBackend()
    store = KeyValueStoreBuilder(name="s", key=serdes.String, value=serdes.Long, max_entries=2).build(0, backend, "c")
    store.put_all([("a", 1), ("b", 2)])
    helpers.commit(store, backend)
    store.get("a")
    store.put("c", 3)
    store.flush([])
    store.seal()
    assert dict(store.all()) == {"a": 1, "c": 3}
    store.revert()
    assert dict(store.all()) == {"a": 1, "b": 2}
    store.put("c", 3)
    assert dict(store.all()) == {"b": 2, "c": 3}


@pytest.mark.parametrize(
    ("most", "message"), [(-1, "max_entries= must not be negative, but is -1"), ("3", "max_entries= is a number")]
)
def test_wrong_maxima_are_rejected(most, message):
    """The error names the store and the option."""
    with pytest.raises(ConfigError, match=f"store 's': {message}"):
        KeyValueStoreBuilder(name="s", max_entries=most)


def test_a_bounded_store_is_in_memory():
    """So no rows stay on disk that the order of use does not cover."""
    assert not KeyValueStoreBuilder(name="s", max_entries=3).persistent
