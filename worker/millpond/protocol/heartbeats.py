"""The heartbeats of one worker as a state machine: events in, instructions out; no I/O, no clock, no threads.

A heartbeat waits at the coordinator for news (a long poll). An urgent report does not wait for that one: another heartbeat
carries it and waits there itself, and the coordinator then answers the first. So at most two are in flight.

Of two coordinators the one with the greater term leads, and of one term the one that started later. What another one
answers is ignored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millpond.backoff import Backoff

from .messages import Answer, Refusal, RefusalCode, TopologySummary

__all__ = (
    "FIRST_SESSION_S",
    "Answered",
    "Failed",
    "HeartbeatEvent",
    "HeartbeatInstruction",
    "HeartbeatSession",
    "InFlight",
    "Post",
    "Publish",
    "Rejected",
    "Rest",
    "RestOver",
    "SessionRenewed",
    "Started",
    "TellRecovery",
    "TellTrouble",
    "UrgentReport",
)

FIRST_SESSION_S = 6.0
"""The length of a session until the first answer names it."""

#: What is believed of an answer.
_SHORTEST_SESSION_MS, _LONGEST_SESSION_MS = 300, 600_000
_FIRST_PAUSE = timedelta(milliseconds=50)
_FIRST_PAUSE_S = _FIRST_PAUSE.total_seconds()
_BACKOFF = Backoff(_FIRST_PAUSE, timedelta(seconds=1), jitter=0.5)
_SHORTEST_IDLE = timedelta(seconds=0.01)
_MOST_IN_FLIGHT = 2
_FOR_WHAT_IT_RUNS = frozenset(
    {RefusalCode.TOPOLOGY_MISMATCH, RefusalCode.UNSUPPORTED_VERSION, RefusalCode.CLAIM_REFUSED}
)
_OLDER = "older"


# Events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeartbeatEvent:
    """Something that happened; times are monotonic seconds."""

    now: float


@dataclass(frozen=True, slots=True)
class Started(HeartbeatEvent):
    """Heartbeats begin."""


@dataclass(frozen=True, slots=True)
class UrgentReport(HeartbeatEvent):
    """The worker has something to report at once."""


@dataclass(frozen=True, slots=True)
class Answered(HeartbeatEvent):
    """A coordinator answered a heartbeat."""

    number: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Rejected(HeartbeatEvent):
    """A coordinator rejected a heartbeat."""

    number: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Failed(HeartbeatEvent):
    """A heartbeat has no usable answer."""

    number: int
    kind: str
    """Of the failure; each kind is told once."""
    message: str


@dataclass(frozen=True, slots=True)
class RestOver(HeartbeatEvent):
    """The time of a `Rest` is over."""

    number: int


# Instructions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeartbeatInstruction:
    """One piece of I/O."""


@dataclass(frozen=True, slots=True)
class Post(HeartbeatInstruction):
    """Post a heartbeat with this sequence number; `Answered`, `Rejected` or `Failed` tells what came of it."""

    number: int
    wait_ms: int
    """How long the coordinator may keep it waiting for news."""
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Rest(HeartbeatInstruction):
    """Wait, then say `RestOver` with this number. A `Post` before that makes it void."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Publish(HeartbeatInstruction):
    """Give the worker an answer, newer than all before; the owners that it acknowledges need not be repeated."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class SessionRenewed(HeartbeatInstruction):
    """The coordinator heard of the worker, not before a heartbeat was posted."""

    sent_at: float
    """When it was posted, as `InFlight` has it."""
    timeout_s: float


@dataclass(frozen=True, slots=True)
class TellTrouble(HeartbeatInstruction):
    """Log a kind of trouble for the first time since all was well."""

    message: str


@dataclass(frozen=True, slots=True)
class TellRecovery(HeartbeatInstruction):
    """Log that the coordinator answers again."""


# The state machine ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class InFlight:
    """A heartbeat that is not answered yet, as far as its answer has to be compared with it."""

    number: int
    began: float
    wait_ms: int
    known: Answer | None
    """The newest answer when it was posted."""
    topology: TopologySummary | None
    """What it carries of the topology."""
    sent_at: float = 0.0
    """When it was posted, on a clock that does not stop while the machine sleeps; set by who posts it."""


class HeartbeatSession:
    """What a worker knows of its coordinator, and when it posts the next heartbeat.

    Args:
        topology: sent until a heartbeat with it is answered, and whenever the coordinator asks for it.
        chance: so that workers that were answered together do not come back together for ever.

    Attributes:
        topology: the newest; it may be replaced at any time.
        answer: the newest answer of the coordinator that leads.
        leader: term and start of that coordinator; the greatest seen leads.
        refusal: why the last heartbeat was rejected; None when it was answered.
        rejected: whether it was rejected for what the worker runs, though it told all of that.
        connected_at: time of the last good answer; None before the first.
        outdated_answers: answers of coordinators that do not lead any more.
        failures: heartbeats without a usable answer, rejections aside.
        in_flight: by number.
    """

    def __init__(self, topology: TopologySummary | None, chance: random.Random | None = None) -> None:
        self.topology = topology
        self.answer: Answer | None = None
        self.leader: tuple[int, str] = (0, "")
        self.refusal: Refusal | None = None
        self.rejected = False
        self.connected_at: float | None = None
        self.outdated_answers = 0
        self.failures = 0
        self.in_flight: dict[int, InFlight] = {}
        self._chance = chance or random.Random()
        self._number = 0
        self._newest = 0
        self._session_ms = int(FIRST_SESSION_S * 1000)
        self._send_topology = True
        self._told: TopologySummary | None = None
        self._troubles: set[str] = set()
        self._failures = self._early_answers = 0
        #: An urgent report that no heartbeat carries yet.
        self._urgent = False
        #: The rest that is under way, and how much of it an urgent report may cut off.
        self._rest = self._rests = 0
        self._rest_after_s = 0.0
        self._may_cut = False

    def handle(self, event: HeartbeatEvent) -> list[HeartbeatInstruction]:
        """Take in what happened; return what is to be done about it, in this order."""
        return list(_TRANSITIONS[type(event)](self, event))

    def next_heartbeat(self, now: float, wait_ms: int) -> InFlight:
        """Number another heartbeat, which the caller posts."""
        self._number += 1
        send = self._send_topology or self._told is not self.topology
        record = InFlight(self._number, now, wait_ms, self.answer, self.topology if send else None)
        self.in_flight[record.number] = record
        return record

    def validate(self) -> None:
        """Check what holds between two events, once started.

        Raises:
            AssertionError: it does not.
        """
        assert len(self.in_flight) <= _MOST_IN_FLIGHT, "at most two heartbeats are in flight"
        assert self.in_flight or self._rest, "a heartbeat is in flight, or about to be posted"
        assert not self._urgent or self._rest or len(self.in_flight) == _MOST_IN_FLIGHT, (
            "an urgent report goes out at once"
        )

    # When to post -------------------------------------------------------------------------------------------------

    def _started(self, event: Started) -> Iterable[HeartbeatInstruction]:
        yield self._post(event.now)

    def _post(self, now: float) -> Post:
        self._urgent, self._rest = False, 0
        # Never twice the same: workers that were answered together do not come back together for ever.
        wait_ms = int(self._session_ms / 3 * self._chance.uniform(0.8, 0.95))
        record = self.next_heartbeat(now, wait_ms)
        self._newest = record.number
        return Post(record.number, wait_ms, max(self._session_ms / 2, wait_ms + 500) / 1000)

    def _urgent_report(self, event: UrgentReport) -> Iterable[HeartbeatInstruction]:
        if (self._rest and not self._may_cut) or len(self.in_flight) == _MOST_IN_FLIGHT:
            self._urgent = True
        else:
            yield self._post(event.now)

    def _go_on(self, number: int, now: float, pause_s: float) -> Iterable[HeartbeatInstruction]:
        """A heartbeat is over: post the next one, after a pause."""
        if self._urgent and not self._rest:
            yield self._post(now)
        elif number == self._newest and not self._rest:
            yield from self._begin_rest(now, pause_s)

    def _begin_rest(self, now: float, seconds: float) -> Iterable[HeartbeatInstruction]:
        if seconds <= 0:
            yield self._post(now)
            return
        # An urgent report cuts a pause short, though not below what a coordinator in trouble can bear.
        self._rests += 1
        self._rest, self._may_cut = self._rests, False
        self._rest_after_s = max(0.0, seconds - _FIRST_PAUSE_S)
        yield Rest(self._rest, min(seconds, _FIRST_PAUSE_S))

    def _rest_over(self, event: RestOver) -> Iterable[HeartbeatInstruction]:
        if event.number != self._rest:
            return
        if self._urgent or not self._rest_after_s:
            if len(self.in_flight) < _MOST_IN_FLIGHT:
                yield self._post(event.now)
            return
        self._may_cut = True
        seconds, self._rest_after_s = self._rest_after_s, 0.0
        yield Rest(self._rest, seconds)

    def _pause_after_trouble(self) -> float:
        """Wait longer each time, and never like all the others."""
        self._failures += 1
        return _BACKOFF.wait_s(self._failures, self._chance)

    def _pause_after_answer(self, *, early: bool, news: bool) -> float:
        """Go on at once, unless the coordinator answers at once each time for no reason."""
        self._failures = 0
        if news or not early:
            self._early_answers = 0
            return 0.0
        # The first early answer is one that another heartbeat of ours has replaced.
        early_answers, self._early_answers = self._early_answers, self._early_answers + 1
        longest = timedelta(milliseconds=self._session_ms / 3)
        return Backoff(_SHORTEST_IDLE, longest).wait_s(early_answers) if early_answers else 0.0

    # What came of it ----------------------------------------------------------------------------------------------

    def _answered(self, event: Answered) -> Iterable[HeartbeatInstruction]:
        record, answer = self.in_flight.pop(event.number), event.answer
        leader = (answer.epoch.term, answer.coordinator)
        if leader < self.leader:
            self.outdated_answers += 1
            yield from self._trouble(
                _OLDER,
                f"coordinator {answer.coordinator} (term {answer.epoch.term}) does not lead any more: its answers are "
                f"ignored, since {self.leader[1]} (term {self.leader[0]}) answered later",
            )
            yield from self._go_on(event.number, event.now, self._pause_after_trouble())
            return
        self.connected_at, self.refusal, self.rejected = event.now, None, False
        known = self.answer
        overtaken = known is not None and (answer.epoch, answer.sequence) < (known.epoch, known.sequence)
        if leader != self.leader or not overtaken:
            self.leader, self.answer = leader, answer
            self._send_topology = answer.send_topology
            self._session_ms = min(max(answer.session_timeout_ms, _SHORTEST_SESSION_MS), _LONGEST_SESSION_MS)
            yield Publish(answer)
        self._told = record.topology or self._told
        yield SessionRenewed(record.sent_at, self._session_ms / 1000)
        yield from self._all_well()
        early = event.now - record.began < record.wait_ms / 1000 * 0.9
        # An answer that is older than another one says nothing, however often it comes.
        news = answer is self.answer and (answer.revision, answer.coordinator) != (
            (record.known.revision, record.known.coordinator) if record.known else (0, "")
        )
        yield from self._go_on(event.number, event.now, self._pause_after_answer(early=early, news=news))

    def _was_rejected(self, event: Rejected) -> Iterable[HeartbeatInstruction]:
        record, refusal = self.in_flight.pop(event.number), event.refusal
        self.refusal = refusal
        # Who did not tell its topology may be rejected for just that; it tells with the next heartbeat.
        told = record.topology is not None or refusal.code is not RefusalCode.TOPOLOGY_MISMATCH
        self.rejected = told and refusal.code in _FOR_WHAT_IT_RUNS
        self._send_topology = True  # what is not known is perhaps what is missing
        if refusal.code is not RefusalCode.CLAIM_PENDING:  # every first start begins with that
            yield from self._trouble(f"rejected: {refusal.code}", f"the heartbeat was rejected: {refusal.message}")
        yield from self._go_on(event.number, event.now, self._pause_after_trouble())

    def _failed(self, event: Failed) -> Iterable[HeartbeatInstruction]:
        del self.in_flight[event.number]
        self.failures += 1
        yield from self._trouble(event.kind, f"no usable answer: {event.message}")
        yield from self._go_on(event.number, event.now, self._pause_after_trouble())

    def _trouble(self, kind: str, message: str) -> Iterable[HeartbeatInstruction]:
        if kind not in self._troubles:
            self._troubles.add(kind)
            yield TellTrouble(message)

    def _all_well(self) -> Iterable[HeartbeatInstruction]:
        if self._troubles:
            # Not "older": while two coordinators answer in turns, each good answer would make the next one news.
            self._troubles &= {_OLDER}
            yield TellRecovery()


_TRANSITIONS: dict[type[HeartbeatEvent], Callable[[HeartbeatSession, Any], Iterable[HeartbeatInstruction]]] = {
    Started: HeartbeatSession._started,
    UrgentReport: HeartbeatSession._urgent_report,
    Answered: HeartbeatSession._answered,
    Rejected: HeartbeatSession._was_rejected,
    Failed: HeartbeatSession._failed,
    RestOver: HeartbeatSession._rest_over,
}
