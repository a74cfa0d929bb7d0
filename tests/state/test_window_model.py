"""A window store behaves as a dict with expiry, through commits, aborts, crashes and evictions in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
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
from millpond.serdes import Windowed
from millpond.state import MemoryBackend, SlidingWindowStoreBuilder, ValueAndTimestamp, WindowStoreBuilder
from millpond.state.formats import split_window_key
from tests.state import helpers
from tests.support import generated

RETENTION = 150_000
SIZE = 50_000
SEGMENT = 75_000

keys = st.sampled_from(["", "a", "aa", "ab", "b", "a\0"])
numbers = st.integers(-(2**40), 2**40)
# Windows from the newest: mostly live ones, some expired, now and then a jump.
ages = st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3, 4, 6, -1, -1, -4])
bounds = st.integers(-5_000, 800_000)

Model = dict[tuple[str, int], tuple[int, int]]


class WindowMachine(RuleBasedStateMachine):
    """Compare a window store with dicts: of all writes, of flushed, of sealed and of committed ones."""

    place_type = helpers.Memory
    mutable = False
    caching = False
    persistent = True
    by_key = False

    @initialize()
    def start(self):
        self.place = self.place_type()
        self.now: Model = {}
        self.observed = -1
        self.flushed: tuple[Model, int] = ({}, -1)
        self.sealed: tuple[Model, int] | None = None
        self.committed: tuple[Model, int] = ({}, -1)
        self.written = False
        self.changelog: list = []
        self.changelog_committed: list = []
        self.changelog_sealed: list = []
        self.store = self.build()

    def build(self):
        builder = SlidingWindowStoreBuilder if self.by_key else WindowStoreBuilder
        store = builder(
            name="w",
            key=serdes.String,
            value=helpers.MUTABLE if self.mutable else helpers.FROZEN,
            timestamped=True,
            retention_ms=RETENTION,
            window_size_ms=SIZE,
            caching=self.caching,
            persistent=self.persistent,
        ).build(7, self.place.backend, "changelog")
        self.told: dict[Windowed, int] = {}
        store.on_flush(self.hear)
        return store

    def hear(self, windowed, new, old, timestamp):
        assert windowed.end_ms == windowed.start_ms + SIZE
        # An expired window is not seen any more, not even by who puts to it: each flush starts it anew.
        if windowed in self.told and windowed.start_ms > self.observed - RETENTION:
            assert self.plain(old) == self.told[windowed]
        self.told[windowed] = self.plain(new)

    def aged(self, age):
        return max(0, self.observed // SIZE - age) * SIZE

    def value(self, number):
        return {"n": number} if self.mutable else number

    def plain(self, value):
        return value["n"] if value is not None and self.mutable else value

    def live(self, model=None, observed=None):
        """Return the readable windows: those with starts above stream time - retention."""
        model, observed = (self.now, self.observed) if model is None else (model, observed)
        return {(key, start): value for (key, start), value in model.items() if start > observed - RETENTION}

    def order(self, at):
        key, start = at
        return (start // SEGMENT, key.encode() + start.to_bytes(8, "big")) if self.persistent else (start, key.encode())

    def check(self, found, expected, reverse=False):
        found = [(w.key, w.start_ms, self.plain(v.value), v.timestamp) for w, v in found]
        assert found == [(*at, *expected[at]) for at in sorted(expected, key=self.order, reverse=reverse)]

    def put_model(self, key, start, entry):
        self.observed = max(self.observed, start)
        if start > self.observed - RETENTION:
            if entry is None:
                self.now.pop((key, start), None)
            else:
                self.now[key, start] = entry
        self.now = self.live()

    @rule(key=keys, age=ages, number=numbers, timestamp=st.integers(0, 2**40))
    def put(self, key, age, number, timestamp):
        start = self.aged(age)
        self.store.put(key, ValueAndTimestamp(self.value(number), timestamp), start)
        self.put_model(key, start, (number, timestamp))

    @rule(key=keys, age=ages)
    def delete(self, key, age):
        start = self.aged(age)
        self.store.put(key, None, start)
        self.put_model(key, start, None)

    @rule(key=keys, age=ages, number=numbers)
    def aggregate_in_place(self, key, age, number):
        """Aggregate as an operator does; user code may change the old aggregate in place."""
        start = self.aged(age)
        raw_key = self.store.serialize_key(key)
        old, _ = self.store.entry(raw_key, start)
        assert self.plain(old) == self.live().get((key, start), (None, 0))[0]
        if self.mutable and old is not None:
            old["n"] = number
            new = old
        else:
            new = self.value(number)
        self.store.stage(raw_key, start, key, new, 5, old)
        if self.mutable:
            new["n"] = "changed after it was staged"
        self.put_model(key, start, (number, 5))

    @rule(key=keys, age=ages)
    def fetch(self, key, age):
        start = self.aged(age)
        found = self.store.fetch(key, start)
        found = None if found is None else (self.plain(found.value), found.timestamp)
        assert found == self.live().get((key, start))

    @rule(key=keys, first=bounds, last=bounds, reverse=st.booleans())
    def fetch_key(self, key, first, last, reverse):
        scan = self.store.backward_fetch if reverse else self.store.fetch
        found = [(start, (self.plain(value.value), value.timestamp)) for start, value in scan(key, first, last)]
        expected = {start: v for (held, start), v in self.live().items() if held == key and first <= start <= last}
        assert found == sorted(expected.items(), reverse=reverse)

    @precondition(lambda self: self.by_key)
    @rule(key=keys, first=bounds, last=bounds)
    def find_windows_as_an_operator(self, key, first, last):
        """Rows in memory are as those of the backend, where the operator finds either."""
        decode = self.store.value_serde.deserialize if self.mutable else int
        rows = self.store.matches(self.store.serialize_key(key), first, last)
        found = [(start, (self.plain(decode(kept)), time)) for start, kept, time in rows if kept is not None]
        expected = {start: v for (held, start), v in self.live().items() if held == key and first <= start <= last}
        assert found == sorted(expected.items())

    @rule(low=st.none() | keys, high=st.none() | keys, first=bounds, last=bounds, reverse=st.booleans())
    def fetch_range(self, low, high, first, last, reverse):
        scan = self.store.backward_fetch_range if reverse else self.store.fetch_range
        expected = {
            (key, start): value
            for (key, start), value in self.live().items()
            if first <= start <= last and (low is None or low <= key) and (high is None or key <= high)
        }
        self.check(scan(low, high, first, last), expected, reverse)

    @rule(first=bounds, last=bounds, reverse=st.booleans())
    def fetch_all(self, first, last, reverse):
        scan = self.store.backward_fetch_all if reverse else self.store.fetch_all
        expected = {at: value for at, value in self.live().items() if first <= at[1] <= last}
        self.check(scan(first, last), expected, reverse)

    @rule(key=keys, age=ages, number=numbers)
    def put_while_iterating(self, key, age, number):
        """An iterator shows the store as of its creation."""
        expected = self.live()
        found = []
        for row in self.store.all():
            found.append(row)
            self.put(key, age, number, 1)
            self.delete(row[0].key, age)
        self.check(found, expected)

    @rule()
    def flush(self):
        out: list = []
        self.store.flush(out)
        assert all(record[0] == "changelog" and record[3] == 7 for record in out)
        self.changelog.extend(map(helpers.changelog_record, out))
        self.flushed = (dict(self.now), self.observed)
        if self.caching:
            for (key, start), (number, _) in self.live().items():
                assert self.told.get(Windowed(key, start, start + SIZE), number) == number

    @rule()
    def seal(self):
        self.rows = self.store.seal()
        self.sealed = self.flushed
        self.sealed_metadata = self.store.metadata()
        self.changelog_sealed = list(self.changelog)
        self.written = False

    @precondition(lambda self: self.sealed is not None and not self.written)
    @rule()
    def write(self):
        assert self.store.metadata() == self.sealed_metadata, "what is put after the seal is for the next commit"
        self.place.backend.write([("w", 7, self.rows)], {("w", 7): (1, self.store.metadata())})
        self.committed = self.sealed
        self.changelog_committed = self.changelog_sealed
        self.written = True

    @precondition(lambda self: self.written)
    @rule(limit=st.sampled_from([0, 600, 1_500, 1_000_000]))
    def confirm(self, limit):
        self.store.cache_limit = limit
        self.store.committed()
        self.sealed, self.written = None, False
        self.check_expired_rows_are_gone(self.committed[1])

    def check_expired_rows_are_gone(self, observed):
        """Whole segments that expired are not in the backend."""
        oldest = max(0, observed - RETENTION) // SEGMENT
        for key, _ in self.place.backend.range("w", b"", None):
            assert split_window_key(key, 12)[1] // SEGMENT >= oldest

    @rule(limit=st.sampled_from([0, 500, 1_000_000]))
    def commit(self, limit):
        """Run all steps of a commit, with a large or a small cache."""
        self.flush()
        self.seal()
        self.write()
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

    @rule(pieces=st.integers(1, 4))
    def restore_from_the_changelog(self, pieces):
        """Another worker that has only the changelog restores the same state, in any number of batches."""
        if self.changelog:
            self.flush()
            other = helpers.Memory()
            previous, told, self.place = self.place, self.told, other
            try:
                store = self.build()
                size = -(-len(self.changelog) // pieces)
                for at in range(0, len(self.changelog), size):
                    rows = store.restore(self.changelog[at : at + size])
                    other.backend.write([("w", 7, rows)], {("w", 7): (1, store.metadata())})
                # Stream time is that of the changelog: a put that expired at once never got there.
                observed = max(split_window_key(key)[1] for key, *_ in self.changelog)
                assert store.observed_stream_time == observed
                self.check_expired_rows_are_gone(observed)
                assert [w for w in store.all() if w[0].start_ms > self.observed - RETENTION] == list(self.store.all())
            finally:
                self.place, self.told = previous, told

    def forget(self):
        self.now, self.observed = dict(self.committed[0]), self.committed[1]
        self.now = self.live()
        self.flushed = (dict(self.now), self.observed)
        self.sealed, self.written = None, False
        self.changelog = list(self.changelog_committed)
        self.told = {}

    @invariant()
    def stream_time_is_the_largest_start(self):
        if hasattr(self, "store"):
            assert self.store.observed_stream_time == self.observed
            assert 0 <= self.store.staged_bytes() <= self.store.cache_bytes()

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.place.end()


@pytest.mark.share(8)
@pytest.mark.parametrize("place", helpers.BACKENDS)
@pytest.mark.parametrize("mutable", [False, True], ids=["immutable", "mutable"])
@pytest.mark.parametrize(
    ("persistent", "caching", "by_key"),
    [(True, False, False), (True, True, False), (False, False, False), (True, True, True), (False, False, True)],
)
def test_a_window_store_is_a_dict_with_expiry_and_commits(place, mutable, persistent, caching, by_key):
    """Reads, order, expiry, stream time and changelog equal the model's after any sequence of steps."""
    kind = type(
        "Machine",
        (WindowMachine,),
        {
            "place_type": helpers.BACKENDS[place],
            "mutable": mutable,
            "persistent": persistent,
            "caching": caching,
            "by_key": by_key,
        },
    )
    examples, steps = (60, 40) if place == "memory" else (15, 40)
    run_state_machine_as_test(
        kind, settings=settings(max_examples=generated.examples(examples), stateful_step_count=steps, deadline=None)
    )


@pytest.mark.parametrize("value", [None, 7])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("builder", [WindowStoreBuilder, SlidingWindowStoreBuilder])
def test_windows_that_are_deleted_at_once_leave_memory(builder, caching, value):
    """An aggregator may return None for most records; those of old keys must not stay in memory for ever."""
    backend = helpers.Memory().backend
    store = builder(
        name="w",
        key=serdes.String,
        value=serdes.Long,
        timestamped=True,
        retention_ms=RETENTION,
        window_size_ms=1000,
        caching=caching,
    ).build(0, backend, "changelog")
    store.on_flush(lambda *change: None)
    store.cache_limit = 20_000
    for number in range(2000):
        raw_key = b"k%d" % number
        if value is not None:
            store.stage(raw_key, number * 1000, f"k{number}", value, 0, None)
        store.stage(raw_key, number * 1000, f"k{number}", None, 0, value)
        if number % 20 == 0:
            helpers.commit(store, backend)
            assert store.cache_bytes() <= 2 * store.cache_limit


def test_keys_that_lost_no_rows_are_not_read_from_the_backend():
    """A store with a little more state than memory reads few of its keys."""
    backend, count = MemoryBackend(), 1_000
    builder = SlidingWindowStoreBuilder(
        name="w", key=serdes.String, value=serdes.Long, timestamped=True, retention_ms=RETENTION, window_size_ms=SIZE
    )
    store = builder.build(0, backend)
    for number in range(count):
        store.put(f"k{number}", ValueAndTimestamp(number, 0), number * 100)
    helpers.commit(store, backend)
    store.cache_limit = store.cache_bytes() * 9 // 10
    helpers.commit(store, backend)
    assert store.cache_bytes() <= store.cache_limit
    for number in range(count):
        ((start, value, _),) = store.matches(store.serialize_key(f"k{number}"), 0, RETENTION)
        assert (start, value) == (number * 100, number)
    assert 0 < store.backend_reads < count // 4


@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 20_000)), max_size=30),
    st.lists(st.integers(0, 10), min_size=3, max_size=3),
)
def test_keys_that_lost_rows_are_read_with_those_in_memory(late, memory):
    """Rows in memory, evicted rows and late ones make up the windows of each key, whatever fits into memory."""
    backend = MemoryBackend()
    builder = SlidingWindowStoreBuilder(
        name="w", key=serdes.String, value=serdes.Long, timestamped=True, retention_ms=RETENTION, window_size_ms=SIZE
    )
    store = builder.build(0, backend)
    written: dict[bytes, dict[int, int]] = {}

    def put(key: int, start: int) -> None:
        store.put(f"k{key}", ValueAndTimestamp(start + key, 0), start)
        written.setdefault(b"k%d" % key, {})[start] = start + key

    def check() -> None:
        for raw_key, rows in written.items():
            assert [(start, value) for start, value, _ in store.matches(raw_key, 0, RETENTION)] == sorted(rows.items())
            assert all(store.entry(raw_key, start)[0] == value for start, value in rows.items())

    for at, tenths in enumerate(memory):
        for number in range(40):
            put(number % 16, at * 20_000 + number * 500)
        for key, start in late[at::3]:
            put(key, start + at * 10_000)
        store.cache_limit = 2**40
        helpers.commit(store, backend)
        store.cache_limit = store.cache_bytes() * tenths // 10
        helpers.commit(store, backend)
        check()
