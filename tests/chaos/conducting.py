"""Carries out a plan: starts and ends each fault at its time."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from tests.chaos import changelogs
from tests.chaos.planning import ABOUT_TO_COMMIT, UNTIL_TAKEN_OVER, Fault, Kind
from tests.chaos.processes import WorkerProcess
from tests.chaos.proxying import Cut, Proxy
from tests.chaos.stage import Stage
from tests.chaos.watching import Watch
from tests.chaos.worker import LOOK_EVERY_S, Controls

__all__ = ("Conductor",)

_HOUR_S = 3600.0
#: A pause goes on for so long at most, although others do not own the tasks: the broker must not abort a transaction.
_LONGEST_S, _LOOK_S = 30.0, 0.5


class Conductor:
    """Causes the faults of a plan.

    Attributes:
        done: faults that were carried out, with their time in monotonic seconds.
        active: the current faults.
        broker_back_at: when the broker was started last, in monotonic seconds.
    """

    def __init__(self, stage: Stage, watch: Watch, plan: list[Fault]) -> None:
        self._stage = stage
        self._watch = watch
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._broker: Future[Any] | None = None
        self._began = time.monotonic()
        #: Two overlapping faults with the same effect end with the later one.
        self._cuts: dict[Proxy, int] = {}
        self._controls = {name: Controls() for name in stage.names}
        self.broker_back_at = self._began
        self.done: list[tuple[Fault, float]] = []
        self.active: dict[int, Fault] = {}
        self._events = stage.directory / "events.log"
        for fault in plan:
            self._at(self._began + fault.at, partial(self._begin, fault))

    @property
    def over(self) -> bool:
        """Whether all faults have started and ended."""
        return not self._due and (self._broker is None or self._broker.done())

    @property
    def broker_away(self) -> bool:
        """Whether the broker is stopping or starting."""
        return self._broker is not None

    def step(self) -> None:
        """Start and end the faults that are due."""
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        if self._broker is not None and self._broker.done():
            self._broker.result()
            self._broker = None
            self.broker_back_at = time.monotonic()
            self.log_event("the broker is back")

    def stop(self) -> None:
        """Drop the remaining faults, and restore all connections."""
        self._due.clear()
        for proxy in [*self._stage.to_broker.values(), *self._stage.to_coordinator.values()]:
            proxy.mend()
        if self._broker is not None:
            self._broker.result()

    def log_event(self, text: str) -> None:
        """Log an event with monotonic seconds, like all logs of the run."""
        with self._events.open("a") as log:
            log.write(f"{time.monotonic():.3f} {text}\n")

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment, next(self._order), action))

    def _begin(self, fault: Fault) -> None:
        now = time.monotonic()
        self.log_event(f"fault {fault}")
        self._watch.fault(fault.number, now)
        self.active[fault.number] = fault
        ends = self._act(fault, now)
        self.done.append((fault, now))

        def end() -> None:
            if self._goes_on(fault, now):
                self._at(time.monotonic() + _LOOK_S, end)
                return
            if ends is not None:
                ends()
            self.active.pop(fault.number, None)
            self.log_event(f"end of fault {fault.number} ({fault.kind} {fault.target})")

        self._at(now + fault.duration, end)

    def _goes_on(self, fault: Fault, began: float) -> bool:
        """Return whether a fault that waits for others to take tasks over has to go on."""
        return (
            fault.detail == UNTIL_TAKEN_OVER
            and time.monotonic() - began < _LONGEST_S
            and fault.target in self._stage.owners().values()
        )

    def _act(self, fault: Fault, now: float) -> Callable[[], None] | None:
        """Cause a fault; return the function that ends it."""
        stage = self._stage
        worker = stage.workers.get(fault.target)
        match fault.kind:
            case Kind.BROKER_KILL | Kind.BROKER_RESTART:
                if self._broker is None:
                    self._broker = stage.restart_broker(kill=fault.kind is Kind.BROKER_KILL)
                return None
            case Kind.COORDINATOR_KILL:
                stage.coordinator.kill()
                stage.coordinator.want(now + fault.duration)
                return None
            case Kind.REJECTED:
                changelogs.reject_records(stage, fault.detail)
                return lambda: changelogs.admit_records(stage, fault.detail)
            case Kind.LOST_CHANGELOG:
                self._lose_changelog(fault, now)
                return None
        assert worker is not None
        match fault.kind:
            case Kind.KILL:
                worker.kill()
                worker.want(now + fault.duration)
                if fault.detail == "reported" and not stage.options.alone:
                    stage.coordinator.post(worker.name, "gone")
                return None
            case Kind.AWAY:
                worker.kill()
                worker.want(now + fault.duration)
                return None
            case Kind.RESTART:
                worker.terminate()
                worker.want(now + fault.duration)
                return None
            case Kind.PAUSE:
                if fault.detail in {ABOUT_TO_COMMIT, UNTIL_TAKEN_OVER}:
                    return self._stop_in_commit(worker, fault)
                process = worker.pause()
                return lambda: worker.resume(process)
            case Kind.SCALE_OUT:
                worker.want()

                def in_again() -> None:
                    worker.wanted = False
                    worker.terminate()

                return in_again
            case Kind.CUT_BROKER | Kind.LOST_BROKER:
                return self._cut(stage.to_broker[fault.target], fault)
            case Kind.CUT_COORDINATOR | Kind.LOST_COORDINATOR:
                return self._cut(stage.to_coordinator[fault.target], fault)
            case Kind.SLOW_RECORD:
                self._control(fault.target, slow=fault.number, slow_s=fault.duration)
                return lambda: self._control(fault.target, slow=None)
            case Kind.SLOW_DISK:
                delay = int(fault.detail.split(" ")[0]) / 1000
                self._control(fault.target, write_delay_s=delay)
                return lambda: self._control(fault.target, write_delay_s=0.0)
            case Kind.CLOCK:
                self._control(fault.target, clock_offset_s=int(fault.detail.split(" ")[0]) * _HOUR_S)
                return lambda: self._control(fault.target, clock_offset_s=0.0)
            case Kind.DRAIN:
                stage.coordinator.post(worker.name, "drain")
                return lambda: self._undrain(worker.name)
        raise AssertionError(f"there is no way to cause {fault}")

    def _lose_changelog(self, fault: Fault, now: float) -> None:
        """Delete and restore a changelog. Other faults are delayed, and pauses are measured from the end of that."""
        if self._broker is not None:
            self._broker.result()
        for proxy in [*self._stage.to_broker.values(), *self._stage.to_coordinator.values()]:
            proxy.mend()
        for name in self._stage.names:
            self._control(name, **msgspec.structs.asdict(Controls()))
        changelogs.lose_and_restore(
            self._stage, fault.detail, lambda text: self._watch.violations.append((time.monotonic(), text))
        )
        self.broker_back_at = time.monotonic()
        took = self.broker_back_at - now
        self._due = [(moment + took, order, action) for moment, order, action in self._due]
        self._watch.begin_again(self.broker_back_at)
        self.log_event(f"the changelog of {fault.detail} is restored")

    def _undrain(self, name: str) -> None:
        # Requests to a coordinator that is down are repeated, as people do.
        if not self._stage.coordinator.post(name, "drain", method="DELETE"):
            self._at(time.monotonic() + 0.5, lambda: self._undrain(name))

    def _cut(self, proxy: Proxy, fault: Fault) -> Callable[[], None]:
        self._cuts[proxy] = fault.number
        proxy.cut(Cut(fault.detail))

        def mend() -> None:
            if self._cuts.get(proxy) == fault.number:
                proxy.mend()

        return mend

    def _stop_in_commit(self, worker: WorkerProcess, fault: Fault) -> Callable[[], None]:
        process = worker.process
        self._control(worker.name, stop=fault.number)

        def go_on() -> None:
            self._control(worker.name, stop=None)
            worker.resume(process)
            # It may have stopped only now: it polls its switches.
            self._at(time.monotonic() + 10 * LOOK_EVERY_S, partial(worker.resume, process))

        return go_on

    def _control(self, name: str, **changes: Any) -> None:
        self._controls[name] = msgspec.structs.replace(self._controls[name], **changes)
        self._stage.workers[name].set(self._controls[name])
