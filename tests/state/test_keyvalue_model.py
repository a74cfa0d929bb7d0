"""A key-value store behaves as a dict, through flushes, commits, aborts, crashes and evictions in any order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millpond import serdes
from millpond.state import KeyValueStoreBuilder, ValueAndTimestamp
from tests.state import helpers
from tests.support import generated

keys = st.sampled_from(["", "a", "aa", "ab", "b", "ba", "c", "\U0010ffff"])
numbers = st.integers(-(2**40), 2**40)
timestamps = st.integers(0, 2**40)

Model = dict[str, tuple[int, int]]


class KeyValueMachine(RuleBasedStateMachine):
    """Compare a store with dicts: of all writes, of flushed, of sealed and of committed ones."""

    place_type = helpers.Memory
    mutable = False
    timestamped = True
    caching = False

    @initialize()
    def start(self):
        self.place = self.place_type()
        self.now: Model = {}
        self.flushed: Model = {}
        self.sealed: Model | None = None
        self.committed: Model = {}
        self.written = False
        self.changelog: dict[bytes, tuple[bytes, int]] = {}
        self.downstream: dict[str, int] = {}
        self.neighbour = self.build(partition=8)
        self.neighbour.put("a", self.given(-1, 0))
        helpers.commit(self.neighbour, self.place.backend)
        self.store = self.build()

    def build(self, partition=7):
        builder = KeyValueStoreBuilder(
            name="s",
            key=serdes.String,
            value=helpers.MUTABLE if self.mutable else helpers.FROZEN,
            timestamped=self.timestamped,
            caching=self.caching,
        )
        store = builder.build(partition, self.place.backend, "changelog")
        if partition == 7:
            store.on_flush(self.hear)
        return store

    def hear(self, key, new, old, timestamp):
        assert self.plain(old) == self.downstream.get(key), "old is not what was told last"
        assert (new is None) == (key not in self.now)
        if new is None:
            del self.downstream[key]
        else:
            self.downstream[key] = self.plain(new)

    def value(self, number):
        return {"n": number} if self.mutable else number

    def plain(self, value):
        return value["n"] if value is not None and self.mutable else value

    def given(self, number, timestamp):
        return ValueAndTimestamp(self.value(number), timestamp) if self.timestamped else self.value(number)

    def taken(self, value):
        if value is None:
            return None
        return (self.plain(value.value), value.timestamp) if self.timestamped else self.plain(value)

    def seen(self, entry):
        return entry if self.timestamped else entry[0]

    @rule(key=keys, number=numbers, timestamp=timestamps)
    def put(self, key, number, timestamp):
        self.store.put(key, self.given(number, timestamp))
        self.now[key] = (number, timestamp)

    @rule(key=keys)
    def delete(self, key):
        expected = self.now.pop(key, None)
        assert self.taken(self.store.delete(key)) == (None if expected is None else self.seen(expected))

    @rule(key=keys, number=numbers, timestamp=timestamps)
    def aggregate_in_place(self, key, number, timestamp):
        """Aggregate as an operator does; user code may change the old aggregate in place."""
        raw_key = self.store.serialize_key(key)
        old, _ = self.store.entry(raw_key)
        assert self.plain(old) == self.now.get(key, (None, 0))[0]
        if self.mutable and old is not None:
            old["n"] = number
            new = old
        else:
            new = self.value(number)
        self.store.stage(raw_key, key, new, timestamp, old)
        if self.mutable:
            new["n"] = "changed after it was staged"
        self.now[key] = (number, timestamp)

    @rule(key=keys, number=numbers, timestamp=timestamps)
    def put_if_absent(self, key, number, timestamp):
        held = self.taken(self.store.put_if_absent(key, self.given(number, timestamp)))
        assert held == (self.seen(self.now[key]) if key in self.now else None)
        self.now.setdefault(key, (number, timestamp))

    @rule(key=keys)
    def get(self, key):
        assert self.taken(self.store.get(key)) == (self.seen(self.now[key]) if key in self.now else None)

    @rule(low=st.none() | keys, high=st.none() | keys, reverse=st.booleans())
    def range(self, low, high, reverse):
        scan = self.store.reverse_range if reverse else self.store.range
        expected = [
            (key, self.seen(self.now[key]))
            for key in sorted(self.now, key=str.encode, reverse=reverse)
            if (low is None or key.encode() >= low.encode()) and (high is None or key.encode() <= high.encode())
        ]
        assert [(key, self.taken(value)) for key, value in scan(low, high)] == expected

    @rule(prefix=keys)
    def prefix_scan(self, prefix):
        expected = [
            (key, self.seen(self.now[key])) for key in sorted(self.now, key=str.encode) if key.startswith(prefix)
        ]
        assert [(key, self.taken(value)) for key, value in self.store.prefix_scan(prefix)] == expected

    @rule(key=keys, number=numbers)
    def put_while_iterating(self, key, number):
        """An iterator shows the store as of its creation."""
        expected = [(held, self.seen(entry)) for held, entry in sorted(self.now.items(), key=lambda e: e[0].encode())]
        found = []
        for held, value in self.store.all():
            found.append((held, self.taken(value)))
            self.put(key, number, 1)
            self.delete(held)
        assert found == expected

    @rule()
    def flush(self):
        out: list = []
        self.store.flush(out)
        for topic, value, key, partition, *callbacks, timestamp in out:
            assert (topic, partition, callbacks) == ("changelog", 7, [None, None])
            if value is None:
                self.changelog.pop(key, None)
            else:
                self.changelog[key] = (value, timestamp)
        self.flushed = dict(self.now)
        if self.caching:
            assert self.downstream == {key: number for key, (number, _) in self.now.items()}

    @rule()
    def seal(self):
        self.rows = self.store.seal()
        self.sealed = self.flushed
        self.written = False

    @precondition(lambda self: self.sealed is not None and not self.written)
    @rule(offset=st.integers(0, 2**50))
    def write(self, offset):
        self.place.backend.write([("s", 7, self.rows)], {("s", 7): (offset, self.store.metadata())})
        self.committed = self.sealed
        self.written = True
        assert self.place.backend.offset("s", 7) == offset

    @precondition(lambda self: self.written)
    @rule(limit=st.sampled_from([0, 400, 1_000_000]))
    def confirm(self, limit):
        self.store.cache_limit = limit
        self.store.committed()
        self.sealed, self.written = None, False

    @rule(limit=st.sampled_from([0, 500, 1_000_000]))
    def commit(self, limit):
        """Run all steps of a commit, with a large or a small cache."""
        self.flush()
        self.seal()
        self.write(1)
        self.confirm(limit)

    @precondition(lambda self: self.sealed is None)
    @rule(count=st.integers(1, 4))
    def forget_some(self, count):
        """Memory is short: `committed` forgets some entries, in the middle of what has not been committed, too."""
        self.store._evict(count)

    @rule()
    def revert(self):
        self.store.revert()
        self.forget()

    @precondition(lambda self: self.place.durable)
    @rule(well=st.booleans())
    def restart(self, well):
        self.store.close()
        self.place.reopen() if well else self.place.crash()
        self.store = self.build()
        self.forget()

    @rule()
    def restore_from_the_changelog(self):
        """Another worker that has only the changelog restores the same state."""
        if self.now != self.flushed:
            self.flush()
        other = helpers.Memory()
        previous, self.place = self.place, other
        try:
            store = self.build()
            rows = store.restore([(key, value, timestamp, None) for key, (value, timestamp) in self.changelog.items()])
            other.backend.write([("s", 7, rows)], {("s", 7): (1, store.metadata())})
            assert [(key, self.taken(value)) for key, value in store.all()] == [
                (key, self.taken(value)) for key, value in self.store.all()
            ]
        finally:
            self.place = previous

    def forget(self):
        self.now, self.flushed = dict(self.committed), dict(self.committed)
        self.sealed, self.written = None, False
        encode = self.store.value_serde.serialize
        self.changelog = {k.encode(): (encode(self.value(n)), t) for k, (n, t) in self.committed.items()}
        self.downstream = {key: number for key, (number, _) in self.committed.items()}

    @invariant()
    def another_partition_is_never_touched(self):
        assert next(self.place.backend.range("s", b"\0\0\0\x08", b"\0\0\0\x09"))[0] == b"\0\0\0\x08a"

    @invariant()
    def sizes_are_never_negative(self):
        assert 0 <= self.store.staged_bytes() <= self.store.cache_bytes()

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.place.end()


@pytest.mark.share(6)
@pytest.mark.parametrize("place", helpers.BACKENDS)
@pytest.mark.parametrize("mutable", [False, True], ids=["immutable", "mutable"])
@pytest.mark.parametrize(("timestamped", "caching"), [(True, False), (True, True), (False, False)])
def test_a_store_is_a_dict_with_commits(place, mutable, timestamped, caching):
    """Reads, order, changelog and downstream view equal the model's after any sequence of steps."""
    kind = type(
        "Machine",
        (KeyValueMachine,),
        {"place_type": helpers.BACKENDS[place], "mutable": mutable, "timestamped": timestamped, "caching": caching},
    )
    examples, steps = (60, 30) if place == "memory" else (15, 30)
    run_state_machine_as_test(
        kind, settings=settings(max_examples=generated.examples(examples), stateful_step_count=steps, deadline=None)
    )
