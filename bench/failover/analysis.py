"""The analysis of results: owners over time, lost and repeated records, and the cost of each fault. Pure functions.

Definitions, the same for both sides:

- A task **moves** when two consecutive results of its partition carry different owners. Its **pause** is the time
  between the processing of these two: of the last record of the old owner that was committed, and of the first of the
  new one. Work of an aborted transaction does not count as processed.
- A killed or frozen worker's task **processes again** when the first record of its new owner is processed; that time is
  counted from the moment at which the assignor knows of the death. It is **visible again** when that
  record's result reaches a `read_committed` reader.
- A record is **late** by the time from its sending to its result's arrival; of a move, that of the new owner's first
  record is kept: it has waited longest.
- **Others** are the tasks that a fault did not move: of each fault the longest gap in the processing of any of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from bench.failover.records import Result, expected_count
from bench.statistics import percentile

Kind = Literal["quiet", "kill_known", "kill_silent", "freeze", "thaw", "leave", "join", "restart", "grow", "shrink"]
DEATHS: Final[tuple[Kind, ...]] = ("kill_known", "kill_silent", "freeze")
"""Faults after which a death has to be detected or reported; the others are planned."""

GAP_FLOOR_US: Final = 20_000
"""Shorter gaps between two records of a task are not kept: batches take as long without faults."""


class Move(NamedTuple):
    """A change of owner, observed in the output."""

    before: Result
    """The last result of the old owner."""
    after: Result
    """The first result of the new owner."""

    @property
    def pause_ms(self) -> float:
        """The time between the processing of both results."""
        return (self.after.processed_us - self.before.processed_us) / 1000


class Gap(NamedTuple):
    """A time in which a task processed nothing under one owner."""

    partition: int
    end_us: int
    length_us: int


@dataclass
class Correctness:
    """Violations of exactly-once over all partitions: everything except `results` must be 0."""

    results: int = 0
    lost: int = 0
    """Records without a result."""
    twice: int = 0
    """Further results of records."""
    wrong: int = 0
    """Results with a count that does not follow from the records before them: the state was wrong."""

    @property
    def holds(self) -> bool:
        """Whether there are no violations."""
        return not (self.lost or self.twice or self.wrong)


@dataclass
class Track:
    """The results of one partition in the order of the output topic."""

    partition: int
    last: Result | None = None
    next_number: int = 0
    moves: list[Move] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    correctness: Correctness = field(default_factory=Correctness)

    def observe(self, result: Result) -> None:
        """Add the next result."""
        found, last = self.correctness, self.last
        found.results += 1
        if result.number < self.next_number:
            found.twice += 1
        else:
            found.lost += result.number - self.next_number
            self.next_number = result.number + 1
        if result.total != expected_count(result.number):
            found.wrong += 1
        if last is not None:
            if last.owner != result.owner:
                self.moves.append(Move(last, result))
            elif (length := result.processed_us - last.processed_us) >= GAP_FLOOR_US:
                self.gaps.append(Gap(self.partition, result.processed_us, length))
        self.last = result

    def finish(self, sent: int) -> None:
        """Count records without a result as lost; `sent` is the number of all records."""
        self.correctness.lost += sent - self.next_number
        self.next_number = sent


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; its window lasts until the next fault."""

    kind: Kind
    at_us: int
    """The time just before it."""
    victim: str | None = None
    """Of deaths: the killed or frozen process."""
    known_us: int | None = None
    """Of deaths: when the assignor knew; None if that cannot be observed."""


class Pause(NamedTuple):
    """The cost of one fault for one task."""

    kind: Kind
    partition: int
    failover: bool
    """Whether its owner was killed or frozen; otherwise the task moved from or to a living worker."""
    pause_ms: float
    again_ms: float | None
    """From the known death to the first record; None if there was no death, or its time is not known."""
    visible_ms: float | None
    """From the known death to the first committed result at the reader."""
    late_ms: float


def pauses(faults: Sequence[Fault], moves: Iterable[Move]) -> list[Pause]:
    """Return the cost of each move, attributed to the latest fault before it, without moves before the first fault.

    Args:
        faults: the faults by time.
        moves: the moves in any order.
    """
    begins = [fault.at_us for fault in faults]
    found = []
    for move in moves:
        at = bisect_right(begins, move.after.processed_us) - 1
        if at < 0:
            continue
        fault = faults[at]
        failover = fault.victim is not None and move.before.owner == fault.victim
        known = fault.known_us if failover else None
        found.append(
            Pause(
                kind=fault.kind,
                partition=move.after.partition,
                failover=failover,
                pause_ms=move.pause_ms,
                again_ms=None if known is None else (move.after.processed_us - known) / 1000,
                visible_ms=None if known is None else (move.after.arrived_us - known) / 1000,
                late_ms=(move.after.arrived_us - move.after.sent_us) / 1000,
            )
        )
    return found


def others(faults: Sequence[Fault], moves: Iterable[Move], gaps: Iterable[Gap]) -> Mapping[Kind, list[float]]:
    """Return the longest gap in ms of tasks that did not move, for each fault; 0 if no gap was kept.

    Args:
        faults: the faults by time; the window of the last one has no end.
        moves: all moves in any order.
        gaps: all gaps in any order.
    """
    begins = [fault.at_us for fault in faults]
    moved: defaultdict[int, set[int]] = defaultdict(set)
    for move in moves:
        # A pause that began in one window and ended in the next counts in both.
        for us in (move.before.processed_us, move.after.processed_us):
            moved[bisect_right(begins, us) - 1].add(move.after.partition)
    longest = [0.0] * len(faults)
    for gap in gaps:
        at = bisect_right(begins, gap.end_us) - 1
        if at >= 0 and gap.partition not in moved[at]:
            longest[at] = max(longest[at], gap.length_us / 1000)
    by_kind: defaultdict[Kind, list[float]] = defaultdict(list)
    for fault, length in zip(faults, longest, strict=True):
        by_kind[fault.kind].append(length)
    return by_kind


class Spread(NamedTuple):
    """Percentiles by nearest rank, in milliseconds."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread | None:
        """Return the percentiles of `samples`; None if there are none."""
        if not samples:
            return None
        return cls(percentile(samples, 50), percentile(samples, 99), max(samples))

    def to_json(self) -> dict[str, float]:
        """Return the percentiles in milliseconds by name."""
        return {f"{name}_ms": round(value, 1) for name, value in self._asdict().items()}


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of the table: the cost of one kind of fault on one side."""

    kind: Kind
    failover: bool
    """Whether it has the tasks whose owner was killed or frozen; otherwise tasks that moved between living workers."""
    faults: int
    tasks: int
    """The number of pauses: tasks times faults."""
    pause: Spread | None
    again: Spread | None
    visible: Spread | None
    late: Spread | None
    others: Spread | None

    def to_json(self) -> dict[str, Any]:
        """Return the object of this line in `bench-failover.json`."""
        spreads = {
            name: spread.to_json()
            for name in ("pause", "again", "visible", "late", "others")
            if (spread := getattr(self, name)) is not None
        }
        return {"kind": self.kind, "failover": self.failover, "faults": self.faults, "tasks": self.tasks, **spreads}


def summarise(faults: Sequence[Fault], moves: Sequence[Move], gaps: Iterable[Gap]) -> list[Summary]:
    """Return one line for each kind of fault, in the order of first appearance.

    A death has up to two lines: one for the tasks of the victim, and one for tasks that moved between living workers
    meanwhile.
    """
    all_pauses = pauses(faults, moves)
    still = others(faults, moves, gaps)
    lines = []
    for kind in dict.fromkeys(fault.kind for fault in faults):
        for failover in (True, False):
            mine = [pause for pause in all_pauses if pause.kind == kind and pause.failover == failover]
            if not mine and failover != (kind in DEATHS):
                continue
            lines.append(
                Summary(
                    kind=kind,
                    failover=failover,
                    faults=sum(fault.kind == kind for fault in faults),
                    tasks=len(mine),
                    pause=Spread.of([pause.pause_ms for pause in mine]),
                    again=Spread.of([pause.again_ms for pause in mine if pause.again_ms is not None]),
                    visible=Spread.of([pause.visible_ms for pause in mine if pause.visible_ms is not None]),
                    late=Spread.of([pause.late_ms for pause in mine]),
                    others=Spread.of(still[kind]) if failover == (kind in DEATHS) else None,
                )
            )
    return lines


@dataclass(frozen=True, slots=True)
class Headline:
    """The two measurements with a target, over all faults that count."""

    again: Spread | None
    """With standbys: from the known death to processing, over all kinds of death."""
    planned: Spread | None
    """The pause of tasks that moved while their owner lived."""


def headline(faults: Sequence[Fault], moves: Iterable[Move]) -> Headline:
    """Return the measurements with a target, over all of `faults`."""
    all_pauses = pauses(faults, moves)
    return Headline(
        again=Spread.of([pause.again_ms for pause in all_pauses if pause.again_ms is not None]),
        planned=Spread.of([pause.pause_ms for pause in all_pauses if not pause.failover]),
    )
