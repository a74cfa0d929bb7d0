"""The suppress buffer evicts the newest update per key in the order of first buffering, through commits and crashes."""

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
from millpond.errors import StateError
from millpond.state import MemoryBackend, RecordContext, TimeOrderedBufferBuilder
from tests.state import helpers
from tests.support import generated

keys = st.sampled_from(["a", "aa", "b", "c"])
times = st.integers(0, 50)
numbers = st.none() | st.integers(0, 9)


class BufferMachine(RuleBasedStateMachine):
    """Compare the buffer with a dict key -> [time, prior, old, new, context]."""

    place_type = helpers.Memory
    mutable = False

    @initialize()
    def start(self):
        self.place = self.place_type()
        self.now: dict = {}
        self.flushed: dict = {}
        self.sealed: dict | None = None
        self.committed: dict = {}
        self.written = False
        self.changelog: list = []
        self.changelog_committed: list = []
        self.store = self.build()

    def build(self):
        value = helpers.MUTABLE if self.mutable else helpers.FROZEN
        builder = TimeOrderedBufferBuilder(name="b", key=serdes.String, value=value, count_bytes=True)
        return builder.build(7, self.place.backend, "changelog")

    def value(self, number):
        return {"n": number} if self.mutable and number is not None else number

    @rule(key=keys, time=times, new=numbers, old=numbers, offset=st.integers(0, 99))
    def put(self, key, time, new, old, offset):
        context = RecordContext(time, offset, 7, "t", [("h", b"x")] if offset % 2 else None)
        self.store.put(time, key.encode(), key, self.value(new), self.value(old), context)
        held = self.now.get(key)
        first = (time, old) if held is None else held[:2]
        self.now[key] = (*first, old, new, context)

    @rule(until=times, at_most=st.integers(0, 3))
    def evict(self, until, at_most):
        found: list = []

        def wanted():
            return self.store.min_timestamp <= until and len(found) < at_most

        def take(pending):
            assert self.store.prior_value(pending.key.encode())[0], "it leaves only after its callback"
            found.append(pending)

        self.store.evict_while(wanted, take)
        due = sorted((entry[0], key) for key, entry in self.now.items() if entry[0] <= until)[:at_most]
        expected = [(key, self.value(n[3]), self.value(n[2]), n[4]) for _, key in due for n in [self.now.pop(key)]]
        assert [tuple(pending) for pending in found] == expected

    @rule(key=keys)
    def prior(self, key):
        expected = (True, self.value(self.now[key][1])) if key in self.now else (False, None)
        assert self.store.prior_value(key.encode()) == expected

    @rule()
    def flush(self):
        out: list = []
        self.store.flush(out)
        changes = [helpers.changelog_record(row) for row in out]
        assert all((value is None) == (headers is None) for _, value, _, headers in changes)
        self.changelog.extend(changes)
        self.flushed = dict(self.now)

    @rule()
    def seal(self):
        self.rows = self.store.seal()
        self.sealed = self.flushed
        self.changelog_sealed = list(self.changelog)
        self.written = False

    @precondition(lambda self: self.sealed is not None and not self.written)
    @rule()
    def write(self):
        self.place.backend.write([("b", 7, self.rows)], {("b", 7): (1, self.store.metadata())})
        self.committed, self.changelog_committed, self.written = self.sealed, self.changelog_sealed, True

    @precondition(lambda self: self.written)
    @rule()
    def confirm(self):
        self.store.cache_limit = 0
        self.store.committed()
        self.sealed, self.written = None, False

    @rule()
    def commit(self):
        self.flush()
        self.seal()
        self.write()
        self.confirm()

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
        """Another worker that has only the changelog evicts the same updates."""
        self.flush()
        previous, self.place = self.place, helpers.Memory()
        try:
            store = self.build()
            rows = store.restore(self.changelog)
            self.place.backend.write([("b", 7, rows)], {("b", 7): (1, store.metadata())})
            for other in (store, self.build()):
                found: list = []
                other.evict_while(lambda: True, found.append)
                assert [pending.key for pending in found] == [
                    k for _, k in sorted((e[0], k) for k, e in self.now.items())
                ]
                assert [pending.context for pending in found] == [self.now[p.key][4] for p in found]
        finally:
            self.place = previous

    def forget(self):
        self.now, self.flushed = dict(self.committed), dict(self.committed)
        self.sealed, self.written = None, False
        self.changelog = list(self.changelog_committed)

    @invariant()
    def counts_are_right(self):
        if hasattr(self, "store"):
            assert self.store.num_records == len(self.now)
            assert self.store.min_timestamp == min((entry[0] for entry in self.now.values()), default=2**63 - 1)
            assert (self.store.buffer_size > 0) == bool(self.now)

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            self.place.end()


@pytest.mark.parametrize("place", helpers.BACKENDS)
@pytest.mark.parametrize("mutable", [False, True], ids=["immutable", "mutable"])
def test_a_buffer_is_an_ordered_dict_with_commits(place, mutable):
    """Order, prior values, counts and changelog equal the model's after any sequence of steps."""
    kind = type("Machine", (BufferMachine,), {"place_type": helpers.BACKENDS[place], "mutable": mutable})
    examples = 60 if place == "memory" else 15
    run_state_machine_as_test(
        kind, settings=settings(max_examples=generated.examples(examples), stateful_step_count=40, deadline=None)
    )


def build(backend, **options):
    """A buffer of strings and longs."""
    builder = TimeOrderedBufferBuilder(name="b", key=serdes.String, value=serdes.Long, **options)
    return builder.build(0, backend, "changelog")


CONTEXT = RecordContext(3, 4, 0, "topic", [("k", b"vv")])


def test_failing_callback_keeps_the_update_in_the_buffer():
    """An update that could not be forwarded is not lost: the next eviction forwards it."""
    buffer = build(MemoryBackend())
    buffer.put(1, b"a", "a", 5, None, CONTEXT)

    def fail(pending):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        buffer.evict_while(lambda: True, fail)
    assert (buffer.num_records, buffer.min_timestamp) == (1, 1)


def test_the_size_in_bytes_is_counted_as_in_kafka_streams():
    """8 for the buffer time, the key, prior, old when it differs, new, 20 for the context, its topic and headers."""
    buffer = build(MemoryBackend(), count_bytes=True)
    buffer.put(1, b"ab", "ab", 5, None, CONTEXT)
    context = 8 + 8 + 4 + len("topic") + len("k") + len(b"vv")
    assert buffer.buffer_size == 8 + 2 + 0 + 8 + context
    buffer.put(1, b"ab", "ab", 6, 5, CONTEXT)
    assert buffer.buffer_size == 8 + 2 + 0 + 8 + 8 + context
    buffer.evict_while(lambda: True, lambda pending: None)
    assert buffer.buffer_size == 0


def test_without_a_limit_the_size_is_that_of_the_last_flush():
    """It is what a metric shows, and costs nothing per record; a restart and a revert measure again."""
    exact, buffer, backend = build(MemoryBackend(), count_bytes=True), build(MemoryBackend()), MemoryBackend()
    for each in (exact, buffer):
        each.put(1, b"ab", "ab", 5, None, CONTEXT)
        each.put(2, b"c", "c", 6, None, CONTEXT)
    assert buffer.buffer_size == 0
    out: list = []
    buffer.flush(out)
    assert buffer.buffer_size == exact.buffer_size > 0
    again = build(backend)
    again.restore([(key, value, 0, headers) for _, value, key, _, _, _, _, headers in out])
    assert again.buffer_size == exact.buffer_size
    for each in (exact, buffer):
        each.put(2, b"c", "c", 7, 6, CONTEXT)
        each.evict_while(lambda each=each: each.num_records > 1, lambda pending: None)
    buffer.flush(out)
    assert buffer.buffer_size == exact.buffer_size
    buffer.evict_while(lambda: True, lambda pending: None)
    assert buffer.buffer_size == 0


def test_a_changelog_of_an_older_format_is_rejected_by_name():
    """Kafka before 2.5.1 wrote versions 0 to 2: the error names the format instead of guessing."""
    buffer = build(MemoryBackend())
    for headers in (None, [], [("v", b"\x02")]):
        with pytest.raises(StateError, match=r"changelog of 'b'.*version 3"):
            buffer.restore([(b"a", b"\0" * 40, 1, headers)])


def test_an_unlogged_buffer_writes_rows_and_no_changelog():
    """Without logging the state file still has the pending updates."""
    backend = MemoryBackend()
    buffer = build(backend, logging=False)
    buffer.put(1, b"a", "a", 5, None, CONTEXT)
    assert helpers.commit(buffer, backend) == []
    assert build(backend).num_records == 1
