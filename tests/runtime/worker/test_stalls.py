"""A worker that is in one call of user code for long says so, with the place, from another thread."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest

import millpond as mp
from millpond.errors import BrokerError
from millpond.runtime.blockers import Blockers
from millpond.runtime.worker.stalls import Call, Place, StallWatch, calls_of_thread

PLACE = Place("0_3", "slow", "orders-3 offset 17", "app.py, line 7, in slow()")
TOLD = (
    "worker w0 has processed nothing for {} s: it is in one call in node 'slow' of task 0_3 at orders-3 offset 17 "
    "(app.py, line 7, in slow()). See what the call waits for, and limit its time; the worker's other tasks wait, too."
)


class Loop:
    """A loop whose calls and clock the test sets."""

    def __init__(self) -> None:
        self.now, self.turn = 100.0, 100.0
        self.calls: list[Call] = []
        self.blockers = Blockers()
        self.watch = StallWatch("w0", lambda: self.turn, lambda: self.calls, self.blockers, lambda: self.now)

    def stands(self, place: Place | None, seconds: int) -> list[int]:
        """Let seconds pass in one call at a place; return those after which the watch warned."""
        return self.is_in([] if place is None else [Call(object(), place)], seconds)

    def is_in(self, calls: list[Call], seconds: int) -> list[int]:
        """Let seconds pass in calls; return those after which the watch warned."""
        self.calls = calls
        told = []
        before = self.blockers.trouble()
        for second in range(1, seconds + 1):
            self.now += 1
            self.watch.look()
            if (trouble := self.blockers.trouble()) not in (before, None):
                told.append(second)
            before = trouble
        return told


def test_a_long_call_is_told_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    """At 10 s, 30 s, 60 s and so on after it was first seen; heartbeats report it until it ends."""
    caplog.set_level(logging.INFO)
    loop = Loop()
    assert loop.stands(PLACE, 130) == [11, 31, 61, 121]
    assert caplog.messages == [TOLD.format(seconds) for seconds in (10, 30, 60, 120)]
    trouble = loop.blockers.trouble()
    assert trouble is not None
    assert (trouble.reason, trouble.message) == ("WorkerStalled", TOLD.format(120))
    loop.turn = loop.now
    assert loop.stands(None, 1) == []
    assert loop.blockers.trouble() is None
    assert caplog.messages[-1] == f"worker w0 goes on after 130 s in one call {PLACE}"
    loop.turn = loop.now
    assert loop.stands(PLACE, 12) == [11]


def test_a_loop_that_makes_progress_is_not_told() -> None:
    """In a long turn, each record takes less; or each turn does."""
    loop = Loop()
    for offset in range(10):
        assert loop.stands(PLACE._replace(record=f"orders-3 offset {offset}"), 9) == []
    loop.turn = loop.now
    for _ in range(10):
        loop.turn = loop.now
        assert loop.stands(PLACE, 9) == []


def test_many_short_calls_at_one_place_are_not_told() -> None:
    """Timers of one turn, or values that one record became: each call is short."""
    loop = Loop()
    for _ in range(10):
        assert loop.stands(PLACE, 9) == []


def test_of_nested_calls_the_innermost_long_one_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A function that makes many short calls is long itself, until one of its calls hangs."""
    loop = Loop()
    outer = Call(object(), PLACE._replace(node="outer"))
    told = [second for second in range(1, 13) if loop.is_in([Call(object(), PLACE), outer], 1)]
    assert told == [11]
    assert "in one call in node 'outer'" in caplog.messages[-1]
    assert loop.is_in([Call(object(), PLACE), outer], 20) == [19]
    assert "for 30 s: it is in one call in node 'slow'" in caplog.messages[-1]


def test_a_wait_for_the_schema_registry_has_its_own_words() -> None:
    """It is told at once, by the serdes."""
    loop = Loop()
    loop.blockers.add("schema registry", BrokerError("away"), 0.0)
    assert loop.stands(PLACE, 20) == []


class Gate:
    """User code that waits in another thread until the test has looked at it."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.entered.set()
        assert self.leave.wait(30)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.leave.set()


def _calls(
    build: Callable[[mp.StreamsBuilder], object], *gates: Gate, advance: timedelta | None = None
) -> list[Sequence[Call]]:
    """Return the calls of a thread that processes a record by a topology, at each gate."""
    builder = mp.StreamsBuilder()
    build(builder)

    def process() -> None:
        with mp.testing.TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("words", key=mp.String, value=mp.String).pipe_input("a", "b")
            if advance is not None:
                driver.advance_wall_clock_time(advance)

    thread = threading.Thread(target=process)
    thread.start()
    found = []
    try:
        for gate in gates:
            assert gate.entered.wait(30)
            assert thread.ident is not None
            found.append(calls_of_thread(thread.ident))
            gate.leave.set()
    finally:
        for gate in gates:
            gate.leave.set()
        thread.join()
    return found


def _place(build: Callable[[mp.StreamsBuilder], object], gate: Gate) -> Place:
    """Return the place of a thread that processes a record by a topology."""
    (calls,) = _calls(build, gate)
    return calls[0].place


def test_the_place_has_node_record_and_line(gate: Gate) -> None:
    """The node is the innermost one on the record's way, not those before it."""

    def slow(value: str) -> str:
        gate.wait()
        return value

    def build(builder: mp.StreamsBuilder) -> None:
        words = builder.stream("words", key=mp.String, value=mp.String).filter(lambda _key, _value: True, name="all")
        words.map_values(slow, name="slow").to("out", key=mp.String, value=mp.String)

    place = _place(build, gate)
    assert place[:3] == ("0_0", "slow", "words-0 offset 0")
    assert re.fullmatch(r"test_stalls.py, line \d+, in wait\(\)", place.code or "")


def test_the_place_of_asynchronous_calls_is_their_node(gate: Gate) -> None:
    """They are for all records of a batch, in another thread."""

    async def slow(value: str) -> str:
        gate.wait()
        return value

    def build(builder: mp.StreamsBuilder) -> None:
        words = builder.stream("words", key=mp.String, value=mp.String)
        words.map_values_async(slow, name="calls", timeout=timedelta(seconds=60)).to(
            "out", key=mp.String, value=mp.String
        )

    assert _place(build, gate) == ("0_0", "calls", None, None)


def test_a_processor_has_a_place_too(gate: Gate) -> None:
    """The Processor API has the same."""

    class Slow(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            gate.wait()

    place = _place(
        lambda builder: builder.stream("words", key=mp.String, value=mp.String).process(Slow, name="mine"), gate
    )
    assert place[:3] == ("0_0", "mine", "words-0 offset 0")


def test_values_of_one_record_are_calls_of_their_own() -> None:
    """They have the same place: node, record and line."""
    gates = [Gate(), Gate()]
    waits = iter(gates)

    def slow(value: str) -> str:
        next(waits).wait()
        return value

    def build(builder: mp.StreamsBuilder) -> None:
        words = builder.stream("words", key=mp.String, value=mp.String).flat_map_values(lambda value: [value] * 2)
        words.map_values(slow, name="slow").to("out", key=mp.String, value=mp.String)

    first, second = _calls(build, *gates)
    assert [each.place for each in first] == [each.place for each in second]
    assert not {each.identity for each in first} & {each.identity for each in second}


def test_timers_of_one_turn_are_calls_of_their_own() -> None:
    """Also if one function is scheduled twice."""
    gates = [Gate(), Gate()]
    waits = iter(gates)

    class Timed(mp.Processor[str, str, str, str]):
        def init(self, context: mp.ProcessorContext[str, str]) -> None:
            for _ in gates:
                context.schedule(timedelta(seconds=1), mp.PunctuationType.WALL_CLOCK_TIME, self.tick)

        def tick(self, _now_ms: int) -> None:
            next(waits).wait()

        def process(self, record: mp.Record[str, str]) -> None:
            pass

    first, second = _calls(
        lambda builder: builder.stream("words", key=mp.String, value=mp.String).process(Timed, name="timed"),
        *gates,
        advance=timedelta(seconds=1),
    )
    assert [each.place for each in first] == [each.place for each in second]
    assert not {each.identity for each in first} & {each.identity for each in second}


def test_a_thread_that_processes_nothing_has_no_place() -> None:
    """Its own frames are the user's, but none is a task's."""
    began = time.monotonic()
    assert list(calls_of_thread(threading.get_ident())) == []
    assert list(calls_of_thread(-1)) == []
    assert time.monotonic() >= began
