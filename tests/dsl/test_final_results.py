"""`EmitStrategy.on_window_close()` sends the last result of every window once, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.dsl.materialized import Storage
from millpond.dsl.operators.sessions.aggregation import AggregateSessions
from millpond.dsl.operators.sessions.final import AggregateFinalSessions
from millpond.dsl.operators.windowing import finals
from millpond.dsl.operators.windowing.bodies import aggregation
from millpond.dsl.operators.windowing.finals import EMIT_INTERVAL
from millpond.serdes import Json, String, Windowed
from millpond.state import MemoryBackend
from millpond.topology import Body
from tests.dsl.support import Node
from tests.state.helpers import commit

MS = timedelta(milliseconds=1)
CLOSE = mp.EmitStrategy.on_window_close()
Windows = mp.TimeWindows | mp.SlidingWindows | mp.SessionWindows

TIMES = st.one_of(st.integers(0, 400), st.integers(0, 400).map(lambda time: time * 1000))
WAITED = st.sampled_from((0, 0, 1, 400, 2000))
KEYS = st.sampled_from(("a", "b", "", "a\0", "a\0\0"))
STEPS = st.lists(st.tuples(KEYS, st.sampled_from("xyz"), TIMES, WAITED, st.booleans()), max_size=40)
"""Key, value, timestamp, the ms of wall-clock time before the record, whether the task restarts before it."""

KINDS: dict[str, Callable[[int, int], Windows]] = {
    "tumbling": lambda size, grace: mp.TimeWindows(size * MS, grace=grace * MS),
    "hopping": lambda size, grace: mp.TimeWindows(size * MS, advance=max(1, size // 3) * MS, grace=grace * MS),
    "sliding": lambda size, grace: mp.SlidingWindows(size * MS, grace * MS),
}


def add(_key: str, value: str, values: list[str]) -> list[str]:
    """Change the aggregate in place, which an aggregator may do."""
    values.append(value)
    return values


def merge(_key: str, one: list[str], other: list[str]) -> list[str]:
    return one + other


def body_of(windows: Windows, *, final: bool) -> Body:
    if isinstance(windows, mp.SessionWindows):
        if final:
            return AggregateFinalSessions("store", windows, list, add, merge)
        return AggregateSessions("store", windows, list, add, merge, False)
    return aggregation("store", windows, list, add, send_old=False, final=final)


class Task:
    """A task with one aggregation that can be restarted."""

    def __init__(
        self,
        windows: Windows,
        *,
        final: bool,
        persistent: bool = True,
        interval: int | None = None,
        most: int = 250_000,
        values: mp.Serde[Any] = Json(list[str]),  # noqa: B008 - immutable
    ) -> None:
        storage = Storage("store", True, String, values, caching=False, persistent=persistent)
        if isinstance(windows, mp.SessionWindows):
            self._builder: Any = storage.sessions(windows, final=final)
        else:
            self._builder = storage.windows(windows, final=final)
        self._body = body_of(windows, final=final)
        self._interval = interval
        self._most = most
        self._backend = MemoryBackend()
        self._remembered: dict[str, int] = {}
        self.now = 1_000_000
        self.sent: list[tuple[Windowed[str], Any, Any, int]] = []
        self._bind()

    def _bind(self) -> None:
        self._store = self._builder.build(0, self._backend)
        self._node = Node(remembered=self._remembered, store=self._store)
        self._node.forwarded = self.sent
        self._node.task.now_ms = lambda: self.now  # type: ignore[method-assign]
        if self._interval is not None:
            self._node.task.config = {EMIT_INTERVAL: self._interval}
        with patch.object(finals, "_MOST_WINDOWS", self._most):
            self.process = self._node.bind(self._body)

    @property
    def errors(self) -> list[Exception]:
        return self._node.errors

    def restart(self) -> None:
        commit(self._store, self._backend)
        self._remembered = self._node.restarted()
        self._bind()

    def results(self) -> list[tuple[str, int, int, tuple[str, ...], int]]:
        return [(k.key, k.start_ms, k.end_ms, tuple(value), time) for k, value, _, time in self.sent]


def last_updates(windows: Windows, steps: list[tuple[str, str, int, int, bool]]) -> dict[Any, Any]:
    """The last result of each window that is still there, by key, start and end."""
    task = Task(windows, final=False)
    for key, value, timestamp, _, _ in steps:
        task.process(key, value, timestamp)
    last: dict[Any, Any] = {}
    for key, value, _, time in task.sent:
        last.pop((key.key, key.start_ms, key.end_ms), None)
        if value is not None:
            last[key.key, key.start_ms, key.end_ms] = tuple(value), time
    return last


def run(task: Task, steps: list[tuple[str, str, int, int, bool]]) -> list[tuple[str, int, int, tuple[str, ...], int]]:
    """Process the steps, and a last record that closes all windows."""
    for key, value, timestamp, waited, restarted in steps:
        if restarted:
            task.restart()
        task.now += waited
        task.process(key, value, timestamp)
    task.now += 2000
    task.process("end", "x", 10**9)
    return task.results()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interval", [0, None])
@given(st.integers(1, 120), st.integers(0, 200), STEPS)
def test_every_window_is_sent_once_with_its_last_result(
    kind: str, interval: int | None, size: int, grace: int, steps: list[tuple[str, str, int, int, bool]]
) -> None:
    """Time may jump past the retention, the clock may hold results back, the task may restart: none is lost."""
    windows = KINDS[kind](size, grace)
    # A store in memory hides windows as one that is not ordered by time does.
    sent = run(Task(windows, final=True, persistent=False, interval=interval), steps)
    expected = [(*window, *result) for window, result in last_updates(windows, steps).items()]
    assert sorted(sent) == sorted(expected)


@given(st.integers(1, 120), st.integers(0, 200), STEPS, st.booleans())
def test_every_session_is_sent_once(
    gap: int, grace: int, steps: list[tuple[str, str, int, int, bool]], persistent: bool
) -> None:
    """Sessions of the end are sent; as in Kafka Streams, a late record may extend one that was sent."""
    windows = mp.SessionWindows(gap * MS, grace=grace * MS)
    sent = run(Task(windows, final=True, persistent=persistent), steps)
    assert len({session[:3] for session in sent}) == len(sent)
    expected = {(*window, *result) for window, result in last_updates(windows, steps).items()}
    assert expected <= set(sent)


@pytest.mark.parametrize("kind", [*KINDS, "sessions"])
@given(st.integers(1, 120), st.integers(0, 200), STEPS, st.booleans(), st.integers(1, 12), st.sampled_from([0, None]))
def test_windows_that_do_not_fit_in_memory_are_read_from_the_store(
    kind: str,
    size: int,
    grace: int,
    steps: list[tuple[str, str, int, int, bool]],
    persistent: bool,
    most: int,
    interval: int | None,
) -> None:
    """However few fit, the same results are sent in the same order as if all fitted, also after restarts."""
    windows = mp.SessionWindows(size * MS, grace=grace * MS) if kind == "sessions" else KINDS[kind](size, grace)
    few = Task(windows, final=True, persistent=persistent, interval=interval, most=most)
    many = Task(windows, final=True, persistent=persistent, interval=interval)
    assert run(few, steps) == run(many, steps)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("kind", ["tumbling", "sliding"])
def test_many_keys_of_one_window_are_sent_in_their_order(kind: str, persistent: bool) -> None:
    """A key is before those that begin with it, although their rows may be in another order."""
    keys = [
        f"a{more}{last}" for more in ("", "\0", "\0\0", "\0\0\1", "\0\1", "\1", "\0\0\0") for last in ("", "\0", "b")
    ]
    task = Task(KINDS[kind](1000, 0), final=True, persistent=persistent, interval=0, most=2)
    for key in [*keys, "", "\0", "b"]:
        task.process(key, "x", 70_000)
    task.process("end", "x", 10**9)
    assert [key for key, *_ in task.results()] == sorted({*keys, "", "\0", "b"})


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
def test_memory_for_windows_that_wait_is_bounded(kind: str) -> None:
    """Neither many windows nor many keys of one window are all kept as keys in memory."""
    windows = mp.SessionWindows(5 * MS, grace=10**6 * MS) if kind == "sessions" else KINDS[kind](5, 10**6)
    held: list[finals.FinalResults] = []
    original = finals.FinalResults.__init__

    def watched(self: finals.FinalResults, *arguments: Any, **options: Any) -> None:
        held.append(self)
        original(self, *arguments, **options)

    with patch.object(finals.FinalResults, "__init__", watched):
        task = Task(windows, final=True, interval=0, most=20)
    largest = 0
    for number in range(300):
        task.process(f"{number % 150:03}", "x", 10 + number // 150 * 500 + number % 3)
        largest = max(largest, len(held[0].times) + sum(map(len, held[0].by_time.values())))
    assert task.sent == []
    assert largest <= 30
    task.process("end", "x", 10**9)
    task.process("end", "x", 2 * 10**9)
    assert len({key for key, *_ in task.results()}) == 151
    assert len(task.sent) == len({each[:3] for each in task.results()})


class Unreadable(Exception):
    """Raised by a serde of an application."""


def _picky(data: bytes) -> list[str]:
    if b"bad" in data:
        raise Unreadable("the registry\nforgot it")
    found: list[str] = Json(list[str]).deserialize(data)
    return found


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "sessions"])
def test_a_result_that_cannot_be_decoded_is_given_to_the_handler(kind: str) -> None:
    """The error names operator, store and cause; the other results are sent."""
    values = mp.Serde("Picky", Json(list[str]).serialize, _picky)
    windows = mp.SessionWindows(5 * MS) if kind == "sessions" else KINDS[kind](5, 0)
    task = Task(windows, final=True, interval=0, values=values)
    for key, value in (("a", "good"), ("b", "bad"), ("c", "good")):
        task.process(key, value, 10)
    task.process("end", "x", 1000)
    assert [key for key, *_ in task.results()] == ["a", "c"]
    (error,) = task.errors
    assert isinstance(error, mp.MillpondError)
    assert str(error) == (
        "store 'store' has a row that Picky cannot decode (Unreadable: the registry forgot it), because it was written "
        "as another type. The input record is not the cause: keep the old type, give the store a new name so that it "
        "begins empty, or stop the workers and run `millpond reset` to make it again from the inputs"
    )


@given(st.integers(1, 120), STEPS)
def test_results_are_in_the_order_of_the_starts(size: int, steps: list[tuple[str, str, int, int, bool]]) -> None:
    """Windows of all keys are sent by start, then key; a later one never comes first."""
    sent = run(Task(mp.TimeWindows(size * MS), final=True, interval=0), steps)
    assert [each[1:2] + each[:1] for each in sent] == sorted(each[1:2] + each[:1] for each in sent)


def test_results_wait_for_the_clock() -> None:
    """Closed windows are looked for once per second of wall-clock time."""
    task = Task(mp.TimeWindows(10 * MS), final=True)
    task.process("a", "x", 0)
    task.process("a", "y", 10)
    assert task.sent == []
    task.now += 999
    task.process("a", "z", 20)
    assert task.sent == []
    task.now += 1
    task.process("a", "z", 21)
    assert [each[3:] for each in task.results()] == [(("x",), 0), (("y",), 10)]


def test_results_do_not_wait_for_a_clock_that_is_set_back() -> None:
    """A clock that was an hour ahead must not hold them back for an hour."""
    task = Task(mp.TimeWindows(10 * MS), final=True)
    task.process("a", "x", 0)
    task.now -= 3_600_000
    task.process("a", "y", 10)
    assert [each[3:] for each in task.results()] == [(("x",), 0)]


def test_a_result_does_not_wait_when_the_store_would_lose_it() -> None:
    """Before a put that deletes a window's segment, the window is sent."""
    task = Task(mp.TimeWindows(10 * MS), final=True)
    task.process("a", "x", 0)
    task.process("a", "y", 500_000)
    assert task.results() == [("a", 0, 10, ("x",), 0)]


def piped(windowed: Callable[[Any], mp.KTable[mp.Windowed[str], Any]], records: list[tuple[int, str]]) -> list[Any]:
    """The results of an aggregation of records with a time and a header."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=String, value=String).group_by_key()
    windowed(grouped).to_stream().select_key(lambda key, _: f"{key.key}@{key.start_ms}").to("out", key=String)
    config = {"default.value.serde": mp.Long}
    with mp.testing.TopologyTestDriver(builder.build(), config) as driver:
        into = driver.create_input_topic("in", key=String, value=String)
        out = driver.create_output_topic("out", key=String, value=mp.Long)
        for time, header in records:
            into.pipe_input(mp.Record("a", "x", time, headers=[("h", header.encode())]))
        return [(each.key, each.value, each.timestamp, list(each.headers)) for each in out.read_records_to_list()]


def test_results_have_the_headers_of_the_record_that_closes_the_window() -> None:
    """As in Kafka Streams, where a result is forwarded while that record is processed."""
    sent = piped(
        lambda grouped: grouped.windowed_by(mp.TimeWindows(10 * MS)).emit_strategy(CLOSE).count(),
        [(1, "first"), (3, "second"), (12, "third")],
    )
    assert sent == [("a@0", 2, 3, [("h", b"third")])]


def test_caches_of_sliding_windows_and_sessions_are_off() -> None:
    """As in Kafka Streams, which ignores the option for them, and keeps the cache of other windows."""
    storage = Storage("store", True, String, String)
    assert not storage.windows(mp.SlidingWindows(10 * MS), final=True).caching
    assert not storage.sessions(mp.SessionWindows(10 * MS), final=True).caching
    assert storage.windows(mp.TimeWindows(10 * MS), final=True).caching
