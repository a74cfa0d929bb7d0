"""The well-behaved tenants, a child process: `python -m bench.hostile.fleet FILE`.

FILE has the coordinator's address and the workers. Each line of standard input begins a phase; the measurements of the
phase before it are printed as a line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.heartbeats import Fleet, Way, Worker
from bench.hostile.tenants import TenantWorker

__all__ = ("Phase", "Plan", "percentile")

_PROBES = 0.5
_AGAIN_S = 0.2
_QUIET_S, _PATIENCE_S = 1.0, 120.0


class Plan(msgspec.Struct, frozen=True):
    """The options of the process."""

    port: int
    hostname: str
    ca: str
    """The coordinator's CA certificate, PEM."""
    workers: tuple[TenantWorker, ...]
    tasks: int
    """Of each application."""


class Phase(msgspec.Struct, frozen=True):
    """The measurements of a phase's heartbeats. Times in seconds."""

    answered: int
    p50_s: float
    """The delay of answers beyond their wait."""
    p99_s: float
    longest_s: float
    broken: int
    """Broken connections and invalid answers."""


class Tenants(Fleet):
    """The workers of one application."""

    def __init__(self, plan: Plan, way: Way, workers: Sequence[TenantWorker], first: int) -> None:
        self._tenants = workers
        self._first = first
        self.broken = 0
        one = workers[0]
        super().__init__(way, len(workers), plan.tasks, application=one.application, prefix=one.prefix, probes=_PROBES)
        self.counting = True

    def name(self, number: int) -> str:
        """Return the id of a worker: the name of its pod."""
        return self._tenants[number].name

    def worker(self, id: str) -> Worker:
        """Return a new worker with its own address."""
        (number,) = (number for number, each in enumerate(self._tenants) if each.name == id)
        place = self._first + number
        made = Tenant(self, id, f"127.1.{place // 250}.{place % 250 + 1}")
        made.headers = f"Authorization: Bearer {self._tenants[number].token}\r\n"
        return made


class Tenant(Worker):
    """One worker, which reconnects when its connection ends."""

    def __init__(self, fleet: Tenants, id: str, source: str) -> None:
        super().__init__(fleet, id)
        self._tenants = fleet
        self._source = source

    async def run(self) -> None:
        """Run until cancelled."""
        self.running = True
        while True:
            try:
                reader, writer = await self._tenants.way.open(self._source)
                try:
                    while True:
                        await self.turn(reader, writer)
                finally:
                    writer.close()
            except (OSError, asyncio.IncompleteReadError, RuntimeError) as error:
                print(f"{self.id}: {error!r}", file=sys.stderr)
                self._tenants.broken += 1
                await asyncio.sleep(_AGAIN_S)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by nearest rank; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


async def main(options: bytes) -> None:
    """Run the fleets until standard input ends."""
    plan = msgspec.json.decode(options, type=Plan)
    way = Way(plan.port, ssl.create_default_context(cadata=plan.ca), plan.hostname)
    by_app: dict[tuple[str, str], list[TenantWorker]] = defaultdict(list)
    for each in plan.workers:
        by_app[each.namespace, each.application].append(each)
    fleets: list[Tenants] = []
    for workers in by_app.values():
        fleets.append(Tenants(plan, way, workers, sum(len(each.workers) for each in fleets)))
    running = [asyncio.create_task(worker.run()) for fleet in fleets for worker in fleet.workers.values()]
    await asyncio.gather(*(fleet.settled(_QUIET_S, _PATIENCE_S) for fleet in fleets))
    loop = asyncio.get_running_loop()
    _taken(fleets)
    print("settled", flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(msgspec.json.encode(_taken(fleets)).decode(), flush=True)
    for task in running:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*running)


def _taken(fleets: Sequence[Tenants]) -> Phase:
    """Return the measurements since the last call."""
    late = [seconds for fleet in fleets for seconds in (*fleet.probes, *fleet.lateness)]
    phase = Phase(
        sum(fleet.answers for fleet in fleets),
        percentile(late, 0.5),
        percentile(late, 0.99),
        max(late, default=0.0),
        sum(fleet.broken for fleet in fleets),
    )
    for fleet in fleets:
        fleet.probes, fleet.lateness, fleet.answers, fleet.broken = [], [], 0, 0
    return phase


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_bytes()))
