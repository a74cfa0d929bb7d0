"""The buffer of a join with grace returns records in the order of time, key and put, through commits and crashes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import serdes
from millpond.errors import StateError
from millpond.state import JoinBuffer, JoinBufferBuilder, MemoryBackend, RecordContext, Waiting
from millpond.state.stores.buffers import join_buffer
from tests.state import helpers
from tests.support import generated

PARTITION = 7
GRACE = 20
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(["a", "aa", "b"]), st.integers(-25, 12)),
        st.sampled_from([("commit",), ("flush",), ("crash",), ("restore",), ("forget", 1), ("forget", 3)]),
    ),
    max_size=60,
)


class Task:
    """A buffer with the changelog and the integers that a task commits, and a plain model of all that waits."""

    def __init__(self, place: Any) -> None:
        self.place = place
        self.waiting: list[tuple[int, bytes, int, int]] = []  # time, key and sequence as in the changelog, number
        self.changelog: list[tuple[bytes, bytes | None]] = []
        self.stream_time, self.number, self.sequence = 100, 0, 0
        self.saved: Any = ([], [], 100, 0)
        self.out: list[Any] = []
        self.store = self.build()

    def build(self) -> JoinBuffer[str, int]:
        builder = JoinBufferBuilder(name="b", key=serdes.String, value=serdes.Long)
        return builder.build(PARTITION, self.place.backend, "changelog")

    def put(self, key: str, delta: int) -> None:
        time = self.stream_time + delta
        if time < self.stream_time - GRACE:
            return
        self.number += 1
        self.sequence += 1
        headers: list[tuple[str, bytes | None]] = [("n", str(self.number).encode())]
        self.store.put(key.encode(), key, self.number, RecordContext(time, self.number, 0, "in", headers))
        self.waiting.append((time, key.encode() + self.sequence.to_bytes(4, "big"), self.sequence, self.number))
        self.stream_time = max(self.stream_time, time)
        self.evict()

    def evict(self) -> None:
        limit = self.stream_time - GRACE
        left: list[Waiting[str, int]] = []
        self.store.evict_until(limit, left.append)
        due = sorted(each for each in self.waiting if each[0] <= limit)
        self.waiting = [each for each in self.waiting if each[0] > limit]
        assert [(w.context.timestamp, w.key, w.value) for w in left] == [
            (time, key[:-4].decode(), number) for time, key, _, number in due
        ]
        assert [w.context.headers for w in left] == [[("n", str(each[3]).encode())] for each in due]

    def flush(self) -> None:
        self.store.flush(self.out)

    def commit(self) -> None:
        self.flush()
        rows = self.store.seal()
        self.changelog += [(each[2], each[1]) for each in self.out]
        self.out.clear()
        self.place.backend.write([("b", PARTITION, rows)], {("b", PARTITION): (len(self.changelog), b"")})
        self.store.committed()
        self.saved = (list(self.waiting), list(self.changelog), self.stream_time, self.sequence)

    def crash(self) -> None:
        """Begin again from the last commit, with what is on disk."""
        if self.place.durable:
            self.place.crash()
        self.out.clear()
        self._begin()

    def restore(self) -> None:
        """Begin again from the last commit, on an empty disk."""
        self.out.clear()
        self.place.backend.drop("b", PARTITION)
        restored = self.build().restore([(key, value, 0, None) for key, value in self.saved[1]])
        self.place.backend.write([("b", PARTITION, restored)], {("b", PARTITION): (len(self.saved[1]), b"")})
        self._begin()

    def _begin(self) -> None:
        waiting, changelog, self.stream_time, self.sequence = self.saved
        self.waiting, self.changelog = list(waiting), list(changelog)
        self.store = self.build()
        self.store.sequence = self.sequence


@pytest.mark.parametrize("place", [helpers.Memory, helpers.Disk])
def test_records_leave_in_order_whatever_happens(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits, crashes, restoring from the changelog, and a memory that is too small change no result."""
    monkeypatch.setattr(join_buffer, "_PART", 2)

    @settings(max_examples=generated.examples(200 if place is helpers.Memory else 40))
    @given(steps)
    def check(taken: list[Any]) -> None:
        at = place()
        try:
            task = Task(at)
            for name, *arguments in taken:
                if name == "forget":
                    task.store._evict(*arguments)  # what `committed` does when there is too little memory
                else:
                    getattr(task, name)(*arguments)
            task.stream_time += 1000
            task.evict()
            assert task.waiting == []
        finally:
            at.end()

    check()


def test_memory_holds_the_front_of_a_long_buffer_only() -> None:
    """A buffer that is larger than `cache_limit` is on disk, and each of its rows is read once."""
    at = helpers.Memory()
    task = Task(at)
    for _ in range(2000):
        task.put("a", 0)
    task.store.cache_limit = 20_000
    task.commit()
    assert task.store.cache_bytes() <= 40_000
    task.stream_time += 1000
    task.evict()
    assert task.store.backend_reads < 10


def test_a_commit_seldom_evicts_when_memory_is_full() -> None:
    """An eviction costs a sort of all keys, so that one with each commit would slow the task down."""
    task = Task(helpers.Memory())
    for _ in range(2000):
        task.put("a", 0)
    task.commit()
    task.store.cache_limit = task.store.cache_bytes()
    evicted = 0
    for _ in range(200):
        task.put("a", 0)
        before = len(task.store._records)
        task.commit()
        evicted += len(task.store._records) < before
    assert evicted <= 2
    assert task.store.cache_bytes() <= task.store.cache_limit
    task.stream_time += 1000
    task.evict()
    assert task.waiting == []


def test_numbers_of_an_unknown_writer_are_continued() -> None:
    """A buffer that Kafka Streams filled gets no number twice, so no waiting record is overwritten."""
    at = helpers.Memory()
    task = Task(at)
    for _ in range(3):
        task.put("a", 0)
    task.commit()
    task.restore()
    task.store.sequence = -1
    task.put("a", 0)
    assert task.store.sequence == 4
    task.stream_time += 1000
    task.evict()


def test_a_record_that_cannot_be_read_ends_restoring() -> None:
    """The message names the store."""
    store = Task(helpers.Memory()).store
    with pytest.raises(StateError, match="the changelog of 'b' has a record that cannot be read"):
        store.restore([(b"\0" * 14, b"?", 0, None)])


def test_changelog_has_the_bytes_of_kafka_streams() -> None:
    """A key is 0, time, key, number; a value has context and value, no earlier values, and a buffer time of 0."""
    store = JoinBufferBuilder(name="b", key=serdes.String, value=serdes.String).build(0, MemoryBackend(), "log")
    store.put(b"k2", "k2", "d8", RecordContext(995, 0, 0, "in", [("h", b"0")]))
    out: list[Any] = []
    store.flush(out)
    ((topic, value, key, partition, *_),) = out
    assert (topic, partition) == ("log", 0)
    assert key.hex() == "0000000000000003e36b3200000001"
    assert value.hex() == (
        "00000000000003e3000000000000000000000002696e000000000000000100000001680000000130ffffffffffffffff"
        "0000000264380000000000000000"
    )
