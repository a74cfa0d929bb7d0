"""A session store behaves as a dict with expiry, through commits, aborts, crashes and evictions in any order."""

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
from millpond.errors import ConfigError, SerializationError
from millpond.serdes import Windowed
from millpond.state import MemoryBackend, SessionStoreBuilder
from millpond.state.formats import session_key, split_session_key
from tests.state import helpers
from tests.support import generated

RETENTION = 150_000
SEGMENT = 75_000
UNIT = 25_000

keys = st.sampled_from(["", "a", "aa", "ab", "b", "a\0"])
numbers = st.integers(-(2**40), 2**40)
# Session ends from the newest: mostly live ones, some expired, now and then a jump.
ages = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 6, 7, 9, 12, -1, -1, -5])
lengths = st.integers(0, 3)
bounds = st.integers(-5_000, 800_000)

Model = dict[tuple[str, int, int], int]
"""Value by key, start and end."""


class SessionMachine(RuleBasedStateMachine):
    """Compare a session store with dicts: of all writes, of flushed, of sealed and of committed ones."""

    place_type = helpers.Memory
    mutable = False
    caching = False
    persistent = True

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
        store = SessionStoreBuilder(
            name="s",
            key=serdes.String,
            value=helpers.MUTABLE if self.mutable else helpers.FROZEN,
            retention_ms=RETENTION,
            caching=self.caching,
            persistent=self.persistent,
        ).build(7, self.place.backend, "changelog")
        self.told: dict[Windowed, int] = {}
        store.on_flush(self.hear)
        return store

    def hear(self, session, new, old, timestamp):
        assert timestamp == session.end_ms
        if session in self.told and old is not None:
            assert self.plain(old) == self.told[session]
        self.told[session] = self.plain(new)

    def value(self, number):
        return {"n": number} if self.mutable else number

    def plain(self, value):
        return value["n"] if value is not None and self.mutable else value

    def visible(self, end):
        return end > self.observed - RETENTION

    def live(self):
        return {at: value for at, value in self.now.items() if self.visible(at[2])}

    def order(self, at):
        key, start, end = at
        if self.persistent:
            return end // SEGMENT, session_key(key.encode(), start, end)
        return end, key.encode(), -start

    def check(self, found, expected, reverse=False):
        found = [(each.key, each.start_ms, each.end_ms, self.plain(value)) for each, value in found]
        assert found == [(*at, expected[at]) for at in sorted(expected, key=self.order, reverse=reverse)]

    def session(self, key, age, length):
        end = max(0, self.observed // UNIT - age) * UNIT
        return Windowed(key, max(0, end - length * UNIT), end)

    def put_model(self, session, number):
        self.observed = max(self.observed, session.end_ms)
        at = (session.key, session.start_ms, session.end_ms)
        if number is None:
            self.now.pop(at, None)
        else:
            self.now[at] = number
        self.now = self.live()

    @rule(key=keys, age=ages, length=lengths, number=numbers)
    def put(self, key, age, length, number):
        session = self.session(key, age, length)
        self.store.put(session, self.value(number))
        self.put_model(session, number)

    @rule(key=keys, age=ages, length=lengths)
    def remove(self, key, age, length):
        session = self.session(key, age, length)
        self.store.remove(session)
        self.put_model(session, None)

    @rule(key=keys, age=st.integers(0, 12), number=numbers)
    def merge_as_an_operator_does(self, key, age, number):
        """Replace all sessions that a record touches by one; user code may change an old aggregate in place."""
        raw_key = self.store.serialize_key(key)
        timestamp = max(0, self.observed - age * 10_000)
        found = self.store.find(raw_key, timestamp - UNIT, timestamp + UNIT)
        expected = {
            (end, start): value
            for (held, start, end), value in self.live().items()
            if held == key and end >= timestamp - UNIT and start <= timestamp + UNIT
        }
        assert [(end, start, self.plain(value)) for end, start, value in found] == [
            (*at, expected[at]) for at in sorted(expected)
        ]
        start = min([timestamp, *(start for _, start, _ in found)])
        end = max([timestamp, *(end for end, _, _ in found)])
        if start < end:
            for session_end, session_start, value in found:
                if self.mutable:
                    value["n"] = "changed in place"
                self.store.stage(raw_key, key, session_start, session_end, None, timestamp)
                self.put_model(Windowed(key, session_start, session_end), None)
        new = self.value(number)
        self.store.stage(raw_key, key, start, end, new, timestamp)
        if self.mutable:
            new["n"] = "changed after it was staged"
        self.put_model(Windowed(key, start, end), number)

    @rule(key=keys, age=ages, length=lengths)
    def fetch_session(self, key, age, length):
        session = self.session(key, age, length)
        found = self.store.fetch_session(key, session.start_ms, session.end_ms)
        assert self.plain(found) == self.live().get((key, session.start_ms, session.end_ms))

    @rule(low=st.none() | keys, high=st.none() | keys, reverse=st.booleans())
    def fetch_range(self, low, high, reverse):
        scan = self.store.backward_fetch_range if reverse else self.store.fetch_range
        self.check(scan(low, high), self.between(low, high), reverse)

    @rule(key=keys, first=bounds, last=bounds, reverse=st.booleans())
    def find_sessions(self, key, first, last, reverse):
        scan = self.store.backward_find_sessions if reverse else self.store.find_sessions
        self.check(scan(key, first, last), self.between(key, key, first, last), reverse)
        self.check(self.store.fetch(key), self.between(key, key))

    @rule(low=st.none() | keys, high=st.none() | keys, first=bounds, last=bounds, reverse=st.booleans())
    def find_sessions_range(self, low, high, first, last, reverse):
        scan = self.store.backward_find_sessions_range if reverse else self.store.find_sessions_range
        self.check(scan(low, high, first, last), self.between(low, high, first, last), reverse)

    @rule(first=bounds, last=bounds)
    def find_sessions_ending(self, first, last):
        found = [(each.key, each.start_ms, each.end_ms) for each, _ in self.store.find_sessions_ending(first, last)]
        assert [each[2] for each in found] == sorted(each[2] for each in found)
        assert sorted(found) == sorted(at for at in self.live() if first <= at[2] <= last)

    def between(self, low, high, first=-(2**62), last=2**62):
        return {
            at: value
            for at, value in self.live().items()
            if (low is None or low <= at[0]) and (high is None or at[0] <= high) and at[2] >= first and at[1] <= last
        }

    @rule(key=keys, age=ages, number=numbers)
    def put_while_iterating(self, key, age, number):
        """An iterator shows the store as of its creation."""
        expected = self.live()
        found = []
        for row in self.store.fetch_range(None, None):
            found.append(row)
            self.put(key, age, 1, number)
            self.remove(row[0].key, age, 0)
        self.check(found, expected)

    @rule()
    def flush(self):
        out: list = []
        self.store.flush(out)
        assert all(record[0] == "changelog" and record[3] == 7 for record in out)
        self.changelog.extend(map(helpers.changelog_record, out))
        self.flushed = (dict(self.now), self.observed)

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
        self.place.backend.write([("s", 7, self.rows)], {("s", 7): (1, self.store.metadata())})
        self.committed = self.sealed
        self.changelog_committed = self.changelog_sealed
        self.written = True

    @precondition(lambda self: self.written)
    @rule(limit=st.sampled_from([0, 600, 1_000_000]))
    def confirm(self, limit):
        self.store.cache_limit = limit
        self.store.committed()
        self.sealed, self.written = None, False
        self.check_expired_rows_are_gone(self.committed[1])

    def check_expired_rows_are_gone(self, observed):
        """Whole segments that expired are not in the backend."""
        oldest = max(0, observed - RETENTION) // SEGMENT
        for key, _ in self.place.backend.range("s", b"", None):
            assert split_session_key(key, 12)[1] // SEGMENT >= oldest

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
        if not self.changelog:
            return
        self.flush()
        other = helpers.Memory()
        previous, told, self.place = self.place, self.told, other
        try:
            store = self.build()
            size = -(-len(self.changelog) // pieces)
            for at in range(0, len(self.changelog), size):
                rows = store.restore(self.changelog[at : at + size])
                other.backend.write([("s", 7, rows)], {("s", 7): (1, store.metadata())})
            # Stream time is that of the changelog: a deletion that a cache left out never got there.
            observed = max(split_session_key(key)[1] for key, *_ in self.changelog)
            assert store.observed_stream_time == observed
            self.check_expired_rows_are_gone(observed)
            found = [row for row in store.fetch_range(None, None) if self.visible(row[0].end_ms)]
            mine = list(self.store.fetch_range(None, None))
            if not self.caching:
                assert found == mine
            else:
                assert [row for row in found if row[0].end_ms > self.observed - RETENTION] == [
                    row for row in mine if row[0].end_ms > self.observed - RETENTION
                ]
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
    def stream_time_is_the_largest_end(self):
        if hasattr(self, "store"):
            assert self.store.observed_stream_time == self.observed
            assert 0 <= self.store.staged_bytes() <= self.store.cache_bytes()

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.place.end()


@pytest.mark.share(6)
@pytest.mark.parametrize("place", helpers.BACKENDS)
@pytest.mark.parametrize("mutable", [False, True], ids=["immutable", "mutable"])
@pytest.mark.parametrize(("persistent", "caching"), [(True, False), (True, True), (False, False)])
def test_a_session_store_is_a_dict_with_expiry_and_commits(place, mutable, persistent, caching):
    """Reads, order, expiry, stream time and changelog equal the model's after any sequence of steps."""
    kind = type(
        "Machine",
        (SessionMachine,),
        {"place_type": helpers.BACKENDS[place], "mutable": mutable, "persistent": persistent, "caching": caching},
    )
    examples, steps = (60, 40) if place == "memory" else (15, 40)
    run_state_machine_as_test(
        kind, settings=settings(max_examples=generated.examples(examples), stateful_step_count=steps, deadline=None)
    )


def build(backend=None, value=serdes.Long, **options):
    """A store of longs."""
    builder = SessionStoreBuilder(name="s", key=serdes.String, value=value, retention_ms=RETENTION, **options)
    return builder.build(0, backend or MemoryBackend(), "changelog")


def logged(store):
    """Return key and value of the records that the next flush sends to the changelog."""
    out: list = []
    store.flush(out)
    return [(record[2], record[1]) for record in out]


def test_changelog_keys_are_key_end_and_start():
    """The bytes are those of Kafka Streams' session stores."""
    store = build()
    store.put(Windowed("k", 3, 5), 7)
    assert logged(store) == [(b"k" + (5).to_bytes(8, "big") + (3).to_bytes(8, "big"), (7).to_bytes(8, "big"))]


def test_session_put_and_removed_between_flushes_is_logged_without_a_cache():
    """As in Kafka Streams, only a cache leaves the deletion of a session out that nobody saw."""
    for caching, expected in ((False, [(session_key(b"k", 3, 5), None)]), (True, [])):
        store = build(caching=caching)
        store.on_flush(lambda *change: pytest.fail(f"told {change}"))
        store.put(Windowed("k", 3, 5), 7)
        store.remove(Windowed("k", 3, 5))
        assert logged(store) == expected


@pytest.mark.parametrize(
    ("persistent", "end", "accepted"),
    [(True, 400_000, True), (True, 375_000, True), (True, 374_999, False), (False, 400_000, False)],
)
def test_late_put_is_invisible_and_is_kept_with_its_segment(persistent, end, accepted):
    """A persistent store accepts it in a live segment; an in-memory store only if it is readable."""
    store = build(persistent=persistent)
    store.put(Windowed("k", 500_000, 550_000), 1)
    store.put(Windowed("k", end - 5, end), 2)
    assert store.fetch_session("k", end - 5, end) is None
    assert [session.end_ms for session, _ in store.fetch("k")] == [550_000]
    assert store.expired_puts == (0 if accepted else 1)
    store.flush([])
    assert len(store.seal()) == (2 if accepted else 1)


@pytest.mark.parametrize("method", ["fetch", "backward_fetch", "fetch_session", "find_sessions"])
def test_key_none_is_rejected_with_the_name_of_the_method(method):
    """A store has no key None."""
    arguments = {"fetch_session": (0, 1), "find_sessions": (0, 1)}.get(method, ())
    with pytest.raises(SerializationError, match=rf"store 's': {method}\(\) was called with the key None"):
        getattr(build(), method)(None, *arguments)
    with pytest.raises(SerializationError, match="the key None"):
        build().put(Windowed(None, 0, 1), 1)


@pytest.mark.parametrize(
    ("retention", "message"),
    [(-1, "must not be negative, but is -1 ms"), (1.5, "is in whole milliseconds, not the number 1.5")],
)
def test_retention_that_is_no_duration_is_rejected(retention, message):
    """The message names the store."""
    with pytest.raises(ConfigError, match=f"store 's': .*{message}"):
        SessionStoreBuilder(name="s", key=serdes.String, value=serdes.Long, retention_ms=retention)


def test_changelog_compacts_and_deletes_after_the_retention():
    """The retention is the store's and the additional one, unless the store has its own."""
    config = SessionStoreBuilder(name="s", retention_ms=5).changelog_config({"retention.ms": "1"}, 100)
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact,delete", "105")
    own = SessionStoreBuilder(name="s", retention_ms=5, log_config={"retention.ms": "7"})
    assert own.changelog_config()["retention.ms"] == "7"
