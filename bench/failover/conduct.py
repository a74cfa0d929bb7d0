"""Causes faults in a running application, one at a time, and waits after each until the application has settled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench.failover.analysis import Fault, Kind
from bench.failover.fleet import Fleet, Holdings, balanced, covered
from bench.failover.records import PARTITIONS, now_us
from bench.failover.traffic import Generator, Probe
from bench.sides import RunFailed

WORKERS: Final = ("w0", "w1", "w2")
_NEW: Final = "w3"

_LOOK: Final = 0.1  # seconds between two polls of the workers' tasks
_SETTLED: Final = 1.5  # seconds for which it must be settled: reports of workers are as old as a heartbeat
_QUIET: Final = 3.0
_RECOVER: Final = 60.0  # seconds until other workers process the tasks of a dead or leaving worker
_SETTLE: Final = 150.0  # seconds to settle: Kafka Streams checks for warmed-up copies once a minute
_END: Final = 30.0


@dataclass
class Conductor:
    """The run of one side, while the generator sends and the probe reads."""

    fleet: Fleet
    generator: Generator
    probe: Probe
    random: random.Random
    on_status: Callable[[str], None]
    """Called with the current step, for a progress bar."""
    faults: list[Fault] = field(default_factory=list)

    def begin(self) -> None:
        """Start the workers and the input, and wait until the application has settled.

        Raises:
            RunFailed: it does not settle in time.
        """
        for worker in WORKERS:
            self.fleet.start(worker)
        self.probe.start()
        self.generator.start()
        self._until(
            lambda: all(self.probe.owner(partition) for partition in range(PARTITIONS)), _SETTLE, "first results"
        )
        self._settle(balanced)

    def end(self) -> list[int]:
        """Stop the input, and wait until every record has its result, or no more results come.

        Returns:
            The number of records of each partition.
        """
        sent = self.generator.stop()
        seen, news = 0, time.monotonic()
        while time.monotonic() - news < _END:
            now = sum(self.probe.seen(partition) for partition in range(PARTITIONS))
            if now >= sum(sent):
                break
            if now > seen:
                seen, news = now, time.monotonic()
            time.sleep(_LOOK)
        time.sleep(1.0)  # a repeated result may come after the last one
        self.probe.stop()
        return sent

    def perform(self, kind: Kind) -> None:
        """Cause one fault, and start the worker again if it ended; wait until the application has settled.

        Raises:
            RunFailed: the application does not recover.
        """
        self._quiet()
        self.on_status(kind)
        match kind:
            case "kill_known" | "kill_silent":
                self._kill(kind)
            case "freeze":
                self._freeze()
            case "leave":
                self._leave()
            case "restart":
                self._restart()
            case "grow":
                self._grow()
            case _:
                message = f"{kind} is not a fault of its own"
                raise ValueError(message)

    def _quiet(self) -> None:
        self.on_status("quiet")
        self._mark("quiet")
        time.sleep(_QUIET)

    def _kill(self, kind: Kind) -> None:
        """Kill a worker by SIGKILL, then start it again with its disk."""
        worker = self._busiest()
        victim = self.fleet.name(worker)
        at = now_us()
        self.fleet.kill(worker)
        if kind == "kill_known":
            known: int | None = now_us()
            self.fleet.gone(worker)
        else:
            known = self.fleet.noticed(worker, _RECOVER)
        self.faults.append(Fault(kind, at, victim, known))
        self._until(lambda: not self.probe.owned_by(victim), _RECOVER, f"{victim}'s tasks at others")
        self._mark("join")
        self.fleet.start(worker)
        self._settle(balanced if self.fleet.keeps_state_of_the_killed else covered)

    def _freeze(self) -> None:
        """Stop a worker by SIGSTOP; when other workers have its tasks, continue it as a zombie."""
        worker = self._busiest()
        victim = self.fleet.name(worker)
        at = now_us()
        self.fleet.freeze(worker)
        self.faults.append(Fault("freeze", at, victim, self.fleet.noticed(worker, _RECOVER)))
        self._until(lambda: not self.probe.owned_by(victim), _RECOVER, f"{victim}'s tasks at others")
        self._mark("thaw")
        self.fleet.thaw(worker)
        self._settle(balanced if self.fleet.keeps_state_of_the_killed else covered)

    def _leave(self) -> None:
        """Move all tasks of a live worker to the others; then allow it tasks again."""
        worker = self._busiest()
        name = self.fleet.name(worker)
        self._mark("leave")
        if self.fleet.drains:
            self.fleet.drain(worker)
        else:
            self.fleet.terminate(worker)
        self._until(lambda: not self.probe.owned_by(name), _RECOVER, f"{name}'s tasks at others")
        if self.fleet.drains:
            self._settle(lambda holdings: covered(holdings) and not holdings[worker].active)
            self._mark("join")
            self.fleet.undrain(worker)
        else:
            self._until(lambda: self.fleet.ended(worker), _RECOVER, f"end of {name}")
            self._mark("join")
            self.fleet.start(worker)
        self._settle(balanced)

    def _restart(self) -> None:
        """Restart a worker: SIGTERM, and a new process as soon as the old one has ended."""
        worker = self._busiest()
        name = self.fleet.name(worker)
        self._mark("restart")
        self.fleet.terminate(worker)
        self._until(lambda: self.fleet.ended(worker), _RECOVER, f"end of {name}")
        self.fleet.start(worker)
        self._settle(balanced)

    def _grow(self) -> None:
        """Add a worker with an empty disk; when it has its share, stop it by SIGTERM."""
        self._mark("grow")
        self.fleet.start(_NEW)
        self._settle(balanced)
        self._quiet()
        name = self.fleet.name(_NEW)
        self._mark("shrink")
        self.fleet.terminate(_NEW)
        self._until(lambda: self.fleet.ended(_NEW), _RECOVER, f"end of {name}")
        self._until(lambda: not self.probe.owned_by(name), _RECOVER, f"{name}'s tasks at others")
        self._settle(balanced)
        self.fleet.forget(_NEW)

    def _mark(self, kind: Kind) -> None:
        self.faults.append(Fault(kind, now_us()))

    def _busiest(self) -> str:
        """Return a random one of the workers with the most tasks."""
        tasks = {worker: len(self.probe.owned_by(self.fleet.name(worker))) for worker in self.fleet.live}
        most = max(tasks.values())
        return self.random.choice([worker for worker, count in tasks.items() if count == most])

    def _settle(self, settled: Callable[[Holdings], bool]) -> None:
        """Wait until `settled` has held for a while."""
        since: float | None = None
        holdings: Holdings = {}

        def for_long() -> bool:
            nonlocal since, holdings
            holdings = self.fleet.holdings()
            if not settled(holdings):
                since = None
            elif since is None:
                since = time.monotonic()
            return since is not None and time.monotonic() - since > _SETTLED

        self._until(for_long, _SETTLE, "settled workers", lambda: str(holdings))

    def _until(
        self, reached: Callable[[], bool], seconds: float, what: str, seen: Callable[[], str] = lambda: ""
    ) -> None:
        self.on_status(f"waiting: {what}")
        deadline = time.monotonic() + seconds
        while not reached():
            self.fleet.check()
            if failure := self.probe.failure or self.generator.failure:
                raise RunFailed(failure)
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.fleet.side}: {what}: not within {seconds:.0f} s {seen()}")
            time.sleep(_LOOK)
