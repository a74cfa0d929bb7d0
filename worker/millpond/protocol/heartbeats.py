"""The heartbeats of one worker as a state machine: events in, instructions out; no I/O, no clock, no threads.

A heartbeat is a long poll: the coordinator answers it when it has news. An urgent report is sent at once with another
heartbeat, which becomes the long poll; the coordinator then answers the first. So at most two are in flight.

Of several coordinators, the one with the greatest term leads, and within a term the one that started last. Answers of
others are ignored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

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
    "LogRecovery",
    "LogTrouble",
    "Post",
    "Publish",
    "Rejected",
    "Rest",
    "RestOver",
    "SessionRenewed",
    "Started",
    "UrgentReport",
)

FIRST_SESSION_S = 6.0
"""The session timeout until the first answer sets it, in seconds."""

#: The limits of the session timeout in an answer.
_MIN_SESSION_MS, _MAX_SESSION_MS = 300, 600_000
#: The longest interval of heartbeats, as a part of the session timeout: two lost ones do not end the session.
_LONGEST_INTERVAL = 0.95 / 3
_SHORTEST_INTERVAL_MS = 50
#: Intervals are random, so that workers that were answered together do not post together again and again.
_SHORTENED = 0.85, 1.0
_FIRST_PAUSE = timedelta(milliseconds=50)
_FIRST_PAUSE_S = _FIRST_PAUSE.total_seconds()
_BACKOFF = Backoff(_FIRST_PAUSE, timedelta(seconds=1), jitter=0.5)
_SHORTEST_IDLE = timedelta(seconds=0.01)
_MAX_IN_FLIGHT = 2
#: A retry does not help: the worker has the wrong topology, version or application id.
_PERMANENT_CODES = frozenset(
    {RefusalCode.TOPOLOGY_MISMATCH, RefusalCode.UNSUPPORTED_VERSION, RefusalCode.CLAIM_REFUSED}
)
_OUTDATED = "outdated"


# Events


@dataclass(frozen=True, slots=True)
class HeartbeatEvent:
    """An event, at a time in monotonic seconds."""

    now: float


@dataclass(frozen=True, slots=True)
class Started(HeartbeatEvent):
    """The client has started."""


@dataclass(frozen=True, slots=True)
class UrgentReport(HeartbeatEvent):
    """The worker has an urgent report."""


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
    """The kind of the failure; each kind is logged once."""
    message: str


@dataclass(frozen=True, slots=True)
class RestOver(HeartbeatEvent):
    """The wait of a `Rest` has ended."""

    number: int


# Instructions


@dataclass(frozen=True, slots=True)
class HeartbeatInstruction:
    """An instruction to the client."""


@dataclass(frozen=True, slots=True)
class Post(HeartbeatInstruction):
    """Post the heartbeat with this sequence number; `Answered`, `Rejected` or `Failed` is its outcome."""

    number: int
    wait_ms: int
    """How long the coordinator may delay the answer, in milliseconds."""
    timeout_s: float
    """How long the client waits for the answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Rest(HeartbeatInstruction):
    """Wait, then send `RestOver` with this number. A `Post` before that cancels it."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Publish(HeartbeatInstruction):
    """Pass the worker the newest answer so far. Owners that it acknowledges need not be reported again."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class SessionRenewed(HeartbeatInstruction):
    """Renew the session: the coordinator answered a heartbeat."""

    sent_at: float
    """When that heartbeat was posted, as in `InFlight`."""
    timeout_s: float
    """The session timeout, in seconds."""


@dataclass(frozen=True, slots=True)
class LogTrouble(HeartbeatInstruction):
    """Log a failure, the first of its kind since the last recovery."""

    message: str


@dataclass(frozen=True, slots=True)
class LogRecovery(HeartbeatInstruction):
    """Log that the coordinator answers again."""


# The state machine


@dataclass(slots=True)
class InFlight:
    """A heartbeat without an answer yet, with the facts that its answer is compared with."""

    number: int
    began: float
    wait_ms: int
    known: Answer | None
    """The newest answer when the heartbeat was posted."""
    topology: TopologySummary | None
    """The topology that the heartbeat carries; None if it carries only the hash."""
    sent_at: float = 0.0
    """The time of the post, on a clock that does not stop while the machine sleeps; set by the client."""


class HeartbeatSession:
    """The worker's view of its coordinator, and the schedule of its heartbeats.

    Args:
        topology: sent until a heartbeat with it is answered, and whenever the coordinator asks for it.
        chance: a random generator, so that workers do not post at the same time repeatedly.

    Attributes:
        topology: the newest topology; it may be replaced at any time.
        answer: the newest answer of the leading coordinator.
        leader: the greatest term and start of any coordinator so far: those of the leading one.
        refusal: the reason why the last heartbeat was rejected; None if it was answered.
        rejected: whether the coordinator rejects the worker's topology, version or application id, so that a retry
            does not help.
        connected_at: the time of the last good answer; None before the first.
        outdated_answers: the number of answers from coordinators that no longer lead.
        failures: the number of heartbeats without a usable answer; rejections are not counted.
        in_flight: heartbeats without an answer yet, by number.
    """

    def __init__(self, topology: TopologySummary | None, chance: random.Random | None = None) -> None:
        self.topology = topology
        self.answer: Answer | None = None
        self.leader: tuple[int, str] = (0, "")
        self.refusal: Refusal | None = None
        self.rejected: bool = False
        self.connected_at: float | None = None
        self.outdated_answers: int = 0
        self.failures: int = 0
        self.in_flight: dict[int, InFlight] = {}
        self._chance = chance or random.Random(random.getrandbits(64))
        self._number = 0
        self._newest = 0
        self._session_ms = int(FIRST_SESSION_S * 1000)
        self._interval_ms = 0
        self._send_topology = True
        self._known_topology: TopologySummary | None = None
        self._troubles: set[str] = set()
        self._failures = self._early_answers = 0
        #: Whether no heartbeat carries the latest urgent report yet.
        self._urgent = False
        #: The current rest (0: none), and the part of it that an urgent report may cut off.
        self._rest = self._rests = 0
        self._rest_after_s = 0.0
        self._may_cut = False

    def handle(self, event: HeartbeatEvent) -> list[HeartbeatInstruction]:
        """Process an event; return the instructions for the client, in order."""
        return list(self._TRANSITIONS[type(event)](self, event))

    def next_heartbeat(self, now: float, wait_ms: int) -> InFlight:
        """Register the next heartbeat, which the caller posts."""
        self._number += 1
        send = self._send_topology or self._known_topology is not self.topology
        record = InFlight(self._number, now, wait_ms, self.answer, self.topology if send else None)
        self.in_flight[record.number] = record
        return record

    def validate(self) -> None:
        """Check the invariants that hold between two events.

        Raises:
            AssertionError: an invariant is violated.
        """
        assert len(self.in_flight) <= _MAX_IN_FLIGHT, "at most two heartbeats are in flight"
        assert self.in_flight or self._rest, "a heartbeat is in flight, or about to be posted"
        assert not self._urgent or self._rest or len(self.in_flight) == _MAX_IN_FLIGHT, (
            "an urgent report goes out at once"
        )

    # When to post

    def _started(self, event: Started) -> Iterable[HeartbeatInstruction]:
        yield self._post(event.now)

    def _post(self, now: float) -> Post:
        self._urgent, self._rest = False, 0
        longest = self._session_ms * _LONGEST_INTERVAL
        interval_ms = min(max(self._interval_ms, _SHORTEST_INTERVAL_MS), longest) if self._interval_ms > 0 else longest
        wait_ms = int(interval_ms * self._chance.uniform(*_SHORTENED))
        record = self.next_heartbeat(now, wait_ms)
        self._newest = record.number
        return Post(record.number, wait_ms, max(self._session_ms / 2, wait_ms + 500) / 1000)

    def _urgent_report(self, event: UrgentReport) -> Iterable[HeartbeatInstruction]:
        if (self._rest and not self._may_cut) or len(self.in_flight) == _MAX_IN_FLIGHT:
            self._urgent = True
        else:
            yield self._post(event.now)

    def _go_on(self, number: int, now: float, pause_s: float) -> Iterable[HeartbeatInstruction]:
        """Post the next heartbeat after the end of another one, with a pause."""
        if self._urgent and not self._rest:
            yield self._post(now)
        elif number == self._newest and not self._rest:
            yield from self._begin_rest(now, pause_s)

    def _begin_rest(self, now: float, seconds: float) -> Iterable[HeartbeatInstruction]:
        if seconds <= 0:
            yield self._post(now)
            return
        # An urgent report ends a pause early, but not its first part, to protect a coordinator in trouble.
        self._rests += 1
        self._rest, self._may_cut = self._rests, False
        self._rest_after_s = max(0.0, seconds - _FIRST_PAUSE_S)
        yield Rest(self._rest, min(seconds, _FIRST_PAUSE_S))

    def _rest_over(self, event: RestOver) -> Iterable[HeartbeatInstruction]:
        if event.number != self._rest:
            return
        if self._urgent or not self._rest_after_s:
            if len(self.in_flight) < _MAX_IN_FLIGHT:
                yield self._post(event.now)
            return
        self._may_cut = True
        seconds, self._rest_after_s = self._rest_after_s, 0.0
        yield Rest(self._rest, seconds)

    def _pause_after_trouble(self) -> float:
        """Return the pause after a failure, which grows with each failure and has a random part."""
        self._failures += 1
        return _BACKOFF.wait_s(self._failures, self._chance)

    def _pause_after_answer(self, *, early: bool, news: bool) -> float:
        """Return the pause after an answer: none, unless the coordinator keeps answering early without news."""
        self._failures = 0
        if news or not early:
            self._early_answers = 0
            return 0.0
        # The first early answer is normal: this worker posted another heartbeat meanwhile.
        early_answers, self._early_answers = self._early_answers, self._early_answers + 1
        longest = timedelta(milliseconds=self._session_ms / 3)
        return Backoff(_SHORTEST_IDLE, longest).wait_s(early_answers) if early_answers else 0.0

    # Outcomes

    def _answered(self, event: Answered) -> Iterable[HeartbeatInstruction]:
        record, answer = self.in_flight.pop(event.number), event.answer
        leader = (answer.epoch.term, answer.coordinator)
        if leader < self.leader:
            self.outdated_answers += 1
            yield from self._trouble(
                _OUTDATED,
                f"coordinator {answer.coordinator} (term {answer.epoch.term}) no longer leads; ignoring its answers, "
                f"because {self.leader[1]} (term {self.leader[0]}) answered later",
            )
            yield from self._go_on(event.number, event.now, self._pause_after_trouble())
            return
        self.connected_at, self.refusal, self.rejected = event.now, None, False
        known = self.answer
        overtaken = known is not None and (answer.epoch, answer.sequence) < (known.epoch, known.sequence)
        if leader != self.leader or not overtaken:
            self.leader, self.answer = leader, answer
            self._send_topology = answer.send_topology
            self._session_ms = min(max(answer.session_timeout_ms, _MIN_SESSION_MS), _MAX_SESSION_MS)
            self._interval_ms = answer.interval_ms
            yield Publish(answer)
        self._known_topology = record.topology or self._known_topology
        yield SessionRenewed(record.sent_at, self._session_ms / 1000)
        yield from self._recovered()
        early = event.now - record.began < record.wait_ms / 1000 * 0.9
        # An overtaken answer is no news, however often it arrives.
        news = answer is self.answer and (answer.revision, answer.coordinator) != (
            (record.known.revision, record.known.coordinator) if record.known else (0, "")
        )
        yield from self._go_on(event.number, event.now, self._pause_after_answer(early=early, news=news))

    def _was_rejected(self, event: Rejected) -> Iterable[HeartbeatInstruction]:
        record, refusal = self.in_flight.pop(event.number), event.refusal
        self.refusal = refusal
        # A heartbeat without its topology may be rejected for that alone; the next heartbeat carries it.
        complete = record.topology is not None or refusal.code is not RefusalCode.TOPOLOGY_MISMATCH
        self.rejected = complete and refusal.code in _PERMANENT_CODES
        self._send_topology = True  # the coordinator may lack it
        if refusal.code is not RefusalCode.CLAIM_PENDING:  # normal at the first start of an application
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
            yield LogTrouble(message)

    def _recovered(self) -> Iterable[HeartbeatInstruction]:
        if self._troubles:
            # Keep _OUTDATED: while two coordinators answer in turn, each outdated answer would be logged again.
            self._troubles &= {_OUTDATED}
            yield LogRecovery()

    _TRANSITIONS: ClassVar[
        dict[type[HeartbeatEvent], Callable[[HeartbeatSession, Any], Iterable[HeartbeatInstruction]]]
    ] = {
        Started: _started,
        UrgentReport: _urgent_report,
        Answered: _answered,
        Rejected: _was_rejected,
        Failed: _failed,
        RestOver: _rest_over,
    }
