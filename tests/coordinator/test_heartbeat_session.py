"""When a worker sends heartbeats, and which coordinator it believes: all sequences of events, without a network."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millpond.protocol import Answer, Epoch, Refusal, RefusalCode, TopologySummary
from millpond.protocol.heartbeats import (
    Answered,
    Failed,
    HeartbeatEvent,
    HeartbeatInstruction,
    HeartbeatSession,
    LogRecovery,
    LogTrouble,
    Post,
    Publish,
    Rejected,
    Rest,
    RestOver,
    Started,
    UrgentReport,
)

TOPOLOGY = TopologySummary("h", ())
_DEPTH = 6


class _Chance(random.Random):
    """Always the middle, so that sequences can be compared."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


class _Played:
    """A session, and what it requested.

    Attributes:
        posted: heartbeats without an answer.
        rests: pauses in progress.
    """

    def __init__(self) -> None:
        self.session = HeartbeatSession(TOPOLOGY, _Chance())
        self.now = 0.0
        self.posted: list[int] = []
        self.rests: list[int] = []
        self.published: list[Answer] = []
        self.said: list[HeartbeatInstruction] = []
        self.play(Started(0.0))

    def play(self, event: HeartbeatEvent) -> list[HeartbeatInstruction]:
        """Let the session handle an event, and check the invariants."""
        instructions = self.session.handle(event)
        for each in instructions:
            match each:
                case Post(number):
                    self.posted.append(number)
                case Rest(number):
                    self.rests.append(number)
                case Publish(answer):
                    assert not self.published or (answer.epoch.term, answer.coordinator) >= (
                        self.published[-1].epoch.term,
                        self.published[-1].coordinator,
                    ), "an answer of a coordinator that does not lead any more"
                    self.published.append(answer)
                case LogTrouble() | LogRecovery():
                    self.said.append(each)
        self.session.validate()
        assert sorted(self.session.in_flight) == sorted(self.posted)
        return instructions

    def answer(self, number: int, *, seconds: float = 1.7, **fields: Any) -> list[HeartbeatInstruction]:
        """The coordinator answers a heartbeat after so long."""
        self.posted.remove(number)
        self.now += seconds
        given = {"epoch": Epoch(1, 1), "coordinator": "c1", "sequence": number, "revision": 1} | fields
        return self.play(Answered(self.now, number, Answer(**given)))

    def fail(self, number: int) -> list[HeartbeatInstruction]:
        """A heartbeat gets no answer."""
        self.posted.remove(number)
        self.now += 1.0
        return self.play(Failed(self.now, number, "connection", "nobody there"))

    def reject(self, number: int, code: RefusalCode) -> list[HeartbeatInstruction]:
        """The coordinator rejects a heartbeat."""
        self.posted.remove(number)
        return self.play(Rejected(self.now, number, Refusal(code, "since")))

    def rest(self) -> list[HeartbeatInstruction]:
        """The newest pause ends."""
        number = self.rests.pop()
        self.rests.clear()
        return self.play(RestOver(self.now, number))

    def urgent(self) -> list[HeartbeatInstruction]:
        """The worker has something to report."""
        return self.play(UrgentReport(self.now))


@pytest.mark.slow
def test_heartbeats_never_stop_and_never_pile_up() -> None:
    """All sequences of answers, failures, pauses and urgent reports: one or two in flight, or a pause that ends."""
    played = 0

    def explore(steps: tuple[str, ...]) -> None:
        nonlocal played
        scene = _Played()
        for step in steps:
            _step(scene, step)
        played += 1
        if len(steps) < _DEPTH:
            for step in _possible(scene):
                explore((*steps, step))

    explore(())
    print(f"{played} sequences")
    assert played > 2_000


def _possible(scene: _Played) -> list[str]:
    ways = ["urgent"]
    for index in range(len(scene.posted)):
        ways += [f"answer {index}", f"older {index}", f"fail {index}", f"reject {index}"]
    return ways + (["rest"] if scene.rests else [])


def _step(scene: _Played, step: str) -> None:
    what, _, index = step.partition(" ")
    if what == "urgent":
        scene.urgent()
    elif what == "rest":
        scene.rest()
    else:
        number = scene.posted[int(index)]
        match what:
            case "answer":
                scene.answer(number, epoch=Epoch(2, 1), coordinator="c2")
            case "older":
                scene.answer(number, epoch=Epoch(1, 9), coordinator="c1")
            case "fail":
                scene.fail(number)
            case "reject":
                scene.reject(number, RefusalCode.NOT_LEADING)


def test_urgent_report_is_posted_beside_the_heartbeat_that_waits() -> None:
    """A third one waits until one of the two has ended."""
    scene = _Played()
    assert [type(each) for each in scene.urgent()] == [Post]
    assert scene.urgent() == []
    first, second = scene.posted
    assert Post in map(type, scene.answer(first))
    assert second in scene.posted


def test_urgent_report_cuts_a_pause_short_but_not_its_beginning() -> None:
    """A coordinator in trouble is not flooded."""
    scene = _Played()
    for _ in range(4):
        scene.fail(scene.posted[0])
        scene.urgent()
        assert not scene.posted, "the beginning of a pause is kept"
        assert [type(each) for each in scene.rest()] == [Post]
    scene.fail(scene.posted[0])
    assert [type(each) for each in scene.rest()] == [Rest]
    assert [type(each) for each in scene.urgent()] == [Post]
    assert scene.play(RestOver(scene.now, scene.rests.pop())) == [], "the pause that was cut short is void"


def test_pauses_grow_while_nobody_answers() -> None:
    """Up to one second; they start small again after a valid answer."""
    scene = _Played()
    pauses = []
    for _ in range(8):
        seconds = 0.0
        instructions = scene.fail(scene.posted[0])
        while scene.rests:
            seconds += sum(each.seconds for each in instructions if isinstance(each, Rest))
            instructions = scene.rest()
        pauses.append(seconds)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(0.75)
    scene.answer(scene.posted[0])
    (rest,) = [each for each in scene.fail(scene.posted[0]) if isinstance(each, Rest)]
    assert rest.seconds == pytest.approx(pauses[0])


def test_trouble_is_told_once_until_all_is_well() -> None:
    """And then its end."""
    scene = _Played()
    for _ in range(3):
        scene.fail(scene.posted[0])
        scene.rest()
        if not scene.posted:
            scene.rest()
    scene.answer(scene.posted[0])
    scene.answer(scene.posted[0])
    assert [type(each) for each in scene.said] == [LogTrouble, LogRecovery]


def test_topology_is_sent_until_it_was_answered_and_when_it_is_asked_for() -> None:
    """A new topology too."""
    scene = _Played()
    carried = lambda: scene.session.in_flight[scene.posted[0]].topology
    assert carried() is TOPOLOGY
    scene.answer(scene.posted[0])
    assert carried() is None
    scene.answer(scene.posted[0], send_topology=True)
    assert carried() is TOPOLOGY
    scene.answer(scene.posted[0])
    scene.session.topology = TopologySummary("more", ())
    scene.answer(scene.posted[0])
    assert carried() is scene.session.topology
    scene.reject(scene.posted[0], RefusalCode.TOPOLOGY_MISMATCH)
    assert scene.session.rejected
