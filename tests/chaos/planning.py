"""The plan of the faults of a run: a pure function of a seed, so that a run can be repeated."""

from __future__ import annotations

import enum
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tests.chaos.proxying import Cut

__all__ = (
    "ABOUT_TO_COMMIT",
    "DELETE_RETENTION_S",
    "LOST_AFTER_S",
    "TRANSACTION_S",
    "UNTIL_TAKEN_OVER",
    "Fault",
    "Kind",
    "described",
    "make_plan",
)

#: The detail of a pause that starts right before the offsets are sent to a transaction: nothing blocks other workers,
#: which start with the same records, and the first step after the pause is the commit.
ABOUT_TO_COMMIT = "about to commit"
#: The same, but the pause goes on until others own the tasks, however busy the machine is.
UNTIL_TAKEN_OVER = "about to commit, until others own its tasks"


class Kind(enum.StrEnum):
    """A kind of fault."""

    KILL = "kill"
    """SIGKILL of a worker, which starts again later. `detail` says whether its end is reported to the coordinator."""
    PAUSE = "pause"
    """SIGSTOP of a worker, and SIGCONT after a while, mostly longer than its session, which makes it a zombie.

    At once, or, by `detail`, right before a commit.
    """
    RESTART = "restart"
    """SIGTERM of a worker, which starts again after a while."""
    CUT_BROKER = "cut broker"
    """A cut of the connections between a worker and the broker."""
    CUT_COORDINATOR = "cut coordinator"
    """A cut of the connections between a worker and the coordinator."""
    LOST_BROKER = "lost broker"
    """Like `CUT_BROKER`, for longer than a worker may be without brokers: others take over its tasks."""
    LOST_COORDINATOR = "lost coordinator"
    """Like `CUT_COORDINATOR`, for longer than the session: others take over its tasks while it has brokers."""
    SLOW_RECORD = "slow record"
    """A worker processes its next order for longer than the session, or than the transaction timeout."""
    SLOW_DISK = "slow disk"
    """Each write of a worker's state takes some ms longer."""
    CLOCK = "clock jump"
    """The wall clock of a worker is wrong by some hours for a while."""
    DRAIN = "drain"
    """A worker is drained, and gets tasks again after a while."""
    SCALE_OUT = "scale out"
    """An additional worker runs for a while."""
    COORDINATOR_KILL = "coordinator kill"
    """SIGKILL of the coordinator, which starts again after a while."""
    BROKER_KILL = "broker kill"
    """SIGKILL of the broker, which starts again at once."""
    BROKER_RESTART = "broker restart"
    """A clean stop of the broker, which starts again at once."""
    AWAY = "away"
    """SIGKILL of a worker, which starts again when its rows are older than the changelogs' `delete.retention.ms`."""
    REJECTED = "rejected"
    """The broker rejects all records of a changelog, whose store is `detail`, for a while: workers end repeatedly."""
    LOST_CHANGELOG = "lost changelog"
    """A changelog, whose store is `detail`, is deleted while all workers are down.

    They refuse to start until it is restored.
    """


@dataclass(frozen=True)
class Fault:
    """One fault."""

    number: int
    at: float
    """Its time, in seconds after the first input."""
    kind: Kind
    target: str
    duration: float
    """Its duration in seconds."""
    detail: str = ""

    def __str__(self) -> str:
        detail = f" {self.detail}" if self.detail else ""
        return (
            f"{self.number:3}  {self.at:7.2f} s  {self.kind:<16} {self.target:<11} for {self.duration:5.2f} s{detail}"
        )


_WEIGHTS = {
    Kind.KILL: 24,
    Kind.PAUSE: 18,
    Kind.RESTART: 7,
    Kind.CUT_BROKER: 14,
    Kind.CUT_COORDINATOR: 8,
    Kind.LOST_BROKER: 8,
    Kind.LOST_COORDINATOR: 5,
    Kind.SLOW_RECORD: 8,
    Kind.SLOW_DISK: 6,
    Kind.CLOCK: 6,
    Kind.DRAIN: 5,
    Kind.SCALE_OUT: 4,
    Kind.COORDINATOR_KILL: 6,
    Kind.BROKER_KILL: 2,
    Kind.BROKER_RESTART: 2,
    Kind.AWAY: 4,
    Kind.REJECTED: 4,
    Kind.LOST_CHANGELOG: 3,
}
_BROKER = {Kind.BROKER_KILL, Kind.BROKER_RESTART}
#: Faults that need a coordinator.
_COORDINATED = {Kind.CUT_COORDINATOR, Kind.LOST_COORDINATOR, Kind.DRAIN, Kind.SCALE_OUT, Kind.COORDINATOR_KILL}
_CUTS = {Kind.CUT_BROKER, Kind.CUT_COORDINATOR, Kind.LOST_BROKER, Kind.LOST_COORDINATOR}
_BROKER_APART_S = 20.0
_LONG = 100
#: The time for which changelogs keep deletions: a worker that was down for longer restores its stores completely.
DELETE_RETENTION_S = 20.0
_AWAY_S = (1.1 * DELETE_RETENTION_S, 1.3 * DELETE_RETENTION_S)
#: The time that workers may be without brokers, and the transaction timeout, in seconds.
LOST_AFTER_S, TRANSACTION_S = 5.0, 10.0
#: The application starts, and every task runs, before the first fault.
_FIRST_S = 3.0


def make_plan(
    seed: int,
    faults: int,
    *,
    every: float,
    workers: Iterable[str],
    spare: str | None,
    session: float,
    stores: Sequence[str],
    large_stores: Sequence[str],
    coordinated: bool = True,
    only: Collection[Kind] = (),
) -> list[Fault]:
    """Return faults at random times, which may overlap.

    Args:
        seed: determines the whole plan.
        faults: the number of faults.
        every: the mean time between two faults in seconds.
        workers: the names of the workers.
        spare: the name of the additional worker; None for none.
        session: the session timeout in seconds.
        stores: the stores whose changelogs can be lost.
        large_stores: those with records that are larger than transaction markers, which can be rejected.
        coordinated: whether there is a coordinator.
        only: the kinds to choose from; empty for all.
    """
    pick = random.Random(f"faults {seed}")
    names = list(workers)
    weights = {
        kind: weight
        for kind, weight in _WEIGHTS.items()
        if (not only or kind in only)
        and (coordinated or kind not in _COORDINATED)
        and (spare is not None or kind is not Kind.SCALE_OUT)
    }
    assert weights, "no kind of fault is left to choose from"
    plan: list[Fault] = []
    at = _FIRST_S
    #: Until when each process is down, so that it cannot be killed.
    down: dict[str, float] = {}
    while len(plan) < faults:
        missing = {each: weight for each, weight in weights.items() if all(fault.kind is not each for fault in plan)}
        # A long plan has every kind: rare ones come at its end at the latest.
        late = faults >= _LONG and faults - len(plan) <= len(missing)
        kinds = missing if late else weights
        kind = pick.choices(list(kinds), list(kinds.values()))[0]
        fault = _drawn(
            pick, len(plan), at, kind, names, spare, session, large_stores if kind is Kind.REJECTED else stores
        )
        busy = down.get(fault.target, 0.0) > at and kind not in _CUTS
        if busy or (kind is Kind.AWAY and down.get(kind, 0.0) > at):  # the others have to continue meanwhile
            at += 0.05
            continue
        if kind in {Kind.KILL, Kind.RESTART, Kind.COORDINATOR_KILL, Kind.AWAY, Kind.REJECTED, Kind.LOST_CHANGELOG}:
            down[fault.target] = down[kind] = at + fault.duration + 1.0
        elif kind is Kind.SCALE_OUT:
            down[fault.target] = at + fault.duration + 5.0
        elif kind in _BROKER:
            down["broker"] = at + _BROKER_APART_S
        plan.append(fault)
        at += min(pick.expovariate(1 / every), 4 * every)
    return plan


def _drawn(
    pick: random.Random,
    number: int,
    at: float,
    kind: Kind,
    names: list[str],
    spare: str | None,
    session: float,
    stores: Sequence[str],
) -> Fault:
    worker = pick.choice(names)
    match kind:
        case Kind.KILL:
            duration = 0.0 if pick.random() < 0.4 else pick.uniform(0.3, 4 * session)
            return Fault(number, at, kind, worker, duration, pick.choice(["reported", "unreported"]))
        case Kind.PAUSE:
            long = pick.random() < 0.8
            duration = pick.uniform(*((1.1, 3.0) if long else (0.1, 0.9))) * session
            return Fault(number, at, kind, worker, duration, ABOUT_TO_COMMIT if number % 2 else "")
        case Kind.RESTART:
            return Fault(number, at, kind, worker, 0.0 if pick.random() < 0.5 else pick.uniform(0.5, 3 * session))
        case Kind.CUT_BROKER | Kind.CUT_COORDINATOR:
            cut = pick.choice(list(Cut))
            return Fault(number, at, kind, worker, pick.uniform(0.3, 3 * session), cut.value)
        case Kind.LOST_BROKER:
            return Fault(number, at, kind, worker, pick.uniform(1.3, 4) * LOST_AFTER_S, pick.choice(list(Cut)).value)
        case Kind.LOST_COORDINATOR:
            return Fault(number, at, kind, worker, pick.uniform(1.3, 4) * session, pick.choice(list(Cut)).value)
        case Kind.SLOW_RECORD:
            longer_than = TRANSACTION_S if pick.random() < 0.3 else session
            return Fault(number, at, kind, worker, pick.uniform(1.1, 1.6) * longer_than)
        case Kind.SLOW_DISK:
            return Fault(number, at, kind, worker, pick.uniform(2, 10), f"{pick.choice([20, 100, 500, 1500])} ms")
        case Kind.CLOCK:
            return Fault(number, at, kind, worker, pick.uniform(1, 10), f"{pick.choice([-26, -3, -1, 1, 5, 30])} h")
        case Kind.DRAIN:
            return Fault(number, at, kind, worker, pick.uniform(2, 10))
        case Kind.SCALE_OUT:
            return Fault(number, at, kind, spare or worker, pick.uniform(5, 20))
        case Kind.COORDINATOR_KILL:
            return Fault(
                number, at, kind, "coordinator", 0.0 if pick.random() < 0.5 else pick.uniform(0.5, 3 * session)
            )
        case Kind.AWAY:
            return Fault(number, at, kind, worker, pick.uniform(*_AWAY_S))
        case Kind.REJECTED:
            return Fault(number, at, kind, "broker", pick.uniform(3, 9), pick.choice(stores))
        case Kind.LOST_CHANGELOG:
            return Fault(number, at, kind, "broker", 0.0, pick.choice(stores))
        case Kind.BROKER_KILL | Kind.BROKER_RESTART:
            return Fault(number, at, kind, "broker", 0.0)
    raise AssertionError(f"there is no way to draw a fault of kind {kind.name}")


def described(plan: Iterable[Fault]) -> str:
    """Return the plan as text, one fault per line."""
    return "".join(f"{fault}\n" for fault in plan)
