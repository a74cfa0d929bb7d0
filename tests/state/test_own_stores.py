"""A store of one's own has what its task committed, after commits, aborts, crashes, moves and restores."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

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

import millpond as mp
from millpond.errors import ConfigError, MillpondError, SerializationError, StateError, TopologyError
from millpond.state import MemoryBackend
from millpond.state.own_stores import CustomStore
from millpond.testing import TopologyTestDriver
from millpond.topology.read_only import ReadOnlyStore
from tests.state import helpers
from tests.support import generated

words = st.sampled_from(["", "a", "b", "ab", "ü"])


class Ranking(mp.StateStore):
    """Counts words, and knows the most frequent ones."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.by_count: dict[int, set[str]] = {}
        self.events: list[str] = []
        self.seen: set[str] = set()
        self.recent: deque[str] = deque()

    @property
    def logged(self) -> bool:
        self.log(b"logged", b"")
        return True

    def init(self) -> None:
        self.events.append(f"init {self.name} {self.partition}")

    def add(self, word: str) -> int:
        count = self.counts.get(word, 0) + 1
        self.log(word.encode(), b"%d" % count)
        self._set(word, count)
        return count

    def add_all(self, words: Iterable[str]) -> Iterator[int]:
        for word in words:
            yield self.add(word)

    def frequent(self) -> Iterator[str]:
        for count in sorted(self.by_count, reverse=True):
            yield from sorted(self.by_count[count])

    def remove(self, word: str) -> None:
        self.log(word.encode(), None)
        self._set(word, 0)

    def top(self) -> set[str]:
        return self.by_count[max(self.by_count)] if self.by_count else set()

    def _set(self, word: str, count: int) -> None:
        before = self.counts.pop(word, 0)
        if before:
            self.by_count[before].discard(word)
            if not self.by_count[before]:
                del self.by_count[before]
        if count:
            self.counts[word] = count
            self.by_count.setdefault(count, set()).add(word)

    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self._set(key.decode(), 0 if value is None else int(value))

    def clear(self) -> None:
        self.counts.clear()
        self.by_count.clear()

    def close(self) -> None:
        self.events.append("close")


class Context:
    """The context of a task, as stores see it."""

    headers = message = origin = None
    timestamp = 5

    def now_ms(self) -> int:
        return 7


def build(backend: Any, supplier: Any = Ranking) -> Any:
    return mp.StateStoreBuilder(name="s", supplier=supplier).build(7, backend, "changelog")


class RankingMachine(RuleBasedStateMachine):
    """Compare the store with dicts: of all changes and of committed ones."""

    place_type: Any = helpers.Memory

    @initialize()
    def start(self):
        self.place = self.place_type()
        self.now: dict[str, int] = {}
        self.committed: dict[str, int] = {}
        self.changelog: list = []
        self.activate()

    def activate(self):
        self.store = build(self.place.backend)
        self.store.attach(Context())
        self.user = self.store.of_user
        self.now = dict(self.committed)

    @rule(word=words)
    def add(self, word):
        self.now[word] = self.now.get(word, 0) + 1
        assert self.user.add(word) == self.now[word]

    @rule(word=words)
    def remove(self, word):
        self.user.remove(word)
        self.now.pop(word, None)

    @rule()
    def flush(self):
        """A flush alone commits nothing."""
        self.changelog += [helpers.changelog_record(row) for row in self.flushed()]

    def flushed(self):
        out: list = []
        self.store.flush(out)
        return out

    @rule()
    def commit(self):
        self.flush()
        rows = self.store.seal()
        self.place.backend.write([("s", 7, rows)], {("s", 7): (len(self.changelog), self.store.metadata())})
        self.store.committed()
        self.committed = dict(self.now)
        self.end = len(self.changelog)

    @rule()
    def revert(self):
        self.store.revert()
        self.now = dict(self.committed)
        del self.changelog[getattr(self, "end", 0) :]

    @rule()
    def hand_over_and_take_back(self):
        """As a copy it has rows only; its task makes the objects again."""
        self.store.detach()
        assert self.user.counts == {}
        del self.changelog[getattr(self, "end", 0) :]
        self.store.attach(Context())
        self.now = dict(self.committed)

    @rule()
    def close_and_activate_again(self):
        self.store.close()
        del self.changelog[getattr(self, "end", 0) :]
        self.activate()

    @precondition(lambda self: self.place.durable)
    @rule()
    def crash(self):
        self.place.crash()
        del self.changelog[getattr(self, "end", 0) :]
        self.activate()

    @rule(split=st.integers(0, 20))
    def restore_elsewhere(self, split):
        """Another worker that has only the changelog, in any batches, has the committed state."""
        committed = self.changelog[: getattr(self, "end", 0)]
        backend = MemoryBackend()
        copy = build(backend)
        for batch in (committed[:split], committed[split:]):
            backend.write([("s", 7, copy.restore(batch))], {("s", 7): (1, copy.metadata())})
        copy.attach(Context())
        assert copy.of_user.counts == self.committed

    @invariant()
    def state_is_that_of_the_model(self):
        if hasattr(self, "user"):
            assert self.user.counts == self.now
            most = max(self.now.values(), default=0)
            assert self.user.top() == {word for word, count in self.now.items() if count == most}

    def teardown(self):
        if hasattr(self, "place"):
            self.store.close()
            self.place.end()


@pytest.mark.parametrize("place", helpers.BACKENDS)
def test_a_store_of_ones_own_has_what_was_committed(place):
    """Objects, changelog and rows agree after any sequence of steps."""
    kind = type("Machine", (RankingMachine,), {"place_type": helpers.BACKENDS[place]})
    examples = generated.examples(60 if place == "memory" else 10)
    run_state_machine_as_test(kind, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None))


def test_changes_are_logged_with_the_record_that_made_them():
    """One record per key and commit, with its timestamp or the given one."""
    store = build(MemoryBackend())
    store.attach(Context())
    store.of_user.add("a")
    store.of_user.add("a")
    store.of_user.log(b"raw", b"\0", 3)
    out: list = []
    store.flush(out)
    assert out == [
        ("changelog", b"2", b"a", 7, None, None, 5),
        ("changelog", b"\0", b"raw", 7, None, None, 3),
    ]


def test_hooks_are_called_once():
    """The name and the partition are known in init(); close() comes once."""
    store = build(MemoryBackend())
    user = store.of_user
    assert not user.is_open
    store.attach(Context())
    assert user.is_open
    store.close()
    store.close()
    assert user.events == ["init s 7", "close"]
    with pytest.raises(StateError, match="store 's' is closed"):
        user.add("a")


def test_rows_are_given_to_restore_once_per_activation():
    """A store that becomes a copy and then active again is loaded when it is active, not when it becomes a copy."""
    backend = MemoryBackend()
    store = build(backend)
    store.attach(Context())
    store.of_user.add("a")
    helpers.commit(store, backend)
    restored: list[bytes] = []
    store.of_user.restore = lambda key, value, timestamp: restored.append(key)
    store.detach()
    backend.write([("s", 7, store.restore([(b"b", b"1", 5, None)]))], {("s", 7): (2, store.metadata())})
    assert restored == []
    store.attach(Context())
    assert restored == [b"a", b"b"]


class Late(Ranking):
    """Logs at the flush."""

    def flush(self) -> None:
        for word, count in self.counts.items():
            self.log(word.encode(), b"%d" % count)


def test_changes_may_be_logged_at_the_flush():
    """The hook is called before each commit."""
    store = build(MemoryBackend(), Late)
    store.attach(Context())
    store.of_user.counts["x"] = 3
    assert [row[1:3] for row in helpers.commit(store, MemoryBackend())] == [(b"3", b"x")]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("text", b"", "a key of the text 'text'"), (b"", 5, "a value of"), (None, b"", "a key of None")],
)
def test_only_bytes_are_logged(key, value, message):
    """The error names the store and the cure."""
    store = build(MemoryBackend())
    store.attach(Context())
    with pytest.raises(SerializationError, match=f"store 's': log\\(\\) takes bytes, and was given {message}"):
        store.of_user.log(key, value)


def test_a_store_that_logs_while_it_restores_is_rejected():
    """Its state would be logged again with every start."""

    class Echo(Ranking):
        def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
            self.log(key, value)

    backend = MemoryBackend()
    first = build(backend)
    first.attach(Context())
    first.of_user.add("a")
    helpers.commit(first, backend)
    with pytest.raises(StateError, match="log\\(\\) was called by restore"):
        build(backend, Echo).attach(Context())


def test_errors_of_hooks_name_the_store_and_the_method():
    """They are no error of a record."""

    class Broken(Ranking):
        def clear(self) -> None:
            raise KeyError("x")

    with pytest.raises(StateError, match=r"store 's': Broken.clear\(\) raised KeyError: 'x'"):
        build(MemoryBackend(), Broken).attach(Context())


def test_a_store_outside_of_a_task_says_so():
    """It has neither name nor changelog there."""
    with pytest.raises(StateError, match=r"Ranking.log\(\) was used before the store belonged to a task"):
        Ranking().add("a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"supplier": "Ranking"}, "supplier= needs a class of your own"),
        ({"supplier": Ranking, "key": mp.String}, "leave out its serdes"),
        ({"supplier": Ranking, "caching": True}, "leave out caching="),
        ({"supplier": Ranking, "name": ""}, "a state store needs a name"),
    ],
)
def test_wrong_builders_are_rejected(options, message):
    """When the topology is built."""
    with pytest.raises(MillpondError, match=message):
        mp.StateStoreBuilder(**{"name": "s", **options})


def test_a_supplier_that_makes_something_else_is_rejected():
    """The error says what it made."""
    with pytest.raises(ConfigError, match="supplier= made"):
        build(MemoryBackend(), dict)


def test_a_supplier_that_makes_the_same_store_for_two_tasks_is_rejected():
    """What one task changes would be in the changelog of the other."""
    one = Ranking()
    builder = mp.StateStoreBuilder(name="s", supplier=lambda: one)
    first, second = (builder.build(partition, MemoryBackend(), "c") for partition in (0, 1))
    first.attach(Context())
    with pytest.raises(ConfigError, match="store 's': supplier= made the same Ranking for two tasks"):
        second.attach(Context())
    first.close()


def test_processors_use_a_store_of_ones_own():
    """It is connected like any other store, and its changes are in its changelog topic."""

    class Top(mp.Processor[str, str, str, str]):
        stores = (mp.StateStoreBuilder(name="ranking", supplier=Ranking),)

        def init(self, context: mp.ProcessorContext[str, str]) -> None:
            self.ranking = context.get_state_store("ranking", Ranking)

        def process(self, record: mp.Record[str, str]) -> None:
            self.ranking.add(record.value)
            self.context.forward(record.with_value(",".join(sorted(self.ranking.top()))))

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Top).to("out", key=mp.String, value=mp.String)
    with mp.testing.TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        words = driver.create_input_topic("in", key=mp.String, value=mp.String)
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        log = driver.create_output_topic("app-ranking-changelog", key=mp.String, value=mp.String)
        for word in ("a", "b", "b"):
            words.pipe_input("k", word, 9)
        assert out.read_values_to_list() == ["a", "a,b", "b"]
        assert log.read_key_values_to_list() == [("a", "1"), ("b", "1"), ("b", "2")]
        ranking = driver.get_state_store("ranking")
        assert isinstance(ranking, Ranking)
        assert ranking.counts == {"a": 1, "b": 2}
        assert driver.get_all_state_stores() == {"ranking": ranking}
    assert ranking.events == ["init ranking 0", "close"]


def test_only_the_processor_of_a_global_store_changes_it():
    """Others read it; what they would write, no other worker would see."""

    class Fill(mp.Processor[str, str, None, None]):
        def init(self, context: Any) -> None:
            self.ranking = context.get_state_store("ranking", Ranking)

        def process(self, record: mp.Record[str, str]) -> None:
            self.ranking.add(record.value)

    class Read(mp.Processor[str, str, str, str]):
        def init(self, context: Any) -> None:
            self.context, self.ranking = context, context.get_state_store("ranking", Ranking)

        def process(self, record: mp.Record[str, str]) -> None:
            with pytest.raises(TopologyError, match="store 'ranking' cannot be changed here"):
                self.ranking.add(record.value)
            with pytest.raises(TopologyError, match="store 'ranking' cannot be changed here"):
                list(self.ranking.add_all(["c"]))
            assert list(self.ranking.frequent()) == ["a"]
            _reject_changes(self.ranking)
            self.context.forward(record.with_value(f"{self.ranking.top()} {self.ranking.counts}"))

    builder = mp.StreamsBuilder()
    ranking = mp.StateStoreBuilder(name="ranking", supplier=Ranking, logging=False)
    builder.add_global_store(ranking, "words", Fill, key=mp.String, value=mp.String)
    builder.stream("in", key=mp.String, value=mp.String).process(Read).to("out", key=mp.String, value=mp.String)
    with TopologyTestDriver(builder.build()) as driver:
        words_topic = driver.create_input_topic("words", key=mp.String, value=mp.String)
        source = driver.create_input_topic("in", key=mp.String, value=mp.String)
        words_topic.pipe_input("k", "a")
        source.pipe_input("k", "b")
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        assert out.read_value() == "{'a'} {'a': 1}"
        words_topic.pipe_input("k", "a")
        source.pipe_input("k", "b")
        assert out.read_value() == "{'a'} {'a': 2}"


def _reject_changes(ranking: Any) -> None:
    """Try to change a store that may only be read, in other ways than by methods that log."""
    for change in (
        ranking.clear,
        lambda: ranking.restore(b"a", b"7", 0),
        lambda: setattr(ranking, "counts", {}),
        lambda: delattr(ranking, "counts"),
        lambda: operator.setitem(ranking, "a", 7),
        lambda: operator.delitem(ranking, "a"),
        lambda: ranking.logged,
    ):
        with pytest.raises(TopologyError, match=r"ranking' (here|cannot be changed here), because only the processor"):
            change()
    with pytest.raises(TypeError):
        ranking.counts["a"] = 7
    with pytest.raises(AttributeError):
        ranking.events.clear()
    with pytest.raises(AttributeError):
        ranking.seen.add("b")


def test_a_store_that_may_only_be_read_is_read_like_any_other():
    """Operators of Python work, and containers in attributes are not copied."""

    class Words(Ranking):
        def __len__(self) -> int:
            return len(self.counts)

        def __contains__(self, word: object) -> bool:
            return word in self.counts

        def __getitem__(self, word: str) -> int:
            return self.counts[word]

        def __iter__(self) -> Iterator[str]:
            return iter(self.counts)

    words, plain = Words(), Ranking()
    for each in (words, plain):
        each.counts["a"], each.seen, each.recent = 2, {"a"}, deque(["a", "b"])
    read: Any = ReadOnlyStore(CustomStore("words", 0, MemoryBackend(), words).of_reader)
    assert (len(read), "a" in read, "b" in read, read["a"], list(read), bool(read)) == (1, True, False, 2, ["a"], True)
    assert bool(ReadOnlyStore(CustomStore("plain", 0, MemoryBackend(), plain).of_reader))
    assert read.seen | {"b"} == {"a", "b"}
    assert (str(read.seen), str(read.recent), str(read.counts)) == ("{'a'}", "deque(['a', 'b'])", "{'a': 2}")
    assert (read.recent[1], len(read.recent), list(read.recent)) == ("b", 2, ["a", "b"])
    words.seen.add("b")
    assert "b" in read.seen
